"""Durable snapshots, pins, the dirty flag and recovery: the state after a session, and the next opening."""

import errno
import operator
import os
import statistics
import subprocess
import sys
import threading
import time

import forks
import pytest
from waiting import beating, until

import statelog
from statelog.errors import AccessError, CorruptionError, JournalMissingError, StorageError, StoreLockedError
from statelog.limits import HELD_PAGES_BOUND
from statelog.storage import faults, recovery
from statelog.storage.file.sidecar_files import journal_path
from statelog.storage.wal import checkpointer, wal
from statelog.storage.wal.dirty_flag import read_dirty_flag, set_dirty_flag

COMMIT_AND_DIE = """
store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
for _ in range(int(sys.argv[2])):
    store_file.committer.submit(append)
os.kill(os.getpid(), signal.SIGKILL)
"""


def dirty_flag_of(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return read_dirty_flag(descriptor)
    finally:
        os.close(descriptor)


@pytest.fixture
def flushes(monkeypatch):
    """Return a function that returns the number of flushes of a journal."""
    calls = []
    flush_file = checkpointer.flush_file
    for module in (checkpointer, wal):
        monkeypatch.setattr(module, "flush_file", lambda descriptor: (calls.append(descriptor), flush_file(descriptor)))
    return lambda: len(calls)


def files(path):
    return sorted(entry.name for entry in path.parent.iterdir())


def test_one_file_is_left_by_a_clean_close(open_store_file, append, path):
    store_file = open_store_file()
    store_file.committer.submit(append)
    assert files(path) == ["agent.state", "agent.state-control", "agent.state-journal", "agent.state-lock"]
    assert dirty_flag_of(path)
    store_file.close()
    assert files(path) == ["agent.state", "agent.state-lock"]
    assert dirty_flag_of(path) is None


def test_a_reader_creates_no_journal(open_store_file, path):
    store_file = open_store_file()
    with store_file.read():
        pass
    store_file.close()
    assert files(path) == ["agent.state", "agent.state-lock"]


def test_one_file_is_left_by_a_process_that_ends_without_closing(run_child, path):
    run_child("store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26); store_file.committer.submit(append)")
    assert files(path) == ["agent.state", "agent.state-lock"]


def test_the_last_of_two_processes_removes_the_journal(open_store_file, start_child, append, path):
    store_file = open_store_file()
    store_file.committer.submit(append)
    child = start_child(
        "store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26); say(store_file.committer.submit(append));"
        "sys.stdin.readline(); say(store_file.committer.submit(append)); store_file.close(); say('closed')"
    )
    assert child.stdout.readline() == "2\n"
    store_file.close()
    assert journal_path(path).exists()
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() == "3\n"
    assert child.stdout.readline() == "closed\n"
    assert not journal_path(path).exists()


@pytest.mark.parametrize("count", [1, 2, 50])
def test_a_killed_process_leaves_a_journal_and_the_next_opening_reads_it(
    run_child, open_store_file, check_whole, path, count
):
    assert run_child(COMMIT_AND_DIE, count) == (-9, [])
    assert journal_path(path).exists()
    store_file = open_store_file()
    assert store_file.replayed > 0
    assert check_whole(store_file) == count
    assert not journal_path(path).exists()
    assert dirty_flag_of(path) is None


def test_the_store_is_recovered_before_a_reader_opens_it(run_child, open_store_file, check_whole, path):
    run_child(COMMIT_AND_DIE, 20)
    assert check_whole(open_store_file(read_only=True)) == 20
    assert not journal_path(path).exists()


def test_a_reader_without_write_permission_gets_an_error(run_child, open_store_file, monkeypatch):
    run_child(COMMIT_AND_DIE, 3)
    plain = os.open

    def refuse(path, flags, *more, **others):
        if str(path).endswith("agent.state") and flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, "permission denied", str(path))
        return plain(path, flags, *more, **others)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(AccessError, match="was not closed"):
        open_store_file(read_only=True)


def test_a_reader_beside_a_writer_recovers_nothing(start_child, open_store_file, path):
    child = start_child(
        "store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26); say(store_file.committer.submit(append));"
        "sys.stdin.readline(); say(store_file.committer.submit(append))"
    )
    assert child.stdout.readline() == "1\n"
    store_file = open_store_file(read_only=True)
    assert journal_path(path).exists()
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() == "2\n"
    with store_file.read() as transaction:
        assert transaction.last_lsn() == 2


# --- missing and foreign journals -------------------------------------------


def test_a_store_without_its_journal_is_not_opened(run_child, open_store_file, path):
    run_child(COMMIT_AND_DIE, 5)
    before = path.read_bytes()
    journal_path(path).unlink()
    for read_only in (False, True):
        with pytest.raises(JournalMissingError, match="without-journal") as caught:
            open_store_file(read_only=read_only)
    assert caught.value.facts["journal"] == str(journal_path(path))
    assert path.read_bytes() == before


