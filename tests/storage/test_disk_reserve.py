"""A file is longer than its content, so that operations that free space work on a full disk."""

import errno
import os

import pytest

from statelog.errors import StorageError, StoreFullError
from statelog.limits import DISK_RESERVE_PAGES_MAX, STEP_PAGES_MAX
from statelog.storage.disk_reserve import reserve_pages

PAGE = 4096


@pytest.fixture
def disk(monkeypatch):
    """A disk that can be set to refuse longer files."""
    pwrite = os.pwrite
    state = {"errno": 0}

    def pwrite_or_refuse(descriptor, data, at):
        if state["errno"] and at + len(data) > os.fstat(descriptor).st_size:
            raise OSError(state["errno"], os.strerror(state["errno"]))
        return pwrite(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", pwrite_or_refuse)
    return state


def put(number, size_bytes=2000):
    return lambda transaction: transaction.put_index(b"k%06d" % number, os.urandom(size_bytes))


def fill(store_file, start=0):
    """Commit until a commit is refused. Return the number of commits."""
    for number in range(start, start + 10_000):
        try:
            store_file.committer.submit(put(number))
        except StoreFullError:
            return number
    raise AssertionError


def pages_beyond(store_file, path):
    return path.stat().st_size // PAGE - store_file.lmdb_file.handles.raw.info()["last_pgno"] - 1


def blocks(path):
    return path.stat().st_blocks * 512


@pytest.mark.parametrize(("pages", "reserve"), [(10, 2), (100, 25), (128, 32), (4096, 32), (1 << 18, 2048)])
def test_the_reserve_is_a_quarter_of_a_small_store_and_less_than_one_percent_of_a_large_one(pages, reserve):
    assert reserve_pages(pages) == reserve


def test_a_commit_leaves_the_reserve_after_the_last_page_in_allocated_blocks(store_file, path):
    for number in range(300):
        store_file.committer.submit(put(number))
        pages = store_file.lmdb_file.handles.raw.info()["last_pgno"] + 1
        assert pages_beyond(store_file, path) >= reserve_pages(pages) - 4
    assert pages_beyond(store_file, path) <= DISK_RESERVE_PAGES_MAX + STEP_PAGES_MAX
    assert blocks(path) >= path.stat().st_size


def test_a_large_commit_that_would_use_the_reserve_is_refused_before_it_is_written(store_file, path, disk):
    for number in range(100):
        store_file.committer.submit(put(number))
    disk["errno"] = errno.ENOSPC
    size = path.stat().st_size
    with pytest.raises(StoreFullError, match="disk is full"):
        store_file.committer.submit(lambda transaction: transaction.put_log(1, bytes(1_000_000)))
    assert path.stat().st_size == size
    store_file.committer.submit(put(0))


@pytest.mark.slow
def test_a_full_disk_refuses_commits_and_leaves_the_reserve_to_others(store_file, path, disk):
    fill_to = 200
    for number in range(fill_to):
        store_file.committer.submit(put(number))
    disk["errno"] = errno.ENOSPC
    end = fill(store_file, fill_to)
    assert end > fill_to
    with pytest.raises(StoreFullError, match="disk is full") as caught:
        store_file.committer.submit(put(end))
    assert caught.value.facts == {"path": str(path), "full": "disk"}
    assert pages_beyond(store_file, path) >= reserve_pages(fill_to) - 4
    with store_file.disk_reserve.in_use():
        for number in range(end):
            store_file.committer.submit(lambda transaction, number=number: transaction.delete_index(b"k%06d" % number))
    assert fill(store_file, end) > end + fill_to // 2


def test_freed_pages_that_lmdb_retains_for_two_transactions_are_usable_at_once(store_file, disk):
    store_file.committer.submit(lambda transaction: transaction.put_log(1, bytes(1_000_000)))
    for number in range(100):
        store_file.committer.submit(put(number))
    disk["errno"] = errno.EDQUOT
    fill(store_file, 100)
    with store_file.disk_reserve.in_use():
        store_file.committer.submit(lambda transaction: transaction.replace_logs({1: b"small"}))
    store_file.committer.submit(lambda transaction: transaction.put_log(2, bytes(900_000)))


def test_commits_work_again_when_the_disk_has_room(store_file, disk, path):
    store_file.committer.submit(put(0))
    disk["errno"] = errno.ENOSPC
    end = fill(store_file, 1)
    size = path.stat().st_size
    disk["errno"] = 0
    for number in range(end, end + 200):
        store_file.committer.submit(put(number))
    assert path.stat().st_size > size + 200 * 2000
    assert not store_file.disk_reserve.is_disk_full


def test_a_file_at_its_quota_needs_no_disk_reserve(open_store_file, path):
    store_file = open_store_file(max_size_bytes=1 << 20)
    end = fill(store_file)
    with pytest.raises(StoreFullError, match="quota") as caught:
        store_file.committer.submit(put(end))
    assert caught.value.facts == {"path": str(path), "full": "quota", "max_size_bytes": 1 << 20, "limit": 1 << 20}
    assert path.stat().st_size <= 1 << 20


def test_a_disk_error_refuses_only_its_commit(store_file, disk, check_whole, append):
    store_file.writer.checkpoint()  # Takes part.
    disk["errno"] = errno.EIO
    with pytest.raises(StorageError, match="Input/output error"):
        store_file.committer.submit(append)
    disk["errno"] = 0
    assert store_file.committer.submit(append) == 1
    assert check_whole(store_file) == 1


def test_a_compacted_file_gets_its_disk_reserve_with_the_next_commit(store_file, path):
    from statelog.storage.compaction import compact_file

    for number in range(100):
        store_file.committer.submit(put(number))
    compact_file(store_file.lmdb_file, store_file.wal)
    assert pages_beyond(store_file, path) == 0
    store_file.committer.submit(put(100))
    assert pages_beyond(store_file, path) >= reserve_pages(50)
