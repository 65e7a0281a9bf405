"""A compaction keeps the contents in a new file, wherever it is interrupted, without disturbing other users."""

import errno
import os
import random
import resource
import stat
import threading
import weakref
from pathlib import Path

import pytest

from statelog.errors import (
    ClosedError,
    CorruptionError,
    ForkedError,
    ReadOnlyError,
    StorageError,
    StoreFullError,
    StoreLockedError,
    UsageError,
)
from statelog.storage import compaction, faults
from statelog.storage.compaction import compact_file
from statelog.storage.file.creation import finish_leftovers

COMPACTION_POINTS = [point for point in faults.POINTS if point.startswith("compaction.")]
COMPACT = """
from statelog.storage import compaction
from statelog.storage.compaction import compact_file
compaction._COPIED_SIZE_BYTES = 500
store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
while store_file.committer.submit(append) < 40:
    pass
say("compacting")
compact_file(store_file.lmdb_file, store_file.wal)
say("compacted")
"""

COMMIT = "say(StoreFile.open(sys.argv[1], max_size_bytes=2**26).committer.submit(append))"


def compact(store_file, **options):
    return compact_file(store_file.lmdb_file, store_file.wal, **options)


@pytest.fixture
def leftovers(path):
    return lambda: sorted(entry.name for entry in path.parent.glob(f".{path.name}.compact*"))


@pytest.fixture
def filled(store_file, append):
    """A store with 40 commits and some free pages."""
    for _ in range(40):
        store_file.committer.submit(append)
    return store_file


def test_a_compaction_writes_the_same_contents_to_a_new_file(filled, path, check_whole):
    store_id, inode = filled.lmdb_file.store_id, path.stat().st_ino
    compacted = compact(filled)
    assert (compacted.records, compacted.index_entries) == (40, 40)
    assert check_whole(filled) == 40
    assert filled.lmdb_file.store_id == store_id
    assert path.stat().st_ino != inode
    assert compacted.size_after_bytes == path.stat().st_size < compacted.size_before_bytes


def test_a_compacted_store_opens_again(filled, open_store_file, append, check_whole):
    header = filled.lmdb_file.header
    compact(filled)
    filled.close()
    again = open_store_file()
    assert again.lmdb_file.header == header
    assert again.committer.submit(append) == 41
    assert check_whole(again) == 41


def test_an_empty_store_can_be_compacted(store_file, append):
    assert compact(store_file).records == 0
    assert store_file.committer.submit(append) == 1


def test_pages_are_full_whatever_the_order_of_the_writes(store_file):
    """Keys written at random leave pages half full; in key order, they are full."""
    keys = [b"key %06d" % number for number in range(4000)]
    random.Random(7).shuffle(keys)
    for at in range(0, len(keys), 100):
        store_file.committer.submit(
            lambda transaction, at=at: [transaction.put_index(k, k * 4) for k in keys[at : at + 100]]
        )
    before = store_file.statistics()
    compact(store_file)
    after = store_file.statistics()
    node_size_bytes = 8 + 10 + 40 + 8 + 2
    assert after.tables["index"].leaf_pages <= 4000 * node_size_bytes / (4096 - 16) * 1.05
    assert after.tables["index"].leaf_pages < 0.8 * before.tables["index"].leaf_pages
    assert after.pages_free < 16


def test_free_pages_are_given_back_to_the_system(store_file, path):
    store_file.committer.submit(lambda transaction: transaction.put_log(1, bytes(8_000_000)))
    store_file.committer.submit(lambda transaction: transaction.replace_logs({1: b"small"}))
    store_file.committer.submit(lambda transaction: transaction.put_index(b"n", b"1"))
    assert path.stat().st_size > 8_000_000
    compact(store_file)
    assert path.stat().st_size < 100_000


def test_a_store_larger_than_one_transaction_is_copied_in_several(filled, monkeypatch, check_whole):
    monkeypatch.setattr(compaction, "_COPIED_SIZE_BYTES", 2000)
    passes = []
    faults.arm("compaction.between_transactions", count=5, action=lambda: passes.append(True))
    compact(filled)
    assert passes == [True]
    assert check_whole(filled) == 40


