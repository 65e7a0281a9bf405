"""Checkpoints while processes close, stop, die or are interrupted. The pin is held, and no process waits (J1 to J7)."""

import errno
import os
import signal
import sys
import threading
import time

import pytest

from statelog.errors import StorageError, StoreLockedError
from statelog.storage import faults
from statelog.storage.file.sidecar_files import journal_path
from statelog.storage.wal import background_flusher
from statelog.storage.wal.dirty_flag import read_extent
from statelog.storage.wal.reader_slots import SnapshotPins
from statelog.storage.wal.shared_state import UNKNOWN, SharedState
from statelog.storage.wal.wal_format import HALF_SIZE_BYTES, HALVES_AT

SMALL = """
from statelog.storage.wal import checkpointer, wal_format
checkpointer.JOURNAL_SIZE_BYTES_MAX = 100
"""
"""A checkpoint is due at every commit but the first of an epoch."""

COMMIT = """
store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
for _ in range(int(sys.argv[2])):
    say(store_file.committer.submit(append))
"""


def fail(*_arguments):
    raise OSError(errno.EIO, "as if")


def test_a_checkpoint_whose_pin_was_released_is_followed_by_one_whose_pin_is_held(
    store_file, append, run_child, check_whole, monkeypatch
):
    """Otherwise, the epoch of the first checkpoint would never end and would pin every page."""
    monkeypatch.setattr(background_flusher, "IDLE_S", 60)
    store_file.committer.submit(append)
    begins = f"{SMALL}checkpointer.Checkpointer.finish_if_begun = lambda _self: None\n{COMMIT}store_file.close()"
    assert run_child(begins, 3) == (0, ["2", "3", "4"])
    shared = store_file.wal.shared_state
    assert shared.epoch > shared.durable_epoch
    store_file.checkpointer.finish_if_begun()
    assert store_file.committer.submit(append) == 5
    assert shared.epoch == shared.durable_epoch
    assert shared.is_pinned(shared.durable_epoch)
    assert shared.durable_epoch in store_file.checkpointer.pins
    assert check_whole(store_file) == 5


def test_an_epoch_never_outgrows_its_half_of_the_wal(store_file, append, monkeypatch):
    """Data that would not fit is flushed to the data file."""
    store_file.committer.submit(append)
    shared = store_file.wal.shared_state
    shared.at = HALVES_AT[shared.epoch & 1] + HALF_SIZE_BYTES - 100
    monkeypatch.setattr(type(store_file.checkpointer), "is_due", lambda _self: False)
    epoch = shared.epoch
    assert store_file.committer.submit(append) == 2
    assert (shared.epoch, shared.at) == (epoch + 1, HALVES_AT[(epoch + 1) & 1])


@pytest.mark.slow
@pytest.mark.parametrize("point", ["checkpoint.after_sync", "checkpoint.before_slot_flush"])
def test_a_closing_process_waits_for_its_own_checkpoint(store_file, append, run_child, check_whole, point):
    """Otherwise, its thread would flush a closed file, or a file that was opened later with the same descriptor."""
    store_file.committer.submit(append)
    closes = f"""{SMALL}
begun = threading.Event()
def dawdle():
    begun.set()
    time.sleep(0.3)
    say("goes on")
faults.arm("{point}", action=dawdle)
{COMMIT}
begun.wait(10)
store_file.close()
say("closed")
"""
    status, said = run_child(closes, 3)
    assert (status, sorted(said[:-2]), said[-2:]) == (0, ["2", "3", "4"], ["goes on", "closed"])
    assert not store_file.wal.shared_state.is_broken
    assert store_file.committer.submit(append) == 5
    assert check_whole(store_file) == 5


@pytest.mark.parametrize("point", ["checkpoint.before_slot_flush", "checkpoint.after_slot"])
def test_the_extent_in_the_data_file_omits_appends_during_a_flush(store_file, append, path, point):
    """Otherwise, a power failure would leave a journal that appears to be truncated."""
    store_file.committer.submit(append)
    size_bytes = journal_path(path).stat().st_size
    faults.arm(point, action=lambda: os.truncate(journal_path(path), size_bytes + 4096))
    store_file.writer.checkpoint()
    store_file.committer.submit(append)
    os.truncate(journal_path(path), journal_path(path).stat().st_size + 4096)
    store_file.wal.note_flushed()
    extent = read_extent(store_file.lmdb_file.locks.descriptor, store_file.wal.session)
    assert extent.lsn == 2
    assert 0 < extent.size_bytes <= size_bytes + (4096 if point == "checkpoint.after_slot" else 0)
    assert extent.size_bytes <= size_bytes


