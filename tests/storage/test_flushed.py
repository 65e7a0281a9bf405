"""Data reported as flushed is on the disk: to followers, after a barrier, and while a store closes."""

import os
import signal
import threading

import pytest

from statelog.errors import UsageError
from statelog.storage.wal import background_flusher

LEAVES = """
store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
store_file.background_flusher.stop = store_file.background_flusher.start = lambda: None  # it would flush in the end
store_file.committer.submit(append)
store_file.writer.checkpoint()
store_file.committer.submit(append, is_flushed=False)
say("left")
sys.stdin.readline()
"""
"""Commits twice, and leaves the second one's flush to later."""


@pytest.fixture
def left(start_child):
    child = start_child(LEAVES)
    assert child.stdout.readline() == "left\n"
    return child


def test_after_a_killed_writer_no_reader_gets_unflushed_records(left, open_store_file, start_child):
    reader = open_store_file(read_only=True)
    assert reader.flushed_lsn() == 1
    os.kill(left.pid, signal.SIGKILL)
    left.wait()
    writes = start_child("""
store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
say("open")
sys.stdin.readline()
say(store_file.committer.submit(append))
sys.stdin.readline()
""")
    assert writes.stdout.readline() == "open\n"
    assert reader.flushed_lsn() == 1
    writes.stdin.write("\n")
    writes.stdin.flush()
    assert writes.stdout.readline() == "3\n"
    assert reader.flushed_lsn() == 3


def test_a_barrier_also_flushes_commits_of_other_processes(left, store_file):
    shared = store_file.wal.shared_state
    assert (shared.written, shared.flushed) == (2, 1)
    store_file.flush_journal()
    assert shared.flushed == 2
    left.communicate("\n")


def test_a_signal_handler_that_flushes_within_a_flush_is_refused(store_file, append):
    """The handler would wait for the flush that it has interrupted."""
    wal, refused = store_file.wal, []
    store_file.committer.submit(append)
    flush = wal.sync

    def flush_interrupted():
        with pytest.raises(UsageError, match="that interrupted"):
            store_file.flush_journal()
        refused.append(True)
        flush()

    wal.sync = flush_interrupted
    assert store_file.committer.submit(append) == 2
    assert refused
    assert wal.shared_state.flushed == 2


def test_a_commit_that_waits_for_its_flush_is_flushed_when_the_store_closes(
    open_store_file, append, check_whole, monkeypatch
):
    monkeypatch.setattr(background_flusher, "IDLE_S", 60)
    store_file = open_store_file()
    store_file.committer.submit(append)
    wal, begun, goes_on = store_file.wal, threading.Event(), threading.Event()
    flush = wal.sync

    def wait():
        begun.set()
        goes_on.wait(10)
        flush()

    wal.sync = wait
    results = []
    committing = threading.Thread(target=lambda: results.append(store_file.committer.submit(append)))
    committing.start()
    assert begun.wait(10)
    closing = threading.Thread(target=store_file.close)
    closing.start()
    closing.join(0.1)
    goes_on.set()
    committing.join(10)
    closing.join(10)
    assert results == [2]
    assert check_whole(open_store_file()) == 2