def test_recovery_without_the_journal_is_possible(run_child, open_store_file, check_whole, path):
    run_child(COMMIT_AND_DIE, 5)
    journal_path(path).unlink()
    assert recovery.abandon_journal(path) == (None,)
    assert check_whole(open_store_file()) == 5  # Only the process was killed.
    assert dirty_flag_of(path) is None


def test_abandoning_the_journal_of_an_open_store_is_refused(open_store_file, append, path):
    store_file = open_store_file()
    store_file.committer.submit(append)
    with pytest.raises(StoreLockedError):
        recovery.abandon_journal(path)
    store_file.close()
    assert not recovery.abandon_journal(path)


def test_a_journal_from_another_time_is_refused(run_child, open_store_file, path):
    run_child(COMMIT_AND_DIE, 5)
    other = journal_path(path).read_bytes()
    open_store_file().close()
    run_child(COMMIT_AND_DIE, 5)
    journal_path(path).write_bytes(other)
    with pytest.raises(CorruptionError, match="belongs to a different session"):
        open_store_file()


def test_a_journal_beside_a_closed_store_is_removed(run_child, open_store_file, append, check_whole, path):
    """A backup of the file was restored, but the later journal was left."""
    store_file = open_store_file()
    store_file.committer.submit(append)
    store_file.close()
    backup = path.read_bytes()
    run_child(COMMIT_AND_DIE, 5)
    path.write_bytes(backup)
    assert check_whole(open_store_file()) == 1
    assert not journal_path(path).exists()


def test_negative_control_without_the_dirty_flag_a_missing_journal_is_not_noticed(run_child, open_store_file, path):
    """Negative control."""
    run_child(COMMIT_AND_DIE, 5)
    journal_path(path).unlink()
    descriptor = os.open(path, os.O_RDWR)
    os.pwrite(descriptor, bytes(64), 4096 - 64)
    os.close(descriptor)
    open_store_file()


def test_a_damaged_dirty_flag_counts_as_set(open_store_file, append, path):
    store_file = open_store_file()
    store_file.committer.submit(append)
    store_file.close()
    descriptor = os.open(path, os.O_RDWR)
    set_dirty_flag(descriptor, bytes(16))
    os.pwrite(descriptor, b"?", 4096 - 64 + 9)
    os.close(descriptor)
    with pytest.raises(JournalMissingError):
        open_store_file()


# --- the pin, idle stores, failed flushes --------------------------------------------


def test_an_idle_store_is_checkpointed_and_pins_no_page(store_file, append, monkeypatch):
    monkeypatch.setattr("statelog.storage.wal.background_flusher.IDLE_S", 0.05)
    store_file.committer.submit(append)
    assert store_file.checkpointer.pins
    until(lambda: not store_file.checkpointer.pins)
    assert not store_file.checkpointer.needs_checkpoint
    assert store_file.committer.submit(append) == 2
    assert store_file.checkpointer.pins


def test_after_a_failed_flush_nothing_is_written_until_the_store_is_opened_again(open_store_file, append, check_whole):
    store_file = open_store_file()
    store_file.committer.submit(append)

    def fail():
        raise OSError(errno.EIO, "input/output error")

    faults.arm("checkpoint.after_sync", action=fail)
    with pytest.raises(StorageError, match="a flush failed"):
        store_file.writer.checkpoint()
    for _ in range(2):
        with pytest.raises(StorageError, match="a flush failed"):
            store_file.committer.submit(append)
    assert check_whole(store_file) == 1
    store_file.close()
    store_file = open_store_file()
    assert store_file.replayed == 1
    assert store_file.committer.submit(append) == 2


def test_a_large_commit_is_not_written_twice(store_file, path):
    store_file.committer.submit(lambda transaction: transaction.put_log(1, bytes(3_000_000)))
    assert 512 * journal_path(path).stat().st_blocks < 1_000_000
    assert not store_file.checkpointer.needs_checkpoint


def test_many_pinned_pages_end_an_epoch(store_file, append):
    for _ in range(400):
        store_file.committer.submit(append)
    statistics = store_file.statistics()
    assert statistics.pages_free <= HELD_PAGES_BOUND
    assert store_file.wal.shared_state.done > 1


def test_an_interval_store_is_flushed_in_the_background(open_store_file, append):
    store_file = open_store_file(durability="interval", interval_ms=10)
    store_file.committer.submit(append)
    assert store_file.wal.is_dirty
    until(lambda: not store_file.wal.is_dirty)


