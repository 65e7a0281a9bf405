"""Runs a workload in a child process, and records its writes and acknowledgements.

The child puts a mark into the log before and after every step, so the log shows at each point what was acknowledged.
The child also reads the store after every step, and compares it with the model. So an image of the disk is good if its
store has the contents that were read at that point.
"""

from __future__ import annotations

import os
import tempfile
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statelog.testing.comparison import assert_matches, compare_checkpoint
from statelog.testing.history import Commit, Operation, perform
from statelog.testing.model import StoreModel
from statelog.testing.powerloss.contents import read_contents
from statelog.testing.powerloss.openings import KILLED
from statelog.testing.powerloss.oracle import Expectation, Lane, Progress, without_threads
from statelog.testing.powerloss.shim import ShimLog, mark
from statelog.testing.powerloss.steps import FLUSHED, GRADUAL, DeleteThread, KilledCommits, Refused, gradual_steps
from statelog.testing.powerloss.trace import Mark, Trace, read_trace
from statelog.testing.powerloss.workers import Died, Worker, find_function
from statelog.testing.powerloss.workloads import STORE_NAME, Workload, WorkloadSession, thread_ids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog.store.store import Store
    from statelog.testing.powerloss.contents import Contents
    from statelog.testing.powerloss.steps import Step

LOG_DIRECTORY = Path("/dev/shm")  # noqa: S108 - files in this directory get unpredictable names
_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Recording:
    """A workload with its recorded writes.

    Attributes:
        workload: the workload.
        trace: the trace of its directory.
        expectation: the contents that an image may have.
    """

    workload: Workload
    trace: Trace
    expectation: Expectation

    def progress(self) -> Iterator[Progress]:
        """Yield the progress of the lanes before the first event and after each event."""
        start = 0 if STORE_NAME in self.trace.base else -1
        lanes = range(len(self.expectation.lanes))
        done, begun, durable = ([start for _ in lanes] for _ in range(3))
        before: dict[int, list[int]] = {}
        current = Progress(tuple(done), tuple(begun), tuple(durable))
        yield current
        for event in self.trace.events:
            if isinstance(event, Mark) and event.data:
                word, lane, step = event.data.split()[0], *map(int, event.data.split()[1:])
                if word == b"begin":
                    begun[lane] = step
                    before[lane] = list(done)
                else:
                    done[lane] = step
                    if word == b"done" and self._flushes(lane, step):
                        durable[lane] = step
                        if not self.workload.processes:  # The flush also covers earlier steps of other lanes.
                            durable = list(map(max, durable, before[lane]))
                current = Progress(tuple(done), tuple(begun), tuple(durable))
            yield current

    def _flushes(self, lane: int, step: int) -> bool:
        """Return True if a step is durable when it is done. Step 0 is the opening of the store."""
        steps = self.workload.lanes[lane]
        taken = steps[step - 1] if 0 < step <= len(steps) else None
        if isinstance(taken, Commit) and taken.durable is not None:
            return taken.durable
        return self.workload.durability == "commit" or step == 0 or isinstance(taken, FLUSHED)


def log_directory() -> Path | None:
    """Return the best directory for logs. It is in memory, if there is such a directory."""
    return LOG_DIRECTORY if os.access(LOG_DIRECTORY, os.W_OK) else None


def read_files(directory: Path) -> dict[str, bytes]:
    """Return the contents of a directory's files, keyed by name."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def record(workload: Workload, directory: Path, *, opener: str = "") -> Recording:
    """Run a workload, and return its recording.

    Args:
        workload: the workload.
        directory: a new or empty directory for the store.
        opener: the "module:function" that opens the store, for negative controls. The default is the workload's opener.

    Raises:
        AssertionError: the store differed from its model although nothing failed, or the child died.
        UsageError: this machine cannot record.
    """
    path = directory / STORE_NAME
    if workload.before is not None:
        _prepare(workload, path)
    for name, content in workload.files.items():
        (directory / name).write_bytes(content)
    base = read_files(directory)
    with ExitStack() as stack:
        temporary = stack.enter_context(tempfile.TemporaryDirectory(dir=log_directory()))
        log = stack.enter_context(ShimLog.create(Path(temporary) / "log"))
        worker = stack.enter_context(Worker(log.environment(directory)))
        answer = worker.call(
            f"{__name__}:run_recorded", path, workload, opener or workload.opener, timeout_s=_TIMEOUT_S
        )
        if isinstance(answer, Died):
            message = f"workload {workload.name!r}: {answer.reason}"
            raise AssertionError(message)  # noqa: TRY004 - the child has failed, not this call
        trace = read_trace(log.records(), base)
    lanes, chain = answer
    steps = [step for lane in workload.lanes for step in lane]
    ignored = frozenset({KILLED} if any(isinstance(step, KilledCommits) for step in steps) else ())
    # After killed or refused commits, a recovery may leave different records, so their digests are not compared.
    is_known = not any(isinstance(step, KilledCommits | Refused) for step in steps)
    return Recording(workload, trace, Expectation(lanes, chain if is_known else None, ignored))


def _prepare(workload: Workload, path: Path) -> None:
    assert workload.before is not None
    session = WorkloadSession(path, workload.options, workload.schema)
    for step in workload.before:
        session.do(step)
    session.close()


# --- the child --------------------------------------------------------------------


def run_recorded(path: Path, workload: Workload, opener: str) -> tuple[tuple[Lane, ...], dict[int, str]]:
    """Run a workload in this process. Return the contents after each step, and the digests of the records."""
    if workload.setup:
        find_function(workload.setup)()
    opens = find_function(opener)
    _mark_all(workload, "begin", 0)
    session = WorkloadSession(path, workload.options, workload.schema, opens)
    _mark_all(workload, "done", 0)
    if len(workload.lanes) == 1:
        model = _model(workload)
        lanes = [_do_lane(session, workload, 0, None, model)]
    elif workload.processes:
        lanes = _do_in_processes(session, workload, path, opener)
    else:
        lanes = _do_in_threads(session, workload)
    chain = {each.lsn: each.digest for each in session.store.log()}
    problems = session.store.verify().problems
    assert not problems, problems[0]
    session.close()
    return tuple(lanes), chain


def _mark_all(workload: Workload, word: str, step: int) -> None:
    for lane in range(len(workload.lanes)):
        mark(f"{word} {lane} {step}".encode())


def _model(workload: Workload) -> StoreModel | None:
    """Return the model at the beginning of the recording, or None if no model can do the workload's steps."""
    steps = (*(workload.before or ()), *workload.lanes[0])
    if workload.files or any(isinstance(step, (*GRADUAL, KilledCommits)) for step in steps):
        return None
    model = StoreModel()
    for step in workload.before or ():
        if isinstance(step, Operation):
            perform(step, model, schema=workload.schema)
    return model


