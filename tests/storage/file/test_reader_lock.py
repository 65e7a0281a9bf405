"""No process waits for ever for the mutex of LMDB's reader table, or for a process that is opening the store."""

import contextlib
import os
import signal
import subprocess
import threading
import time

import pytest

from statelog.errors import StoreLockedError
from statelog.kernels import mutex_owner_at

HOLD_MUTEX = """
import ctypes, mmap
mapped = mmap.mmap(os.open(sys.argv[1] + "-lock", os.O_RDWR), 4096)
mutex = ctypes.addressof(ctypes.c_char.from_buffer(mapped, 8))
libc = ctypes.CDLL(None)
sys.stdin.readline()
assert libc.pthread_mutex_lock(ctypes.c_void_p(mutex)) == 0
say("held")
sys.stdin.readline()
assert libc.pthread_mutex_unlock(ctypes.c_void_p(mutex)) == 0
say("released")
sys.stdin.readline()
"""
"""Hold the mutex of LMDB's reader table, as a process does that is taking a slot."""


needs_mutex = pytest.mark.skipif(mutex_owner_at() < 0, reason="no robust mutexes here")


@pytest.fixture
def holder(open_store_file, start_child):
    """A stopped process that holds the mutex."""
    open_store_file(lock_timeout_s=0.2)
    child = start_child(HOLD_MUTEX)
    tell(child)
    assert child.stdout.readline() == "held\n"
    os.kill(child.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    return child


def tell(child):
    child.stdin.write("\n")
    child.stdin.flush()


@pytest.mark.slow
@needs_mutex
def test_negative_control_lmdb_itself_waits_for_ever(holder, start_child):
    """It is this mutex, and LMDB would wait for it."""
    child = start_child(
        """
        import lmdb
        say("begins")
        raw = lmdb.open(sys.argv[1], subdir=False, max_dbs=4)
        say("open")
        """
    )
    assert child.stdout.readline() == "begins\n"
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(1.0)
    os.kill(holder.pid, signal.SIGCONT)
    tell(holder)
    assert child.stdout.readline() == "open\n"


@needs_mutex
def test_a_read_blocked_by_a_stopped_process_ends_at_its_timeout(holder, open_store_file, append, check_whole, path):
    store_file = open_store_file(lock_timeout_s=0.2)
    began_s = time.monotonic()
    with pytest.raises(StoreLockedError) as caught, store_file.read():
        pass
    assert time.monotonic() - began_s < 10
    assert caught.value.facts == {"path": str(path), "timeout_s": 0.2}
    os.kill(holder.pid, signal.SIGCONT)
    tell(holder)
    assert holder.stdout.readline() == "released\n"
    assert store_file.committer.submit(append) == 1
    assert check_whole(store_file) == 1


@needs_mutex
def test_commits_blocked_by_a_stopped_process_are_refused_or_done(holder, open_store_file, append, check_whole):
    store_file = open_store_file(lock_timeout_s=0.2)
    done = 0
    with contextlib.suppress(StoreLockedError):
        store_file.committer.submit(append)
        done = 1
    os.kill(holder.pid, signal.SIGCONT)
    tell(holder)
    assert holder.stdout.readline() == "released\n"
    assert store_file.committer.submit(append) == done + 1
    assert check_whole(store_file) == done + 1


@needs_mutex
@pytest.mark.parametrize("read_only", [False, True])
def test_an_opening_blocked_by_a_stopped_process_ends_at_its_timeout(holder, run_child, read_only):
    script = """
    began_s = time.monotonic()
    try:
        StoreFile.open(sys.argv[1], max_size_bytes=2**26, lock_timeout_s=0.2, read_only=sys.argv[2] == "True")
    except StoreLockedError as error:
        say("refused", time.monotonic() - began_s < 10, error.timeout_s)
    """
    assert run_child(script, read_only) == (0, ["refused True 0.2"])
    assert holder.poll() is None


@needs_mutex
def test_a_process_that_dies_with_the_mutex_blocks_no_other(holder, open_store_file, append):
    store_file = open_store_file(lock_timeout_s=0.2)
    holder.kill()
    holder.wait()
    assert store_file.committer.submit(append) == 1
    with store_file.read() as transaction:
        assert transaction.last_lsn() == 1


@needs_mutex
def test_a_short_wait_is_not_an_error(open_store_file, start_child, append):
    store_file = open_store_file(lock_timeout_s=20)
    store_file.committer.submit(append)
    child = start_child(HOLD_MUTEX)
    tell(child)
    assert child.stdout.readline() == "held\n"
    timer = threading.Timer(0.2, tell, [child])
    timer.start()
    with store_file.read() as transaction:
        assert transaction.last_lsn() == 1
    timer.join()


def test_an_opening_waits_for_a_stopped_one_that_holds_the_file_exclusively(open_store_file, start_child):
    """LMDB's own wait would never end."""
    open_store_file().close()
    child = start_child(
        """
        import fcntl
        from statelog.storage.file.locks import FileLocks
        FileLocks(os.open(sys.argv[1], os.O_RDWR), Path(sys.argv[1])).acquire_presence(0)
        descriptor = os.open(sys.argv[1] + "-lock", os.O_RDWR)
        fcntl.lockf(descriptor, fcntl.LOCK_EX, 1, 0)
        say("alone")
        sys.stdin.readline()
        """
    )
    assert child.stdout.readline() == "alone\n"
    with pytest.raises(StoreLockedError):
        open_store_file(lock_timeout_s=0.2, read_only=True)
    tell(child)
    child.wait()
    open_store_file()
