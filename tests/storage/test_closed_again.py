"""After a refused or interrupted close or other exclusive operation, other processes can still open the store."""

import os
import signal
import time

import pytest
from waiting import beating

from statelog.errors import ClosedError, StoreLockedError, StoreReplacedError
from statelog.storage import faults, lmdb_file
from statelog.storage.file.sidecar_files import journal_path
from statelog.storage.lmdb_file import LmdbFile
from statelog.storage.notify.wake import Wake
from statelog.storage.wal import background_flusher
from statelog.storage.write_transaction import WriteTransaction

STOPS = """
store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
def work(transaction):
    say("inside")
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    return append(transaction)
sys.stdin.readline()
say(store_file.committer.submit(work))
sys.stdin.readline()
store_file.close()
"""


def interrupt():
    raise KeyboardInterrupt


@pytest.mark.parametrize("point", ["checkpoint.before_unlink", "checkpoint.after_unlink"])
@pytest.mark.parametrize("goes_on", [False, True])
def test_an_interrupted_close_can_be_repeated(open_store_file, path, append, check_whole, point, goes_on):
    store_file = open_store_file()
    assert store_file.committer.submit(append) == 1
    faults.arm(point, action=interrupt)
    with pytest.raises(KeyboardInterrupt):
        store_file.close()
    faults.disarm()
    if goes_on:
        assert store_file.committer.submit(append) == 2
        recovered = path.with_name("copied.state")
        for source, copy in ((path, recovered), (journal_path(path), journal_path(recovered))):
            copy.write_bytes(source.read_bytes())
        assert check_whole(open_store_file(recovered)) == 2
    store_file.close()
    assert not journal_path(path).exists()
    with pytest.raises(ClosedError):
        store_file.committer.submit(append)
    assert check_whole(open_store_file()) == 1 + goes_on


def test_the_next_opening_completes_a_close_interrupted_at_its_end(open_store_file, append, check_whole, monkeypatch):
    store_file = open_store_file()
    store_file.committer.submit(append)
    with monkeypatch.context() as patch:
        patch.setattr(Wake, "close", lambda _wake: interrupt())
        with pytest.raises(KeyboardInterrupt):
            store_file.close()
    assert store_file.lmdb_file.closed
    assert check_whole(open_store_file()) == 1


@pytest.mark.slow
def test_a_close_that_another_process_blocks_can_be_repeated(open_store_file, start_child, append, monkeypatch):
    monkeypatch.setattr(background_flusher, "IDLE_S", 60)
    store_file = open_store_file(lock_timeout_s=0.2)
    child = start_child(STOPS)
    store_file.committer.submit(append)
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() == "inside\n"
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    for _ in range(2):
        with pytest.raises(StoreLockedError):
            store_file.close()
    child.send_signal(signal.SIGCONT)
    assert child.stdout.readline() == "2\n"
    store_file.close()
    assert store_file.lmdb_file.closed
    child.communicate("\n", timeout=300)


@pytest.mark.slow
def test_an_idle_store_does_not_wait_for_a_stopped_process(open_store_file, start_child, append, monkeypatch):
    monkeypatch.setattr(background_flusher, "IDLE_S", 0.01)
    store_file = open_store_file(lock_timeout_s=1.5)
    child = start_child(STOPS)
    store_file.committer.submit(append)
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() == "inside\n"
    time.sleep(0.3)  # The background flusher has tried in the meantime.
    with beating(pause_s=0.1) as beats_s, pytest.raises(StoreLockedError):
        store_file.committer.submit(append)
    assert len(beats_s) < 28, "it was waited for twice"
    child.send_signal(signal.SIGCONT)
    assert child.stdout.readline() == "2\n"
    child.communicate("\n", timeout=300)


def test_an_interrupt_while_others_are_readmitted_leaves_no_lock(store_file, append, monkeypatch):
    store_file.committer.submit(append)
    abort, interrupted = WriteTransaction.abort, []

    def abort_later(self):
        if not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt
        abort(self)

    monkeypatch.setattr(WriteTransaction, "abort", abort_later)
    with pytest.raises(KeyboardInterrupt):
        store_file.writer.checkpoint()
    assert not store_file.lmdb_file.locks.writer.is_held
    assert store_file.committer.submit(append) == 2


def test_an_interrupt_while_waiting_for_readers_readmits_them(store_file, append, monkeypatch):
    store_file.committer.submit(append)
    with store_file.read():
        monkeypatch.setattr(lmdb_file.time, "sleep", lambda _seconds: interrupt())
        with pytest.raises(KeyboardInterrupt), store_file.lmdb_file.gate:
            store_file.lmdb_file.shut_gate()
    monkeypatch.undo()
    assert store_file.committer.submit(append) == 2


def test_another_process_flushes_the_commits_of_a_killed_one(open_store_file, start_child, monkeypatch):
    monkeypatch.setattr(background_flusher, "IDLE_S", 0.05)
    store_file = open_store_file()
    child = start_child("""
store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
store_file.background_flusher.start = lambda: None
say(store_file.committer.submit(append, is_flushed=False))
os.kill(os.getpid(), signal.SIGKILL)
""")
    assert child.stdout.readline() == "1\n"
    child.wait()
    assert store_file.flushed_lsn() == 0
    assert store_file.wake.wait(0, 10)
    assert store_file.wal.shared_state.flushed == 1


def test_a_replacement_file_can_be_opened_once_no_process_uses_the_former_one(
    open_store_file, path, append, check_whole, monkeypatch
):
    backup = path.with_name("backup.state")
    other = open_store_file(backup)
    for _ in range(3):
        other.committer.submit(append)
    other.close()
    former = open_store_file()
    former.committer.submit(append)
    with monkeypatch.context() as patch, former.read():
        backup.replace(path)
        patch.setattr(LmdbFile, "drain_timeout_s", 0.01)
        with pytest.raises(StoreReplacedError):
            open_store_file()
    present = open_store_file()
    assert check_whole(present) == 3
    assert present.committer.submit(append) == 4
    with pytest.raises(StoreReplacedError):
        former.committer.submit(append)
    former.close()
    assert check_whole(present) == 4