def test_mode_and_path_are_kept(filled, path):
    path.chmod(0o640)
    compact(filled)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_symbolic_link_is_kept(open_store_file, path, tmp_path, append):
    link = tmp_path / "link"
    link.symlink_to(path)
    store_file = open_store_file(link)
    store_file.committer.submit(append)
    compact(store_file)
    assert link.is_symlink()
    assert store_file.committer.submit(append) == 2


def test_the_last_progress_call_reports_completion(filled):
    seen = []
    compact(filled, progress=lambda done, whole: seen.append((done, whole)))
    assert seen[-1] == (81, 81)


# --- other users ------------------------------------------------------------------


def test_other_openings_of_this_process_continue(filled, open_store_file, append, check_whole):
    other = open_store_file()
    compact(filled)
    assert other.committer.submit(append) == 41
    filled.close()
    assert open_store_file() is other
    assert check_whole(other) == 41


def test_transaction_ids_grow(filled, append):
    before = filled.last_transaction_id()
    for _ in range(3):
        compact(filled)
        assert filled.last_transaction_id() > before
        filled.committer.submit(append)
        before = filled.last_transaction_id()


def test_a_waiter_sees_the_next_commit(filled, append):
    seen = filled.flushed_lsn()
    compact(filled)
    thread = threading.Thread(target=lambda: filled.committer.submit(append))
    thread.start()
    assert filled.wake.wait(seen, 10)
    thread.join()


def test_reading_continues_while_the_new_file_is_filled(filled, check_whole):
    seen = []
    compact(filled, progress=lambda _done, _whole: seen.append(check_whole(filled)))
    assert set(seen) == {40}


