"""What is said to be on the disk is there: to followers, by a barrier, and while a store closes."""

import os
import signal
import threading

import pytest

from statelog.errors import UsageError
from statelog.storage.commit import keeper

LEAVES = """
environment = Environment.open(sys.argv[1], max_size_bytes=2**26)
environment.keeper.stop = environment.keeper._start = lambda: None  # it would flush in the end
environment.committer.submit(append)
environment.make_steady()
environment.committer.submit(append, is_flushed=False)
say("left")
sys.stdin.readline()
"""
"""Commits twice, and leaves the second one's flush to later."""


@pytest.fixture
def left(start_child):
    child = start_child(LEAVES)
    assert child.stdout.readline() == "left\n"
    return child


def test_after_a_killed_writer_no_reader_is_told_of_what_is_not_flushed(left, open_environment, start_child):
    reader = open_environment(read_only=True)
    assert reader.flushed_lsn() == 1
    os.kill(left.pid, signal.SIGKILL)
    left.wait()
    writes = start_child("""
environment = Environment.open(sys.argv[1], max_size_bytes=2**26)
say("open")
sys.stdin.readline()
say(environment.committer.submit(append))
sys.stdin.readline()
""")
    assert writes.stdout.readline() == "open\n"
    assert reader.flushed_lsn() == 1
    writes.stdin.write("\n")
    writes.stdin.flush()
    assert writes.stdout.readline() == "3\n"
    assert reader.flushed_lsn() == 3


def test_a_barrier_is_for_what_other_processes_have_committed_too(left, environment):
    control = environment.steady.control
    assert (control.written, control.flushed) == (2, 1)
    environment.flush_journal()
    assert control.flushed == 2
    left.communicate("\n")


def test_a_signal_handler_that_flushes_within_a_flush_is_refused(environment, append):
    """Else it would wait for what it has interrupted."""
    steady, refused = environment.steady, []
    environment.committer.submit(append)
    flush = steady._flush_journal

    def flush_interrupted():
        with pytest.raises(UsageError, match="interrupts"):
            environment.flush_journal()
        refused.append(True)
        flush()

    steady._flush_journal = flush_interrupted
    assert environment.committer.submit(append) == 2
    assert refused
    assert steady.control.flushed == 2


def test_a_commit_that_waits_for_its_flush_as_the_store_closes_is_flushed(
    open_environment, append, check_whole, monkeypatch
):
    monkeypatch.setattr(keeper, "IDLE_S", 60)
    environment = open_environment()
    environment.committer.submit(append)
    steady, begun, goes_on = environment.steady, threading.Event(), threading.Event()
    flush = steady._flush_journal

    def wait():
        begun.set()
        goes_on.wait(10)
        flush()

    steady._flush_journal = wait
    results = []
    committing = threading.Thread(target=lambda: results.append(environment.committer.submit(append)))
    committing.start()
    assert begun.wait(10)
    closing = threading.Thread(target=environment.close)
    closing.start()
    closing.join(0.1)
    goes_on.set()
    committing.join(10)
    closing.join(10)
    assert results == [2]
    assert check_whole(open_environment()) == 2
