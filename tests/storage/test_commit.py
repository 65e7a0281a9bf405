import contextlib
import ctypes
import errno
import fcntl
import os
import threading
import time
from pathlib import Path

import lmdb
import pytest

from statelog.errors import (
    CommitOutcomeUnknownError,
    ConflictError,
    LimitError,
    StorageError,
    StoreFullError,
    UsageError,
)
from statelog.limits import GROUP_COMMITS_MAX
from statelog.storage import Committer, faults


class Interrupt(BaseException):
    """As KeyboardInterrupt, but not one that stops pytest."""


class Holder:
    """Holds the writer from a thread of its own, so that others queue behind it."""

    def __init__(self, committer):
        self._go_on = threading.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=committer.submit, args=(self._work,))
        self._thread.start()
        self._started.wait()

    def _work(self, _transaction):
        self._started.set()
        self._go_on.wait()

    def release(self):
        self._go_on.set()
        self._thread.join()


class Caller(threading.Thread):
    """Submits one work in a thread; keeps what came of it."""

    def __init__(self, committer, work):
        super().__init__()
        self.result = self.error = None
        self._committer = committer
        self._work = work
        queued = len(committer._queue)
        self.start()
        while len(committer._queue) == queued:
            time.sleep(0.0005)

    def run(self):
        try:
            self.result = self._committer.submit(self._work)
        except BaseException as error:  # noqa: BLE001 - kept for the test to judge
            self.error = error


@pytest.fixture
def committer(environment):
    return environment.committer


@pytest.fixture
def submit_together(committer):
    """Submit works so that they share one group; return their callers in order."""

    def submit(*works):
        holder = Holder(committer)
        callers = [Caller(committer, work) for work in works]
        holder.release()
        for caller in callers:
            caller.join()
        return callers

    return submit


# --- results and exceptions ---------------------------------------------------


def test_a_result_is_delivered_after_the_commit(environment, committer, append):
    assert committer.submit(append) == 1
    with environment.read() as transaction:
        assert transaction.last_lsn() == 1


def test_what_a_work_raises_reaches_its_caller_and_nothing_is_written(environment, committer):
    def work(transaction):
        transaction.put_log(1, b"half")
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        committer.submit(work)
    with environment.read() as transaction:
        assert transaction.last_lsn() == 0


