"""Pages that were read through the map are released, and loaded again when they are needed."""

import ctypes
import mmap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from statelog.storage import mapped_pages
from statelog.storage.file import descriptors
from statelog.storage.mapped_pages import MappedPages, release

RECORD_SIZE_BYTES = 1_000_000
RECORDS = 40


def mapped_size_bytes():
    """Return the mapped size of files, including those of a file system in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssFile", "RssShmem")))


@pytest.fixture
def large(store_file):
    for lsn in range(1, RECORDS + 1):
        store_file.committer.submit(
            lambda transaction, lsn=lsn: transaction.put_log(lsn, bytes((lsn,)) * RECORD_SIZE_BYTES)
        )
    return store_file


def read_all(store_file, pages=None):
    with store_file.read() as transaction:
        for lsn in range(1, RECORDS + 1):
            assert bytes(transaction.get_log(lsn)) == bytes((lsn,)) * RECORD_SIZE_BYTES
            if pages is not None:
                pages.read(RECORD_SIZE_BYTES)


@pytest.mark.slow
def test_read_pages_count_as_memory_until_they_are_released(large):
    before = mapped_size_bytes()
    read_all(large)
    assert mapped_size_bytes() - before > RECORDS * RECORD_SIZE_BYTES // 2
    release(large.lmdb_file)
    assert mapped_size_bytes() - before < RECORDS * RECORD_SIZE_BYTES // 10
    read_all(large)


def test_reading_the_whole_file_keeps_little_memory(large, monkeypatch):
    monkeypatch.setattr(mapped_pages, "RELEASE_SIZE_BYTES", 5_000_000)
    release(large.lmdb_file)
    before = mapped_size_bytes()
    read_all(large, MappedPages(large.lmdb_file))
    assert mapped_size_bytes() - before < RECORDS * RECORD_SIZE_BYTES // 4


def test_a_concurrent_reader_is_not_disturbed(large):
    with large.read() as transaction:
        record = transaction.get_log(7)
        release(large.lmdb_file)
        assert record == bytes((7,)) * RECORD_SIZE_BYTES


def test_without_information_about_maps_nothing_is_released(large, monkeypatch):
    monkeypatch.setattr(descriptors, "_MAPS", "/nowhere")
    release(large.lmdb_file)
    read_all(large)


def test_bytes_written_into_a_private_map_of_the_file_stay(large):
    # Libraries are private maps into which the dynamic loader writes addresses. The inode number of a library may equal
    # that of a store on another device.
    descriptor = large.lmdb_file.locks.descriptor
    with mmap.mmap(descriptor, mmap.PAGESIZE, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as private:
        private[:5] = b"mine!"
        address = ctypes.addressof(ctypes.c_char.from_buffer(private))
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), mmap.PAGESIZE, mmap.PROT_READ) == 0
        maps = descriptors.maps_of(descriptor)
        assert [each.permissions for each in maps if each.start == address] == ["r--p"]
        pages = MappedPages(large.lmdb_file, descriptor)
        pages.read(mapped_pages.RELEASE_SIZE_BYTES)
        assert private[:5] == b"mine!"
        for each in maps:  # The control: a release without these rules loses the bytes.
            if each.start == address:
                libc = ctypes.CDLL(None)
                libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(mmap.PAGESIZE), mmap.MADV_DONTNEED)
        assert private[:5] != b"mine!"


def test_only_the_map_of_this_opening_is_released(large):
    # Another thread may remove a map of another opening at any time, and the addresses may be used for something else.
    descriptor = large.lmdb_file.locks.descriptor
    with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as other:
        assert sum(other[at] for at in range(0, len(other), mmap.PAGESIZE)) >= 0
        read_all(large)
        before = mapped_size_bytes()
        release(large.lmdb_file)
        released = before - mapped_size_bytes()
    assert RECORDS * RECORD_SIZE_BYTES * 0.9 < released < RECORDS * RECORD_SIZE_BYTES * 1.5


def test_nothing_is_released_while_another_thread_uses_the_gate(large):
    read_all(large)
    before = mapped_size_bytes()
    with ThreadPoolExecutor(1) as pool, large.lmdb_file.gate:
        pool.submit(release, large.lmdb_file).result(timeout=60)
    assert before - mapped_size_bytes() < RECORDS * RECORD_SIZE_BYTES // 10
