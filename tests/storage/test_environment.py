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
from statelog.storage import Environment

QUOTA_BYTES = 64 * 1024 * 1024


def test_a_new_store_has_a_header_and_nothing_else(environment, check_whole):
    assert environment.header["magic"] == "statelog"
    assert environment.store_id == environment.header["store_id"]
    assert check_whole(environment) == 0


def test_a_new_store_is_its_owners_alone(environment):
    lock_path = environment.path.with_name("agent.state-lock")
    assert stat.S_IMODE(environment.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(lock_path.stat().st_mode) == 0o600


def test_the_lock_file_follows_the_mode_of_the_data_file(open_environment, path):
    open_environment().close()
    path.with_name("agent.state-lock").unlink()
    path.chmod(0o640)
    open_environment()
    assert stat.S_IMODE(path.with_name("agent.state-lock").stat().st_mode) == 0o640


def test_a_reopened_store_is_the_same_store(open_environment, append, check_whole):
    first = open_environment()
    store_id = first.store_id
    first.committer.submit(append)
    first.close()
    second = open_environment()
    assert second.store_id == store_id
    assert check_whole(second) == 1


def test_a_missing_store_is_not_created_unless_asked(open_environment, path):
    with pytest.raises(StoreNotFoundError) as caught:
        open_environment(create=False)
    assert caught.value.path == str(path)
    assert not path.exists()


def test_a_missing_store_is_never_created_read_only(open_environment, path):
    with pytest.raises(StoreNotFoundError):
        open_environment(read_only=True)
    assert not path.exists()


def test_a_missing_directory_is_not_created(open_environment, tmp_path):
    with pytest.raises(StoreNotFoundError):
        open_environment(tmp_path / "nowhere" / "agent.state")


def test_a_path_below_a_file_is_not_found(open_environment, environment):
    with pytest.raises(StoreNotFoundError):
        open_environment(environment.path / "agent.state")


@pytest.mark.parametrize("options", [{"durability": "none"}, {"max_size_bytes": 4096}])
def test_options_that_cannot_be_are_usage_errors(open_environment, options, path):
    with pytest.raises(UsageError):
        open_environment(**options)
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"x", b"not a store\n" * 1000, b"SQLite format 3\0" + bytes(8192)])
def test_a_foreign_file_is_refused_and_left_alone(open_environment, path, content):
    path.write_bytes(content)
    with pytest.raises(FormatError) as caught:
        open_environment()
    assert caught.value.path == str(path)
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


def test_a_directory_is_not_a_store(open_environment, tmp_path):
    with pytest.raises(FormatError, match="directory"):
        open_environment(tmp_path)


def test_a_fifo_is_not_a_store(open_environment, path):
    os.mkfifo(path)
    with pytest.raises(FormatError, match="regular"):
        open_environment()


def test_another_lmdb_file_is_foreign(open_environment, path):
    with lmdb.open(str(path), subdir=False) as raw, raw.begin(write=True) as transaction:
        transaction.put(b"log", b"a value where a table should be")
    with pytest.raises(FormatError, match="not a statelog store"):
        open_environment()


def edit_header(path, value):
    with lmdb.open(str(path), subdir=False, max_dbs=4) as raw, raw.begin(write=True) as transaction:
        meta = raw.open_db(b"meta", txn=transaction)
        if value is None:
            transaction.delete(HEADER_KEY, db=meta)
        else:
            transaction.put(HEADER_KEY, value, db=meta)


@pytest.mark.parametrize("value", [None, b"damaged"])
def test_a_damaged_header_is_corruption_that_names_the_file(open_environment, path, value):
    open_environment().close()
    edit_header(path, value)
    with pytest.raises(CorruptionError, match=path.name) as caught:
        open_environment()
    assert caught.value.path == str(path)


def count_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_the_file_of_a_refused_store_can_be_opened_later(open_environment, path):
    """A failed open leaves no lock, descriptor or registry entry behind."""
    open_environment().close()
    with lmdb.open(str(path), subdir=False, max_dbs=4) as raw, raw.begin(write=True) as transaction:
        header = transaction.get(HEADER_KEY, db=raw.open_db(b"meta", txn=transaction))
    edit_header(path, b"damaged")
    descriptors = count_descriptors()
    with pytest.raises(CorruptionError):
        open_environment()
    assert count_descriptors() == descriptors
    edit_header(path, header)
    assert open_environment().header["format"] == FORMAT_VERSION


def test_a_file_of_another_user_is_an_access_error(environment, run_child):
    """Of the root user, too, once it has given up its rights."""
    script = """
    os.geteuid() or os.seteuid(65534)
    try:
        Environment.open(sys.argv[1], max_size_bytes=2**26)
    except AccessError as error:
        say(type(error).__name__, error.path == sys.argv[1])
    """
    environment.path.chmod(0o000)
    assert run_child(script) == (0, ["AccessError True"])


def test_a_directory_that_cannot_be_written_is_an_access_error(run_child, tmp_path):
    script = """
    os.geteuid() or os.seteuid(65534)
    try:
        Environment.open(sys.argv[1], max_size_bytes=2**26)
    except AccessError as error:
        say(type(error).__name__)
    """
    tmp_path.chmod(0o500)
    assert run_child(script) == (0, ["AccessError"])


def test_a_read_only_store_reads_and_does_not_write(open_environment, append, check_whole):
    writable = open_environment()
    writable.committer.submit(append)
    writable.close()
    environment = open_environment(read_only=True)
    assert check_whole(environment) == 1
    with pytest.raises(ReadOnlyError):
        environment.committer.submit(append)
    assert check_whole(environment) == 1


