import mmap
import os

import pytest

from statelog.errors import ClosedError
from statelog.storage.statistics import ReaderStatistics


def test_a_new_store_has_its_header_and_no_reader(store_file):
    statistics = store_file.statistics()
    assert statistics.tables["meta"].entries == 1
    assert statistics.tables["log"].entries == statistics.tables["index"].entries == 0
    assert statistics.readers == 0
    assert statistics.page_size_bytes == mmap.PAGESIZE
    assert (
        store_file.lmdb_file.max_size_bytes * 3 // 4 <= statistics.map_size_bytes <= store_file.lmdb_file.max_size_bytes
    )


def test_tables_count_entries_and_pages(store_file, append):
    for _ in range(100):
        store_file.committer.submit(append)
    tables = store_file.statistics().tables
    assert tables["log"].entries == tables["index"].entries == 100
    assert tables["log"].depth == 2
    assert tables["log"].branch_pages == 1
    assert tables["log"].pages == 1 + tables["log"].leaf_pages


def test_used_and_free_pages_are_all_pages(store_file, append):
    for _ in range(50):
        store_file.committer.submit(append)
        statistics = store_file.statistics()
        pages = store_file.lmdb_file.handles.raw.info()["last_pgno"] + 1
        assert statistics.pages_used + statistics.pages_free == pages
        assert statistics.pages_free > 0
        assert (
            statistics.file_size_bytes <= 1.5 * pages * statistics.page_size_bytes
        )  # The disk reserve is beyond these pages.


def test_deleting_frees_pages(store_file):
    store_file.committer.submit(lambda transaction: transaction.put_index(b"k", bytes(400_000)))
    before = store_file.statistics()
    store_file.committer.submit(lambda transaction: transaction.delete_index(b"k"))
    after = store_file.statistics()
    assert before.tables["index"].overflow_pages == 98
    assert after.pages_free >= before.pages_free + 90  # The free list itself takes some pages.
    assert after.pages_used < before.pages_used


def test_open_reads_are_counted(store_file):
    with store_file.read(), store_file.read():
        assert store_file.statistics().readers == 2
    assert store_file.statistics().readers == 0


def test_a_process_that_reads_is_named_with_its_age(store_file, append, start_child):
    store_file.committer.submit(append)
    child = start_child(
        """
        store_file = StoreFile.open(sys.argv[1], read_only=True, max_size_bytes=2**26)
        with store_file.read(), store_file.read():
            say("reading")
            sys.stdin.read()
        """
    )
    assert child.stdout.readline() == "reading\n"
    for _ in range(3):
        store_file.committer.submit(append)
    with store_file.read():
        statistics = store_file.statistics()
    assert statistics.readers == 3
    assert statistics.readers_by_process == (ReaderStatistics(child.pid, 2, 3), ReaderStatistics(os.getpid(), 1, 0))
    child.communicate()
    assert store_file.statistics().readers_by_process == ()


def test_a_closed_store_has_no_statistics(open_store_file):
    store_file = open_store_file()
    store_file.close()
    with pytest.raises(ClosedError):
        store_file.statistics()
