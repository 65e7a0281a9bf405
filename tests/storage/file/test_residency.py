"""Pages that were read through the map are given back, and are there again when they are asked for."""

from pathlib import Path

import pytest

from statelog.storage.file import residency
from statelog.storage.file.residency import MappedPages, release

RECORD_SIZE_BYTES = 1_000_000
RECORDS = 40


def mapped_size_bytes():
    """Of files, those of a file system in memory included."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssFile", "RssShmem")))


@pytest.fixture
def large(environment):
    for lsn in range(1, RECORDS + 1):
        environment.committer.submit(
            lambda transaction, lsn=lsn: transaction.put_log(lsn, bytes((lsn,)) * RECORD_SIZE_BYTES)
        )
    return environment


def read_all(environment, pages=None):
    with environment.read() as transaction:
        for lsn in range(1, RECORDS + 1):
            assert bytes(transaction.get_log(lsn)) == bytes((lsn,)) * RECORD_SIZE_BYTES
            if pages is not None:
                pages.read(RECORD_SIZE_BYTES)


def test_what_was_read_counts_as_memory_until_it_is_given_back(large):
    before = mapped_size_bytes()
    read_all(large)
    assert mapped_size_bytes() - before > RECORDS * RECORD_SIZE_BYTES // 2
    release(large.locks.descriptor)
    assert mapped_size_bytes() - before < RECORDS * RECORD_SIZE_BYTES // 10
    read_all(large)


def test_reading_from_end_to_end_keeps_little(large, monkeypatch):
    monkeypatch.setattr(residency, "RELEASE_SIZE_BYTES", 5_000_000)
    release(large.locks.descriptor)
    before = mapped_size_bytes()
    read_all(large, MappedPages(large))
    assert mapped_size_bytes() - before < RECORDS * RECORD_SIZE_BYTES // 4


def test_a_reader_that_is_in_the_midst_of_it_is_not_disturbed(large):
    with large.read() as transaction:
        record = transaction.get_log(7)
        release(large.locks.descriptor)
        assert record == bytes((7,)) * RECORD_SIZE_BYTES


def test_where_the_system_does_not_tell_of_maps_nothing_happens(large, monkeypatch):
    monkeypatch.setattr(residency, "_MAPS", Path("/nowhere"))
    release(large.locks.descriptor)
    read_all(large)
