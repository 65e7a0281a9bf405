"""Checkpoints while processes close, stop, die or are interrupted: the pin is held, and nobody waits (J1 to J7)."""

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
environment = Environment.open(sys.argv[1], max_size_bytes=2**26)
for _ in range(int(sys.argv[2])):
    say(environment.committer.submit(append))
"""


def fail(*_arguments):
    raise OSError(errno.EIO, "as if")


def test_a_checkpoint_whose_pin_was_released_is_followed_by_one_whose_pin_is_held(
    environment, append, run_child, check_whole, monkeypatch
):
    """Else the epoch that it began would go on for ever, and keep every page."""
    monkeypatch.setattr(background_flusher, "IDLE_S", 60)
    environment.committer.submit(append)
    begins = f"{SMALL}checkpointer.Checkpointer.finish_if_begun = lambda _self: None\n{COMMIT}environment.close()"
    assert run_child(begins, 3) == (0, ["2", "3", "4"])
    shared = environment.wal.shared_state
    assert shared.epoch > shared.durable_epoch
    environment.checkpointer.finish_if_begun()
    assert environment.committer.submit(append) == 5
    assert shared.epoch == shared.durable_epoch
    assert shared.is_pinned(shared.durable_epoch)
    assert shared.durable_epoch in environment.checkpointer.pins
    assert check_whole(environment) == 5


def test_a_half_is_never_left_behind(environment, append, monkeypatch):
    """What would not fit is flushed where it lies."""
    environment.committer.submit(append)
    shared = environment.wal.shared_state
    shared.at = HALVES_AT[shared.epoch & 1] + HALF_SIZE_BYTES - 100
    monkeypatch.setattr(type(environment.checkpointer), "is_due", lambda _self: False)
    epoch = shared.epoch
    assert environment.committer.submit(append) == 2
    assert (shared.epoch, shared.at) == (epoch + 1, HALVES_AT[(epoch + 1) & 1])


@pytest.mark.parametrize("point", ["checkpoint.after_sync", "checkpoint.before_slot_flush"])
def test_a_closing_process_waits_for_its_own_checkpoint(environment, append, run_child, check_whole, point):
    """Its thread would flush a closed file, or one that was opened since under the same number, for the slot."""
    environment.committer.submit(append)
    closes = f"""{SMALL}
begun = threading.Event()
def dawdle():
    begun.set()
    time.sleep(0.3)
    say("goes on")
faults.arm("{point}", action=dawdle)
{COMMIT}
begun.wait(10)
environment.close()
say("closed")
"""
    status, said = run_child(closes, 3)
    assert (status, sorted(said[:-2]), said[-2:]) == (0, ["2", "3", "4"], ["goes on", "closed"])
    assert not environment.wal.shared_state.is_broken
    assert environment.committer.submit(append) == 5
    assert check_whole(environment) == 5


@pytest.mark.parametrize("point", ["checkpoint.before_slot_flush", "checkpoint.after_slot"])
def test_the_data_file_does_not_tell_of_what_others_append_during_a_flush(environment, append, path, point):
    """Else a power cut would leave a journal that seems to have been cut off."""
    environment.committer.submit(append)
    size_bytes = journal_path(path).stat().st_size
    faults.arm(point, action=lambda: os.truncate(journal_path(path), size_bytes + 4096))
    environment.checkpoint()
    environment.committer.submit(append)
    os.truncate(journal_path(path), journal_path(path).stat().st_size + 4096)
    environment.wal.note_flushed()
    extent = read_extent(environment.locks.descriptor, environment.wal.session)
    assert extent.lsn == 2
    assert 0 < extent.size_bytes <= size_bytes + (4096 if point == "checkpoint.after_slot" else 0)
    assert extent.size_bytes <= size_bytes


def test_a_commit_whose_journal_is_removed_before_its_flush_needs_none(environment, append, check_whole):
    """A compaction of this process flushes all there is where it lies."""
    environment.committer.submit(append)
    with environment.write_lock:
        waiting = threading.Thread(target=environment.wal.flush, args=(2,))
        with environment.wal.flushing:
            waiting.start()
            time.sleep(0.05)
            environment.checkpointer.remove_wal()
    waiting.join(10)
    assert not waiting.is_alive()
    assert environment.committer.submit(append) == 2
    assert check_whole(environment) == 2


def test_whoever_waits_for_a_flush_that_was_stopped_flushes(environment, append, start_child, check_whole, monkeypatch):
    monkeypatch.setattr(background_flusher, "IDLE_S", 60)  # at rest it would flush all of it
    environment.committer.submit(append)
    child = start_child("""
environment = Environment.open(sys.argv[1], max_size_bytes=2**26)
flush = environment.wal.sync
def stop():
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # at once
    flush()
environment.wal.sync = stop
say(environment.committer.submit(append))
environment.close()
""")
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    assert environment.committer.submit(append) == 3
    assert environment.wal.shared_state.flushed == 3
    child.send_signal(signal.SIGCONT)
    assert child.communicate(timeout=300) == ("2\n", "")
    assert check_whole(environment) == 3


def test_an_idle_checkpoint_waits_for_no_process_that_was_stopped_in_one(
    environment, append, start_child, check_whole, monkeypatch
):
    monkeypatch.setattr(background_flusher, "IDLE_S", 60)
    monkeypatch.setattr(environment.checkpointer, "finish_if_begun", lambda: None)  # it would be the first
    environment.committer.submit(append)
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
environment.close()
""",
        3,
    )
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    started_s = time.monotonic()
    with environment.write_lock, environment.locks.writing(1):
        assert environment.checkpointer.checkpoint_when_idle() is False
    assert time.monotonic() - started_s < 1
    assert environment.committer.submit(append) > 1
    child.send_signal(signal.SIGCONT)
    child.communicate("\n", timeout=300)
    environment.checkpoint()
    assert not environment.checkpointer.needs_checkpoint
    assert check_whole(environment) == 5


