import os
import signal
import stat
from pathlib import Path

import lmdb
import pytest

from statelog.errors import (
    ClosedError,
    CorruptionError,
    ForkedError,
    FormatError,
    ReadOnlyError,
    StorageError,
    StoreNotFoundError,
    UsageError,
)
from statelog.format.header import FORMAT_VERSION, HEADER_KEY
from statelog.log.commit import committer_of
from statelog.storage import StoreFile

QUOTA_BYTES = 64 * 1024 * 1024


def test_a_new_store_has_only_a_header(store_file, check_whole):
    assert store_file.lmdb_file.header["magic"] == "statelog"
    assert store_file.lmdb_file.store_id == store_file.lmdb_file.header["store_id"]
    assert check_whole(store_file) == 0


def test_a_new_store_is_accessible_only_to_its_owner(store_file):
    lock_path = store_file.path.with_name("agent.state-lock")
    assert stat.S_IMODE(store_file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(lock_path.stat().st_mode) == 0o600


def test_the_lock_file_follows_the_mode_of_the_data_file(open_store_file, path):
    open_store_file().close()
    path.with_name("agent.state-lock").unlink()
    path.chmod(0o640)
    open_store_file()
    assert stat.S_IMODE(path.with_name("agent.state-lock").stat().st_mode) == 0o640


def test_a_reopened_store_is_the_same_store(open_store_file, append, check_whole):
    first = open_store_file()
    store_id = first.lmdb_file.store_id
    first.committer.submit(append)
    first.close()
    second = open_store_file()
    assert second.lmdb_file.store_id == store_id
    assert check_whole(second) == 1


def test_a_missing_store_is_not_created_unless_asked(open_store_file, path):
    with pytest.raises(StoreNotFoundError) as caught:
        open_store_file(create=False)
    assert caught.value.path == str(path)
    assert not path.exists()


def test_a_missing_store_is_never_created_read_only(open_store_file, path):
    with pytest.raises(StoreNotFoundError):
        open_store_file(read_only=True)
    assert not path.exists()


def test_a_missing_directory_is_not_created(open_store_file, tmp_path):
    with pytest.raises(StoreNotFoundError):
        open_store_file(tmp_path / "nowhere" / "agent.state")


def test_a_path_below_a_file_is_not_found(open_store_file, store_file):
    with pytest.raises(StoreNotFoundError):
        open_store_file(store_file.path / "agent.state")


@pytest.mark.parametrize("options", [{"durability": "none"}, {"max_size_bytes": 4096}])
def test_invalid_options_are_usage_errors(open_store_file, options, path):
    with pytest.raises(UsageError):
        open_store_file(**options)
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"x", b"not a store\n" * 1000, b"SQLite format 3\0" + bytes(8192)])
def test_a_foreign_file_is_refused_and_not_changed(open_store_file, path, content):
    path.write_bytes(content)
    with pytest.raises(FormatError) as caught:
        open_store_file()
    assert caught.value.path == str(path)
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


def test_a_directory_is_not_a_store(open_store_file, tmp_path):
    with pytest.raises(FormatError, match="directory"):
        open_store_file(tmp_path)


def test_a_fifo_is_not_a_store(open_store_file, path):
    os.mkfifo(path)
    with pytest.raises(FormatError, match="regular"):
        open_store_file()


def test_another_lmdb_file_is_not_a_store(open_store_file, path):
    with lmdb.open(str(path), subdir=False) as raw, raw.begin(write=True) as transaction:
        transaction.put(b"log", b"a value where a table should be")
    with pytest.raises(FormatError, match="not a statelog store"):
        open_store_file()


def edit_header(path, value):
    with lmdb.open(str(path), subdir=False, max_dbs=4) as raw, raw.begin(write=True) as transaction:
        meta = raw.open_db(b"meta", txn=transaction)
        if value is None:
            transaction.delete(HEADER_KEY, db=meta)
        else:
            transaction.put(HEADER_KEY, value, db=meta)


@pytest.mark.parametrize("value", [None, b"damaged"])
def test_a_damaged_header_is_corruption_that_names_the_file(open_store_file, path, value):
    open_store_file().close()
    edit_header(path, value)
    with pytest.raises(CorruptionError, match=path.name) as caught:
        open_store_file()
    assert caught.value.path == str(path)