def test_a_commit_whose_journal_is_removed_before_its_flush_needs_no_flush(store_file, append, check_whole):
    """A compaction of this process flushes all data in the data file."""
    store_file.committer.submit(append)
    with store_file.lmdb_file.write_lock:
        waiting = threading.Thread(target=store_file.wal.flush, args=(2,))
        with store_file.wal.flushing:
            waiting.start()
            time.sleep(0.05)
            store_file.checkpointer.remove_wal()
    waiting.join(10)
    assert not waiting.is_alive()
    assert store_file.committer.submit(append) == 2
    assert check_whole(store_file) == 2


@pytest.mark.slow
def test_a_waiter_for_a_stopped_flush_flushes_itself(store_file, append, start_child, check_whole, monkeypatch):
    monkeypatch.setattr(background_flusher, "IDLE_S", 60)  # An idle store would flush everything.
    store_file.committer.submit(append)
    child = start_child("""
store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
flush = store_file.wal.sync
def stop():
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # at once
    flush()
store_file.wal.sync = stop
say(store_file.committer.submit(append))
store_file.close()
""")
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    assert store_file.committer.submit(append) == 3
    assert store_file.wal.shared_state.flushed == 3
    child.send_signal(signal.SIGCONT)
    assert child.communicate(timeout=300) == ("2\n", "")
    assert check_whole(store_file) == 3


def test_an_idle_checkpoint_does_not_wait_for_a_process_stopped_in_a_checkpoint(
    store_file, append, start_child, check_whole, monkeypatch
):
    monkeypatch.setattr(background_flusher, "IDLE_S", 60)
    monkeypatch.setattr(store_file.checkpointer, "finish_if_begun", lambda: None)  # It would be the first.
    store_file.committer.submit(append)
    child = start_child(
        f"""{SMALL}
committed, reached = threading.Event(), threading.Event()
def stop():
    reached.set()
    committed.wait(10)
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # at once
faults.arm("checkpoint.after_sync", action=stop)
{COMMIT}
reached.wait(10)
committed.set()
sys.stdin.readline()
store_file.close()
""",
        3,
    )
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    started_s = time.monotonic()
    with store_file.lmdb_file.write_lock, store_file.lmdb_file.locks.writing(1):
        assert store_file.checkpointer.checkpoint_when_idle() is False
    assert time.monotonic() - started_s < 1
    assert store_file.committer.submit(append) > 1
    child.send_signal(signal.SIGCONT)
    child.communicate("\n", timeout=300)
    store_file.writer.checkpoint()
    assert not store_file.checkpointer.needs_checkpoint
    assert check_whole(store_file) == 5


def test_pins_released_by_two_threads_at_once_end_once():
    pins, ended = SnapshotPins(), []

    class Pin:
        def abort(self):
            ended.append(self)
            pins.drop()

    for epoch in (1, 2):
        pins.keep(Pin(), epoch)
    pins.drop_before(3)
    assert len(set(ended)) == len(ended) == 2
    assert not pins


def test_an_interrupt_at_the_beginning_of_an_epoch_leaves_no_wrong_position(store_file, append):
    """Otherwise, an append would write a group of one epoch into the half of another epoch."""
    store_file.committer.submit(append)
    shared = store_file.wal.shared_state

    def interrupt_at(number):
        seen = 0

        def trace(frame, event, _argument):
            nonlocal seen
            if frame.f_code not in {
                SharedState.begin_epoch.__code__,
                type(SharedState.__dict__["epoch"]).__set__.__code__,
            }:
                return None
            seen += event == "line"
            if seen == number:
                raise KeyboardInterrupt
            return trace

        return trace

    for number in range(1, 40):
        epoch = shared.epoch
        sys.settrace(interrupt_at(number))
        try:
            shared.begin_epoch(epoch + 1, 1)
        except KeyboardInterrupt:
            start = HALVES_AT[shared.epoch & 1]
            assert shared.lsn == UNKNOWN or start <= shared.at < start + HALF_SIZE_BYTES
        else:
            break
        finally:
            sys.settrace(None)
        shared.at, shared.lsn, shared.epoch = HALVES_AT[epoch & 1], 1, epoch
    assert 7 < number < 39
    shared.epoch, shared.lsn = epoch, UNKNOWN
    store_file.writer.checkpoint()


@pytest.mark.slow
def test_no_process_frees_dead_readers_while_another_process_writes(store_file, append, start_child):
    """A checkpoint could begin and end, and the owner of the new pin could die, before the slots are freed."""
    store_file.committer.submit(append)
    child = start_child(
        "store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)\n"
        "faults.arm('commit.after_begin', action=lambda: (say('writes'), sys.stdin.readline()))\n"
        "store_file.committer.submit(append)\nstore_file.close()"
    )
    assert child.stdout.readline() == "writes\n"
    with pytest.raises(StoreLockedError):
        store_file.reader_slots.release_dead()
    child.communicate("\n", timeout=300)
    assert store_file.reader_slots.release_dead() == 0


