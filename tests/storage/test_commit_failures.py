"""Failed commits: a full quota, a full or broken disk, and unknown outcomes."""

import errno
import fcntl
import os
from pathlib import Path

import lmdb
import pytest
from committing import Caller, Holder, fail

from statelog.errors import (
    CommitOutcomeUnknownError,
    StorageError,
    StoreFullError,
)
from statelog.storage import faults

# --- quota and disk -------------------------------------------------------------


@pytest.fixture
def small(open_store_file):
    return open_store_file(
        max_size_bytes=1024 * 1024, flush=False
    )  # Flushes do not matter here, and there are many commits.


def fill(store_file, append):
    """Commit until the quota is used up. Return the number of commits."""
    for count in range(10_000):
        try:
            store_file.committer.submit(append)
        except StoreFullError as error:
            return count, error
    raise AssertionError


def test_a_full_quota_refuses_writes_and_leaves_the_store_readable(small, append, check_whole):
    count, error = fill(small, append)
    assert error.max_size_bytes == 1024 * 1024
    assert check_whole(small) == count > 100
    assert small.path.stat().st_size <= 1024 * 1024
    with pytest.raises(StoreFullError):
        small.committer.submit(append)


def test_a_full_store_opens_and_reads(small, open_store_file, append, check_whole):
    count, _ = fill(small, append)
    small.close()
    assert check_whole(open_store_file(max_size_bytes=1024 * 1024, flush=False)) == count


def test_a_full_store_continues_with_a_larger_quota(small, open_store_file, append, check_whole):
    count, _ = fill(small, append)
    small.close()
    store_file = open_store_file(max_size_bytes=2 * 1024 * 1024, flush=False)
    assert store_file.committer.submit(append) == count + 1
    assert check_whole(store_file) == count + 1


def test_space_freed_in_a_full_store_is_used_again(small, append):
    small.committer.submit(lambda transaction: transaction.put_index(b"big", bytes(300_000)))
    fill(small, append)
    with small.read() as transaction:
        last = transaction.last_lsn()
    small.committer.submit(lambda transaction: transaction.delete_index(b"big"))
    small.committer.submit(
        lambda transaction: transaction.put_index(b"free", b"")
    )  # LMDB reuses pages one commit later.
    assert small.committer.submit(append) == last + 1


def test_only_the_work_that_is_too_large_gets_the_quota_error(small, append, check_whole):
    committer = small.committer

    def too_large(transaction):
        transaction.put_log(transaction.last_lsn() + 1, bytes(2 * 1024 * 1024))

    holder = Holder(committer)
    callers = [Caller(committer, work) for work in (append, too_large, append)]
    holder.release()
    for caller in callers:
        caller.join()
    assert [caller.result for caller in callers] == [1, None, 2]
    assert isinstance(callers[1].error, StoreFullError)
    assert check_whole(small) == 2


def descriptors_of(path):
    """Return LMDB's descriptors of the data file: for its pages, and for its meta pages (flushed by each write)."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        if entry.resolve() == path:
            number = int(entry.name)
            found.setdefault(bool(fcntl.fcntl(number, fcntl.F_GETFL) & os.O_DSYNC), set()).add(number)
    return found


@pytest.fixture
def break_descriptor(store_file):
    """Replace LMDB's file by another one, so that its writes fail."""

    def break_it(*, by):
        found = descriptors_of(store_file.path)
        other = os.open(by, os.O_RDONLY if by == os.devnull else os.O_RDWR)
        for descriptor in found[False] - {store_file.lmdb_file.locks.descriptor}:  # Those of LMDB and of a mapped page.
            os.dup2(other, descriptor, inheritable=False)
        os.close(other)

    return break_it


def test_a_full_disk_refuses_the_commit_and_the_store_stays_usable(
    store_file, committer, append, check_whole, break_descriptor
):
    committer.submit(append)
    break_descriptor(by="/dev/full")
    with pytest.raises(StoreFullError) as caught:
        committer.submit(append)
    assert caught.value.__cause__.code == errno.ENOSPC
    assert check_whole(store_file) == 1
    assert committer.submit(append) == 2
    assert check_whole(store_file) == 2


