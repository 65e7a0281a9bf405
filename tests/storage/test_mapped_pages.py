"""Pages that were read through the map are released, and loaded again when they are needed."""

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
    release(large.lmdb_file.locks.descriptor)
    assert mapped_size_bytes() - before < RECORDS * RECORD_SIZE_BYTES // 10
    read_all(large)


def test_reading_from_end_to_end_keeps_little(large, monkeypatch):
    monkeypatch.setattr(mapped_pages, "RELEASE_SIZE_BYTES", 5_000_000)
    release(large.lmdb_file.locks.descriptor)
    before = mapped_size_bytes()
    read_all(large, MappedPages(large.lmdb_file))
    assert mapped_size_bytes() - before < RECORDS * RECORD_SIZE_BYTES // 4


def test_a_reader_that_is_in_the_midst_of_it_is_not_disturbed(large):
    with large.read() as transaction:
        record = transaction.get_log(7)
        release(large.lmdb_file.locks.descriptor)
        assert record == bytes((7,)) * RECORD_SIZE_BYTES


def test_where_the_system_does_not_tell_of_maps_nothing_happens(large, monkeypatch):
    monkeypatch.setattr(descriptors, "_MAPS", "/nowhere")
    release(large.lmdb_file.locks.descriptor)
    read_all(large)
