"""Checkpoints of the write-ahead log (WAL), which make a later snapshot of the data file durable. DESIGN.md section 6.

LMDB is opened so that it flushes nothing. Only the *durable snapshot* is certainly on the disk: the WAL has a copy of
its meta page, and a read transaction of some process, the *snapshot pin*, keeps LMDB from reusing its pages. Later
commits are in the WAL. A *checkpoint* makes a later snapshot the durable one. It begins under the writer lock with a
new epoch, whose commits go into the other half of the WAL. Flushing the data file and the slot needs no lock. DESIGN.md
has the invariants, J1 to J7.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from statelog.errors import StatelogError
from statelog.limits import (
    HELD_PAGES_BOUND,
    HELD_PAGES_MAX,
    INTERVAL_HELD_PAGES_MAX,
    JOURNAL_SIZE_BYTES_MAX,
    JOURNALED_RECORDS_MAX,
    JOURNALED_SIZE_BYTES_MAX,
)
from statelog.storage.faults import armed, point
from statelog.storage.file.creation import sync_directory
from statelog.storage.file.disk import flush_file
from statelog.storage.file.failures import is_of_system, translate_os
from statelog.storage.file.preopen_checks import read_live_meta_bytes
from statelog.storage.file.sidecar_files import journal_path, missing_error, remove_journal
from statelog.storage.statistics import collect_statistics, numbers_read
from statelog.storage.wal.dirty_flag import FlushedExtent, clear_dirty_flag, read_dirty_flag, set_dirty_flag
from statelog.storage.wal.reader_slots import SnapshotPins, last_lsn
from statelog.storage.wal.shared_state import (
    AT,
    DONE,
    DURABLE,
    EPOCH,
    IS_BROKEN,
    LSN,
    LSN_BEFORE,
    PINS,
    TAKEN,
    TAKEN_MAX,
    UNKNOWN,
)
from statelog.storage.wal.wal_format import (
    HALF_SIZE_BYTES,
    HALVES_AT,
    SnapshotSlot,
    decode_slot,
    encode_slot,
    write_slot,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog.storage.lmdb_file import LmdbFile
    from statelog.storage.wal.wal import Wal

_OWN_PAGES = 2
"""The number of pages that a commit takes for LMDB's list of tables and its list of free pages."""

_GROUP_SIZE_BYTES_MAX = JOURNALED_SIZE_BYTES_MAX + 64 * 1024
"""The maximum size of a group: its records, and the encoded sizes of the records."""


