"""Writers in several processes keep J1 to J4, also after failed flushes and interrupts."""

import errno
import os
import threading

import pytest

from statelog.errors import JournalMissingError, StorageError
from statelog.storage import faults
from statelog.storage.file.sidecar_files import journal_path
from statelog.storage.wal import background_flusher
from statelog.storage.wal.wal_format import HALVES_AT, read_slots

RECOVERY_POINTS = [name for name in faults.POINTS if name.startswith("recovery.")]

COMMIT_AND_STAY = """
store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26, durability=sys.argv[2])
for _ in range(int(sys.argv[3])):
    say(store_file.committer.submit(append))
if sys.argv[4:]:
    store_file.writer.checkpoint()
sys.stdin.readline()
store_file.close()
"""


def fail(*_arguments):
    raise OSError(errno.EIO, "as if")


def test_a_process_that_continues_an_epoch_flushes_its_slot_before_overwriting_the_previous_one(
    start_child, store_file, append, monkeypatch
):
    """J3: the writer of the slot was killed before its flush. Acknowledged data is in the last epoch."""
    monkeypatch.setattr(background_flusher, "IDLE_S", 60)  # An idle store would not continue an epoch.
    store_file.committer.submit(append)
    child = start_child(COMMIT_AND_STAY, "commit", 1, "checkpoint", fault="checkpoint.before_slot_flush:1:kill")
    child.communicate(timeout=300)
    assert child.returncode == -9
    wal = store_file.wal
    half, epoch = HALVES_AT[wal.shared_state.durable_epoch & 1], wal.shared_state.epoch
    first, flushed = os.pread(wal.descriptor, 16, half), []
    fdatasync = os.fdatasync

    def record(descriptor):
        fdatasync(descriptor)
        flushed.append(os.pread(wal.descriptor, 16, half) == first)

    monkeypatch.setattr(os, "fdatasync", record)
    assert store_file.committer.submit(append) == 3
    assert flushed[:2] == [True, True]  # The data file, and the slot.
    assert wal.shared_state.done > epoch


def test_a_barrier_waits_for_the_running_flush_of_another_thread(open_store_file, append, monkeypatch):
    store_file = open_store_file(durability="interval", interval_ms=60_000)
    store_file.committer.submit(append)
    begun, goes_on, said = threading.Event(), threading.Event(), []
    fdatasync = os.fdatasync

    def slow(descriptor):
        begun.set()
        goes_on.wait(10)
        fdatasync(descriptor)
        said.append("flushed")

    def barrier():
        store_file.flush_journal()
        said.append("told")

    monkeypatch.setattr(os, "fdatasync", slow)
    threads = [threading.Thread(target=barrier) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert begun.wait(10)
    assert said == []
    goes_on.set()
    for thread in threads:
        thread.join()
    assert said == ["flushed", "told", "told"]


def test_a_closing_process_flushes_its_commits_while_others_stay(start_child, open_store_file, append, monkeypatch):
    child = start_child(COMMIT_AND_STAY, "commit", 1)
    child.stdout.readline()
    store_file = open_store_file(durability="interval", interval_ms=60_000)
    store_file.committer.submit(append)
    assert store_file.wal.is_dirty
    flushed = []
    fdatasync = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: (flushed.append(descriptor), fdatasync(descriptor)))
    store_file.close()
    assert len(flushed) == 1


def test_the_last_process_to_close_leaves_one_file_even_if_it_never_wrote(
    start_child, open_store_file, check_whole, path
):
    store_file = open_store_file()
    child = start_child(COMMIT_AND_STAY, "commit", 3)
    assert child.communicate("\n", timeout=300)[0].split() == ["1", "2", "3"]
    assert journal_path(path).exists()
    store_file.close()
    assert not journal_path(path).exists()
    assert check_whole(open_store_file()) == 3


