"""Steady snapshots and the journal: a commit is durable by one flush of an append. DESIGN.md section 6.

LMDB flushes nothing by itself here. What is on the disk for certain is the *steady* snapshot: a copy of its meta page
lies in the journal, and a read transaction of some process, the *pin*, keeps LMDB from reusing its pages. What was
committed since is in the journal. An *advance* makes a later snapshot the steady one. It begins under the writer lock,
with a new epoch in the journal's other half; the flush of the data file and of the slot needs no lock. DESIGN.md has
the invariants, J1 to J7.
"""

from __future__ import annotations

import contextlib
import os
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
from statelog.storage.file.checks import read_live_meta_bytes
from statelog.storage.file.creation import sync_directory
from statelog.storage.file.disk import flush_file
from statelog.storage.file.failures import is_of_system, translate_os
from statelog.storage.file.locks import is_same_file
from statelog.storage.file.neighbours import journal_path, missing_error, open_journal, remove_journal
from statelog.storage.file.statistics import collect_statistics, numbers_read
from statelog.storage.journal.control import (
    AT,
    DONE,
    EPOCH,
    IS_BROKEN,
    LSN,
    LSN_BEFORE,
    PATH_PAGES,
    PINS,
    STEADY,
    TAKEN,
    TAKEN_MAX,
    UNKNOWN,
    WRITTEN,
    Control,
)
from statelog.storage.journal.flushing import OpenJournal
from statelog.storage.journal.journal import HALF_SIZE_BYTES, HALVES_AT, Slot, decode_slot, encode_slot, write_slot
from statelog.storage.journal.marker import Reach, clear_marker, read_marker, set_marker
from statelog.storage.journal.pin import last_lsn
from statelog.storage.journal.session import fill_first_half, find_or_begin

if TYPE_CHECKING:
    import lmdb

    from statelog.storage.file.headroom import Headroom
    from statelog.storage.file.opened import OpenFile
    from statelog.storage.file.writing import TableWriter

_PAGE_SIZE_BYTES = 4096
_OWN_PAGES = 2
"""What a commit takes of LMDB's list of tables, and of its list of free pages."""

_GROUP_SIZE_BYTES_MAX = JOURNALED_SIZE_BYTES_MAX + 64 * 1024
"""What the largest group takes, with the sizes of its records."""