class Checkpointer:
    """Runs the WAL checkpoints of one store.

    Unless a method says that it needs no lock, only the owner of the writer lock may call it.

    If `is_interval` is True, commits may take more pages before a checkpoint is due, so checkpoints are less frequent.

    Attributes:
        pins: the snapshot pins of this process.
        is_plain: whether no checkpoint was under way or due when the last write transaction began.
    """

    def __init__(self, file: LmdbFile, wal: Wal, *, is_interval: bool) -> None:
        self.pins = SnapshotPins()
        self.is_plain = False
        self._file = file
        self._wal = wal
        self._is_interval = is_interval
        self._finishing = threading.RLock()
        """Held while a thread finishes a checkpoint, or closes or replaces the WAL."""
        self._adopted = 0
        """The last durable epoch that this process has adopted. It has no pins of earlier epochs."""

    @property
    def needs_checkpoint(self) -> bool:
        """Whether any process has committed since the durable snapshot."""
        shared = self._wal.shared_state
        if shared is None or not shared.epoch:
            return False
        if shared.epoch != shared.durable_epoch or shared.lsn == UNKNOWN:
            return True
        number: int = self._file.handles.raw.info()["last_txnid"]
        return number != shared.durable_number

    @property
    def is_checkpoint_begun(self) -> bool:
        """Whether any process has begun a checkpoint that is not finished."""
        shared = self._wal.shared_state
        return shared is not None and shared.epoch > shared.done

    # --- commits --------------------------------------------------------------------

    def prepare(self) -> None:
        """Prepare the WAL and the pins for a write transaction (J2).

        Each write transaction calls this before it begins.

        Raises:
            StorageError: the WAL cannot be created or flushed, or an earlier flush failed. Facts: path.
            StoreFullError: the disk is full.
        """
        wal = self._wal
        if wal.is_off:
            return
        shared = wal.shared_state
        assert shared is not None
        words = shared.words
        epoch = words[EPOCH]
        # Test for the most frequent case in one expression: the durable snapshot is pinned, no flush has failed, and no
        # checkpoint is under way or due.
        self.is_plain = (
            epoch == words[DURABLE] == words[DONE] == words[PINS + (epoch & 1)] == self._adopted
            and words[TAKEN] <= words[TAKEN_MAX]
            and words[AT] - HALVES_AT[epoch & 1] <= JOURNAL_SIZE_BYTES_MAX
            and words[LSN] - words[LSN_BEFORE] <= JOURNALED_RECORDS_MAX
            and not (wal.is_broken or words[IS_BROKEN] or wal.descriptor < 0 or shared.lock.needs_repair)
        )
        if not self.is_plain:
            self._prepare_carefully()
            self.pins.drop_before(shared.durable_epoch)
            self._adopted = shared.durable_epoch

    def _prepare_carefully(self) -> None:
        wal, shared = self._wal, self._wal.shared()
        wal.refuse_if_broken()
        if not wal.is_open:
            self._join()
        if shared.lock.needs_repair:
            self.checkpoint()
        if not self.adopt() or not shared.is_pinned(shared.durable_epoch):
            wal.look_for_file()
            wal.refuse_if_broken()
            if not self._pin_again():
                self.checkpoint()
        if self.is_due():
            if shared.epoch == shared.durable_epoch:
                wal.look_for_file()
                wal.refuse_if_broken()
                self._begin()
            elif self._is_full():
                self.finish(is_awaited=True)
                if not self.adopt():
                    self.checkpoint()

    def is_due(self) -> bool:
        """Return True if a checkpoint has to begin."""
        shared = self._wal.shared()
        return (
            shared.taken > shared.taken_max
            or shared.at - HALVES_AT[shared.epoch & 1] > JOURNAL_SIZE_BYTES_MAX
            or shared.lsn - shared.lsn_before > JOURNALED_RECORDS_MAX
        ) and shared.lsn != UNKNOWN

    def _is_full(self) -> bool:
        """Return True if the checkpoint in progress has to be finished before the next commit."""
        shared = self._wal.shared()
        left = HALF_SIZE_BYTES - (shared.at - HALVES_AT[shared.epoch & 1])
        return shared.taken + shared.taken_before > HELD_PAGES_BOUND or left < _GROUP_SIZE_BYTES_MAX

    # --- checkpoints ------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Make the snapshot of the last commit the durable one, and pin it. No other process can write during this.

        Raises:
            StorageError: a flush failed. The durable snapshot is unchanged, and nothing can be written until the store
                is closed and opened again. Facts: path.
            JournalMissingError: somebody removed the WAL of a store in use. Facts: path, journal.
            lmdb.Error: LMDB cannot begin a read transaction.
        """
        wal, shared = self._wal, self._wal.shared()
        wal.look_for_file()
        if wal.is_gone:
            wal.refuse_if_broken()
        # Finish the earlier checkpoint first: until then, the half of the WAL that the new epoch would use is needed.
        if shared.epoch > shared.durable_epoch:
            self._finish_and_adopt()
        self._begin()
        self._finish_and_adopt()
        self.pins.drop_before(shared.durable_epoch)

    def _begin(self) -> None:
        """Pin the current snapshot, and begin a new epoch. Its commits go into the other half of the WAL."""
        file, wal, shared = self._file, self._wal, self._wal.shared()
        handles = file.handles
        epoch = shared.epoch + 1
        pin = handles.begin_read()
        try:
            lsn = last_lsn(pin, handles.log)
            meta = read_live_meta_bytes(file.locks.descriptor)
            slot = encode_slot(SnapshotSlot(file.store_id, wal.session, epoch, lsn, meta))
        except BaseException:
            pin.abort()
            raise
        shared.prepare_slot(slot, pin.id())
        self.pins.keep(pin, epoch)
        shared.note_pin(epoch, is_held=True)
        shared.begin_epoch(epoch, lsn)
        if armed:
            point("checkpoint.after_pin")
        self._schedule()

    def _schedule(self) -> None:
        """Set the number of pages after which the next checkpoint is due.

        The number is half of the free pages, but not below a minimum. LMDB reuses the pages of one epoch two epochs
        later. So this number bounds the growth of the file.
        """
        shared, found = self._wal.shared(), collect_statistics(self._file)
        held_max = INTERVAL_HELD_PAGES_MAX if self._is_interval else HELD_PAGES_MAX
        shared.taken_max = min(max(held_max, found.pages_free // 2), HELD_PAGES_BOUND // 2)
        shared.path_pages = _OWN_PAGES + sum(table.depth for table in found.tables.values())

    def finish(self, *, is_awaited: bool = False) -> None:
        """Finish a checkpoint that any process has begun: flush the data file and the slot (J3). Needs no lock.

        Args:
            is_awaited: if another process is finishing the checkpoint, wait for it. Otherwise, return at once.

        Raises:
            StorageError: a flush failed. The store can no longer be written.
            StoreLockedError: another process did not finish the checkpoint in time.
        """
        file, wal, shared = self._file, self._wal, self._wal.shared()
        alone = file.locks.finishing_checkpoint(file.lock_timeout_s, is_awaited=is_awaited)
        with self._finishing, alone if wal.is_open else contextlib.nullcontext(False) as is_mine:
            if not is_mine or shared.done == shared.epoch:
                return
            wal.refuse_if_broken()  # Check now, because the process that was finishing the checkpoint may have failed.
            slot = decode_slot(shared.prepared_slot())
            assert slot is not None, "the prepared slot is damaged"
            try:
                if armed:
                    point("checkpoint.before_sync")
                self._flush_data()
                if armed:
                    point("checkpoint.after_sync")
                size_bytes = wal.size_bytes()  # Read the size before the flush, which may miss later appends.
                write_slot(wal.descriptor, slot)
            except BaseException as error:
                if not is_of_system(error):
                    raise
                raise wal.fail() from error
            shared.size_bytes = size_bytes
            # Check the readers before setting `done`, because another checkpoint may begin after that.
            if slot.epoch in self.pins:
                file.handles.check_readers()
            shared.done = slot.epoch
            if slot.lsn > shared.flushed:
                shared.note_flushed(slot.lsn)
            if armed:
                point("checkpoint.after_slot")
            wal.note_extent(FlushedExtent(slot.epoch, size_bytes, slot.lsn))

    def finish_if_begun(self) -> None:
        """Finish a checkpoint, unless another process is finishing it. Needs no lock. Raises the errors of `finish`."""
        if self.is_checkpoint_begun and self._wal.is_open:
            self.finish()

    def _flush_data(self) -> None:
        flush_file(self._file.locks.descriptor)

    def adopt(self) -> bool:
        """Make the snapshot of the flushed slot the durable one, and release older pins.

        If the process that began the checkpoint has released its pin, keep the durable snapshot, and return False.
        """
        shared = self._wal.shared()
        if shared.done > shared.durable_epoch:
            if not shared.is_pinned(shared.done):
                return False
            shared.durable_number = shared.prepared_number
            shared.durable_epoch = shared.done
        self.pins.drop_before(shared.durable_epoch)
        return True

    def _finish_and_adopt(self) -> None:
        """Finish a checkpoint, and make its snapshot the durable one without checking its pin."""
        shared = self._wal.shared()
        self.finish(is_awaited=True)
        shared.durable_number, shared.durable_epoch = shared.prepared_number, shared.done

    def checkpoint_when_idle(self) -> bool:
        """Make all commits durable in the data file, and release the pins.

        If another process is finishing a checkpoint, return False without waiting.
        """
        wal, shared = self._wal, self._wal.shared_state
        if shared is None or not shared.epoch or not wal.is_open or wal.is_broken or shared.is_broken:
            return True
        if shared.epoch > shared.done:
            self.finish()
        self.adopt()
        if not self.pins:
            return True
        if shared.epoch > shared.done:
            return False
        if self.needs_checkpoint:
            self.checkpoint()
        self.release_pins()
        return True

    # --- pins -------------------------------------------------------------------------

    def _pin_again(self) -> bool:
        """Pin the durable snapshot, which no process pins. Return False if there are later commits (J2)."""
        shared = self._wal.shared()
        pin = self._file.handles.begin_read()
        if pin.id() != shared.durable_number or shared.epoch != shared.durable_epoch or shared.lsn == UNKNOWN:
            pin.abort()
            return False
        self.pins.keep(pin, shared.durable_epoch)
        shared.note_pin(shared.durable_epoch, is_held=True)
        return True

    def release_pins(self) -> None:
        """End all pins of this process, and record in the shared state that they have ended.

        The next writer pins the snapshot again, or makes a checkpoint (J2).
        """
        shared = self._wal.shared_state
        if shared is not None:
            for epoch in self.pins.epochs:
                shared.note_pin(epoch, is_held=False)
        self.pins.drop()

    def release_pins_within(self, timeout_s: float) -> None:
        """Acquire the writer lock, and end all pins of this process, because LMDB is about to end them.

        Raises:
            StoreLockedError: another process wrote until the timeout.
        """
        if self.pins:
            with self._file.locks.writing(timeout_s):
                self.release_pins()

    def release_old_pins(self) -> None:
        """End the pins of snapshots that are older than the durable one. Needs no lock."""
        shared = self._wal.shared_state
        if shared is not None and len(self.pins) > 0:
            self.pins.drop_before(shared.durable_epoch)

    def look_for_pins(self) -> None:
        """Clear the shared words of pins that LMDB has dropped (J2).

        Call this after LMDB was opened and before anything is written.

        If LMDB is opened while no other process has it open, it drops all readers, because their processes have died.
        """
        shared = self._wal.shared_state
        if shared is None or not shared.epoch:
            return
        noted = ((shared.durable_epoch, shared.durable_number), (shared.epoch, shared.prepared_number))
        held = numbers_read(self._file.handles)
        for epoch, number in noted:
            if number not in held:
                shared.note_pin(epoch, is_held=False)

    def may_check_readers(self) -> bool:
        """Return True if LMDB may drop the readers of dead processes, because none of them has a needed pin (J2)."""
        shared = self._wal.shared_state
        if shared is None:
            return not self._file.locks.is_open_for_writing()
        if not shared.epoch:
            return True
        return shared.epoch == shared.durable_epoch and shared.durable_epoch in self.pins

    # --- joining a session, and leaving it ----------------------------------------------

    def _join(self) -> None:
        """Open the WAL that other processes use, or create one."""
        file, wal, shared = self._file, self._wal, self._wal.shared()
        file.locks.file.check()  # If a different file has replaced ours, the WAL belongs to that file.
        flagged = read_dirty_flag(file.locks.descriptor)
        try:
            epoch = wal.open(flagged)
            if flagged is None:  # Begin a new session with clear words, because an ended session may have left values.
                shared.reset()
            if not shared.epoch:
                self._begin_session(epoch)
            wal.is_flagged = True
        except BaseException as error:
            self.release_pins()
            wal.close()
            if flagged is not None and isinstance(error, FileNotFoundError):
                raise missing_error(file.path) from None
            if isinstance(error, OSError):
                raise translate_os(error, path=journal_path(file.path)) from error
            raise

    def _begin_session(self, epoch: int) -> None:
        """Begin a session if `epoch` is 0. Otherwise continue the session of killed processes.

        A continued session makes two checkpoints, because both halves of its WAL may be needed.
        """
        wal, shared = self._wal, self._wal.shared()
        is_new = not epoch
        try:
            shared.durable_epoch = shared.done = epoch
            shared.epoch = epoch
            if is_new:
                shared.note_filled(1, wal.fill_first_half())
            else:
                # Flush first: otherwise the next slot might be torn while the other slot is only in the page cache.
                wal.sync()
            self.checkpoint()
            if is_new:
                sync_directory(self._file.path.parent)
            else:
                self.checkpoint()
            # Set the flag even if it is already set: the process that set it may have been killed before flushing it.
            extent = FlushedExtent(shared.done, shared.size_bytes, shared.flushed)
            set_dirty_flag(self._file.locks.descriptor, wal.session, extent)
            wal.note_extent(extent)
        except BaseException:
            self.release_pins()
            shared.reset()
            raise

    def remove_wal(self) -> None:
        """Flush everything and remove the WAL, so that only the data file is left. No other process has the store open.

        Raises:
            OSError, lmdb.Error, StorageError: the removal failed. The WAL stays, and the next opening reads it.
        """
        file, wal, shared = self._file, self._wal, self._wal.shared_state
        if wal.is_off or shared is None or (wal.is_broken and not wal.is_gone) or shared.is_broken:
            return
        data = file.locks.descriptor
        is_flagged = file.locks.file.is_kept() and read_dirty_flag(data) is not None
        if not wal.is_open and not is_flagged:
            return
        with self._finishing:
            file.handles.raw.sync(True)
            session = read_dirty_flag(data) or wal.session
            with wal.flushing:  # Keep the background flusher from writing an extent after the flag is cleared.
                wal.is_flagged = False
            try:
                clear_dirty_flag(data)
                flush_file(data)
                if armed:
                    point("checkpoint.before_unlink")
                # Otherwise, the path names the WAL of a different data file.
                if not wal.is_open or wal.is_kept():
                    remove_journal(file.path)
                if armed:
                    point("checkpoint.after_unlink")
            except BaseException:
                if not wal.is_open or wal.is_kept():
                    self._set_flag_again(session)
                else:  # The WAL was removed before the interrupt, so nothing may be appended to it.
                    self._end_session()
                raise
            self._end_session()
        sync_directory(file.path.parent)

    def _end_session(self) -> None:
        self.release_pins()
        with self._wal.flushing:
            self._wal.shared().reset()
            self._wal.close()

    def _set_flag_again(self, session: bytes) -> None:
        """Set the dirty flag again, because the session was not ended and may continue."""
        try:
            set_dirty_flag(self._file.locks.descriptor, session)
            self._wal.is_flagged = self._wal.is_open
        except OSError as error:
            raise self._wal.fail() from error

    def leave(self) -> None:
        """Close the WAL without removing its commits. Needs no lock.

        Raises:
            StoreLockedError: this process has a pin that other processes rely on, and cannot get the writer lock to
                release the pin.
        """
        with contextlib.suppress(StatelogError):
            self._wal.flush()  # Otherwise the commits would stay unflushed until another process commits.
        with self._finishing:  # Wait for a thread that is finishing a checkpoint, because it needs the WAL.
            self.release_pins_within(self._file.lock_timeout_s)
            self._wal.close()

    def leave_after_fork(self) -> None:
        """Close the WAL in a forked child, without affecting the parent."""
        # Replace both locks, because a thread of the parent may hold them.
        self._wal.flushing = threading.RLock()
        self._finishing = threading.RLock()
        self._wal.close()

    @contextlib.contextmanager
    def moving(self) -> Iterator[None]:
        """Detach the WAL and the shared state while the `with` block opens the successor of the data file.

        At the end, close the detached files. If the block raises, use them again.
        """
        wal = self._wal
        with self._finishing, wal.flushing:
            pins, former = self.pins, wal.detach()
            self.pins = SnapshotPins()
            try:
                yield
            except BaseException:
                self.pins = pins
                wal.attach(former)
                raise
            wal.begin_anew()
        pins.drop()
        former.close()