@pytest.mark.parametrize("call", ["after_sync", "before_slot_flush"])
def test_after_a_failed_flush_no_process_writes_until_all_have_closed(
    start_child, open_store_file, append, check_whole, path, call
):
    """A flush that failed once may succeed later, especially in another process."""
    store_file = open_store_file()
    store_file.committer.submit(append)
    faults.arm(f"checkpoint.{call}", action=fail)
    with pytest.raises(StorageError):
        store_file.writer.checkpoint()
    script = """
    store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
    try:
        store_file.committer.submit(append)
    except StorageError as error:
        say(type(error).__name__)
    store_file.close()
    """
    output, errors = start_child(script).communicate(timeout=300)
    assert (output.split(), errors) == (["StorageError"], "")
    store_file.close()
    assert journal_path(path).exists()
    again = open_store_file()
    assert check_whole(again) == 1
    assert again.committer.submit(append) == 2


def test_a_dirty_flag_that_was_not_flushed_is_written_again(store_file, append, monkeypatch):
    """The flag is in the page cache, where the next process would take it for a durable one."""
    fdatasync, flushed = os.fdatasync, []
    faults.arm("checkpoint.before_flag_flush", action=fail)
    with pytest.raises(StorageError):
        store_file.committer.submit(append)
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: (flushed.append(descriptor), fdatasync(descriptor)))
    assert store_file.committer.submit(append) == 1
    assert store_file.lmdb_file.locks.descriptor in flushed


def test_a_session_that_could_not_be_ended_keeps_its_dirty_flag(store_file, append, path):
    """A compaction first ends the session, and the store stays usable if that fails."""
    store_file.committer.submit(append)
    faults.arm("checkpoint.before_unlink", action=fail)
    with pytest.raises(OSError, match="as if"):
        store_file.checkpointer.remove_wal()
    assert path.read_bytes()[4096 - 64 :].startswith(b"stlguse1")
    assert store_file.committer.submit(append) == 2


def test_a_leftover_journal_is_removed_only_after_the_cleared_flag_is_on_the_disk(
    run_child, open_store_file, check_whole, monkeypatch, path
):
    script = """
    store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
    store_file.committer.submit(append)
    store_file.close()
    """
    assert run_child(script, fault="checkpoint.before_unlink:1:kill") == (-9, [])
    assert journal_path(path).exists()
    fdatasync, there = os.fdatasync, []
    monkeypatch.setattr(
        os, "fdatasync", lambda descriptor: (there.append(journal_path(path).exists()), fdatasync(descriptor))
    )
    assert check_whole(open_store_file()) == 1
    assert there[0]
    assert not journal_path(path).exists()


@pytest.mark.parametrize(("point", "kept"), [("before_append", 1), ("after_append", 1), ("after_flush", 2)])
def test_an_interrupted_commit_leaves_the_same_state_as_a_kill(run_child, open_store_file, check_whole, point, kept):
    """Before LMDB has committed, the group may be in the journal. It must not be replayed."""
    script = """
    store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
    say(store_file.committer.submit(append))
    store_file.writer.checkpoint()
    def interrupt():
        raise KeyboardInterrupt
    faults.arm(sys.argv[2], action=interrupt)
    try:
        store_file.committer.submit(append)
    except KeyboardInterrupt:
        with store_file.read() as transaction:
            say("interrupted", transaction.last_lsn())
    os.kill(os.getpid(), signal.SIGKILL)
    """
    status, said = run_child(script, f"journal.{point}")
    assert (status, said) == (-9, ["1", f"interrupted {kept}"])
    assert check_whole(open_store_file()) == kept


