"""The crossings as a state machine for Hypothesis, which chooses the acts and shrinks failures."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from statelog.testing.crossings.families import acts
from statelog.testing.crossings.plans import Plan, PlanStep

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.testing.crossings.crossing import Crossing
    from statelog.testing.crossings.driver import Driver

_SEEDS = st.integers(0, 2**32 - 1)
_PROCESSES = st.integers(0, 2)


class _CrossingMachine(RuleBasedStateMachine):
    driver: Driver

    def __init__(self) -> None:
        super().__init__()
        self._open = ExitStack()
        self._crossing: Crossing | None = None

    @initialize(processes=_PROCESSES, is_shipped=st.booleans(), durability=st.sampled_from(("interval", "commit")))
    def begin(self, processes: int, *, is_shipped: bool, durability: str) -> None:
        folder = Path(tempfile.mkdtemp(prefix="statelog-crossing-", dir=self.driver.folder))
        self._open.callback(shutil.rmtree, folder, ignore_errors=True)
        plan = Plan((), processes, is_shipped, durability)
        self._crossing = self._open.enter_context(self.driver.crossing(plan, folder))
        self._processes = processes

    def do(self, what: str, who: int = 0, seed: int = 0) -> None:
        assert self._crossing is not None
        failure = self._crossing.do(PlanStep(what, min(who, self._processes), seed))
        assert failure is None, f"{what}: {failure[1]}"

    @rule()
    def check(self) -> None:
        self.do("check")

    @rule(seed=_SEEDS)
    def time_jumps(self, seed: int) -> None:
        self.do("jump", seed=seed)

    @rule(who=st.integers(1, 2))
    def a_process_is_killed(self, who: int) -> None:
        if who <= self._processes:
            self.do("kill", who)

    def teardown(self) -> None:
        try:
            if self._crossing is not None:
                self.do("check")
        finally:
            self._open.close()


def crossing_machine(driver: Driver, *, examples: int = 10, steps: int = 50) -> type[RuleBasedStateMachine]:
    """Return a state machine that performs acts on a store from several processes, and runs all checks.

        TestCrossings = crossing_machine(Driver()).TestCase

    Each kind of act is a rule, so Hypothesis leaves out some kinds in each example. The checks also run at the
    end of each example.

    Args:
        driver: the driver, which provides the processes and selects the checks.
        examples: the number of stores.
        steps: the number of steps on each store.
    """

    class CrossingMachine(_CrossingMachine):
        pass

    CrossingMachine.driver = driver
    for name in acts():
        setattr(CrossingMachine, name.replace(".", "_"), rule(who=_PROCESSES, seed=_SEEDS)(_rule(name)))
    CrossingMachine.TestCase.settings = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    return CrossingMachine


def _rule(act: str) -> Callable[[Any, int, int], None]:
    def do_act(self: Any, who: int, seed: int) -> None:
        self.do(act, who, seed)

    do_act.__name__ = act.replace(".", "_")
    return do_act
