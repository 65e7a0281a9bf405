"""Runs one workload with one failing call, and checks the answers and the content of the store.

After every step one of these holds: it was done and is stored; it was refused and is not stored; or its outcome was
reported as unknown, and opening the store again shows it. A later power cut does not change that.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import statelog
from statelog.errors import CommitOutcomeUnknownError, StatelogError
from statelog.testing.comparison import compare_checkpoint
from statelog.testing.history import Operation, perform
from statelog.testing.model import StoreModel
from statelog.testing.powerloss.contents import describe_difference, is_between, read_contents
from statelog.testing.powerloss.examine import Examiner, Task, own_log
from statelog.testing.powerloss.oracle import AFTER, Expectation, Lane, remove_all, without_threads
from statelog.testing.powerloss.recorder import Recording, log_directory
from statelog.testing.powerloss.shim import DIRECTORY_VARIABLE, mark
from statelog.testing.powerloss.steps import GRADUAL, MAINTENANCE, gradual_steps
from statelog.testing.powerloss.trace import Mark, read_trace
from statelog.testing.powerloss.workloads import STORE_NAME, WorkloadSession, thread_ids

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from statelog.store.store import Store
    from statelog.testing.powerloss.contents import Contents
    from statelog.testing.powerloss.shim import Fault, SystemCall
    from statelog.testing.powerloss.steps import Step
    from statelog.testing.powerloss.workloads import Workload

_MINE = frozenset({AFTER})


class Ending(Enum):
    """The outcome of a step."""

    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Case:
    """A workload and the call that is to fail in it.

    Attributes:
        workload: to do; its `before` is in `base`.
        base: names and contents of the files to begin with.
        fault: what fails; None to count the calls there are.
        rounds: random images for each point at which the power is cut afterwards; 0: it is not.
    """

    workload: Workload
    base: Mapping[str, bytes]
    fault: Fault | None
    rounds: int = 0


@dataclass(slots=True)
class CaseResult:
    """The result of a case.

    Attributes:
        calls: the number of calls by kind without a fault.
        strikes: the number of failed calls.
        endings: the outcomes of the steps.
        unreadable: reads refused while calls were failing.
        closed: whether the store had to be opened again after the fault.
        images: the number of images checked after power cuts.
        lost: whether something acknowledged was missing.
        problem: what was wrong; empty if nothing was.
    """

    calls: dict[SystemCall, int] = field(default_factory=dict)
    strikes: int = 0
    endings: Counter[Ending] = field(default_factory=Counter)
    unreadable: int = 0
    closed: bool = False
    images: int = 0
    lost: bool = False
    problem: str = ""


class _WrongError(Exception):
    """A finding. `lost`: something acknowledged is not there."""

    def __init__(self, message: str, *, lost: bool = False) -> None:
        super().__init__(message)
        self.lost = lost


def run_case(case: Case) -> CaseResult:
    """Do a case in this process."""
    log = own_log()
    result = CaseResult()
    directory = Path(os.environ[DIRECTORY_VARIABLE])
    with log.paused():
        remove_all(directory)
        for name, content in case.base.items():
            (directory / name).write_bytes(content)
    log.reset()
    if case.fault is not None:
        log.arm(case.fault)
    run = _Run(case, directory, result)
    try:
        run.work()
        result.calls = log.calls()
        run.look()
        if case.rounds and len(case.workload.lanes) == 1:
            run.cut()
    except _WrongError as wrong:
        result.problem, result.lost = str(wrong), wrong.lost
    except Exception as error:  # noqa: BLE001 - whatever reaches the caller besides StatelogError is a finding
        result.problem = f"{type(error).__name__}: {error}"
    finally:
        log.disarm()
        run.end()
    return result


@dataclass(slots=True)
class _LaneRun:
    """One lane, as it went."""

    done: list[Step] = field(default_factory=list)
    unknown: Step | None = None


class _Run:
    """The store of a case, and its findings."""

    def __init__(self, case: Case, directory: Path, result: CaseResult) -> None:
        self._case = case
        self._path = directory / STORE_NAME
        self._result = result
        self._lanes = [_LaneRun() for _ in case.workload.lanes]
        self._session: WorkloadSession | None = None
        self._contents: list[Contents | None] = []
        """For a case with one lane, the content after opening and after each step. None if it could not be read."""
        self._failed: set[int] = set()
        """Of a case with one lane: numbers of the steps that were refused, or of unknown outcome."""
        self._lock = threading.Lock()
        self._struck_at = -1

    # --- while calls fail ---------------------------------------------------------

    def work(self) -> None:
        """Open the store and do the steps; then no call fails any more."""
        log = own_log()
        workload = self._case.workload
        try:
            self._session = WorkloadSession(self._path, workload.options, workload.schema)
        except StatelogError:
            log.disarm()
            self._result.strikes = log.strikes
            self._result.endings[Ending.REFUSED] += 1
            return
        if len(workload.lanes) == 1:
            self._work_alone(self._session)
        else:
            self._work_together(self._session)
        log.disarm()
        self._result.strikes = log.strikes

    def _work_alone(self, session: WorkloadSession) -> None:
        lane = self._lanes[0]
        self._note(session, 0)
        for position, step in enumerate(self._case.workload.lanes[0], 1):
            expected = self._clone(session, step)
            before = self._contents[-1]
            mark(f"begin 0 {position}".encode())
            ending = self._do(session, step, lane)
            if ending is not Ending.DONE:
                self._failed.add(position)
            if ending is Ending.UNKNOWN:
                return
            mark(f"{'done' if ending is Ending.DONE else 'refused'} 0 {position}".encode())
            self._note(session, position)
            self._check_step(step, ending, before, self._contents[-1], expected)

    def _work_together(self, session: WorkloadSession) -> None:
        errors: list[BaseException] = []

        def run(number: int) -> None:
            try:
                for step in self._case.workload.lanes[number]:
                    if self._do(session, step, self._lanes[number]) is Ending.UNKNOWN:
                        return
            except BaseException as error:  # noqa: BLE001 - raised again below, in the thread that waits
                errors.append(error)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(len(self._lanes))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def _do(self, session: WorkloadSession, step: Step, lane: _LaneRun) -> Ending:
        refused = session.do(step)
        ending = Ending.DONE
        if refused is None:
            lane.done.append(step)
        elif issubclass(refused, CommitOutcomeUnknownError):
            lane.unknown = step
            ending = Ending.UNKNOWN
        else:
            ending = Ending.REFUSED
        with self._lock:
            self._result.endings[ending] += 1
        return ending

    def _note(self, session: WorkloadSession, position: int) -> None:
        """Read everything while calls may still fail. A read works or raises an error."""
        try:
            self._contents.append(read_contents(session.store))
        except StatelogError:
            self._contents.append(None)
            self._result.unreadable += 1
        if self._struck_at < 0 and own_log().strikes:
            self._struck_at = position

    def _clone(self, session: WorkloadSession, step: Step) -> Contents | None:
        """Return the result of a maintenance step on a copy of the store without faults. None for other steps."""
        if not isinstance(step, MAINTENANCE):
            return None
        with own_log().paused(), tempfile.TemporaryDirectory(dir=log_directory()) as temporary:
            copy = Path(temporary) / STORE_NAME
            for suffix in ("", "-journal"):
                with suppress(FileNotFoundError):
                    shutil.copyfile(f"{session.store.path}{suffix}", f"{copy}{suffix}")
            other = WorkloadSession(copy, {}, self._case.workload.schema)
            other.do(step)
            contents = read_contents(other.store)
            other.close()
        return contents

    @staticmethod
    def _check_step(
        step: Step, ending: Ending, before: Contents | None, after: Contents | None, expected: Contents | None
    ) -> None:
        if before is None or after is None:
            return
        if ending is Ending.DONE:
            if expected is not None and after != expected:
                message = f"{step} was done: {describe_difference(after, expected)}"
                raise _WrongError(message)
            return
        if after == before or (
            expected is not None and isinstance(step, GRADUAL) and is_between(after, before, expected)
        ):
            return
        message = f"{step} was refused, but: {describe_difference(after, before)}"
        raise _WrongError(message)

    # --- when they no longer fail ---------------------------------------------------

    def look(self) -> None:
        """Use the store, close it and open it again. It must have everything that was done, and nothing else."""
        if self._session is not None:
            try:
                self._session.store.thread(AFTER).commit({"works": 1})
            except StatelogError:
                self._result.closed = True
            self._session.close()
        with statelog.open(self._path, durability=self._case.workload.durability) as store:
            problems = store.verify().problems
            if problems:
                message = f"{problems[0].invariant}, record {problems[0].lsn}: {problems[0].message}"
                raise _WrongError(message)
            self._compare(store)
            store.thread(AFTER).commit({"works": 2})

    def _compare(self, store: Store) -> None:
        found = without_threads(read_contents(store), _MINE)
        last = next((contents for contents in reversed(self._contents) if contents is not None), None)
        if len(self._lanes) == 1:
            lane = self._lanes[0]
            if lane.unknown is None and self._contents and self._contents[-1] is not None and found != last:
                message = f"opened again: {describe_difference(found, self._contents[-1])}"
                raise _WrongError(message, lost=True)
            if lane.unknown is not None:
                mark(f"done 0 {len(self._contents)}".encode())
                self._contents.append(found)
            if any(isinstance(step, MAINTENANCE) for step in self._case.workload.lanes[0]):
                return  # the model has no expired or deleted versions
        for lane, steps in zip(self._lanes, self._case.workload.lanes, strict=True):
            self._compare_lane(store, lane, thread_ids(steps))

    def _compare_lane(self, store: Store, lane: _LaneRun, threads: set[str]) -> None:
        candidates = [lane.done] if lane.unknown is None else [lane.done, [*lane.done, lane.unknown]]
        difference = ""
        for steps in candidates:
            difference = _differs(store, self._model(steps), threads)
            if not difference:
                return
        message = f"{len(lane.done)} steps were done, then {lane.unknown or 'none'} unknown: {difference}"
        raise _WrongError(message, lost=True)

    def _model(self, steps: Sequence[Step]) -> StoreModel:
        model = StoreModel()
        for step in (*(self._case.workload.before or ()), *steps):
            if isinstance(step, Operation):
                perform(step, model, schema=self._case.workload.schema)
        return model

    def cut(self) -> None:
        """Look at what power cuts leave after the failure was told, and until the end."""
        if self._struck_at < 0 or None in self._contents:
            return
        trace = read_trace(own_log().records(), self._case.base)
        step = self._struck_at
        words = ("done", "refused") if step else ("begin",)
        told = [Mark(f"{word} 0 {step or 1}".encode()) for word in words]
        start = next((at for at, event in enumerate(trace.events, 1) if event in told), len(trace.events))
        steps = tuple(contents for contents in self._contents if contents is not None)
        workload = self._case.workload
        gradual = gradual_steps(workload.lanes[0][: len(steps) - 1])
        lane = Lane(None, steps, gradual, refused=frozenset(self._failed))
        expectation = Expectation((lane,), None, ignored=_MINE)
        task = Task(Path(), start, len(trace.events) + 1, 0, 3, self._case.rounds, 0, None)
        tally = Examiner(Recording(workload, trace, expectation), depth=1).run(task)
        self._result.images = len(tally.digests)
        if tally.bad:
            bad = tally.bad[0]
            message = f"power cut afterwards, at event {bad.cut} ({bad.event}), {bad.how}: {bad.message}"
            raise _WrongError(message, lost=bad.lost)

    def end(self) -> None:
        """Close what is open."""
        if self._session is not None:
            with suppress(StatelogError):
                self._session.close()


def _differs(store: Store, model: StoreModel, threads: set[str]) -> str:
    """Return how some threads of a store differ from those of a model. Empty if they are equal."""
    try:
        for thread in sorted(threads):
            branches = model.thread(thread).branches() if thread in model.thread_ids() else []
            if not branches:
                assert thread not in {info.id for info in store.threads()}, f"thread {thread!r} should not be there"
            for name, _parent, _base, _head in branches:
                expected = model.thread(thread, branch=name).history()
                found = list(store.thread(thread, branch=name).history())
                where = f"thread {thread!r}, branch {name!r}"
                assert len(found) == len(expected), f"{where}: {len(found)} versions, not {len(expected)}"
                for checkpoint, each in zip(found, expected, strict=True):
                    compare_checkpoint(where, checkpoint, each)
    except (AssertionError, StatelogError) as error:
        return str(error)
    return ""
