import contextlib
import ctypes
import os
import threading
import time

import pytest
from committing import Caller, Holder, fail

from statelog.errors import (
    CommitOutcomeUnknownError,
    ConflictError,
    LimitError,
    UsageError,
)
from statelog.limits import GROUP_COMMITS_MAX
from statelog.log.commit import Committer
from statelog.storage import faults


class Interrupt(BaseException):
    """An interrupt like KeyboardInterrupt that does not stop pytest."""


@pytest.fixture
def submit_together(committer):
    """Submit works so that they share one group. Return their callers in order."""

    def submit(*works):
        holder = Holder(committer)
        callers = [Caller(committer, work) for work in works]
        holder.release()
        for caller in callers:
            caller.join()
        return callers

    return submit


# --- results and exceptions ---------------------------------------------------


def test_a_result_is_delivered_after_the_commit(store_file, committer, append):
    assert committer.submit(append) == 1
    with store_file.read() as transaction:
        assert transaction.last_lsn() == 1


def test_an_exception_of_a_work_is_raised_in_its_caller_and_nothing_is_written(store_file, committer):
    def work(transaction):
        transaction.put_log(1, b"half")
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        committer.submit(work)
    with store_file.read() as transaction:
        assert transaction.last_lsn() == 0


def test_a_committer_continues_after_an_exception(committer, append):
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


def test_a_work_that_raises_before_it_writes_fails_alone(store_file, committer, submit_together, append, check_whole):
    def conflict(_transaction):
        raise ConflictError("stale", expected_version=1, actual_version=2)

    callers = submit_together(append, conflict, append, conflict)
    assert [caller.result for caller in callers] == [1, None, 2, None]
    assert [type(caller.error) for caller in callers] == [type(None), ConflictError, type(None), ConflictError]
    assert callers[1].error is not callers[3].error
    assert committer.groups == 2
    assert check_whole(store_file) == 2


def test_a_work_that_raises_after_it_wrote_fails_alone(store_file, submit_together, append, check_whole):
    def half(transaction):
        transaction.put_log(transaction.last_lsn() + 1, b"half")
        raise ZeroDivisionError

    callers = submit_together(append, half, append)
    assert [caller.result for caller in callers] == [1, None, 2]
    assert isinstance(callers[1].error, ZeroDivisionError)
    assert check_whole(store_file) == 2


