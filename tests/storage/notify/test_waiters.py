"""Waiters in slots of the wake-up file: which of them a commit wakes, and how others take over."""

import itertools
import random
import statistics
import threading
import time

import pytest
from waiting import beating, until

from statelog.storage.notify import slot_file, waiter
from statelog.storage.notify.slot_file import wake_path
from statelog.storage.notify.wake import ANY, EVERY_SEGMENT, segment_bit

TURN = b"turn"

WAIT_FOR_TURN = """
store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
with store_file.wake.enter(0, b"turn") as waiter:
    say("in")
    say(waiter.wait(30))
"""

COMMIT_EACH = """
store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
def work(transaction):
    transaction.wakes |= mask
    return append(transaction)
for line in sys.stdin:
    mask = int(line)
    store_file.committer.submit(work)
    say("done")
"""


def calling(append, subject=TURN, made=None):
    """A work that notifies the first waiter for a subject."""

    def call(wake):
        found = wake.call_next(lambda each: each == subject)
        if made is not None:
            made.append(found)

    def work(transaction):
        transaction.calls += (call,)
        return append(transaction)

    return work


def waking(append, mask):
    def work(transaction):
        transaction.wakes |= mask
        return append(transaction)

    return work


def ask(child, line):
    child.stdin.write(f"{line}\n")
    child.stdin.flush()
    return child.stdout.readline()


def line_up(start_child, count):
    """Start processes that wait for their turn, one after another."""
    children = []
    for _ in range(count):
        children.append(start_child(WAIT_FOR_TURN))
        assert children[-1].stdout.readline() == "in\n"
    return children


def test_segments_have_bits_between_those_with_a_meaning():
    bits = {segment_bit(f"segment {number}") for number in range(2000)}
    assert bits == {1 << number for number in range(1, 63)}
    assert not bits & {ANY, EVERY_SEGMENT}
    assert segment_bit("runs") == segment_bit("runs")


@pytest.mark.slow
def test_a_waiter_is_woken_by_masks_that_overlap_and_by_no_others(store_file, start_child, monkeypatch):
    """Over 300 commits of another process."""
    monkeypatch.setattr(waiter, "_DOUBT_S", 60)  # A busy machine must not raise doubts about a commit.
    child = start_child(COMMIT_EACH)
    assert ask(child, 2) == "done\n"
    counts = {4: 0, 2: 0}
    stop = threading.Event()

    def count(mask, entered):
        with store_file.wake.enter(mask) as waits:
            entered.wait()
            while not stop.is_set():
                counts[mask] += waits.wait(0.2)

    entered = threading.Barrier(3)
    threads = [threading.Thread(target=count, args=(mask, entered)) for mask in counts]
    for thread in threads:
        thread.start()
    entered.wait()
    time.sleep(0.1)  # The child has found the file.
    for number in range(300):
        assert ask(child, 2) == "done\n"
        until(lambda number=number: counts[2] > number)
    stop.set()
    for thread in threads:
        thread.join(30)
    assert counts[4] <= 3, "a busy machine may wake it for nothing, now and then"
    assert 300 <= counts[2] <= 310


def test_a_commit_between_entering_and_waiting_wakes_the_waiter(store_file, append):
    with store_file.wake.enter(2) as waits:
        store_file.committer.submit(waking(append, 2))
        assert waits.wait(0)
        assert not waits.wait(0)
        store_file.committer.submit(waking(append, 4))
        assert not waits.wait(0.1)


def test_waiters_for_any_record_are_notified_of_each(store_file, append):
    with store_file.wake.enter(ANY) as waits:
        store_file.committer.submit(append)
        assert waits.wait(0)


@pytest.mark.slow
def test_a_notification_wakes_the_first_of_three_processes(store_file, append, start_child):
    children, made = line_up(start_child, 3), []
    for number, child in enumerate(children):
        store_file.committer.submit(calling(append, made=made))
        assert child.communicate(timeout=300)[0] == "True\n"
        time.sleep(0.1)
        assert [each.poll() for each in children[number + 1 :]] == [None] * (2 - number), "those are not woken"
    assert made == [True] * 3
    store_file.committer.submit(calling(append, made=made))
    assert made[-1] is False


def test_a_notification_wakes_no_waiter_for_another_subject(store_file, append):
    with store_file.wake.enter(ANY | 2, b"other") as waits:
        store_file.committer.submit(calling(append))
        assert not waits.wait(0.1)


