"""Several processes on one store."""

import threading

import pytest

from statelog.errors import StoreFullError
from statelog.storage.compaction import compact_file
from statelog.storage.file.sidecar_files import journal_path

COMMIT = """
store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
for _ in range(int(sys.argv[2])):
    say(store_file.committer.submit(append))
"""


def lsns(child):
    output, errors = child.communicate(timeout=300)
    assert child.returncode == 0, errors
    return [int(line) for line in output.split()]


def test_two_processes_write_one_store_without_losing_a_commit(start_child, open_store_file, check_whole):
    children = [start_child(COMMIT, 100) for _ in range(2)]
    written = [lsns(child) for child in children]
    assert sorted(written[0] + written[1]) == list(range(1, 201))
    assert all(each == sorted(each) for each in written)
    assert check_whole(open_store_file()) == 200


@pytest.mark.slow
def test_a_reader_sees_whole_commits_of_another_process(start_child, store_file, check_whole):
    child = start_child(COMMIT, 1000)
    seen = set()
    while child.poll() is None:
        seen.add(check_whole(store_file))
    assert lsns(child) == list(range(1, 1001))
    assert len(seen) > 2
    assert check_whole(store_file) == 1000


def test_the_last_transaction_of_another_process_is_seen(run_child, store_file):
    before = store_file.last_transaction_id()
    run_child(COMMIT, 3)
    assert store_file.last_transaction_id() == before + 3


def test_a_closing_process_keeps_the_journal_of_writers_even_after_a_compaction(
    run_child, store_file, append, path, check_whole
):
    store_file.committer.submit(append)
    compact_file(store_file.lmdb_file, store_file.wal)
    store_file.committer.submit(append)
    journal = journal_path(path).stat().st_ino
    assert run_child("StoreFile.open(sys.argv[1], max_size_bytes=2**26).close(); say('closed')") == (0, ["closed"])
    assert journal_path(path).stat().st_ino == journal
    store_file.committer.submit(append)
    store_file.writer.checkpoint()
    assert check_whole(store_file) == 3


GROW = """
store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**24)
def work(transaction):
    append(transaction)
    transaction.put_index(b"z", bytes(4 * 2**20))
say(store_file.committer.submit(work))
store_file.committer.submit(lambda transaction: transaction.delete_index(b"z"))
"""


@pytest.fixture
def grown(run_child, open_store_file):
    """A store that another process has grown beyond the map of this process."""
    store_file = open_store_file(max_size_bytes=2 * 2**20)
    assert run_child(GROW) == (0, ["None"])
    assert store_file.path.stat().st_size > store_file.lmdb_file.handles.raw.info()["map_size"]
    return store_file


def test_a_map_another_process_outgrew_is_resized_to_read(grown, check_whole):
    assert check_whole(grown) == 1
    assert grown.lmdb_file.handles.raw.info()["map_size"] >= grown.path.stat().st_size


def test_a_map_another_process_outgrew_is_resized_to_write(grown, append, check_whole):
    assert grown.committer.submit(append) == 2
    assert check_whole(grown) == 2


def test_a_map_another_process_outgrew_does_raise_in_lmdb(grown):
    """Negative control."""
    with pytest.raises(Exception, match="MDB_MAP_RESIZED"):
        grown.lmdb_file.handles.begin()


@pytest.mark.slow
def test_a_read_in_another_thread_ends_before_the_map_is_resized(run_child, open_store_file, append):
    """Resizing unmaps the file under every transaction."""
    store_file = open_store_file(max_size_bytes=2 * 2**20)
    store_file.committer.submit(append)
    reading, go_on, read = threading.Event(), threading.Event(), []

    def hold():
        with store_file.read() as transaction:
            borrowed = transaction.get_log(1)
            reading.set()
            go_on.wait()
            read.append(bytes(borrowed[:6]))

    holder = threading.Thread(target=hold)
    holder.start()
    reading.wait()
    run_child(GROW)
    threading.Timer(0.1, go_on.set).start()
    with store_file.read() as transaction:
        assert transaction.last_lsn() == 2
        assert read == [b"record"]
    holder.join()


def test_a_quota_below_the_used_size_only_refuses_growth(open_store_file, run_child, append, check_whole):
    run_child(COMMIT, 3)
    store_file = open_store_file()
    store_file.committer.submit(lambda transaction: transaction.put_index(b"y", bytes(3 * 2**20)))
    for _ in range(2):  # LMDB reuses the pages of a commit two commits later.
        store_file.committer.submit(lambda transaction: transaction.delete_index(b"y"))
        store_file.committer.submit(lambda transaction: transaction.put_index(b"x", b""))
    store_file.committer.submit(lambda transaction: transaction.delete_index(b"x"))
    store_file.close()
    store_file = open_store_file(max_size_bytes=2**20)
    with pytest.raises(StoreFullError):
        store_file.committer.submit(lambda transaction: transaction.put_index(b"y", bytes(4 * 2**20)))
    assert store_file.committer.submit(append) == 4
    assert check_whole(store_file) == 4


def test_the_reader_table_does_not_grow_with_reads(store_file, append):
    store_file.committer.submit(append)
    for _ in range(2000):
        with store_file.read() as transaction:
            transaction.get_log(1)
    assert store_file.lmdb_file.handles.raw.info()["num_readers"] <= 2


def test_a_store_can_be_removed_once_closed(open_store_file, path):
    open_store_file().close()
    path.unlink()
    store_file = open_store_file()
    assert store_file.last_transaction_id() == 1
    store_file.close()
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["agent.state", "agent.state-lock"]
