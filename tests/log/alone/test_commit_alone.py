"""A commit in one kernel call: only where nobody is at work; all of it, or nothing, whatever disk or finalizer do."""

import errno
import gc
import operator
import os
import random
import resource
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest
from kernel_ways import changed, commit_until_made

import statelog
from statelog import kernels
from statelog.log.direct import DirectCommit
from statelog.storage.file.locks import _WAITING_SHARED, FileLocks
from statelog.storage.journal import journal

SCHEMA = {"x": None, "log": operator.add}


pytestmark = pytest.mark.usefixtures("never_settled_by_time")


def everything(environment):
    """Return what a commit may change."""
    deferred, steady = environment.deferred, environment.steady
    waiting = deferred.waiting
    return (
        list(waiting.records), dict(waiting.rows), waiting.count, waiting.size_bytes, waiting.last, deferred.commits,
        deferred.journaled, deferred.transaction, steady.at, steady.end, steady.lsn, environment.committer.groups,
        environment.committer.commits, environment.keeper.commits, environment.writer_thread,
    )  # fmt: skip


def test_it_is_what_nearly_all_commits_take(store, way):
    thread = store.thread("t", schema={"n": operator.add, "log": operator.add, "x": int})
    for number in range(3000):
        thread.commit({"n": 1, "x": number, "log": [f"entry {number}"]})
    assert way.made > 2600
    assert thread.state["n"] == 3000
    assert list(thread.state["log"]) == [f"entry {number}" for number in range(3000)]


@pytest.mark.parametrize("kernel", ["commit_alone"])
def test_a_durable_commit_is_not_made_without_a_flush(path, way):
    with statelog.open(path) as store:
        thread = store.thread("t")
        for number in range(200):
            thread.commit({"x": number})
        assert way.made + way.refused == 0
        for number in range(200):
            thread.commit({"x": number}, durable=False)
        assert way.made > 100
        assert store.verify().ok


def _held(lock):
    """Another thread has the lock meanwhile."""

    @contextmanager
    def around():
        taken, left = threading.Event(), threading.Event()

        def hold():
            with lock:
                taken.set()
                left.wait()

        holder = threading.Thread(target=hold)
        holder.start()
        taken.wait()
        try:
            yield
        finally:
            left.set()
            holder.join()

    return around


@contextmanager
def _set(owner, name, value):
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def _inside(committer):
    committer.inside.add(threading.get_ident())
    try:
        yield
    finally:
        committer.inside.discard(threading.get_ident())


@contextmanager
def _awaited(environment):
    """Another process waits, and it is time to look whether one does."""
    with environment.path.open("r+b") as file, _set(environment.locks, "look_at_s", 0.0):
        others = FileLocks(file.fileno(), environment.path)
        assert others._try(_WAITING_SHARED)
        yield


@contextmanager
def _nobody_who_flushes(environment):
    """Of what is not flushed; of what is, somebody to share it with."""
    with ExitStack() as stack:
        stack.enter_context(_set(environment.keeper, "flushes", False))  # noqa: FBT003
        stack.enter_context(_set(environment.committer, "expected", 2))
        yield