def test_pins_that_two_threads_let_go_at_once_end_once():
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


def test_an_interrupt_as_an_epoch_begins_leaves_no_wrong_place(environment, append):
    """What would be appended there would be of one epoch, in the half of another."""
    environment.committer.submit(append)
    shared = environment.wal.shared_state

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
    environment.checkpoint()


def test_nobody_frees_dead_readers_while_another_process_writes(environment, append, start_child):
    """A checkpoint could begin and end, and the owner of the new pin die, before the slots are freed."""
    environment.committer.submit(append)
    child = start_child(
        "environment = Environment.open(sys.argv[1], max_size_bytes=2**26)\n"
        "faults.arm('commit.after_begin', action=lambda: (say('writes'), sys.stdin.readline()))\n"
        "environment.committer.submit(append)\nenvironment.close()"
    )
    assert child.stdout.readline() == "writes\n"
    with pytest.raises(StoreLockedError):
        environment.reader_slots.release_dead()
    child.communicate("\n", timeout=300)
    assert environment.reader_slots.release_dead() == 0


def test_who_only_reads_frees_no_pin_of_a_dead_process(environment, append, run_child, monkeypatch):
    monkeypatch.setattr(background_flusher, "IDLE_S", 60)
    environment.committer.submit(append)
    environment.checkpoint()
    with environment.locks.writing(1):
        environment.checkpointer.release_pins()
    assert run_child(f"{COMMIT}os.kill(os.getpid(), signal.SIGKILL)", 1) == (-9, ["2"])
    shared = environment.wal.shared_state
    assert shared.is_pinned(shared.durable_epoch)
    assert not environment.checkpointer.pins
    reads = "say(Environment.open(sys.argv[1], read_only=True, max_size_bytes=2**26).reader_slots.release_dead())"
    assert run_child(reads) == (0, ["0"])
    assert environment.reader_slots.release_dead() == 0
    environment.checkpoint()
    assert environment.statistics().readers == 0


def test_a_flush_that_fails_as_a_session_begins_is_known_to_all(open_environment, append, run_child):
    environment = open_environment()
    fails = """
def fail():
    raise OSError(5, "as if")
faults.arm("checkpoint.after_sync", action=fail)
environment = Environment.open(sys.argv[1], max_size_bytes=2**26)
try:
    environment.committer.submit(append)
except StorageError:
    say("failed")
"""
    assert run_child(fails) == (0, ["failed"])
    with pytest.raises(StorageError):
        environment.committer.submit(append)
    environment.close()
    assert open_environment().committer.submit(append) == 1


def test_a_failed_flush_is_not_forgotten_while_somebody_reads(open_environment, append, start_child, check_whole):
    """Nothing has read the disk since: what the page cache has of the store is still not to be believed."""
    environment = open_environment()
    environment.committer.submit(append)
    reader = start_child(
        "environment = Environment.open(sys.argv[1], read_only=True, max_size_bytes=2**26)\n"
        "say('reads')\nsys.stdin.readline()\nenvironment.close()"
    )
    assert reader.stdout.readline() == "reads\n"
    environment.committer.submit(append)  # however long that took, the store is not at rest
    faults.arm("checkpoint.after_sync", action=fail)
    with pytest.raises(StorageError):
        environment.checkpoint()
    environment.close()
    for _ in range(2):
        beside = open_environment()
        with pytest.raises(StorageError):
            beside.committer.submit(append)
        beside.close()
    reader.communicate("\n", timeout=300)
    alone = open_environment()
    assert alone.committer.submit(append) == 3
    assert check_whole(alone) == 3


def test_after_a_dead_writer_checkpoints_are_made_until_one_has_begun(environment, append, run_child, monkeypatch):
    """LMDB's own lock has had a dead owner, too: whoever takes it first frees dead readers, and pins among them."""
    environment.committer.submit(append)
    assert run_child(COMMIT, 1, fault="commit.after_begin:1:kill") == (-9, [])
    is_due = environment.checkpointer.is_due

    def interrupt():
        monkeypatch.setattr(environment.checkpointer, "is_due", is_due)
        raise KeyboardInterrupt

    monkeypatch.setattr(environment.checkpointer, "is_due", interrupt)
    with pytest.raises(KeyboardInterrupt):
        environment.committer.submit(append)
    with environment.locks.writing(1):
        assert environment.locks.writer.needs_repair
    assert environment.committer.submit(append) == 2
    with environment.locks.writing(1):
        assert not environment.locks.writer.needs_repair


def test_who_goes_on_in_a_session_of_dead_processes_flushes_its_slots_first(environment, start_child, run_child):
    """The newest may be in nothing but the page cache, and the next one is written over the one before it."""
    environment.close()
    reader = start_child(
        "environment = Environment.open(sys.argv[1], read_only=True, max_size_bytes=2**26)\n"
        "say('reads')\nsys.stdin.readline()\nenvironment.close()"
    )
    assert reader.stdout.readline() == "reads\n"
    dies = f"{COMMIT}environment.checkpoint()"
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
environment.close()
"""
    assert run_child(goes_on, 1) == (0, ["2", "flush write"])
    reader.communicate("\n", timeout=300)
