"""Makes each call of a workload fail in turn, and checks the answers and the content of the store.

The preloaded library of the power-loss harness makes calls fail that write, flush, truncate, open, rename and remove
files: with EIO and ENOSPC, without or after their effect, once or from then on.
"""

from __future__ import annotations

import errno
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from faultinjection_case import Case, CaseResult, Ending

from statelog.testing.history import Commit, Fork, Rollback, Together
from statelog.testing.powerloss.recorder import log_directory, read_files
from statelog.testing.powerloss.shim import Action, Fault, ShimLog, SystemCall
from statelog.testing.powerloss.steps import Compact, DeleteThread, Flush, Reopen, Retain
from statelog.testing.powerloss.workers import Died, Worker, WorkerPool, worker_count
from statelog.testing.powerloss.workloads import (
    STORE_NAME,
    Workload,
    WorkloadSession,
    export_of,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

_RUN = "faultinjection_case:run_case"
_TIMEOUT_S = 600.0
_LOG_BYTES = 1 << 26
_BAD_MAX = 500

_ACTIONS: dict[SystemCall, tuple[Action, ...]] = {
    SystemCall.WRITE: (Action.FAIL, Action.FAIL_AFTER, Action.SHORT),
    SystemCall.FLUSH: (Action.FAIL, Action.FAIL_AFTER),
    SystemCall.TRUNCATE: (Action.FAIL,),
    SystemCall.OPEN: (Action.FAIL,),
    SystemCall.RENAME: (Action.FAIL, Action.FAIL_AFTER),
    SystemCall.UNLINK: (Action.FAIL,),
    SystemCall.GROW: (Action.FAIL, Action.SHORT),
}
"""GROW are writes beyond the end of a file. On a full disk, these fail from one of them on."""

_ERRORS = (errno.EIO, errno.ENOSPC)


@dataclass(frozen=True, slots=True)
class BadCase:
    """A fault with a bad result."""

    workload: str
    fault: str
    lost: bool
    message: str


@dataclass(slots=True)
class FaultReport:
    """The results of failing calls.

    Attributes:
        cases: the number of cases done.
        cases_all: the number of all cases.
        faults: cases in which a call failed.
        missed: cases in which the call was not reached.
        endings: the number of steps by their outcome.
        unreadable: reads refused while calls were failing.
        closed: cases after which the store had to be opened again.
        images: images checked after failures and power cuts.
        lost: cases in which something acknowledged was lost.
        wrong: cases in which something else was wrong: a hang, a dead process, another exception.
        bad: examples of bad cases.
        duration_s: the duration of the whole campaign.
    """

    cases: int = 0
    cases_all: int = 0
    faults: int = 0
    missed: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    unreadable: int = 0
    closed: int = 0
    images: int = 0
    lost: int = 0
    wrong: int = 0
    bad: list[BadCase] = field(default_factory=list)
    duration_s: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether no fault lost anything or ended wrongly."""
        return not (self.lost or self.wrong)

    def take(self, case: Case, result: CaseResult | Died) -> None:
        """Add the result of a case."""
        assert case.fault is not None
        if isinstance(result, Died):
            result = CaseResult(strikes=1, problem=result.reason)
        if result.strikes == 0 and not result.problem:
            self.missed += 1
            return
        self.faults += 1
        self.endings.update({ending.value: count for ending, count in result.endings.items()})
        self.unreadable += result.unreadable
        self.closed += result.closed
        self.images += result.images
        if result.problem:
            self.lost += result.lost
            self.wrong += not result.lost
            if len(self.bad) < _BAD_MAX:
                self.bad.append(BadCase(case.workload.name, str(case.fault), result.lost, result.problem))


def standard_workloads() -> tuple[Workload, ...]:
    """Return workloads for every way in which a store writes. They are short, because each of their calls must fail."""

    def commit(thread: str, number: int, size: int = 100) -> Commit:
        return Commit(thread, ({"findings": [f"{number}" * size], "total": number},), metadata={"step": number})

    before = tuple(commit(thread, number) for thread in "ab" for number in range(5))
    together = Together((commit("a", 7), commit("b", 8), Rollback("a", 1)))
    mixed = (
        commit("a", 1),
        Rollback("a", 2),
        Fork("b", "side", at=2, update={"total": 1}),
        together,
        commit("c", 3, 3000),
    )
    imported = export_of([commit("x", number) for number in range(4)], threads=("x",))
    maintenance = (Retain(2), commit("a", 4), DeleteThread("b"), commit("a", 5))
    return (
        Workload("creation", ((commit("a", 1), commit("a", 2), Reopen(), commit("b", 3)),)),
        Workload("commits", ((*mixed, Reopen(), commit("a", 9)),), before),
        Workload("interval", ((*mixed, Flush(), commit("a", 9), Flush()),), before, durability="interval"),
        Workload("journal growth", ((commit("a", 1, 40_000), commit("a", 2, 40_000)),), before),
        Workload("group commit", tuple((commit(name, 1), commit(name, 2)) for name in "pqrs"), before),
        Workload("retention and deletion", (maintenance,), before),
        Workload("compaction", ((Compact(), commit("a", 6), Compact(), commit("a", 7)),), before),
        Workload("import", ((imported, imported, commit("a", 8)),), before),
    )


def cases_of(
    workload: Workload, calls: dict[SystemCall, int], base: dict[str, bytes], *, rounds: int
) -> Iterator[Case]:
    """Yield a case for every call of a workload, and every way in which it may fail."""
    for call, actions in _ACTIONS.items():
        for nth in range(1, calls[call] + 1):
            for action in actions:
                for error in _ERRORS:
                    for persistent in (False, True):
                        yield Case(workload, base, Fault(call, action, error, nth, persistent), rounds)


def check_faults(
    workloads: Sequence[Workload] | None = None,
    *,
    directory: str | os.PathLike[str] | None = None,
    rounds: int = 2,
    every: int = 1,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> FaultReport:
    """Run workloads repeatedly, each time with another failing call.

    Args:
        workloads: the workloads. The default is `standard_workloads`.
        directory: a directory on the disk to test. The default is in memory.
        rounds: the number of random images for each power cut after a failure.
        every: run one case in this number.
        workers: the number of processes. The default is the number of processors.
        progress: called with the numbers of cases done and of all.

    Raises:
        UsageError: this machine cannot make calls fail.
    """
    started = time.monotonic()
    report = FaultReport()
    with ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=log_directory())))
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=directory or log_directory())))
        environments = []
        for number in range(workers or worker_count()):
            watched = scratch / f"faults-{number}"
            watched.mkdir()
            log = ShimLog.create(temporary / f"log-{number}", capacity_bytes=_LOG_BYTES)
            environments.append(stack.enter_context(log).environment(watched))
        cases = []
        with Worker(environments[0]) as counter:
            for number, workload in enumerate(standard_workloads() if workloads is None else workloads):
                base = _make_base(workload, scratch / f"base-{number}")
                calls = _count_calls(counter, workload, base)
                cases += list(cases_of(workload, calls, base, rounds=rounds))
        pool = stack.enter_context(WorkerPool(environments))
        chosen = cases[::every]
        report.cases, report.cases_all = len(chosen), len(cases)
        for done, (case, result) in enumerate(pool.map(_RUN, chosen, timeout_s=_TIMEOUT_S), 1):
            report.take(case, result)
            if progress is not None:
                progress(done, len(chosen))
    report.duration_s = time.monotonic() - started
    return report


def _make_base(workload: Workload, directory: Path) -> dict[str, bytes]:
    directory.mkdir()
    if workload.before is not None:
        session = WorkloadSession(directory / STORE_NAME, workload.options, workload.schema)
        for step in workload.before:
            session.do(step)
        session.close()
    return read_files(directory)


def _count_calls(worker: Worker, workload: Workload, base: dict[str, bytes]) -> dict[SystemCall, int]:
    result = worker.call(_RUN, Case(workload, base, None), timeout_s=_TIMEOUT_S)
    assert isinstance(result, CaseResult), result
    assert not result.problem, result.problem
    assert set(result.endings) == {Ending.DONE}, result.endings
    return result.calls
