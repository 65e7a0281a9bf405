"""Plans of runs, drawn from a seed."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.testing.crossings.families import families
from statelog.testing.crossings.processes import KILL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_POINTS = (
    "commit.before_lmdb_commit",
    "commit.after_lmdb_commit",
    "commit.before_put_log",
    "commit.after_put_index",
    "commit.after_delivery",
    "journal.before_append",
    "journal.after_append",
    "compaction.between_transactions",
    "compaction.before_rename",
    "compaction.after_rename",
)
"""Named points in the code at which a process may kill itself."""


HAPPENINGS = ("check", "reopen", "reopen alone", "move", "take over", "die", "jump", "kill")
"""Steps that are not acts.

"move" and "take over" continue the store of a fleet on another machine. For "die", this process closes the store. The
other processes perform the acts in `beside`, and are then killed.
"""


class PlanStep(NamedTuple):
    """One entry of a plan.

    Attributes:
        what: the name of an act, or one of `HAPPENINGS`.
        who: the number of the process that does the step. Process 0 runs the checks.
        seed: the seed of the act's random arguments.
        fault: as for `ActRequest`. ("kill", N) kills the process from outside, N microseconds after the act has begun.
        beside: acts that other processes do at the same time.
    """

    what: str
    who: int = 0
    seed: int = 0
    fault: tuple[str, int] | None = None
    beside: tuple[PlanStep, ...] = ()

    @classmethod
    def of(cls, saved: Sequence[Any]) -> PlanStep:
        """Return a step that was saved as JSON."""
        what, who, seed, fault, beside = saved
        return cls(what, who, seed, None if fault is None else tuple(fault), tuple(map(cls.of, beside)))


@dataclass(frozen=True)
class Plan:
    """All steps of a run. The same plan gives the same run, except for the timing of OS threads and processes."""

    steps: tuple[PlanStep, ...]
    processes: int = 0
    is_shipped: bool = False
    durability: str = "interval"

    def with_steps(self, steps: Sequence[PlanStep]) -> Plan:
        """Return the plan with its steps replaced by `steps`."""
        return dataclasses.replace(self, steps=tuple(steps))


def draw_plan(
    seed: int, acts: int, *, check_every: int = 50, only: Sequence[str] = (), omit: Sequence[str] = ()
) -> Plan:
    """Draw a plan: the families and acts, their frequencies, the number of processes, and then the steps.

    Each run uses only some kinds of acts, and some of these often. So it reaches states that a run with equal
    frequencies would not reach. Some runs begin by setting policies, as programs do.

    Args:
        seed: the seed. The same seed draws the same plan.
        acts: the number of acts.
        check_every: the maximum number of acts between two checks.
        only: names of families. If it is left out, all families may be drawn.
        omit: names of acts to leave out.
    """
    rng = random.Random(seed)  # noqa: S311 - the numbers are not secrets
    known = [family for name, family in families().items() if not only or name in only]
    chosen = [family for family in known if rng.random() < 0.6] or known
    weights = {
        act.name: act.weight * rng.choice((0, 1, 1, 1, 1, 6)) for family in chosen for act in family.acts.values()
    }
    weights = {name: weight for name, weight in weights.items() if weight and name not in omit} or {"threads.commit": 1}
    processes = rng.choice((0, 0, 1, 2))
    names, of = [*weights], [*weights.values()]
    jumps, together = rng.choice((0.02, 0.1, 0.3)), rng.choice((0.0, 0.1, 0.5))
    policies = [name for name in weights if name.endswith(".set_policy")]
    steps = [PlanStep(rng.choice(policies), 0, rng.getrandbits(32)) for _policy in range(rng.randrange(4)) if policies]
    left = 0

    def draw_act(who: int, what: str = "") -> PlanStep:
        name = what or rng.choices(names, of)[0]
        return PlanStep(name, who, rng.getrandbits(32), _draw_fault(rng) if who else None)

    for what in rng.choices(names, of, k=acts):
        if left == 0:
            steps.append(PlanStep("check"))
            left = rng.randrange(check_every * 4 // 5, check_every + 1)
        left -= 1
        if rng.random() < jumps:
            steps.append(PlanStep("jump", 0, rng.getrandbits(32)))
        if rng.random() < 0.02:
            steps.append(_draw_happening(rng, draw_act, processes))
        who = rng.randrange(processes + 1)
        if who and rng.random() < 0.03:
            steps.append(PlanStep("kill", who))
        step = draw_act(who, what)
        if processes and rng.random() < together:
            others = [each for each in range(processes + 1) if each != who]
            step = step._replace(beside=tuple(map(draw_act, others)))
        steps.append(step)
    steps.append(PlanStep("check"))
    return Plan(tuple(steps), processes, rng.random() < 0.5, rng.choice(("interval", "interval", "commit")))


def _draw_happening(rng: random.Random, draw_act: Callable[[int], PlanStep], processes: int) -> PlanStep:
    what = rng.choice(("reopen", "reopen alone", "move", "take over", "die"))
    count = rng.randrange(1, 6) if what == "die" and processes else 0
    return PlanStep(
        what, 0, rng.getrandbits(32), beside=tuple(draw_act(rng.randrange(1, processes + 1)) for _act in range(count))
    )


def _draw_fault(rng: random.Random) -> tuple[str, int] | None:
    kind = rng.random()
    if kind < 0.02:
        return rng.choice(_POINTS), rng.randrange(1, 3)
    return (KILL, rng.choice((0, 100, 400, 1000, 3000))) if kind < 0.03 else None
