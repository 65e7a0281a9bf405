import fcntl
import os
import time

import pytest

from statelog.errors import StoreLockedError
from statelog.storage.file.locks import FileLocks

HOLD_WRITER = """
store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
def work(transaction):
    say("writing")
    sys.stdin.readline()
store_file.committer.submit(work)
"""


@pytest.fixture
def two_locks(tmp_path):
    """Locks of two openings of one file, as in two processes."""
    file = tmp_path / "file"
    file.touch()
    descriptors = [os.open(file, os.O_RDWR) for _ in range(2)]
    yield [FileLocks(descriptor, file) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)


def test_many_openings_share_presence_and_none_is_exclusive(two_locks):
    one, other = two_locks
    one.acquire_presence(0)
    other.acquire_presence(0)
    assert not one.try_exclusive()


def test_exclusive_presence_keeps_others_out_until_it_ends(two_locks):
    one, other = two_locks
    one.acquire_presence(0)
    assert one.try_exclusive()
    with pytest.raises(StoreLockedError):
        other.acquire_presence(0.01)
    one.acquire_presence(0)
    other.acquire_presence(0)


def test_closing_another_descriptor_of_the_file_keeps_the_locks(two_locks, tmp_path):
    """Plain POSIX locks would be released."""
    one, other = two_locks
    one.acquire_presence(0)
    assert one.try_exclusive()
    os.close(os.open(tmp_path / "file", os.O_RDWR))
    with pytest.raises(StoreLockedError):
        other.acquire_presence(0)


def test_without_ofd_locks_a_whole_file_lock_shows_if_an_opening_is_alone(two_locks, monkeypatch):
    monkeypatch.setattr("statelog.storage.file.locks._SET_LOCK", 9999)
    for locks in two_locks:
        locks.acquire_presence(0)
        assert not locks.supported
    one, other = two_locks
    assert not one.try_exclusive()
    fcntl.flock(other.descriptor, fcntl.LOCK_UN)
    assert one.try_exclusive()


def test_a_store_works_without_ofd_locks(open_store_file, append, check_whole, monkeypatch):
    monkeypatch.setattr("statelog.storage.file.locks._SET_LOCK", 9999)
    store_file = open_store_file()
    store_file.committer.submit(append)
    assert check_whole(store_file) == 1


def test_a_stopped_writer_is_an_error_after_the_timeout(open_store_file, start_child, append):
    child = start_child(HOLD_WRITER)
    assert child.stdout.readline() == "writing\n"
    with pytest.raises(StoreLockedError):
        open_store_file(lock_timeout_s=0.05)
    child.stdin.write("go\n")
    child.stdin.flush()
    assert open_store_file(lock_timeout_s=10).committer.submit(append) == 1


def test_a_commit_behind_a_stopped_writer_raises_and_the_store_stays_usable(open_store_file, start_child, append):
    store_file = open_store_file(lock_timeout_s=0.05)
    child = start_child(HOLD_WRITER)
    assert child.stdout.readline() == "writing\n"
    with pytest.raises(StoreLockedError) as caught:
        store_file.committer.submit(append)
    assert caught.value.path == str(store_file.path)
    with store_file.read() as transaction:
        assert transaction.last_lsn() == 0
    child.kill()
    child.wait()
    assert store_file.committer.submit(append) == 1


def test_reading_continues_beside_a_stopped_writer(store_file, start_child, append):
    store_file.committer.submit(append)
    child = start_child(HOLD_WRITER)
    assert child.stdout.readline() == "writing\n"
    before = time.monotonic()
    with store_file.read() as transaction:
        assert transaction.last_lsn() == 1
    assert time.monotonic() - before < 5


def test_a_store_held_exclusively_cannot_be_opened(open_store_file, path):
    """A compaction holds the store exclusively."""
    open_store_file().close()
    descriptor = os.open(path, os.O_RDWR)
    try:
        locks = FileLocks(descriptor, path)
        locks.acquire_presence(0)
        assert locks.try_exclusive()
        with pytest.raises(StoreLockedError):
            open_store_file(lock_timeout_s=0.02)
        with pytest.raises(StoreLockedError):
            open_store_file(lock_timeout_s=0.02, read_only=True)
    finally:
        os.close(descriptor)
    open_store_file()


def test_the_lock_call_exists_on_this_system():
    """Without it, the tests of locks would pass without a lock."""
    assert hasattr(fcntl, "F_OFD_SETLK")