def count_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_the_file_of_a_refused_store_can_be_opened_later(open_store_file, path):
    """A failed open leaves no lock, descriptor or registry entry behind."""
    open_store_file().close()
    with lmdb.open(str(path), subdir=False, max_dbs=4) as raw, raw.begin(write=True) as transaction:
        header = transaction.get(HEADER_KEY, db=raw.open_db(b"meta", txn=transaction))
    edit_header(path, b"damaged")
    descriptors = count_descriptors()
    with pytest.raises(CorruptionError):
        open_store_file()
    assert count_descriptors() == descriptors
    edit_header(path, header)
    assert open_store_file().lmdb_file.header["format"] == FORMAT_VERSION


def test_a_file_of_another_user_is_an_access_error(store_file, run_child):
    """This also holds for the root user after it has dropped its privileges."""
    script = """
    os.geteuid() or os.seteuid(65534)
    try:
        StoreFile.open(sys.argv[1], max_size_bytes=2**26)
    except AccessError as error:
        say(type(error).__name__, error.path == sys.argv[1])
    """
    store_file.path.chmod(0o000)
    assert run_child(script) == (0, ["AccessError True"])


def test_a_directory_that_cannot_be_written_is_an_access_error(run_child, tmp_path):
    script = """
    os.geteuid() or os.seteuid(65534)
    try:
        StoreFile.open(sys.argv[1], max_size_bytes=2**26)
    except AccessError as error:
        say(type(error).__name__)
    """
    tmp_path.chmod(0o500)
    assert run_child(script) == (0, ["AccessError"])


def test_a_read_only_store_reads_and_does_not_write(open_store_file, append, check_whole):
    writable = open_store_file()
    writable.committer.submit(append)
    writable.close()
    store_file = open_store_file(read_only=True)
    assert check_whole(store_file) == 1
    with pytest.raises(ReadOnlyError):
        store_file.committer.submit(append)
    assert check_whole(store_file) == 1


def test_a_closed_store_refuses_everything(open_store_file, append):
    store_file = open_store_file()
    store_file.close()
    with pytest.raises(ClosedError), store_file.read():
        pass
    with pytest.raises(ClosedError):
        store_file.committer.submit(append)
    with pytest.raises(ClosedError):
        store_file.last_transaction_id()
    with pytest.raises(ClosedError):
        store_file.lmdb_file.reopen()


def test_close_can_be_repeated(open_store_file):
    store_file = open_store_file()
    store_file.close()
    store_file.close()


def test_close_inside_a_read_raises_and_leaves_the_store_usable(store_file, append, monkeypatch):
    monkeypatch.setattr("statelog.storage.lmdb_file.LmdbFile.drain_timeout_s", 0.01)
    with store_file.read(), pytest.raises(UsageError, match="still open"):
        store_file.close()
    assert store_file.committer.submit(append) == 1


def test_interval_commits_are_present_after_reopening(open_store_file, append, check_whole):
    store_file = open_store_file(durability="interval")
    for _ in range(3):
        store_file.committer.submit(append)
    store_file.close()
    assert check_whole(open_store_file(durability="interval")) == 3


def test_lmdb_never_writes_through_its_map(open_store_file):
    """With writemap, a power cut would corrupt the file."""
    assert not open_store_file().lmdb_file.handles.raw.flags()["writemap"]


def test_reopen_keeps_store_and_commits(store_file, append, check_whole):
    store_file.committer.submit(append)
    store_file.lmdb_file.reopen()
    store_file.committer.submit(append)
    assert check_whole(store_file) == 2


def test_reopen_of_a_replaced_store_is_refused(open_store_file, path, tmp_path, append):
    open_store_file(tmp_path / "other.state").close()
    store_file = open_store_file()
    (tmp_path / "other.state").replace(path)
    with pytest.raises(StorageError, match="replaced"):
        store_file.lmdb_file.reopen()
    with pytest.raises(StorageError, match="replaced"):
        store_file.committer.submit(append)