def test_commits_wait_and_are_not_lost(filled, append, check_whole):
    """Threads commit without a pause while the file is replaced repeatedly."""
    stop = threading.Event()
    counts = [0, 0]

    def commit(index):
        while not stop.is_set():
            filled.committer.submit(append)
            counts[index] += 1

    threads = [threading.Thread(target=commit, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        compact(filled)
    stop.set()
    for thread in threads:
        thread.join()
    assert check_whole(filled) == 40 + sum(counts)


FOLLOW = """
store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26, read_only=sys.argv[2] == "reader")
with store_file.read() as transaction:
    say(transaction.last_lsn())
sys.stdin.readline()
if not store_file.read_only:
    store_file.committer.submit(append)
with store_file.read() as transaction:
    say(transaction.last_lsn())
"""


@pytest.mark.parametrize(("role", "after"), [("writer", 41), ("reader", 40)])
def test_another_process_continues_in_the_new_file(filled, start_child, check_whole, role, after):
    child = start_child(FOLLOW, role)
    assert child.stdout.readline() == "40\n"
    compact(filled)
    assert child.communicate("\n", timeout=300)[0] == f"{after}\n"
    assert check_whole(filled) == after


def test_a_process_that_opens_the_store_during_a_compaction_gets_the_new_file(filled, start_child, check_whole):
    children = []
    faults.arm("compaction.before_rename", action=lambda: children.append(start_child(COMMIT)))
    compact(filled)
    assert children[0].communicate(timeout=300)[0] == "41\n"
    assert check_whole(filled) == 41


def test_a_compaction_without_locks_is_refused(open_store_file, monkeypatch):
    monkeypatch.setattr("statelog.storage.file.locks._SET_LOCK", 9999)
    monkeypatch.setattr("statelog.storage.file.locks.FileLocks._flock", lambda _self, _kind: False)
    with pytest.raises(StorageError, match="no locks"):
        compact(open_store_file())


def test_a_second_concurrent_compaction_is_refused(filled):
    def compact_again(_done, _whole):
        with pytest.raises(StoreLockedError, match="is being compacted"):
            compact(filled)

    compact(filled, progress=compact_again)


def test_a_read_continues_in_the_old_file_which_is_released_at_its_end(filled, append, check_whole):
    old = weakref.ref(filled.lmdb_file.handles)
    with filled.read() as transaction:  # A long-lived object, such as a snapshot.
        compact(filled)
        filled.committer.submit(append)
        assert transaction.last_lsn() == 40
        assert old() is not None
    assert old() is None
    assert check_whole(filled) == 41


@pytest.mark.slow
def test_a_fork_during_a_compaction_harms_neither_process(filled, check_whole, append):
    def fork(_done, _whole):
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)

    compact(filled, progress=fork)
    assert filled.committer.submit(append) == 41
    assert check_whole(filled) == 41


# --- refusals ------------------------------------------------------------------------


def test_a_read_only_store_is_not_compacted(filled, open_store_file):
    filled.close()
    with pytest.raises(ReadOnlyError):
        compact(open_store_file(read_only=True))


def test_a_closed_store_is_not_compacted(filled):
    filled.close()
    with pytest.raises(ClosedError):
        compact(filled)


def test_a_forked_child_does_not_compact(filled):
    filled.lmdb_file.process_id += 1
    with pytest.raises(ForkedError):
        compact(filled)
    filled.lmdb_file.process_id -= 1


def test_a_compaction_within_a_commit_is_a_usage_error(filled):
    def work(_transaction):
        with pytest.raises(UsageError, match="within a commit"):
            compact(filled)

    filled.committer.submit(work)


def test_a_file_with_two_names_is_refused(filled, path, tmp_path):
    os.link(path, tmp_path / "other name")
    with pytest.raises(UsageError, match="several names"):
        compact(filled)


def test_a_removed_file_is_an_error(filled, path, tmp_path):
    faults.arm("compaction.before_file_sync", action=lambda: path.rename(tmp_path / "away"))
    with pytest.raises(StorageError, match="replaced or removed"):
        compact(filled)
    (tmp_path / "away").rename(path)


def test_a_damaged_record_is_not_copied(filled, path, leftovers, check_whole):
    def refuse(lsn, _data):
        if lsn == 17:
            raise CorruptionError("record 17")

    inode = path.stat().st_ino
    with pytest.raises(CorruptionError, match="17"):
        compact(filled, check_record=refuse)
    assert path.stat().st_ino == inode
    assert leftovers() == []
    assert check_whole(filled) == 40


# --- cuts -----------------------------------------------------------------------------


def test_the_fault_points_exist():
    """Without them, the tests of cuts would pass without a cut."""
    assert len(COMPACTION_POINTS) == 10


@pytest.mark.parametrize("point", COMPACTION_POINTS)
def test_a_kill_anywhere_leaves_a_complete_store(run_child, open_store_file, append, check_whole, leftovers, point):
    status, said = run_child(COMPACT, fault=f"{point}:1:kill")
    assert (status, said) == (-9, ["compacting"])
    store_file = open_store_file()
    assert leftovers() == []
    assert check_whole(store_file) == 40
    assert store_file.committer.submit(append) == 41
    assert compact(store_file).records == 41
    assert check_whole(store_file) == 41


def test_negative_control_a_compaction_in_place_is_detected(filled, path, open_store_file):
    """The new file is written over the old one, and cut halfway."""
    filled.close()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(CorruptionError):
        open_store_file()


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("point", [*COMPACTION_POINTS[:7], "compaction.after_directory_sync"])
def test_an_error_anywhere_leaves_a_usable_store(
    filled, append, check_whole, open_store_file, monkeypatch, point, code
):
    def fail():
        raise OSError(code, "as if")

    monkeypatch.setattr(compaction, "_COPIED_SIZE_BYTES", 500)
    faults.arm(point, action=fail)
    with pytest.raises(StoreFullError if code == errno.ENOSPC else StorageError):
        compact(filled)
    assert check_whole(filled) == 40
    assert filled.committer.submit(append) == 41
    filled.close()
    assert check_whole(open_store_file()) == 41


@pytest.fixture
def file_size_limit():
    """Limit the size of files, so that a write across the limit is short. As on a full disk, LMDB gets no reason."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size_bytes: resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, limits[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_partial_write_of_the_new_file_counts_as_a_full_disk(
    filled, path, append, check_whole, leftovers, monkeypatch, file_size_limit
):
    monkeypatch.setattr(compaction, "_COPIED_SIZE_BYTES", 500)
    filled.checkpointer.remove_wal()
    inode = path.stat().st_ino
    file_size_limit(5 * 4096 + 1)
    with pytest.raises(StoreFullError) as caught:
        compact(filled)
    file_size_limit(resource.RLIM_INFINITY)
    assert (caught.value.path, caught.value.full) == (str(path), "disk")
    assert (leftovers(), path.stat().st_ino) == ([], inode)
    assert check_whole(filled) == 40
    assert filled.committer.submit(append) == 41


@pytest.fixture
def happened(filled, monkeypatch):
    """Flushes and renames, in order, by name."""
    log = []
    fsync, fdatasync, rename = os.fsync, os.fdatasync, Path.rename
    filled.checkpointer.remove_wal()  # The first step of a compaction.

    def record_fsync(descriptor):
        fsync(descriptor)
        log.append(("fsync", Path(f"/proc/self/fd/{descriptor}").readlink().name))

    def record_fdatasync(descriptor):
        fdatasync(descriptor)
        log.append(("fdatasync", Path(f"/proc/self/fd/{descriptor}").readlink().name))

    def record_rename(self, target):
        rename(self, target)
        log.append(("rename", Path(target).name))

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "fdatasync", record_fdatasync)
    monkeypatch.setattr(Path, "rename", record_rename)
    return log


def test_the_file_is_flushed_before_the_rename_and_the_directory_after_it(filled, happened, path):
    compact(filled)
    written = [call for call in happened if call[1] != f"{path.name}-journal"]
    flush = ("fdatasync", f".{path.name}.compacting")
    assert written == [flush, flush, ("rename", path.name), ("fsync", path.parent.name)]


def test_negative_control_a_missing_flush_is_detected(filled, happened, monkeypatch, path):
    """Negative control of the previous test."""
    monkeypatch.setattr(compaction, "flush_file", lambda _descriptor: None)
    compact(filled)
    assert ("fdatasync", f".{path.name}.compacting") not in happened


def test_a_rename_that_may_not_be_durable_is_flushed_before_the_next_use(filled, happened, append, leftovers, path):
    def fail():
        raise OSError(errno.EIO, "as if the directory could not be flushed")

    faults.arm("compaction.after_rename", action=fail)
    with pytest.raises(StorageError):
        compact(filled)
    assert ("fsync", path.parent.name) not in happened
    assert filled.committer.submit(append) == 41
    assert ("fsync", path.parent.name) in happened
    assert leftovers() == []


def test_a_rename_that_succeeded_with_an_error_is_flushed_before_the_next_use(
    filled, happened, append, leftovers, path, monkeypatch
):
    rename = Path.rename

    def rename_and_fail(self, target):
        rename(self, target)
        raise OSError(errno.EIO, "as if the answer had been lost")

    inode = path.stat().st_ino
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename_and_fail)
        with pytest.raises(StorageError):
            compact(filled)
    assert path.stat().st_ino != inode
    assert ("fsync", path.parent.name) not in happened
    assert filled.committer.submit(append) == 41
    assert ("fsync", path.parent.name) in happened
    assert leftovers() == []


def test_nothing_is_committed_while_the_directory_cannot_be_flushed(filled, append, check_whole, monkeypatch):
    def refuse(_directory):
        raise OSError(errno.EIO, "input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("statelog.storage.file.creation.sync_directory", refuse)
        with pytest.raises(StorageError):
            compact(filled)
        for _ in range(2):
            with pytest.raises(StorageError, match="cannot be flushed"):
                filled.committer.submit(append)
    assert filled.committer.submit(append) == 41
    assert check_whole(filled) == 41


def test_the_next_compaction_removes_leftovers_of_a_killed_one(filled, path, leftovers):
    path.with_name(f".{path.name}.compacting").write_bytes(b"half a file")
    compact(filled)
    assert leftovers() == []


def test_other_files_are_not_removed_as_leftovers(filled, path):
    other = path.with_name(f".{path.name}.compacting2")
    other.touch()
    finish_leftovers(path)
    assert other.exists()
    assert filled.path == path


def test_files_of_a_running_compaction_are_not_removed_as_leftovers(filled, path, check_whole):
    """A process that opened the previous file cannot know that a compaction of the present one is running."""
    faults.arm("compaction.before_file_sync", action=lambda: finish_leftovers(path))
    compact(filled)
    assert check_whole(filled) == 40