def test_a_disk_error_refuses_the_commit_and_the_store_stays_usable(
    store_file, committer, append, check_whole, break_descriptor
):
    committer.submit(append)
    break_descriptor(by=os.devnull)
    with pytest.raises(StorageError) as caught:
        committer.submit(append)
    assert not isinstance(caught.value, CommitOutcomeUnknownError)
    assert isinstance(caught.value.__cause__, lmdb.Error)
    assert committer.submit(append) == 2
    assert check_whole(store_file) == 2


def test_each_caller_of_a_failed_group_gets_the_error(store_file, committer, append, check_whole, break_descriptor):
    committer.submit(append)
    holder = Holder(committer)
    callers = [Caller(committer, append) for _ in range(3)]
    break_descriptor(by="/dev/full")
    holder.release()
    for caller in callers:
        caller.join()
    assert [type(caller.error) for caller in callers] == [StoreFullError] * 3
    assert len({id(caller.error) for caller in callers}) == 3
    assert committer.submit(append) == 2
    assert check_whole(store_file) == 2


# --- unknown outcomes -------------------------------------------------------------


DISK_ERROR = lmdb.DiskError if hasattr(lmdb, "DiskError") else lmdb.Error


def test_an_error_after_a_successful_commit_is_not_raised(store_file, committer, append, check_whole):
    raw = store_file.lmdb_file.handles.raw
    faults.arm("commit.after_lmdb_commit", action=fail(DISK_ERROR("the disk went away")))
    assert committer.submit(append) == 1
    assert store_file.lmdb_file.handles.raw is not raw
    assert check_whole(store_file) == 1


def test_an_error_before_the_commit_happened_is_reported_as_not_committed(store_file, committer, append, check_whole):
    faults.arm("commit.before_lmdb_commit", action=fail(DISK_ERROR("the disk went away")))
    with pytest.raises(StorageError) as caught:
        committer.submit(append)
    assert not isinstance(caught.value, CommitOutcomeUnknownError)
    assert check_whole(store_file) == 0
    assert committer.submit(append) == 1


def test_a_commit_that_wrote_no_record_is_unknown_after_an_error(store_file, committer):
    faults.arm("commit.after_lmdb_commit", action=fail(DISK_ERROR("the disk went away")))
    with pytest.raises(CommitOutcomeUnknownError) as caught:
        committer.submit(lambda transaction: transaction.put_index(b"k", b"v"))
    assert isinstance(caught.value.__cause__, DISK_ERROR)
    with store_file.read() as transaction:
        assert transaction.get_index(b"k") == b"v"


def test_a_commit_is_unknown_while_the_store_cannot_be_reopened(store_file, committer, append, monkeypatch):
    def refuse():
        raise StorageError("the disk is away")

    def go_away():
        monkeypatch.setattr(store_file.lmdb_file, "open", refuse)
        raise DISK_ERROR("the disk went away")

    faults.arm("commit.after_lmdb_commit", action=go_away)
    with pytest.raises(CommitOutcomeUnknownError):
        committer.submit(append)
    with pytest.raises(StorageError, match="is away"):
        committer.submit(append)
    monkeypatch.undo()
    assert committer.submit(append) == 2


def test_another_record_at_the_same_lsn_is_not_mistaken_for_ours(store_file, committer, append):
    """After our commit failed, another process may have used the same LSN."""

    def other_process():
        with store_file.lmdb_file.handles.begin(write=True) as transaction:
            transaction.put((1).to_bytes(8), b"another's record", db=store_file.lmdb_file.handles.log)
        raise DISK_ERROR("the disk went away")

    transaction_commit = "statelog.storage.write_transaction.WriteTransaction.commit"
    with pytest.MonkeyPatch.context() as patch:

        def commit(self):
            self.number = self._raw.id()
            self.stage = type(self.stage).COMMITTING
            self._raw.abort()
            other_process()

        patch.setattr(transaction_commit, commit)
        with pytest.raises(StorageError) as caught:
            committer.submit(append)
    assert not isinstance(caught.value, CommitOutcomeUnknownError)