@pytest.mark.slow
def test_a_killed_waiter_is_skipped_after_a_second(store_file, append, start_child):
    first, second = line_up(start_child, 2)
    first.kill()
    first.wait()
    time.sleep(1.2)
    store_file.committer.submit(calling(append))
    assert second.communicate(timeout=300)[0] == "True\n"


@pytest.mark.slow
def test_a_wake_up_of_a_killed_waiter_goes_to_the_next(store_file, append, start_child):
    first, second = line_up(start_child, 2)
    first.kill()
    first.wait()
    before = time.monotonic()
    store_file.committer.submit(calling(append))
    assert second.communicate(timeout=300)[0] == "True\n"
    assert time.monotonic() - before < 10


def test_a_waiter_that_leaves_forwards_its_wake_up(store_file):
    wake = store_file.wake
    with wake.enter(0, TURN) as first, wake.enter(0, b"other") as other, wake.enter(0, TURN) as second:
        assert first.is_first()
        assert not second.is_first()
        assert wake.call_next(lambda subject: subject == TURN)
        first._leave()
        assert second.is_first()
        assert second.wait(0)
        assert not other.wait(0)


def test_an_exception_during_a_notification_is_ignored(store_file, append):
    def fail(_wake):
        raise RuntimeError

    def work(transaction):
        transaction.calls += (fail,)
        return append(transaction)

    assert store_file.committer.submit(work) == 1


def test_notifications_are_sent_without_the_writer_lock(store_file, append):
    seen = []

    def work(transaction):
        transaction.calls += (lambda _wake: seen.append(store_file.lmdb_file.writer_thread),)
        return append(transaction)

    store_file.committer.submit(work)
    assert seen == [0]


def test_notifications_of_a_failed_work_are_not_sent(store_file):
    made = []

    def work(transaction):
        transaction.calls += (made.append,)
        raise KeyError

    with pytest.raises(KeyError):
        store_file.committer.submit(work)
    assert made == []


@pytest.mark.slow
def test_with_an_interval_waiters_are_notified_after_the_flush(open_store_file, append):
    store_file = open_store_file(durability="interval", interval_ms=1000)
    store_file.committer.submit(append)  # The first commit of a session is flushed.
    made = []
    with store_file.wake.enter(2) as waits:
        store_file.committer.submit(waking(calling(append, made=made), 2))
        assert made == [False]
        lsn = store_file.wake.slot_file.last_lsn()
        assert store_file.flushed_lsn() < lsn, "a slow machine"
        assert waits.wait(30)
        assert store_file.flushed_lsn() >= lsn
    assert not store_file.wake.slot_file.unreached


def test_closing_reports_unflushed_commits(open_store_file, append):
    store_file = open_store_file(durability="interval", interval_ms=60_000)
    store_file.committer.submit(append)
    with store_file.wake.enter(2) as waits:
        store_file.committer.submit(waking(append, 2))
        slots, place = waits._slots, waits._place
        assert slots.sleep(place, 0, stale_ms=1000) == slot_file.kernels.WAKE_ASLEEP
        store_file.close()
        assert slots.sleep(place, 0, stale_ms=1000) == slot_file.kernels.WAKE_WOKEN


def test_a_lost_file_is_re_created_and_the_position_kept(store_file):
    wake = store_file.wake
    with wake.enter(0, TURN) as first, wake.enter(0, TURN) as second:
        tickets = first.ticket, second.ticket
        wake_path(store_file.path).unlink()
        assert first.wait(300), "what came to the lost one nobody can tell"
        assert second.wait(300)
        assert (first.ticket, second.ticket) == tickets
        assert wake.call_next(lambda subject: subject == TURN)
        assert first.wait(0)
        assert not second.wait(0)


@pytest.mark.slow
def test_commits_that_do_not_reach_the_file_are_seen_in_the_log(store_file, start_child):
    """As in a sandbox that does not share mapped files."""
    child = start_child(
        "from statelog.storage.notify import slot_file; slot_file.map_wake_file = lambda *_arguments, **_options: None"
        + COMMIT_EACH
    )
    assert ask(child, 2) == "done\n"
    took_s, baseline_s = [], []
    with store_file.wake.enter(2) as waits:
        assert not waits.wait(0.4)
        for _ in range(5):
            assert ask(child, 2) == "done\n"
            before = time.monotonic()
            assert waits.wait(30)
            took_s.append(time.monotonic() - before)
            before = time.monotonic()
            assert not waits.wait(0.1)
            baseline_s.append(time.monotonic() - before)
    assert statistics.median(took_s) < 2 * statistics.median(baseline_s)
    until(lambda: store_file.wake.slot_file.unreached)