def test_the_position_in_the_journal_is_restored_after_an_interrupt(run_child, open_store_file, check_whole):
    script = """
    store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
    say(store_file.committer.submit(append))
    def interrupt():
        raise KeyboardInterrupt
    faults.arm("commit.after_lmdb_commit", action=interrupt)
    try:
        store_file.committer.submit(append)
    except KeyboardInterrupt:
        pass
    for _ in range(2):
        say(store_file.committer.submit(append))
    os.kill(os.getpid(), signal.SIGKILL)
    """
    status, said = run_child(script)
    assert (status, said) == (-9, ["1", "3", "4"])
    assert check_whole(open_store_file()) == 4


@pytest.mark.parametrize("point", [name for name in faults.POINTS if name.startswith(("journal.", "checkpoint."))])
def test_a_killed_process_does_not_disturb_a_running_one(start_child, store_file, append, check_whole, point):
    """The killed process held a pin, or was making a checkpoint. Then the other process is killed, too."""
    for _ in range(3):
        store_file.committer.submit(append)
    child = start_child(COMMIT_AND_STAY, "commit", 3, fault=f"{point}:2:kill")
    output, _errors = child.communicate("\n", timeout=300)
    said = output.split()
    before = check_whole(store_file)
    assert before - 3 in (len(said), len(said) + 1)
    for number in range(1, 4):
        assert store_file.committer.submit(append) == before + number
    assert check_whole(store_file) == before + 3


@pytest.mark.parametrize("point", RECOVERY_POINTS)
def test_a_recovery_killed_anywhere_is_repeated(run_child, open_store_file, append, check_whole, point):
    status, said = run_child(COMMIT_AND_STAY, "commit", 6, fault="commit.before_delivery:6:kill")
    assert (status, len(said)) == (-9, 5)
    faults_of_two = [f"{RECOVERY_POINTS[0]}:1:kill", f"{point}:1:kill"]
    assert [run_child(COMMIT_AND_STAY, "commit", 1, fault=fault) for fault in faults_of_two] == [(-9, [])] * 2
    store_file = open_store_file()
    assert check_whole(store_file) == 6
    assert store_file.committer.submit(append) == 7


@pytest.mark.slow
def test_a_reader_never_sees_an_incomplete_recovery(start_child, run_child, open_store_file, check_whole):
    """The reader waits for the recovering process, which dies. The recovery is then completed before any read."""
    run_child(COMMIT_AND_STAY, "commit", 6, fault="commit.before_delivery:6:kill")
    recovering = start_child("""
    def stay():
        say("recovering")
        sys.stdin.readline()
        os.kill(os.getpid(), signal.SIGKILL)
    faults.arm("recovery.after_restore", action=stay)
    StoreFile.open(sys.argv[1], max_size_bytes=2**26)
    """)
    assert recovering.stdout.readline() == "recovering\n"
    timer = threading.Timer(0.3, lambda: (recovering.stdin.write("\n"), recovering.stdin.flush()))
    timer.start()
    store_file = open_store_file(read_only=True)
    timer.join()
    assert check_whole(store_file) == 6


def test_a_slot_is_read_back_after_a_kill(store_file, append, path):
    store_file.committer.submit(append)
    descriptor = os.open(journal_path(path), os.O_RDONLY)
    slots = read_slots(descriptor)
    os.close(descriptor)
    assert slots[0].lsn == 0
    assert slots[0].store_id == store_file.lmdb_file.store_id


NEVER_CLOSED = """
from statelog.storage.wal import checkpointer
if sys.argv[2] == "unmarked":
    checkpointer.set_dirty_flag = lambda descriptor, session, extent: None
store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
store_file.committer.submit(append)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_store_that_lost_its_journal_is_detected_by_its_dirty_flag(run_child, open_store_file, path):
    run_child(NEVER_CLOSED, "marked")
    journal_path(path).unlink()
    with pytest.raises(JournalMissingError):
        open_store_file()


def test_negative_control_without_a_dirty_flag_it_is_opened_silently(run_child, open_store_file, path):
    """Negative control."""
    run_child(NEVER_CLOSED, "unmarked")
    journal_path(path).unlink()
    assert not open_store_file().lmdb_file.closed
