"""The driver, which runs plans and shrinks those that fail."""

from __future__ import annotations

import tempfile
import time
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from statelog.fleet import owner
from statelog.testing.crossings.agreements import ROADS
from statelog.testing.crossings.clock import SimulatedClock, installed
from statelog.testing.crossings.crossing import Crossing
from statelog.testing.crossings.listener import listening
from statelog.testing.crossings.plans import Plan, PlanStep
from statelog.testing.crossings.processes import Process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SEGMENTS_MAX = 6
"""The number of segments between two base images. It is small, so that a run of a hundred acts makes several bases."""


@dataclass
class Failure:
    """A failure of a plan.

    Attributes:
        at: the index of the step that failed.
        step: the step that failed.
        kinds: the kinds of the failure; see `Disagreement.kind`.
        text: the differences, or the traceback.
        plan: the plan.
    """

    at: int
    step: PlanStep
    kinds: tuple[str, ...]
    text: str
    plan: Plan


class Driver:
    """Runs plans one after the other, with the same processes. Use it as a context manager.

    Attributes:
        folder: the folder of the stores, or None for the system's folder for temporary files.
        acts: the number of acts done so far.
        outcomes: for each kind of step, its outcomes and their counts.
        seconds: for each kind of step, the total time it took.

    Args:
        folder: the folder of the stores. A file system in memory is best, and is the default.
        roads: names of the checks to run, from `ROADS`.
    """

    def __init__(self, folder: Path | None = None, *, roads: Sequence[str] = ROADS) -> None:
        self._roads = roads
        memory = Path("/dev/shm")  # noqa: S108 - this is a file system in memory
        self.folder = folder or (memory if memory.is_dir() else None)
        self._processes = [Process(f"process-{number}") for number in range(2)]
        self.acts = 0
        self.outcomes: dict[str, dict[str, int]] = {}
        self.seconds: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for process in self._processes:
            process.kill()

    def run(self, plan: Plan) -> Failure | None:
        """Run a plan, beginning with an empty store. Return the first failure, or None."""
        at, step = 0, PlanStep("begin")
        with tempfile.TemporaryDirectory(
            prefix="statelog-crossing-", dir=self.folder, ignore_cleanup_errors=True
        ) as name:
            try:
                with self.crossing(plan, Path(name)) as crossing:
                    for at, step in enumerate(plan.steps):
                        begun_s = time.perf_counter()
                        failure = crossing.do(step)
                        self._note(step, crossing.outcome, time.perf_counter() - begun_s)
                        if failure is not None:
                            return Failure(at, step, tuple(failure[0].split("|")), failure[1], plan)
                    crossing.close()
            except Exception:  # noqa: BLE001 - the error is reported
                return Failure(at, step, ("exception",), traceback.format_exc(), plan)
        return None

    @contextmanager
    def crossing(self, plan: Plan, folder: Path) -> Iterator[Crossing]:
        """Yield a new store for the processes of this driver, with a simulated clock."""
        processes = self._processes[: plan.processes]
        with installed(SimulatedClock()) as clock, _few_segments(), listening() as heard:
            crossing = Crossing(plan, folder, clock, processes, self._roads, heard)
            try:
                yield crossing
            finally:
                crossing.abandon()
                for process in processes:
                    process.leave()

    def _note(self, step: PlanStep, outcome: str, seconds: float) -> None:
        self.acts += ("." in step.what) + len(step.beside)
        counts = self.outcomes.setdefault(step.what, {})
        counts[outcome] = counts.get(outcome, 0) + 1
        self.seconds[step.what] = self.seconds.get(step.what, 0.0) + seconds


@contextmanager
def _few_segments() -> Iterator[None]:
    before = owner._SEGMENTS_MAX  # noqa: SLF001 - `_SEGMENTS_MAX` of this file gives the reason
    owner._SEGMENTS_MAX = _SEGMENTS_MAX  # noqa: SLF001
    try:
        yield
    finally:
        owner._SEGMENTS_MAX = before  # noqa: SLF001


def shrink(plan: Plan, failure: Failure, driver: Driver, *, seconds: float = 120.0) -> Failure:
    """Return a failure of the same kind with a shorter plan: the shortest that was found in the given time."""
    until_s = time.monotonic() + seconds
    best = failure
    steps = list(plan.steps[: failure.at + 1])
    size = max(len(steps) // 2, 1)
    while size and time.monotonic() < until_s:
        at, is_smaller = 0, False
        while at < len(steps) and time.monotonic() < until_s:
            fewer = steps[:at] + steps[at + size :]
            found = driver.run(plan.with_steps(fewer)) if fewer else None
            if found is not None and found.kinds[0] == failure.kinds[0]:
                best, steps, is_smaller = found, fewer[: found.at + 1], True
            else:
                at += size
        size = size if is_smaller and size > 1 else size // 2
    return best