@pytest.mark.slow
@pytest.mark.parametrize("interval_ms", [3, 30, 50])
def test_no_commit_waits_longer_than_the_interval(open_store_file, append, monkeypatch, interval_ms):
    store_file = open_store_file(durability="interval", interval_ms=interval_ms)
    began_s, flush = [], store_file.wal.flush
    monkeypatch.setattr(store_file.wal, "flush", lambda: (began_s.append(time.monotonic()), flush()))
    with beating(interval_ms / 1000) as beats_s:
        while len(beats_s) <= 30:
            store_file.committer.submit(append)
            time.sleep(0.0005)
    wait_ms, beat_ms = (1000 * statistics.median(map(operator.sub, s[1:], s)) for s in (began_s, beats_s))
    assert wait_ms < 1.1 * beat_ms + 1


def test_a_commit_can_leave_its_flush_to_the_next_one(open_store_file, append, flushes, monkeypatch):
    monkeypatch.setattr("statelog.storage.wal.background_flusher.IDLE_S", 3600)
    store_file = open_store_file(interval_ms=60_000)
    store_file.committer.submit(append)
    before = flushes()
    store_file.committer.submit(append, is_flushed=False)
    assert store_file.wal.is_dirty
    assert flushes() == before
    store_file.committer.submit(append)
    assert not store_file.wal.is_dirty
    assert flushes() == before + 1


def test_commits_that_no_other_flushes_are_flushed_in_time(open_store_file, append, monkeypatch):
    monkeypatch.setattr("statelog.storage.wal.background_flusher.IDLE_S", 3600)
    store_file = open_store_file(interval_ms=10)
    store_file.committer.submit(append)  # The background flusher has started, and checks once an hour.
    store_file.committer.submit(append, is_flushed=False)
    until(lambda: not store_file.wal.is_dirty)


def test_a_group_is_flushed_if_one_of_its_commits_requires_it(open_store_file, append, monkeypatch):
    monkeypatch.setattr("statelog.storage.wal.background_flusher.IDLE_S", 3600)
    store_file = open_store_file(interval_ms=60_000)
    gate, begun = threading.Event(), threading.Event()

    def slow(transaction):
        begun.set()
        assert gate.wait(10)
        return append(transaction)

    threads = [threading.Thread(target=store_file.committer.submit, args=(slow,), kwargs={"is_flushed": False})]
    threads[0].start()
    assert begun.wait(10)
    for is_flushed in (False, True, False):
        kwargs = {"is_flushed": is_flushed}
        threads.append(threading.Thread(target=store_file.committer.submit, args=(append,), kwargs=kwargs))
        threads[-1].start()
    while len(store_file.committer.queue.requests) < 3:
        time.sleep(0.001)
    gate.set()
    for thread in threads:
        thread.join(10)
    assert store_file.committer.groups == 2
    assert not store_file.wal.is_dirty


def test_a_barrier_flushes_all_commits(open_store_file, append):
    store_file = open_store_file(durability="interval", interval_ms=60_000)
    store_file.committer.submit(append)
    assert store_file.wal.is_dirty
    store_file.flush_journal()
    assert not store_file.wal.is_dirty


IDLE = """
import statelog, sys
from statelog.storage.wal import background_flusher
background_flusher.IDLE_S = 3600  # nothing but the other process's commits makes it give the pin back
with statelog.open(sys.argv[1], durability=sys.argv[2]) as store:
    thread = store.thread("idle")
    thread.commit({"x": 0})
    print("committed", flush=True)
    for line in sys.stdin:
        thread.commit({"x": int(line)})
        print("committed", flush=True)
"""


COMMITS = 2000
"""Enough for the store to outgrow the bounds below if another process keeps its pin."""


@pytest.mark.slow
@pytest.mark.parametrize(("durability", "size_bytes_max"), [("commit", 32 << 20), ("interval", 48 << 20)])
def test_a_process_that_pauses_after_a_commit_pins_no_pages(path, durability, size_bytes_max):
    """It releases its pin while the others commit, and commits as before after its pause."""
    command = [sys.executable, "-c", IDLE, path, durability]
    with (
        statelog.open(path, durability=durability) as store,
        forks.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child,
    ):
        thread = store.thread("busy")
        thread.commit({"x": 0})
        assert child.stdout.readline()
        largest = number = 0
        for turn in range(2):
            for _ in range(COMMITS):
                number += 1
                thread.commit({"x": number})
            largest = max(largest, path.stat().st_size)
            child.stdin.write(f"{turn}\n")
            child.stdin.flush()
            assert child.stdout.readline()
        child.stdin.close()
        assert child.wait() == 0
        assert store.thread("idle").state["x"] == 1
        assert store.verify().ok
        assert largest <= size_bytes_max