SIGNS = {
    "a leader": lambda environment: _set(environment.committer, "leader", object()),
    "itself": lambda environment: _inside(environment.committer),
    "a writer": lambda environment: _set(environment, "writer_thread", 1),
    "somebody who settles": lambda environment: _set(environment.deferred, "settling_thread", 1),
    "a transaction": lambda environment: _set(environment.deferred, "transaction", object()),
    "no room": lambda environment: _set(environment.deferred, "has_room", False),  # noqa: FBT003
    "commits made at once": lambda environment: _set(environment.deferred, "apart", 3),
    "a shut gate": lambda environment: _set(environment, "is_shut", True),  # noqa: FBT003
    "another process": lambda environment: _set(environment, "process_id", -1),
    "a broken journal": lambda environment: _set(environment.steady, "is_broken", True),  # noqa: FBT003
    "an unknown end": lambda environment: _set(environment.steady, "lsn", -1),
    "another end": lambda environment: _set(environment.steady, "lsn", environment.steady.lsn - 1),
    "a journal to be filled": lambda environment: _set(environment.steady, "_size_bytes", 0),
    "no keeper": lambda environment: _set(environment.keeper, "is_at_work", False),  # noqa: FBT003
    "nobody who flushes, or one who waits": _nobody_who_flushes,
    "another process that waits": _awaited,
    "locks that cannot be looked at": lambda environment: changed(environment.locks, look_at_s=0.0, descriptor=-1),
    "locks that there are not": lambda environment: changed(environment.locks, look_at_s=0.0, turn_us=0),
    "a waiter": lambda environment: _set(environment.wake, "look_at_s", 0.0),
    "another's changes": lambda environment: _set(environment.deferred.waiting.last, "changes", 10**6),
    "nothing that waits": lambda environment: _set(environment.deferred.waiting, "last", None),
    "a transaction not to be followed": lambda environment: _set(environment.deferred.waiting.last, "number", 0),
    "the first lock": lambda environment: _held(environment.write_lock)(),
    "the second lock": lambda environment: _held(environment.deferred.lock)(),
}


@pytest.mark.usefixtures("thread")
@pytest.mark.parametrize("sign", SIGNS)
def test_nothing_is_done_where_somebody_is_at_work(store, way, sign):
    environment = store._engine.environment
    before = everything(environment)
    last = store._engine.last
    with SIGNS[sign](environment):
        assert way.kernel(*way.last) is None
    assert everything(environment) == before
    assert store._engine.last is last
    assert way.kernel(*way.last) is not None  # the negative control: without the sign it is made
    assert everything(environment) != before


@pytest.mark.usefixtures("thread")
def test_whether_others_wait_is_looked_at_once_a_turn(store, way):
    locks = store._engine.environment.locks
    locks.look_at_s = 0.0
    before = time.monotonic()
    assert way.kernel(*way.last) is not None
    assert before + 0.004 < locks.look_at_s < time.monotonic() + 0.006
    with _awaited(store._engine.environment):
        locks.look_at_s = time.monotonic() + 60
        assert way.kernel(*way.last) is not None
        locks.look_at_s = 0.0
        assert way.kernel(*way.last) is None
        assert locks.look_at_s == 0.0


@pytest.mark.parametrize(
    "odd",
    [
        {"expected_version": 0},
        {"expected_version": 1.0},
        {"expected_version": 2**70},
        {"thread": 2**63},
        {"branch": 7},
        {"writes": []},
        {"writes": None},
        {"writes": [("x", None, b"\x01", True, None)]},
    ],
    ids=str,
)
def test_nothing_is_done_for_what_only_python_can_tell(store, thread, way, odd):
    before = everything(store._engine.environment)
    parts, caller, direct, *request = way.last
    assert way.kernel(parts, caller, DirectCommit(**{**direct._asdict(), **odd}), *request) is None
    assert everything(store._engine.environment) == before
    thread.commit({"x": "after"})
    assert thread.state["x"] == "after"


def test_a_record_too_long_to_wait_is_not_made_so(thread, way):
    made = way.made
    for size in (3000, 9000, 20_000, 200_000):
        thread.commit({"x": "y" * size})
        assert thread.state["x"] == "y" * size
        commit_until_made(thread, way)
    assert way.made > made


def test_what_it_is_given_is_looked_at():
    for wrong in ((), (1, 2, 3), ((), None, ()), (tuple(range(11)), None, None)):
        with pytest.raises((TypeError, AttributeError)):
            kernels.commit_alone(*wrong)
        with pytest.raises((TypeError, AttributeError)):
            kernels.commit_flushed(*wrong, None)


@contextmanager
def _full_disk(steady):
    descriptor = os.open("/dev/full", os.O_RDWR)
    try:
        with _set(steady, "_descriptor", descriptor):
            yield
    finally:
        os.close(descriptor)


@contextmanager
def _no_journal(steady):
    with _set(steady, "_descriptor", 10**6):
        yield


