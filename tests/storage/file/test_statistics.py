import mmap
import os

import pytest

from statelog.errors import ClosedError
from statelog.storage.file.statistics import ReaderStatistics


def test_a_new_store_has_its_header_and_no_reader(environment):
    statistics = environment.statistics()
    assert statistics.tables["meta"].entries == 1
    assert statistics.tables["log"].entries == statistics.tables["index"].entries == 0
    assert statistics.readers == 0
    assert statistics.page_size_bytes == mmap.PAGESIZE
    assert environment.max_size_bytes * 3 // 4 <= statistics.map_size_bytes <= environment.max_size_bytes


def test_tables_count_entries_and_pages(environment, append):
    for _ in range(100):
        environment.committer.submit(append)
    tables = environment.statistics().tables
    assert tables["log"].entries == tables["index"].entries == 100
    assert tables["log"].depth == 2
    assert tables["log"].branch_pages == 1
    assert tables["log"].pages == 1 + tables["log"].leaf_pages


def test_used_and_free_pages_are_all_pages(environment, append):
    for _ in range(50):
        environment.committer.submit(append)
        statistics = environment.statistics()
        pages = environment.handles.raw.info()["last_pgno"] + 1
        assert statistics.pages_used + statistics.pages_free == pages
        assert statistics.pages_free > 0
        assert statistics.file_size_bytes <= 1.5 * pages * statistics.page_size_bytes  # the disk reserve is beyond them


def test_deleting_frees_pages(environment):
    environment.committer.submit(lambda transaction: transaction.put_index(b"k", bytes(400_000)))
    before = environment.statistics()
    environment.committer.submit(lambda transaction: transaction.delete_index(b"k"))
    after = environment.statistics()
    assert before.tables["index"].overflow_pages == 98
    assert after.pages_free >= before.pages_free + 90  # its own list takes some
    assert after.pages_used < before.pages_used


def test_open_reads_are_counted(environment):
    with environment.read(), environment.read():
        assert environment.statistics().readers == 2
    assert environment.statistics().readers == 0


def test_a_process_that_reads_is_named_with_its_age(environment, append, start_child):
    environment.committer.submit(append)
    child = start_child(
        """
        environment = Environment.open(sys.argv[1], read_only=True, max_size_bytes=2**26)
        with environment.read(), environment.read():
            say("reading")
            sys.stdin.read()
        """
    )
    assert child.stdout.readline() == "reading\n"
    for _ in range(3):
        environment.committer.submit(append)
    with environment.read():
        statistics = environment.statistics()
    assert statistics.readers == 3
    assert statistics.readers_by_process == (ReaderStatistics(child.pid, 2, 3), ReaderStatistics(os.getpid(), 1, 0))
    child.communicate()
    assert environment.statistics().readers_by_process == ()


def test_the_transaction_is_the_last_commits(environment, append):
    environment.committer.submit(append)
    assert environment.statistics().last_transaction_id == environment.last_transaction_id()


def test_a_closed_store_has_no_statistics(open_environment):
    environment = open_environment()
    environment.close()
    with pytest.raises(ClosedError):
        environment.statistics()