def test_a_reader_frees_no_pin_of_a_dead_process(store_file, append, run_child, monkeypatch):
    monkeypatch.setattr(background_flusher, "IDLE_S", 60)
    store_file.committer.submit(append)
    store_file.writer.checkpoint()
    with store_file.lmdb_file.locks.writing(1):
        store_file.checkpointer.release_pins()
    assert run_child(f"{COMMIT}os.kill(os.getpid(), signal.SIGKILL)", 1) == (-9, ["2"])
    shared = store_file.wal.shared_state
    assert shared.is_pinned(shared.durable_epoch)
    assert not store_file.checkpointer.pins
    reads = "say(StoreFile.open(sys.argv[1], read_only=True, max_size_bytes=2**26).reader_slots.release_dead())"
    assert run_child(reads) == (0, ["0"])
    assert store_file.reader_slots.release_dead() == 0
    store_file.writer.checkpoint()
    assert store_file.statistics().readers == 0


def test_a_flush_that_fails_as_a_session_begins_is_known_to_all(open_store_file, append, run_child):
    store_file = open_store_file()
    fails = """
def fail():
    raise OSError(5, "as if")
faults.arm("checkpoint.after_sync", action=fail)
store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
try:
    store_file.committer.submit(append)
except StorageError:
    say("failed")
"""
    assert run_child(fails) == (0, ["failed"])
    with pytest.raises(StorageError):
        store_file.committer.submit(append)
    store_file.close()
    assert open_store_file().committer.submit(append) == 1


def test_a_failed_flush_is_not_forgotten_while_somebody_reads(open_store_file, append, start_child, check_whole):
    """Nothing has read the disk since then, so the page cache is still not reliable."""
    store_file = open_store_file()
    store_file.committer.submit(append)
    reader = start_child(
        "store_file = StoreFile.open(sys.argv[1], read_only=True, max_size_bytes=2**26)\n"
        "say('reads')\nsys.stdin.readline()\nstore_file.close()"
    )
    assert reader.stdout.readline() == "reads\n"
    store_file.committer.submit(append)  # however long that took, the store is not at rest
    faults.arm("checkpoint.after_sync", action=fail)
    with pytest.raises(StorageError):
        store_file.writer.checkpoint()
    store_file.close()
    for _ in range(2):
        beside = open_store_file()
        with pytest.raises(StorageError):
            beside.committer.submit(append)
        beside.close()
    reader.communicate("\n", timeout=300)
    alone = open_store_file()
    assert alone.committer.submit(append) == 3
    assert check_whole(alone) == 3


def test_after_a_dead_writer_checkpoints_are_made_until_one_has_begun(store_file, append, run_child, monkeypatch):
    """LMDB's lock had a dead owner, too. Its next owner frees the slots of dead readers, including pins."""
    store_file.committer.submit(append)
    assert run_child(COMMIT, 1, fault="commit.after_begin:1:kill") == (-9, [])
    is_due = store_file.checkpointer.is_due

    def interrupt():
        monkeypatch.setattr(store_file.checkpointer, "is_due", is_due)
        raise KeyboardInterrupt

    monkeypatch.setattr(store_file.checkpointer, "is_due", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store_file.committer.submit(append)
    with store_file.lmdb_file.locks.writing(1):
        assert store_file.lmdb_file.locks.writer.needs_repair
    assert store_file.committer.submit(append) == 2
    with store_file.lmdb_file.locks.writing(1):
        assert not store_file.lmdb_file.locks.writer.needs_repair


@pytest.mark.slow
def test_a_process_that_continues_a_dead_session_flushes_its_slots_first(store_file, start_child, run_child):
    """The newest may be in nothing but the page cache, and the next one is written over the one before it."""
    store_file.close()
    reader = start_child(
        "store_file = StoreFile.open(sys.argv[1], read_only=True, max_size_bytes=2**26)\n"
        "say('reads')\nsys.stdin.readline()\nstore_file.close()"
    )
    assert reader.stdout.readline() == "reads\n"
    dies = f"{COMMIT}store_file.writer.checkpoint()"
    assert run_child(dies, 1, fault="checkpoint.before_slot_flush:2:kill") == (-9, ["1"])
    goes_on = f"""
calls = []
fdatasync, pwrite = os.fdatasync, os.pwrite
def name(descriptor):
    return os.readlink(f"/proc/self/fd/{{descriptor}}").rpartition("-")[2]
os.fdatasync = lambda descriptor: (calls.append(("flush", name(descriptor))), fdatasync(descriptor))
def write(descriptor, data, at):
    calls.append(("write", name(descriptor)))
    return pwrite(descriptor, data, at)
os.pwrite = write
{COMMIT}
journal = [call for call, file in calls if file == "journal"]
say(*journal[:2])
store_file.close()
"""
    assert run_child(goes_on, 1) == (0, ["2", "flush write"])
    reader.communicate("\n", timeout=300)