@contextmanager
def _half_a_write(steady):
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (steady.at + 40, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


@pytest.mark.parametrize("failure", [_full_disk, _no_journal, _half_a_write])
def test_where_the_journal_takes_no_more_python_goes_on(store, thread, way, failure):
    environment = store._engine.environment
    version = thread.version
    commit_until_made(thread, way)
    for number in range(5):
        refused = way.refused
        way.around = lambda: failure(environment.steady)
        checkpoint = thread.commit({"x": -number})
        assert way.refused > refused
        assert checkpoint.state["x"] == -number
        commit_until_made(thread, way)
    versions = [checkpoint.version for checkpoint in thread.history()]
    assert versions == list(range(len(versions) - 1, -1, -1))
    assert thread.version > version


def test_what_failed_is_not_found_after_a_kill(path, durability, way):
    """A group that was written in part, or not believed, is written over: recovery reads what was acknowledged."""
    pid = os.fork()
    if not pid:
        try:
            store = statelog.open(path, durability=durability, interval_ms=60_000)
            thread = store.thread("t")
            commit_until_made(thread, way)
            way.around = lambda: _half_a_write(store._engine.environment.steady)
            thread.commit({"x": "after half a write"})
            thread.commit({"x": "last"})
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    with statelog.open(path) as store:
        assert store.thread("t").state["x"] == "last"
        assert store.thread("t").at(store.thread("t").version - 1).state["x"] == "after half a write"
        assert store.verify().ok


class Finalizer:
    """Garbage that commits when it is collected."""

    def __init__(self, thread, done):
        self.itself = self
        self.thread, self.done = thread, done

    def __del__(self):
        try:
            self.thread.commit({"x": "from a finalizer"})
        except statelog.errors.UsageError:  # within a commit in Python
            return
        self.done.append(1)


def test_no_finalizer_runs_within_it(store, way):
    one, other = store.thread("one"), store.thread("other")
    commits, done = 0, []
    before = gc.get_threshold()
    gc.set_threshold(3)
    try:
        for number in range(3000):
            if number % 7 == 0:
                Finalizer(other, done)
            one.commit({"x": number})
            commits += 1
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert gc.isenabled()
    assert way.made > 1000
    assert one.version == commits - 1
    assert other.version == len(done) - 1 > 100


def test_a_collector_that_is_off_stays_off(thread, way):
    gc.disable()
    try:
        commit_until_made(thread, way)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_threads_and_readers_at_once_lose_nothing(store, way):
    """Nobody waits for anybody else's commit, and each version is there once."""
    names, count = [f"t{number}" for number in range(6)], 400

    def run(name):
        thread, rng = store.thread(name, schema={"sum": operator.add}), random.Random(name)
        for number in range(count):
            thread.commit({"sum": 1})
            if rng.random() < 0.05:
                assert thread.state["sum"] == number + 1

    workers = [threading.Thread(target=run, args=(name,)) for name in names]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [store.thread(name).state["sum"] for name in names] == [count] * 6
    assert [store.thread(name).version for name in names] == [count - 1] * 6
    if way.kernel is kernels.commit_alone:  # else they share their flushes
        assert way.made > 100


def test_a_child_does_not_write_into_its_parents_journal(thread):
    pid = os.fork()
    if not pid:
        code = 1
        try:
            thread.commit({"x": "from the child"})
        except statelog.errors.ForkedError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    thread.commit({"x": "from the parent"})
    assert thread.state["x"] == "from the parent"


def test_errors_of_the_disk_are_those_of_python(store, thread, way, monkeypatch):
    """What C meets, Python meets again, and says it: nothing is committed."""
    version = thread.version
    commit_until_made(thread, way)

    def refuse(*_arguments):
        raise OSError(errno.EIO, "as if the disk refused")

    way.around = lambda: _full_disk(store._engine.environment.steady)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        patch.setattr(journal, "write_held", refuse)
        with pytest.raises(statelog.errors.StorageError):
            thread.commit({"x": "refused"})
    assert thread.version >= version
    assert thread.state["x"] != "refused"