def test_a_closed_store_refuses_everything(open_environment, append):
    environment = open_environment()
    environment.close()
    with pytest.raises(ClosedError), environment.read():
        pass
    with pytest.raises(ClosedError):
        environment.committer.submit(append)
    with pytest.raises(ClosedError):
        environment.last_transaction_id()
    with pytest.raises(ClosedError):
        environment.reopen()


def test_close_is_harmless_when_repeated(open_environment):
    environment = open_environment()
    environment.close()
    environment.close()


def test_close_inside_a_read_raises_and_leaves_the_store_usable(environment, append, monkeypatch):
    monkeypatch.setattr("statelog.storage.commit.journaled._DRAIN_TIMEOUT_S", 0.01)
    with environment.read(), pytest.raises(UsageError, match="still open"):
        environment.close()
    assert environment.committer.submit(append) == 1


def test_interval_commits_are_there_after_reopening(open_environment, append, check_whole):
    environment = open_environment(durability="interval")
    for _ in range(3):
        environment.committer.submit(append)
    environment.close()
    assert check_whole(open_environment(durability="interval")) == 3


def test_lmdb_never_writes_through_its_map(open_environment):
    """With writemap a power cut corrupts, whatever else is done."""
    assert not open_environment().handles.raw.flags()["writemap"]


def test_reopen_keeps_store_and_commits(environment, append, check_whole):
    environment.committer.submit(append)
    environment.reopen()
    environment.committer.submit(append)
    assert check_whole(environment) == 2


def test_reopen_of_another_store_in_its_place_is_refused(open_environment, path, tmp_path, append):
    open_environment(tmp_path / "other.state").close()
    environment = open_environment()
    (tmp_path / "other.state").replace(path)
    with pytest.raises(StorageError, match="replaced"):
        environment.reopen()
    with pytest.raises(StorageError, match="replaced"):
        environment.committer.submit(append)


def test_reopen_of_a_removed_file_is_refused_and_makes_none(open_environment, path):
    environment = open_environment()
    path.unlink()
    with pytest.raises(StorageError, match="removed"):
        environment.reopen()
    assert not path.exists()


def in_forked_child(action):
    """Run `action` in a forked child; return its exit status, 0 if it returned True."""
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
        lambda environment: enter(environment.read()),
        lambda environment: environment.committer.submit(lambda _: None),
        lambda environment: environment.last_transaction_id(),
        lambda environment: environment.statistics(),
    ],
    ids=["read", "submit", "last_transaction_id", "statistics"],
)
def test_a_forked_child_cannot_use_its_parents_store(environment, action):
    assert in_forked_child(lambda: raises_forked(lambda: action(environment))) == 0


def test_a_forked_child_may_open_the_store_itself(environment, append, check_whole, path):
    environment.committer.submit(append)

    def child():
        own = Environment.open(path, max_size_bytes=QUOTA_BYTES)
        committer_of(own).submit(append)
        own.close()
        return own is not environment

    assert in_forked_child(child) == 0
    environment.committer.submit(append)
    assert check_whole(environment) == 3


def test_a_forked_childs_close_leaves_the_parents_store_alone(environment, append, check_whole):
    def child():
        environment.close()
        return True

    assert in_forked_child(child) == 0
    environment.committer.submit(append)
    assert check_whole(environment) == 1


@pytest.mark.parametrize("midst", [False, True], ids=["at rest", "in the midst of a read"])
def test_a_forked_child_that_exits_leaves_the_parents_readers_alone(run_child, midst):
    """LMDB's binding, closed in a child by hand or at exit, frees the parent's slots in the reader table."""
    script = """
    environment = Environment.open(sys.argv[1], max_size_bytes=2**26)
    environment.committer.submit(append)
    with environment.read() as transaction:
        if sys.argv[2] == "True" and os.fork() == 0:
            sys.exit()
    if sys.argv[2] == "False" and os.fork() == 0:
        sys.exit()
    with environment.read() as transaction:
        os.wait()
        say(environment.statistics().readers, transaction.last_lsn())
    with environment.read() as transaction:
        say(transaction.last_lsn())
    """
    assert run_child(script, midst) == (0, ["1 1", "1"])


def test_a_fork_in_the_midst_of_a_read_leaves_the_snapshot_alone(environment, append, path):
    environment.committer.submit(append)
    with environment.read() as transaction:

        def child():
            return raises_forked(lambda: Environment.open(path, max_size_bytes=QUOTA_BYTES))

        assert in_forked_child(child) == 0
        assert "no active" not in environment.handles.raw.readers()
        assert bytes(transaction.get_log(1)[:6]) == b"record"


def test_a_child_forked_within_a_work_cannot_commit_it(environment, check_whole):
    """Work and commit go on in the child, too, which holds none of LMDB's locks."""

    def work(transaction):
        child = os.fork()
        transaction.put_log(1, (b"record 1 " if child else b"the child") * 50)
        transaction.put_index(b"n00000001", b"index 1")
        return child

    parent = os.getpid()
    try:
        child = environment.committer.submit(work)
    except ForkedError:
        os._exit(3)
    finally:
        if os.getpid() != parent:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert check_whole(environment) == 1


def test_a_forked_child_does_not_hold_its_parents_locks(start_child, run_child):
    """The locks belong to the open file, which the child shares: it must let go of them."""
    parent = start_child(
        """
        environment = Environment.open(sys.argv[1], max_size_bytes=2**26)
        def work(transaction):
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            say(child)
            time.sleep(60)
        environment.committer.submit(work)
        """
    )
    grandchild = int(parent.stdout.readline())
    try:
        parent.kill()
        parent.wait()
        script = "say(Environment.open(sys.argv[1], max_size_bytes=2**26, lock_timeout_s=5).committer.submit(append))"
        assert run_child(script) == (0, ["1"])
    finally:
        os.kill(grandchild, signal.SIGKILL)