def test_a_committer_goes_on_after_an_exception(committer, append):
    with pytest.raises(ZeroDivisionError):
        committer.submit(lambda _: 1 // 0)
    assert committer.submit(append) == 1


def test_queued_works_share_one_transaction(committer, submit_together, append):
    callers = submit_together(*[append] * 8)
    assert [caller.result for caller in callers] == list(range(1, 9))
    assert (committer.commits, committer.groups) == (9, 2)


def test_each_caller_gets_its_own_result(submit_together):
    callers = submit_together(*[lambda _, number=number: number for number in range(20)])
    assert [caller.result for caller in callers] == list(range(20))


def test_a_work_that_raises_before_it_writes_fails_alone(environment, committer, submit_together, append, check_whole):
    def conflict(_transaction):
        raise ConflictError("stale", expected_version=1, actual_version=2)

    callers = submit_together(append, conflict, append, conflict)
    assert [caller.result for caller in callers] == [1, None, 2, None]
    assert [type(caller.error) for caller in callers] == [type(None), ConflictError, type(None), ConflictError]
    assert callers[1].error is not callers[3].error
    assert committer.groups == 2
    assert check_whole(environment) == 2


def test_a_work_that_raises_after_it_wrote_fails_alone_too(environment, submit_together, append, check_whole):
    def half(transaction):
        transaction.put_log(transaction.last_lsn() + 1, b"half")
        raise ZeroDivisionError

    callers = submit_together(append, half, append)
    assert [caller.result for caller in callers] == [1, None, 2]
    assert isinstance(callers[1].error, ZeroDivisionError)
    assert check_whole(environment) == 2


def test_a_key_lmdb_cannot_take_is_a_limit_error_of_its_caller_alone(environment, submit_together, append, check_whole):
    callers = submit_together(append, lambda transaction: transaction.put_index(b"k" * 512, b""), append)
    assert [type(caller.error) for caller in callers] == [type(None), LimitError, type(None)]
    assert check_whole(environment) == 2


def test_a_group_has_a_bound(committer, submit_together):
    submit_together(*[lambda _: None] * (GROUP_COMMITS_MAX + 5))
    assert committer.groups == 3


@pytest.mark.parametrize("inner", ["same committer", "another committer"])
def test_a_commit_within_a_commit_is_a_usage_error(environment, committer, append, inner):
    other = committer if inner == "same committer" else Committer(environment)
    with pytest.raises(UsageError, match="within another commit"):
        committer.submit(lambda _: other.submit(append))
    assert committer.submit(append) == 1


def test_reading_within_a_commit_is_allowed_and_sees_the_last_commit(environment, committer, append):
    committer.submit(append)

    def work(transaction):
        append(transaction)
        with environment.read() as snapshot:
            return snapshot.last_lsn()

    assert committer.submit(work) == 1


def test_two_committers_of_one_environment_take_turns(environment, append, check_whole):
    committers = [Committer(environment) for _ in range(4)]

    def commit(committer):
        for _ in range(20):
            committer.submit(append)

    threads = [threading.Thread(target=commit, args=(committer,)) for committer in committers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert check_whole(environment) == 80


def test_contending_threads_share_groups_and_lose_nothing(environment, committer, append, check_whole):
    per_thread, results = 40, [[] for _ in range(16)]

    def commit(number):
        for _ in range(per_thread):
            results[number].append(committer.submit(append))

    threads = [threading.Thread(target=commit, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(lsn for lsns in results for lsn in lsns) == list(range(1, 16 * per_thread + 1))
    assert all(lsns == sorted(lsns) for lsns in results)
    if os.environ.get("STATELOG_TEST_DISK"):  # where a flush takes no time, there is nothing to share
        assert committer.commits / committer.groups > 4
    assert check_whole(environment) == 16 * per_thread


def test_a_lone_committer_never_waits_for_company(committer, append, monkeypatch):
    def never(*_arguments):
        raise AssertionError

    monkeypatch.setattr(committer, "_await_queue", never)
    for _ in range(20):
        committer.submit(append)
    assert committer.groups == committer.commits == 20


def test_on_commit_is_called_after_the_commit_and_before_the_next_begins(environment, committer, append):
    happened = []

    def work(transaction):
        happened.append(("begun", transaction.id))
        transaction.on_commit(lambda number=transaction.id: happened.append(("committed", number)))
        return append(transaction)

    for _ in range(2):
        committer.submit(work)
    last = environment.last_transaction_id()
    assert happened == [("begun", last - 1), ("committed", last - 1), ("begun", last), ("committed", last)]


def test_on_commit_is_not_called_when_nothing_was_committed(committer):
    happened = []

    def work(transaction):
        transaction.on_commit(lambda: happened.append("committed"))
        transaction.put_log(1, b"one")
        raise KeyError

    with pytest.raises(KeyError):
        committer.submit(work)
    assert happened == []


# --- quota and disk -------------------------------------------------------------


@pytest.fixture
def small(open_environment):
    return open_environment(max_size_bytes=1024 * 1024, _flush=False)  # nothing here is of flushes, and there are many


def fill(environment, append):
    """Commit until the quota is used up; return how many commits there were."""
    for count in range(10_000):
        try:
            environment.committer.submit(append)
        except StoreFullError as error:
            return count, error
    raise AssertionError


def test_a_full_quota_refuses_writes_and_leaves_the_store_readable(small, append, check_whole):
    count, error = fill(small, append)
    assert error.max_size_bytes == 1024 * 1024
    assert check_whole(small) == count > 100
    assert small.path.stat().st_size <= 1024 * 1024
    with pytest.raises(StoreFullError):
        small.committer.submit(append)


def test_a_full_store_opens_and_reads(small, open_environment, append, check_whole):
    count, _ = fill(small, append)
    small.close()
    assert check_whole(open_environment(max_size_bytes=1024 * 1024, _flush=False)) == count


def test_a_full_store_goes_on_under_a_larger_quota(small, open_environment, append, check_whole):
    count, _ = fill(small, append)
    small.close()
    environment = open_environment(max_size_bytes=2 * 1024 * 1024, _flush=False)
    assert environment.committer.submit(append) == count + 1
    assert check_whole(environment) == count + 1


def test_space_freed_in_a_full_store_is_used_again(small, append):
    small.committer.submit(lambda transaction: transaction.put_index(b"big", bytes(300_000)))
    fill(small, append)
    with small.read() as transaction:
        last = transaction.last_lsn()
    small.committer.submit(lambda transaction: transaction.delete_index(b"big"))
    small.committer.submit(
        lambda transaction: transaction.put_index(b"free", b"")
    )  # LMDB reuses pages one commit later
    assert small.committer.submit(append) == last + 1


def test_only_the_work_that_is_too_large_meets_the_quota(small, append, check_whole):
    committer = small.committer

    def too_large(transaction):
        transaction.put_log(transaction.last_lsn() + 1, bytes(2 * 1024 * 1024))

    holder = Holder(committer)
    callers = [Caller(committer, work) for work in (append, too_large, append)]
    holder.release()
    for caller in callers:
        caller.join()
    assert [caller.result for caller in callers] == [1, None, 2]
    assert isinstance(callers[1].error, StoreFullError)
    assert check_whole(small) == 2


def descriptors_of(path):
    """Descriptors of LMDB's on the data file: of its pages, and of its meta pages (flushed by each write)."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        if entry.resolve() == path:
            number = int(entry.name)
            found.setdefault(bool(fcntl.fcntl(number, fcntl.F_GETFL) & os.O_DSYNC), set()).add(number)
    return found


@pytest.fixture
def break_descriptor(environment):
    """Put another file in the place of LMDB's own, so that its real writes really fail."""

    def break_it(*, meta, by):
        found = descriptors_of(environment.path)
        (descriptor,) = found[meta] - {environment.locks.descriptor}
        other = os.open(by, os.O_RDONLY if by == os.devnull else os.O_RDWR)
        os.dup2(other, descriptor, inheritable=False)
        os.close(other)

    return break_it


def test_a_full_disk_refuses_the_commit_and_the_store_goes_on(
    environment, committer, append, check_whole, break_descriptor
):
    committer.submit(append)
    break_descriptor(meta=False, by="/dev/full")
    with pytest.raises(StoreFullError) as caught:
        committer.submit(append)
    assert caught.value.__cause__.code == errno.ENOSPC
    assert check_whole(environment) == 1
    assert committer.submit(append) == 2
    assert check_whole(environment) == 2


def test_a_disk_error_refuses_the_commit_and_the_store_goes_on(
    environment, committer, append, check_whole, break_descriptor
):
    committer.submit(append)
    break_descriptor(meta=False, by=os.devnull)
    with pytest.raises(StorageError) as caught:
        committer.submit(append)
    assert not isinstance(caught.value, CommitOutcomeUnknownError)
    assert isinstance(caught.value.__cause__, lmdb.Error)
    assert committer.submit(append) == 2
    assert check_whole(environment) == 2


@pytest.mark.parametrize(("by", "expected"), [("/dev/full", StoreFullError), (os.devnull, StorageError)])
def test_a_failed_meta_write_poisons_lmdb_and_is_cured(
    environment, committer, append, check_whole, break_descriptor, by, expected
):
    committer.submit(append)
    raw = environment.handles.raw
    break_descriptor(meta=True, by=by)
    with pytest.raises(expected):
        committer.submit(append)
    assert environment.handles.raw is not raw
    assert check_whole(environment) == 1
    assert committer.submit(append) == 2


def test_a_failed_meta_write_does_poison_lmdb(environment, committer, append, break_descriptor):
    """Negative control: without the reopening every transaction would fail."""
    committer.submit(append)
    break_descriptor(meta=True, by="/dev/full")
    begin = environment.handles.begin
    transaction = begin(write=True)
    transaction.put(b"k", b"v", db=environment.handles.index)
    with pytest.raises(lmdb.Error):
        transaction.commit()
    with pytest.raises(lmdb.PanicError):
        begin()
    assert committer.submit(append) == 2


def test_others_of_a_group_whose_commit_failed_get_the_error_each(
    environment, committer, append, check_whole, break_descriptor
):
    holder = Holder(committer)
    callers = [Caller(committer, append) for _ in range(3)]
    break_descriptor(meta=False, by="/dev/full")
    holder.release()
    for caller in callers:
        caller.join()
    assert [type(caller.error) for caller in callers] == [StoreFullError] * 3
    assert len({id(caller.error) for caller in callers}) == 3
    assert committer.submit(append) == 1
    assert check_whole(environment) == 1


# --- unknown outcomes -------------------------------------------------------------


def fail(error):
    def action():
        raise error

    return action


DISK_ERROR = lmdb.DiskError if hasattr(lmdb, "DiskError") else lmdb.Error


def test_an_error_after_the_commit_happened_is_found_to_be_none(environment, committer, append, check_whole):
    raw = environment.handles.raw
    faults.arm("commit.after_lmdb_commit", action=fail(DISK_ERROR("the disk went away")))
    assert committer.submit(append) == 1
    assert environment.handles.raw is not raw
    assert check_whole(environment) == 1


def test_an_error_before_the_commit_happened_is_reported_as_not_committed(environment, committer, append, check_whole):
    faults.arm("commit.before_lmdb_commit", action=fail(DISK_ERROR("the disk went away")))
    with pytest.raises(StorageError) as caught:
        committer.submit(append)
    assert not isinstance(caught.value, CommitOutcomeUnknownError)
    assert check_whole(environment) == 0
    assert committer.submit(append) == 1


def test_a_commit_that_wrote_no_record_is_unknown_after_an_error(environment, committer):
    faults.arm("commit.after_lmdb_commit", action=fail(DISK_ERROR("the disk went away")))
    with pytest.raises(CommitOutcomeUnknownError) as caught:
        committer.submit(lambda transaction: transaction.put_index(b"k", b"v"))
    assert isinstance(caught.value.__cause__, DISK_ERROR)
    with environment.read() as transaction:
        assert transaction.get_index(b"k") == b"v"


def test_a_commit_is_unknown_while_the_store_cannot_be_reopened(committer, append, path, tmp_path):
    def move_away():
        path.rename(tmp_path / "away")
        raise DISK_ERROR("the disk went away")

    faults.arm("commit.after_lmdb_commit", action=move_away)
    with pytest.raises(CommitOutcomeUnknownError):
        committer.submit(append)
    with pytest.raises(StorageError):
        committer.submit(append)
    (tmp_path / "away").rename(path)
    assert committer.submit(append) == 2


def test_another_record_in_the_place_of_ours_is_not_taken_for_it(environment, committer, append):
    """After our commit failed, another process may have used the same LSN."""

    def other_process():
        with environment.handles.begin(write=True) as transaction:
            transaction.put((1).to_bytes(8), b"another's record", db=environment.handles.log)
        raise DISK_ERROR("the disk went away")

    transaction_commit = "statelog.storage.transactions.WriteTransaction.commit"
    with pytest.MonkeyPatch.context() as patch:

        def commit(self):
            self.number = self._raw.id()
            self.stage = type(self.stage).COMMITTING
            self._raw.abort()
            other_process()

        patch.setattr(transaction_commit, commit)
        with pytest.raises(StorageError) as caught:
            committer.submit(append)
    assert not isinstance(caught.value, CommitOutcomeUnknownError)


# --- interrupts -----------------------------------------------------------------


POINTS_OF_A_COMMIT = [point for point in faults.POINTS if point.startswith("commit.")]
POINTS_OF_BEGIN = {"commit.before_begin", "commit.after_begin"}
POINTS_AFTER_COMMIT = {"commit.after_lmdb_commit", "commit.before_delivery", "commit.after_delivery"}


@pytest.mark.parametrize("point", POINTS_OF_A_COMMIT)
def test_an_interrupted_commit_is_there_or_not_and_the_next_works(environment, committer, append, check_whole, point):
    faults.arm(point, action=fail(Interrupt()))
    with pytest.raises(Interrupt):
        committer.submit(append)
    assert check_whole(environment) == (point in POINTS_AFTER_COMMIT)
    committer.submit(append)
    assert check_whole(environment) == 1 + (point in POINTS_AFTER_COMMIT)


@pytest.mark.parametrize("point", POINTS_OF_A_COMMIT)
def test_an_interrupted_leader_loses_no_follower(environment, committer, append, check_whole, point):
    """Its followers' works are run again if they were not committed, and by one of them."""
    holder = Holder(committer)
    callers = [Caller(committer, append) for _ in range(6)]
    faults.arm(point, count=1 if point in POINTS_OF_BEGIN else 2, action=fail(Interrupt()))
    holder.release()
    for caller in callers:
        caller.join(timeout=10)
    assert not any(caller.is_alive() for caller in callers)
    errors = [caller.error for caller in callers if caller.error is not None]
    assert all(isinstance(error, Interrupt) for error in errors)
    assert len(errors) <= 1
    results = sorted(caller.result for caller in callers if caller.error is None)
    assert check_whole(environment) in {len(results), len(results) + 1}
    assert len(set(results)) == len(results) >= 5
    committer.submit(append)


def raise_in(thread, error):
    """Have an exception raised in another thread, as a signal's handler does in the main one."""
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(error)) == 1


class Interrupted(threading.Thread):
    """Commits until it is stopped, whatever interrupts it; keeps what was acknowledged."""

    def __init__(self, committer, work, acknowledged):
        super().__init__(daemon=True)
        self.stopped = False
        self._submit = committer.submit
        self._work = work
        self._acknowledged = acknowledged
        self.start()

    def run(self):
        while not self.stopped:
            with contextlib.suppress(Interrupt):
                while not self.stopped:
                    self._acknowledged.append(self._submit(self._work))


def test_interrupts_at_random_moments_lose_nobody_and_leave_no_lock_behind(environment, committer, append, check_whole):
    acknowledged = []
    threads = [Interrupted(committer, append, acknowledged) for _ in range(4)]
    for number in range(150):
        time.sleep(0.003)
        raise_in(threads[number % 4], Interrupt)
    before = len(acknowledged)
    deadline = time.monotonic() + 20
    while len(acknowledged) < before + 20 and time.monotonic() < deadline:
        time.sleep(0.001)
    for thread in threads:
        thread.stopped = True
    for thread in threads:
        thread.join(timeout=10)
    assert not any(thread.is_alive() for thread in threads)
    assert len(acknowledged) >= before + 20
    committer.submit(append)
    assert set(acknowledged) <= set(range(1, check_whole(environment) + 1))
    assert len(set(acknowledged)) == len(acknowledged)


def test_an_interrupted_follower_is_not_committed(environment, committer, append, check_whole):
    holder = Holder(committer)
    callers = [Caller(committer, append) for _ in range(3)]
    raise_in(callers[1], Interrupt)
    holder.release()  # it wakes, at the latest, when it is served
    for caller in callers:
        caller.join(timeout=10)
    assert [type(caller.error) for caller in callers] == [type(None), Interrupt, type(None)]
    assert check_whole(environment) in {2, 3}
    committer.submit(append)