def test_each_commit_of_a_group_that_is_run_one_by_one_is_flushed(store_file, submit_together, append):
    """The last of them writes nothing, so it needs no flush."""

    def fail_late(transaction):
        transaction.put_log(transaction.last_lsn() + 1, b"half")
        raise KeyError

    first, *others = submit_together(append, fail_late, lambda _: 1 // 0)
    assert [type(caller.error) for caller in others] == [KeyError, ZeroDivisionError]
    shared = store_file.wal.shared_state
    assert first.result == 1 == shared.written == shared.flushed


def test_a_refused_caller_gets_its_error_even_if_the_flush_fails(store_file, submit_together, append):
    store_file.committer.submit(append)
    faults.arm("journal.after_append", action=lambda: setattr(store_file.wal.shared_state, "is_broken", 1))
    wrote, refused = submit_together(append, lambda _: 1 // 0)
    assert isinstance(wrote.error, CommitOutcomeUnknownError)
    assert isinstance(refused.error, ZeroDivisionError)


def test_a_key_too_long_for_lmdb_is_a_limit_error_only_for_its_caller(store_file, submit_together, append, check_whole):
    callers = submit_together(append, lambda transaction: transaction.put_index(b"k" * 512, b""), append)
    assert [type(caller.error) for caller in callers] == [type(None), LimitError, type(None)]
    assert check_whole(store_file) == 2


def test_the_size_of_a_group_is_limited(committer, submit_together):
    submit_together(*[lambda _: None] * (GROUP_COMMITS_MAX + 5))
    assert committer.groups == 3


@pytest.mark.parametrize("inner", ["same committer", "another committer"])
def test_a_commit_within_a_commit_is_a_usage_error(store_file, committer, append, inner):
    other = committer if inner == "same committer" else Committer(store_file.writer)
    with pytest.raises(UsageError, match="within another commit"):
        committer.submit(lambda _: other.submit(append))
    assert committer.submit(append) == 1


def test_reading_within_a_commit_is_allowed_and_sees_the_last_commit(store_file, committer, append):
    committer.submit(append)

    def work(transaction):
        append(transaction)
        with store_file.read() as snapshot:
            return snapshot.last_lsn()

    assert committer.submit(work) == 1


def test_two_committers_of_one_environment_take_turns(store_file, append, check_whole):
    committers = [Committer(store_file.writer) for _ in range(4)]

    def commit(committer):
        for _ in range(20):
            committer.submit(append)

    threads = [threading.Thread(target=commit, args=(committer,)) for committer in committers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert check_whole(store_file) == 80


def test_contending_threads_share_groups_and_lose_no_commit(store_file, committer, append, check_whole):
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
    if os.environ.get("STATELOG_TEST_DISK"):  # In memory, a flush takes no time, so no flush is shared.
        assert committer.commits / committer.groups > 4
    assert check_whole(store_file) == 16 * per_thread


def test_a_lone_committer_never_waits_for_others(committer, append, monkeypatch):
    def never(*_arguments):
        raise AssertionError

    monkeypatch.setattr("statelog.log.commit_queue.time.sleep", never)
    for _ in range(20):
        committer.submit(append)
    assert committer.groups == committer.commits == 20


# --- interrupts -----------------------------------------------------------------


POINTS_OF_A_COMMIT = [point for point in faults.POINTS if point.startswith("commit.")]
POINTS_OF_BEGIN = {"commit.before_begin", "commit.after_begin"}
POINTS_AFTER_COMMIT = {"commit.after_lmdb_commit", "commit.before_delivery", "commit.after_delivery"}


@pytest.mark.parametrize("point", POINTS_OF_A_COMMIT)
def test_an_interrupted_commit_is_complete_or_absent_and_the_next_one_works(
    store_file, committer, append, check_whole, point
):
    faults.arm(point, action=fail(Interrupt()))
    with pytest.raises(Interrupt):
        committer.submit(append)
    assert check_whole(store_file) == (point in POINTS_AFTER_COMMIT)
    committer.submit(append)
    assert check_whole(store_file) == 1 + (point in POINTS_AFTER_COMMIT)


@pytest.mark.parametrize("point", POINTS_OF_A_COMMIT)
def test_an_interrupted_leader_loses_no_follower(store_file, committer, append, check_whole, point):
    """If the works of its followers were not committed, one of them runs them again."""
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
    assert check_whole(store_file) in {len(results), len(results) + 1}
    assert len(set(results)) == len(results) >= 5
    committer.submit(append)


def test_a_follower_settled_while_it_checks_does_not_keep_the_turn(committer, append):
    """Its leader settles its request and ends between two steps of the follower."""
    queue, is_late, is_looking = committer.queue, threading.Event(), threading.Event()

    class Turn:
        """The turn. A follower gets it only when its request is settled."""

        def __init__(self, lock):
            self.acquired_late = 0
            self._lock = lock
            self.release, self._is_owned = lock.release, lock._is_owned

        def acquire(self, blocking=True):  # noqa: FBT002 - as of a lock
            if threading.current_thread().name == "follower" and is_late.is_set():
                is_looking.set()
                while committer.commits < 2:
                    time.sleep(0.001)
                while not self._lock.acquire(blocking=False):
                    time.sleep(0.001)
                self.acquired_late += 1
                return True
            return self._lock.acquire(blocking=blocking)

    queue.turn = turn = Turn(queue.turn)
    holder = Holder(committer)
    follower = Caller(committer, append)
    follower.name = "follower"
    leader = Caller(committer, append)
    is_late.set()
    queue.requests[0].gate.release()  # The follower checks again, and is blocked.
    assert is_looking.wait(20)
    queue.requests.rotate(1)
    holder.release()
    for caller in (leader, follower):
        caller.join(timeout=20)
    assert (turn.acquired_late, sorted([leader.result, follower.result])) == (1, [1, 2])
    assert turn._lock.acquire(blocking=False), "the follower has kept the turn"
    turn.release()
    assert committer.submit(append) == 3


def test_a_follower_that_is_woken_early_waits_for_the_flush(store_file, committer, append, monkeypatch):
    """The next leader has committed its work, and flushes."""
    flush, may_flush, flushing = store_file.wal.flush, threading.Event(), threading.Event()

    def slow_flush():
        if committer.commits >= 1:
            flushing.set()
            assert may_flush.wait(20)
        flush()

    monkeypatch.setattr(store_file.wal, "flush", slow_flush)
    holder = Holder(committer)
    callers = [Caller(committer, append) for _ in range(2)]
    gates = [request.gate for request in committer.queue.requests]
    holder.release()
    assert flushing.wait(20)
    for gate in gates:
        with contextlib.suppress(RuntimeError):
            gate.release()
    for caller in callers:
        caller.join(0.05)
    assert all(caller.is_alive() for caller in callers)
    may_flush.set()
    for caller in callers:
        caller.join(20)
    assert sorted(caller.result for caller in callers) == [1, 2]


def test_a_second_interrupt_does_not_acknowledge_an_unflushed_commit(store_file, committer, append, monkeypatch):
    """The first interrupt arrives in the flush, the second one while the store checks if the commit exists."""

    def interrupt(*_arguments, **_options):
        raise Interrupt

    holder = Holder(committer)
    callers = [Caller(committer, append) for _ in range(2)]
    monkeypatch.setattr(store_file.wal, "flush", interrupt)
    monkeypatch.setattr(committer.failures, "look", interrupt)
    holder.release()
    for caller in callers:
        caller.join(20)
    assert {type(caller.error) for caller in callers} == {Interrupt, CommitOutcomeUnknownError}
    monkeypatch.undo()
    assert committer.submit(append) == 3


class TimeLimitError(TimeoutError):
    """An error that the handler of an alarm raises."""


def test_an_interrupt_of_a_leader_before_the_commit_does_not_affect_its_followers(
    store_file, committer, append, monkeypatch
):
    ensure, interrupted = store_file.disk_reserve.ensure, []

    def interrupt_once(transaction):
        if len(committer.queue.group) > 1 and not interrupted:
            interrupted.append(threading.current_thread())
            raise TimeLimitError
        ensure(transaction)

    monkeypatch.setattr(store_file.disk_reserve, "ensure", interrupt_once)
    holder = Holder(committer)
    callers = [Caller(committer, append) for _ in range(3)]
    holder.release()
    for caller in callers:
        caller.join(20)
    assert [type(caller.error) for caller in callers if caller in interrupted] == [TimeLimitError]
    assert sorted(caller.result for caller in callers if caller not in interrupted) == [1, 2]


def test_an_interrupted_reopening_leaves_the_gate_open(store_file, committer, append, monkeypatch):
    file = store_file.lmdb_file

    def interrupt(_timeout_s):
        raise Interrupt

    with monkeypatch.context() as patch:
        patch.setattr(file, "_hooks", file._hooks._replace(release_pins=interrupt))
        with pytest.raises(Interrupt):
            file.reopen()
    assert not file.is_shut
    assert committer.submit(append) == 1


def raise_in(thread, error):
    """Raise an exception in another running thread, as a signal handler does in the main thread.

    A new thread may have the identifier of a thread that has ended.
    """
    if thread.is_alive():
        assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(error)) == 1


class Interrupted(threading.Thread):
    """Commits until it is stopped, also after interrupts, and remembers what was acknowledged."""

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


@pytest.mark.slow
def test_interrupts_at_random_moments_lose_no_caller_and_leave_no_lock(store_file, committer, append, check_whole):
    # The background flusher starts with the first commit. Until it runs, Python attributes its frames to the
    # starting thread.
    acknowledged = [committer.submit(append)]
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
    assert set(acknowledged) <= set(range(1, check_whole(store_file) + 1))
    assert len(set(acknowledged)) == len(acknowledged)


def test_an_interrupted_follower_is_not_committed(store_file, committer, append, check_whole):
    holder = Holder(committer)
    callers = [Caller(committer, append) for _ in range(3)]
    raise_in(callers[1], Interrupt)
    holder.release()  # It wakes when it is served, at the latest.
    for caller in callers:
        caller.join(timeout=10)
    assert [type(caller.error) for caller in callers] == [type(None), Interrupt, type(None)]
    assert check_whole(store_file) in {2, 3}
    committer.submit(append)