@pytest.mark.slow
def test_commits_that_reach_the_file_are_never_mistaken_for_others(store_file, start_child):
    """Many commits arrive at once, and each counts its records a moment after it is seen.

    Only if one of the two processes was not running for that moment can a commit be mistaken.
    """
    child = start_child(
        """
        store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26, durability="interval")
        store_file.committer.submit(append)
        say("ready")
        sys.stdin.readline()
        until, late = time.monotonic() + 1.5, 0
        while (begun := time.monotonic()) < until:
            store_file.committer.submit(append)
            late += time.monotonic() - begun > 0.04
        say(late)
        """
    )
    assert child.stdout.readline() == "ready\n"
    with store_file.wake.enter(4) as waits:
        time.sleep(0.1)
        child.stdin.write("go\n")
        child.stdin.flush()
        count = 0
        with beating(0.005) as beats_s:
            while beats_s[-1] < beats_s[0] + 1.5:
                count += waits.wait(0.5)
    late = int(child.stdout.readline()) + sum(after - before > 0.04 for before, after in itertools.pairwise(beats_s))
    assert count <= 5 + late
    assert late or not store_file.wake.slot_file.unreached


def test_waiters_without_a_slot_check_the_log(store_file, append):
    woken = []
    started = threading.Semaphore(0)

    def wait():
        with store_file.wake.enter(2) as waits:
            started.release()
            woken.append(waits.wait(60))

    threads = [threading.Thread(target=wait) for _ in range(300)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert started.acquire(timeout=60)
    store_file.committer.submit(waking(append, 2))
    for thread in threads:
        thread.join(60)
    assert woken == [True] * 300


@pytest.mark.parametrize("seed", range(3))
def test_arbitrary_bytes_in_the_file_do_no_harm(store_file, append, seed):
    chance = random.Random(seed)
    with store_file.wake.enter(2) as waits, store_file.wake.enter(0, TURN) as turn:
        for _ in range(20):
            with wake_path(store_file.path).open("r+b") as stream:
                stream.seek(8)
                stream.write(chance.randbytes(131_000))
            waits.position = 5
            store_file.committer.submit(waking(calling(append), 2))
            waits.wait(0.001)
            turn.wait(0.001)
            turn.is_first()
            store_file.wake.positions(within_s=1)


def test_after_garbage_waiters_are_woken_again(store_file, append):
    with store_file.wake.enter(2) as waits:
        with wake_path(store_file.path).open("r+b") as stream:
            stream.seek(64)
            stream.write(b"\xff" * 131_072)
        assert waits.wait(30), "the slot was lost"
        waits.wait(0.2)
        store_file.committer.submit(waking(append, 2))
        assert waits.wait(30)


@pytest.mark.slow
def test_positions_count_the_waiters_of_all_processes(store_file, start_child):
    child = start_child(
        """
        store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
        with store_file.wake.enter(2) as waiter:
            waiter.position = 7
            say(waiter.position)
            sys.stdin.readline()
            os._exit(0)
        """
    )
    with store_file.wake.enter(2) as waits:
        assert child.stdout.readline() == "7\n"
        waits.position = 9
        assert store_file.wake.positions(within_s=60) == 7
        child.communicate("exit\n", timeout=300)
        time.sleep(1.2)
        waits.wait(0)
        assert store_file.wake.positions(within_s=1) == 9
        assert store_file.wake.positions(within_s=60) == 7


def test_without_a_file_waiters_check_the_log(store_file, append, monkeypatch):
    monkeypatch.setattr(slot_file, "map_wake_file", lambda *_arguments, **_options: None)
    with store_file.wake.enter(0, TURN) as waits:
        assert waits.is_first()
        assert waits.ticket == 0
        assert not waits.wait(0.1)
        threading.Timer(0.1, store_file.committer.submit, (append,)).start()
        assert waits.wait(30)
    assert store_file.wake.slot_file.unreached


def test_a_forked_child_does_not_change_the_parents_slot(store_file, monkeypatch):
    with store_file.wake.enter(0, TURN) as first, store_file.wake.enter(0, TURN) as second:
        with monkeypatch.context() as patch:
            patch.setattr(waiter.os, "getpid", lambda: 1)
            first._leave()
        assert not second.is_first()