def test_reopen_of_a_removed_file_is_refused_and_creates_no_file(open_store_file, path):
    store_file = open_store_file()
    path.unlink()
    with pytest.raises(StorageError, match="removed"):
        store_file.lmdb_file.reopen()
    assert not path.exists()


def in_forked_child(action):
    """Run `action` in a forked child. Return its exit status, which is 0 if `action` returned True."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if action() else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def raises_forked(action):
    try:
        action()
    except ForkedError:
        return True
    return False


def enter(context):
    with context:
        pass


@pytest.mark.parametrize(
    "action",
    [
        lambda store_file: enter(store_file.read()),
        lambda store_file: store_file.committer.submit(lambda _: None),
        lambda store_file: store_file.last_transaction_id(),
        lambda store_file: store_file.statistics(),
    ],
    ids=["read", "submit", "last_transaction_id", "statistics"],
)
def test_a_forked_child_cannot_use_its_parents_store(store_file, action):
    assert in_forked_child(lambda: raises_forked(lambda: action(store_file))) == 0


@pytest.mark.slow
def test_a_forked_child_can_open_the_store_itself(store_file, append, check_whole, path):
    store_file.committer.submit(append)

    def child():
        own = StoreFile.open(path, max_size_bytes=QUOTA_BYTES)
        committer_of(own).submit(append)
        own.close()
        return own is not store_file

    assert in_forked_child(child) == 0
    store_file.committer.submit(append)
    assert check_whole(store_file) == 3


def test_a_close_in_a_forked_child_does_not_affect_the_parents_store(store_file, append, check_whole):
    def child():
        store_file.close()
        return True

    assert in_forked_child(child) == 0
    store_file.committer.submit(append)
    assert check_whole(store_file) == 1


@pytest.mark.slow
@pytest.mark.parametrize("midst", [False, True], ids=["at rest", "in the midst of a read"])
def test_the_exit_of_a_forked_child_does_not_affect_the_parents_readers(run_child, midst):
    """LMDB's binding frees the parent's slots in the reader table if it is closed in a child, even at exit."""
    script = """
    store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
    store_file.committer.submit(append)
    with store_file.read() as transaction:
        if sys.argv[2] == "True" and os.fork() == 0:
            sys.exit()
    if sys.argv[2] == "False" and os.fork() == 0:
        sys.exit()
    with store_file.read() as transaction:
        os.wait()
        say(store_file.statistics().readers, transaction.last_lsn())
    with store_file.read() as transaction:
        say(transaction.last_lsn())
    """
    assert run_child(script, midst) == (0, ["1 1", "1"])


@pytest.mark.slow
def test_a_fork_during_a_read_does_not_affect_the_snapshot(store_file, append, path):
    store_file.committer.submit(append)
    with store_file.read() as transaction:

        def child():
            return raises_forked(lambda: StoreFile.open(path, max_size_bytes=QUOTA_BYTES))

        assert in_forked_child(child) == 0
        assert "no active" not in store_file.lmdb_file.handles.raw.readers()
        assert bytes(transaction.get_log(1)[:6]) == b"record"


def test_a_child_forked_within_a_work_cannot_commit_it(store_file, check_whole):
    """The work and the commit also continue in the child, but it holds none of LMDB's locks."""

    def work(transaction):
        child = os.fork()
        transaction.put_log(1, (b"record 1 " if child else b"the child") * 50)
        transaction.put_index(b"n00000001", b"index 1")
        return child

    parent = os.getpid()
    try:
        child = store_file.committer.submit(work)
    except ForkedError:
        os._exit(3)
    finally:
        if os.getpid() != parent:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert check_whole(store_file) == 1


def test_a_forked_child_does_not_hold_its_parents_locks(start_child, run_child):
    """The locks belong to the open file, which the child shares, so it must release them."""
    parent = start_child(
        """
        store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
        def work(transaction):
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            say(child)
            time.sleep(60)
        store_file.committer.submit(work)
        """
    )
    grandchild = int(parent.stdout.readline())
    try:
        parent.kill()
        parent.wait()
        script = "say(StoreFile.open(sys.argv[1], max_size_bytes=2**26, lock_timeout_s=5).committer.submit(append))"
        assert run_child(script) == (0, ["1"])
    finally:
        os.kill(grandchild, signal.SIGKILL)