class Steady(OpenJournal):
    """A process's part in the protocol. Unless said otherwise, it is called by who holds the writer lock."""

    def __init__(self, environment: OpenFile, headroom: Headroom) -> None:
        super().__init__(environment)
        self._headroom = headroom
        self._adopted = 0
        """The steady epoch before which this process has no pins."""
        self.is_plain = False
        """Whether no advance was under way when the last write transaction began."""

    @property
    def is_unsteady(self) -> bool:
        """Whether anything was committed since the steady snapshot, by whomever."""
        control = self.control
        if control is None or not control.epoch:
            return False
        if control.epoch != control.steady or control.lsn == UNKNOWN:
            return True
        number: int = self._environment.handles.raw.info()["last_txnid"]
        return number != control.steady_number

    @property
    def is_advance_begun(self) -> bool:
        """Whether an advance is under way, whoever began it."""
        control = self.control
        return control is not None and control.epoch > control.done

    def open_control(self, *, is_first: bool) -> None:
        """Map what is shared with the other processes that write; the caller holds the lock of openings."""
        environment = self._environment
        self.control = Control(environment.path, os.fstat(environment.locks.descriptor), is_first=is_first)
        environment.locks.writer = self.control.lock

    def forget_others(self) -> None:
        """Believe nothing of what processes have left in the control page that died as this one came; it is alone."""
        self._shared().forget()

    def believe_again(self) -> None:
        """Forget a failed flush: the store was recovered, or closed, and is what the disk has."""
        if self.control is not None:
            self.control.is_broken = 0

    # --- commits --------------------------------------------------------------------

    def prepare(self) -> None:
        """Make ready for a write transaction (J2); called before each.

        Raises:
            StorageError: the journal cannot be made or flushed, or an earlier flush failed. Facts: path.
            StoreFullError: there is no room for it.
        """
        if self.is_off:
            return
        control = self.control
        assert control is not None
        words = control.words
        epoch = words[EPOCH]
        # The steady snapshot is pinned, and nothing is broken, under way or due: as for nearly every commit.
        self.is_plain = (
            epoch == words[STEADY] == words[DONE] == words[PINS + (epoch & 1)] == self._adopted
            and words[TAKEN] <= words[TAKEN_MAX]
            and words[AT] - HALVES_AT[epoch & 1] <= JOURNAL_SIZE_BYTES_MAX
            and words[LSN] - words[LSN_BEFORE] <= JOURNALED_RECORDS_MAX
            and not (self.is_broken or words[IS_BROKEN] or self._descriptor < 0 or control.lock.needs_repair)
        )
        if not self.is_plain:
            self._prepare_carefully()
            self.pins.drop_before(control.steady)
            self._adopted = control.steady

    def _prepare_carefully(self) -> None:
        control = self._shared()
        self.refuse_if_broken()
        if self._descriptor < 0:
            self._join()
        if control.lock.needs_repair:
            self.advance()
        if not self._agree() or not control.is_pinned(control.steady):
            self.look_for_journal()
            self.refuse_if_broken()
            if not self._pin_again():
                self.advance()
        if self.is_due():
            if control.epoch == control.steady:
                self.look_for_journal()
                self.refuse_if_broken()
                self._begin_advance()
            elif self._is_full():
                self.complete(is_awaited=True)
                if not self._agree():
                    self.advance()

    def _agree(self) -> bool:
        """Take a snapshot whose slot was flushed for the steady one, and let go of those before it.

        False: who began that advance has let go of its pin since. The one before is still needed.
        """
        control = self._shared()
        if control.done > control.steady:
            if not control.is_pinned(control.done):
                return False
            control.steady_number = control.prepared_number
            control.steady = control.done
        self.pins.drop_before(control.steady)
        return True

    def is_due(self) -> bool:
        """Tell whether an advance is."""
        control = self._shared()
        return (
            control.taken > control.taken_max
            or control.at - HALVES_AT[control.epoch & 1] > JOURNAL_SIZE_BYTES_MAX
            or control.lsn - control.lsn_before > JOURNALED_RECORDS_MAX
        ) and control.lsn != UNKNOWN

    def _is_full(self) -> bool:
        """Tell whether no more may be committed before the advance that is under way has ended."""
        control = self._shared()
        left = HALF_SIZE_BYTES - (control.at - HALVES_AT[control.epoch & 1])
        return control.taken + control.taken_before > HELD_PAGES_BOUND or left < _GROUP_SIZE_BYTES_MAX

    def commit(self, transaction: TableWriter, raw: lmdb.Transaction) -> None:
        """Commit `raw`, so that `flush` makes it durable.

        What the journal cannot hold, because it changes more than it appends, or is large, is flushed where it lies.

        Raises:
            StorageError, StoreFullError: the journal refuses; nothing was committed.
            lmdb.Error: LMDB does.
        """
        if self.is_off or not transaction.changes:
            raw.commit()
            return
        control = self.control
        assert control is not None
        if transaction.is_steady:
            control.rewritten += 1
        if not self._append(transaction):
            control.lsn = UNKNOWN
            raw.commit()
            self.advance()
            self.check_file()
            return
        raw.commit()
        words = control.words
        words[AT] = self._end
        words[LSN] = words[WRITTEN] = transaction.first_lsn + len(transaction.appended) - 1
        words[TAKEN] += words[PATH_PAGES] + transaction.changes + transaction.size_bytes // _PAGE_SIZE_BYTES

    # --- steady snapshots -------------------------------------------------------------

    def advance(self) -> None:
        """Make the last commit's snapshot the steady one, and pin it, while nobody else writes.

        Raises:
            StorageError: a flush failed; the steady snapshot is what it was, and nothing is written any more until the
                store was closed and opened. Facts: path.
            JournalMissingError: somebody removed the journal of a store in use. Facts: path, journal.
            lmdb.Error: no read transaction can be had.
        """
        control = self._shared()
        self.look_for_journal()
        if self.is_gone:
            raise self._broken_error()
        if control.epoch > control.steady:  # its epoch's half is needed until it is done
            self.complete(is_awaited=True)
            control.steady_number, control.steady = control.prepared_number, control.done
        self._begin_advance()
        self.complete(is_awaited=True)
        control.steady_number, control.steady = control.prepared_number, control.done
        self.pins.drop_before(control.steady)

    def _begin_advance(self) -> None:
        """Pin the present snapshot, and have what is committed from now on in the journal's other half."""
        environment, control = self._environment, self._shared()
        handles = environment.handles
        epoch = control.epoch + 1
        pin = handles.begin_read()
        try:
            lsn = last_lsn(pin, handles.log)
            meta = read_live_meta_bytes(environment.locks.descriptor)
            slot = encode_slot(Slot(environment.store_id, self._session, epoch, lsn, meta))
        except BaseException:
            pin.abort()
            raise
        control.prepare_slot(slot, pin.id())
        self.pins.keep(pin, epoch)
        control.note_pin(epoch, is_held=True)
        control.begin(epoch, lsn)
        if armed:
            point("steady.after_pin")
        self._measure()

    def _measure(self) -> None:
        """Say when the next advance is due: after so many pages, or half of those that are free anyway.

        What one epoch takes the next but one takes again, so that the file does not grow by more than that.
        """
        control, found = self._shared(), collect_statistics(self._environment)
        is_interval = self._environment.options.durability == "interval"
        held_max = INTERVAL_HELD_PAGES_MAX if is_interval else HELD_PAGES_MAX
        control.taken_max = min(max(held_max, found.pages_free // 2), HELD_PAGES_BOUND // 2)
        control.path_pages = _OWN_PAGES + sum(table.depth for table in found.tables.values())

    def complete(self, *, is_awaited: bool = False) -> None:
        """Flush the data file and the slot of an advance that is under way, whoever began it (J3); needs no lock.

        Args:
            is_awaited: wait for whoever is at it already; else that is left to them.

        Raises:
            StorageError: a flush failed; nothing is written any more. StoreLockedError: who is at it does not end.
        """
        environment, control = self._environment, self._shared()
        alone = environment.locks.advancing(environment.lock_timeout_s, is_awaited=is_awaited)
        with self._completing, alone if self._descriptor >= 0 else contextlib.nullcontext(False) as is_mine:
            if not is_mine or control.done == control.epoch:
                return
            self.refuse_if_broken()  # the flush that failed may have been that of who was at it
            slot = decode_slot(control.prepared_slot())
            assert slot is not None, "the slot that was prepared is damaged"
            try:
                if armed:
                    point("steady.before_sync")
                self._flush_data()
                if armed:
                    point("steady.after_sync")
                size_bytes = self._size_bytes()  # before the flush: of what others append meanwhile it tells nothing
                write_slot(self._descriptor, slot)
            except BaseException as error:
                if not is_of_system(error):
                    raise
                raise self.break_off() from error
            control.size_bytes = size_bytes
            if (
                slot.epoch in self.pins
            ):  # before `done` says it: until then nobody begins another advance, and dies in it
                environment.handles.check_readers()
            control.done = slot.epoch
            if slot.lsn > control.flushed:
                control.note_flushed(slot.lsn)
            if armed:
                point("steady.after_slot")
            self._note_reach(Reach(slot.epoch, size_bytes, slot.lsn))

    def complete_if_begun(self) -> None:
        """Complete an advance, unless another process is at it; needs no lock. Raises StorageError, as `complete`."""
        if self.is_advance_begun and self._descriptor >= 0:
            self.complete()

    def let_go_of_old(self) -> None:
        """End pins of snapshots before the steady one, which hold pages for nobody; needs no lock."""
        control = self.control
        if control is not None and len(self.pins) > 0:
            self.pins.drop_before(control.steady)

    def _flush_data(self) -> None:
        flush_file(self._environment.locks.descriptor)

    def rest(self) -> bool:
        """Make everything steady, and hold no pin; False if another process is about to: nobody is to wait for it."""
        control = self.control
        if control is None or not control.epoch or self._descriptor < 0 or self.is_broken or control.is_broken:
            return True
        if control.epoch > control.done:
            self.complete()
        self._agree()
        if not self.pins:
            return True
        if control.epoch > control.done:
            return False
        if self.is_unsteady:
            self.advance()
        self.let_go()
        return True

    def _pin_again(self) -> bool:
        """Pin the steady snapshot, which nobody does; False if others have committed since (J2)."""
        control = self._shared()
        pin = self._environment.handles.begin_read()
        if pin.id() != control.steady_number or control.epoch != control.steady or control.lsn == UNKNOWN:
            pin.abort()
            return False
        self.pins.keep(pin, control.steady)
        control.note_pin(control.steady, is_held=True)
        return True

    def look_for_pins(self) -> None:
        """Rely on no pin that LMDB has forgotten, as it does who opens it and finds it open nowhere (J2).

        The process that had it has died meanwhile. The caller has opened LMDB, and written nothing.
        """
        control = self.control
        if control is None or not control.epoch:
            return
        noted = ((control.steady, control.steady_number), (control.epoch, control.prepared_number))
        held = numbers_read(self._environment.handles)
        for epoch, number in noted:
            if number not in held:
                control.note_pin(epoch, is_held=False)

    def let_go(self) -> None:
        """Hold no pin, and say so: who writes next takes one, or advances (J2)."""
        control = self.control
        if control is not None:
            for epoch in self.pins.epochs:
                control.note_pin(epoch, is_held=False)
        self.pins.drop()

    def may_check_readers(self) -> bool:
        """Tell whether LMDB may forget dead processes: no pin of theirs is needed any more (J2)."""
        control = self.control
        if control is None:  # it is open for reading
            return not self._environment.locks.is_open_for_writing()
        if not control.epoch:
            return True
        return control.epoch == control.steady and control.steady in self.pins

    # --- joining and leaving ------------------------------------------------------------

    def _join(self) -> None:
        """Open the journal that other processes use, or make one."""
        environment, control = self._environment, self._shared()
        environment.locks.file.check()  # else the journal there may be that of whoever opened what came instead
        path, data = journal_path(environment.path), environment.locks.descriptor
        marked = read_marker(data)
        try:
            store = os.fstat(data) if marked is None else None
            self._descriptor = open_journal(environment.path, store=store)
            self._session, epoch = find_or_begin(environment, self._headroom, self._descriptor, marked)
            if marked is None:  # who began a session, or had one, and is not there any more, may have left its words
                control.forget()
            if not control.epoch:
                self._begin_session(epoch, is_new=not epoch)
            self._is_marked = True
        except BaseException as error:
            self.let_go()
            self._forget()
            if marked is not None and isinstance(error, FileNotFoundError):
                raise missing_error(environment.path) from None
            if isinstance(error, OSError):
                raise translate_os(error, path=path) from error
            raise

    def _begin_session(self, epoch: int, *, is_new: bool) -> None:
        """Be the first who writes: begin a session, or go on in that of processes that were killed.

        Of theirs, the half of the newest slot's epoch is needed, and the other may be: so it takes two advances.
        """
        control = self._shared()
        try:
            control.steady = control.done = epoch
            control.epoch = epoch
            if is_new:
                control.note_filled(1, fill_first_half(self._descriptor))
            if not is_new:  # else the one slot may be torn while the other is in nothing but the page cache
                self._flush_journal()
            self.advance()
            if is_new:
                sync_directory(self._environment.path.parent)
            else:
                self.advance()
            # Again, if it is there: who set it may have been killed, or have failed, before it was on the disk.
            reach = Reach(control.done, control.size_bytes, control.flushed)
            set_marker(self._environment.locks.descriptor, self._session, reach)
            self._reach = reach
        except BaseException:
            self.let_go()
            control.forget()
            raise

    def retire(self) -> None:
        """Flush everything and remove the journal: one file is left. The caller is alone with the store.

        Raises:
            OSError, lmdb.Error, StorageError: it cannot be done; the journal stays, and the next opening reads it.
        """
        environment, control = self._environment, self.control
        if self.is_off or control is None or (self.is_broken and not self.is_gone) or control.is_broken:
            return
        is_marked = environment.locks.file.is_kept() and read_marker(environment.locks.descriptor) is not None
        if self._descriptor < 0 and not is_marked:
            return
        with self._completing:
            environment.handles.raw.sync(True)
            session = read_marker(environment.locks.descriptor) or self._session
            with self.flushing:  # the keeper may be about to note something behind the mark
                self._is_marked = False
            try:
                clear_marker(environment.locks.descriptor)
                flush_file(environment.locks.descriptor)
                if armed:
                    point("steady.before_unlink")
                if self._descriptor < 0 or self._is_journal_kept():  # else it is another's
                    remove_journal(environment.path)
                if armed:
                    point("steady.after_unlink")
            except BaseException:
                if self._descriptor < 0 or self._is_journal_kept():
                    self._mark_again(session)
                else:  # interrupted when it was gone: nothing is to be written to it
                    self._end_session()
                raise
            self._end_session()
        sync_directory(environment.path.parent)

    def _is_journal_kept(self) -> bool:
        return is_same_file(journal_path(self._environment.path), self._descriptor)

    def _end_session(self) -> None:
        self.let_go()
        with self.flushing:
            self._shared().forget()
            self._forget()

    def _mark_again(self, session: bytes) -> None:
        """After a failure to end the session: who goes on in it must not be without its mark, on the disk."""
        try:
            set_marker(self._environment.locks.descriptor, session)
            self._is_marked = self._descriptor >= 0
        except OSError as error:
            raise self.break_off() from error

    def leave(self) -> None:
        """Close what is open; what is committed stays in the journal. Needs no lock.

        Raises:
            StoreLockedError: this process holds a pin that others rely on, and cannot tell them.
        """
        with contextlib.suppress(StatelogError):
            self.flush()  # nobody else would, before some commit of another process
        with self._completing:  # the keeper's, of an advance: it needs the journal, and fails without
            if self.pins:
                with self._environment.locks.writing(self._environment.lock_timeout_s):
                    self.let_go()
            self._forget()

    def leave_after_fork(self) -> None:
        """In the child: close the journal, and touch nothing else of the parent's."""
        self.flushing = threading.RLock()  # a thread that the child has not may hold it
        self._completing = threading.RLock()
        self._forget()

    def close_control(self, *, is_last: bool) -> None:
        """Let go of what is shared, and remove it if nobody else has the store open."""
        control, self.control = self.control, None
        if control is None:
            return
        if is_last and not control.is_broken and is_same_file(control.path, control.descriptor):
            with contextlib.suppress(OSError):
                control.path.unlink()
        control.close()