def _do_lane(
    session: WorkloadSession, workload: Workload, number: int, threads: frozenset[str] | None, model: StoreModel | None
) -> Lane:
    """Do the steps of one lane, and return the store's contents after each."""
    steps = workload.lanes[number]
    ignored = frozenset({KILLED})

    def read() -> Contents:
        return without_threads(read_contents(session.store, threads=threads), ignored)

    contents = [read()]
    for position, step in enumerate(steps, 1):
        mark(f"begin {number} {position}".encode())
        refused = session.do(step)
        mark(f"done {number} {position}".encode())
        assert refused is None or isinstance(step, Operation), refused
        contents.append(read())
        if model is not None:
            model = _do_to_model(step, model, workload)
        if model is not None:
            assert_matches(session.store, model)
    refused_steps = frozenset(position for position, step in enumerate(steps, 1) if isinstance(step, Refused))
    return Lane(threads, tuple(contents), gradual_steps(steps), refused_steps)


def _do_to_model(step: Step, model: StoreModel, workload: Workload) -> StoreModel | None:
    if isinstance(step, Operation):
        perform(step, model, schema=workload.schema)
    elif isinstance(step, DeleteThread):
        return None  # The model cannot delete a thread, so stop comparing.
    return model


def _lane_threads(workload: Workload) -> list[frozenset[str]]:
    """Return the threads of each lane. The first lane also gets threads that belong to no lane."""
    owned = [frozenset(thread_ids(lane)) for lane in workload.lanes]
    others = frozenset(thread_ids(workload.before or ())).difference(*owned)
    return [owned[0] | others, *owned[1:]]


def _do_in_threads(session: WorkloadSession, workload: Workload) -> list[Lane]:
    threads = _lane_threads(workload)
    lanes: list[Lane | None] = [None] * len(workload.lanes)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            lanes[number] = _do_lane(session, workload, number, threads[number], None)
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises the error again
            errors.append(error)

    running = [threading.Thread(target=run, args=(number,)) for number in range(len(lanes))]
    for each in running:
        each.start()
    for each in running:
        each.join()
    if errors:
        raise errors[0]
    _compare_lanes(session.store, workload)
    return [lane for lane in lanes if lane is not None]


def _do_in_processes(session: WorkloadSession, workload: Workload, path: Path, opener: str) -> list[Lane]:
    """Do each lane in its own process. All processes are recorded in one log."""
    lanes = []
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(dict(os.environ))) for _lane in workload.lanes]
        answers: list[Any] = [None] * len(workers)

        def run(number: int) -> None:
            answers[number] = workers[number].call(
                f"{__name__}:run_lane", path, workload, number, opener, timeout_s=_TIMEOUT_S
            )

        running = [threading.Thread(target=run, args=(number,)) for number in range(len(workers))]
        for each in running:
            each.start()
        for each in running:
            each.join()
        for answer in answers:
            assert isinstance(answer, Lane), answer
            lanes.append(answer)
    _compare_lanes(session.store, workload)
    return lanes


def run_lane(path: Path, workload: Workload, number: int, opener: str) -> Lane:
    """Do one lane in this process."""
    if workload.setup:
        find_function(workload.setup)()
    session = WorkloadSession(path, workload.options, workload.schema, find_function(opener))
    lane = _do_lane(session, workload, number, _lane_threads(workload)[number], None)
    session.close()
    return lane


def _compare_lanes(store: Store, workload: Workload) -> None:
    """Compare the threads of each lane with a model of that lane alone."""
    for steps in workload.lanes:
        model = StoreModel()
        for step in (*(workload.before or ()), *steps):
            if isinstance(step, Operation):
                perform(step, model, schema=workload.schema)
        for thread in thread_ids(steps):
            _compare_thread(store, model, thread)


def _compare_thread(store: Store, model: StoreModel, thread: str) -> None:
    for name, _parent, _base, _head in model.thread(thread).branches():
        expected = model.thread(thread, branch=name).history()
        found = list(store.thread(thread, branch=name).history())
        for checkpoint, each in zip(found, expected, strict=True):
            compare_checkpoint(f"thread {thread!r}, branch {name!r}", checkpoint, each)
