"""The driver: it does plans, and makes those that fail small."""

from __future__ import annotations

import logging
import tempfile
import threading
import time
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from statelog.fleet import owning
from statelog.testing.crossings.agreements import ROADS
from statelog.testing.crossings.clock import Clock, installed
from statelog.testing.crossings.crossing import Crossing
from statelog.testing.crossings.plans import Plan, Step
from statelog.testing.crossings.processes import Process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SEGMENTS_MAX = 6
"""A base is due after so many segments, so that a run of some hundred acts makes several."""


@dataclass
class Failure:
    """What went wrong, and after which step."""

    at: int
    step: Step
    kinds: tuple[str, ...]
    text: str
    plan: Plan


class Driver:
    """Does plans, one after the other, with processes that stay. Use it as a context manager.

    Attributes:
        folder: where stores are made.
        acts: how many acts it has done.
        outcomes: what came of each kind of step, and how often.
        seconds: that each kind of step took.

    Args:
        folder: where stores are made; a folder in memory is best.
        roads: the agreements that are checked, of `ROADS`.

    """

    def __init__(self, folder: Path | None = None, *, roads: Sequence[str] = ROADS) -> None:
        self._roads = roads
        memory = Path("/dev/shm")  # noqa: S108 - of a file system in memory, if there is one
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
        """Do a plan from an empty store on. Return the first failure, None if all agreed."""
        at, step = 0, Step("begin")
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
            except Exception:  # noqa: BLE001 - it is reported
                return Failure(at, step, ("exception",), traceback.format_exc(), plan)
        return None

    @contextmanager
    def crossing(self, plan: Plan, folder: Path) -> Iterator[Crossing]:
        """Give a new store that the processes of this driver act on, by a clock that it moves."""
        processes = self._processes[: plan.processes]
        with installed(Clock()) as clock, _few_segments(), _listening() as heard:
            crossing = Crossing(plan, folder, clock, processes, self._roads, heard)
            try:
                yield crossing
            finally:
                crossing.abandon()
                for process in processes:
                    process.leave()

    def _note(self, step: Step, outcome: str, seconds: float) -> None:
        self.acts += ("." in step.what) + len(step.beside)
        counts = self.outcomes.setdefault(step.what, {})
        counts[outcome] = counts.get(outcome, 0) + 1
        self.seconds[step.what] = self.seconds.get(step.what, 0.0) + seconds


class _Listener(logging.Handler):
    """Collects what the library tells its log of exceptions: nobody else hears of these."""

    def __init__(self, heard: list[str]) -> None:
        super().__init__()
        self._heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        """Note it."""
        if record.exc_info and record.exc_info[0] is not None:
            self._heard.append(f"{record.getMessage()}\n{''.join(traceback.format_exception(*record.exc_info))}")


@contextmanager
def _listening() -> Iterator[list[str]]:
    """Give a list of the exceptions that end in OS threads, or in the library's log."""
    heard: list[str] = []
    hook, threading.excepthook = threading.excepthook, lambda args: heard.append(_told(args))
    logger, listener = logging.getLogger("statelog"), _Listener(heard)
    logger.addHandler(listener)
    try:
        yield heard
    finally:
        logger.removeHandler(listener)
        threading.excepthook = hook


def _told(args: Any) -> str:
    return "".join(traceback.format_exception(args.exc_type, args.exc_value, args.exc_traceback))


@contextmanager
def _few_segments() -> Iterator[None]:
    before = owning._SEGMENTS_MAX  # noqa: SLF001 - see _SEGMENTS_MAX
    owning._SEGMENTS_MAX = _SEGMENTS_MAX  # noqa: SLF001
    try:
        yield
    finally:
        owning._SEGMENTS_MAX = before  # noqa: SLF001


def shrink(plan: Plan, failure: Failure, driver: Driver, *, seconds: float = 120.0) -> Failure:
    """Return a failure of the same kind, of a plan with fewer steps: as few as are found in the time."""
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
