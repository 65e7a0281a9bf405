"""Steady snapshots and the journal: a commit is durable by one flush of an append. DESIGN.md section 6.

LMDB flushes nothing by itself here. What is on the disk for certain is the *steady* snapshot: a copy of its meta page
lies in the journal, and a read transaction, the *pin*, keeps LMDB from reusing its pages. What was committed since is
in the journal. An *advance* flushes the data file and makes the present snapshot the steady one. The invariants J1 to
J6 stand in DESIGN.md.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from typing import TYPE_CHECKING

import lmdb

from statelog.errors import JournalMissingError, StorageError
from statelog.limits import JOURNAL_SIZE_BYTES_MAX, JOURNALED_RECORDS_MAX, JOURNALED_SIZE_BYTES_MAX
from statelog.storage.faults import armed, point
from statelog.storage.file.checks import read_live_meta_bytes
from statelog.storage.file.creation import sync_directory
from statelog.storage.file.disk import flush_file, write_all
from statelog.storage.file.failures import DISK_FULL_ERRNOS, translate_os
from statelog.storage.file.locks import is_owned, is_same_file
from statelog.storage.file.neighbours import missing_error, open_journal, remove_journal
from statelog.storage.journal.held import HeldPages
from statelog.storage.journal.journal import (
    RECORDS_AT,
    STATE,
    Place,
    Slot,
    encode_group,
    fill,
    find_behind,
    find_end,
    is_broken,
    journal_path,
    newest_epoch,
    shorten,
    write_broken,
    write_slot,
)
from statelog.storage.journal.marker import NO_REACH, Reach, clear_marker, read_marker, set_marker, write_reach
from statelog.storage.journal.pin import Pin, last_lsn
from statelog.storage.journal.session import find_error, find_or_begin, is_journal_broken, is_taken_away

if TYPE_CHECKING:
    from collections.abc import Sequence

    from statelog.storage.commit.transaction import WriteTransaction
    from statelog.storage.environment import Environment

_PAGE_SIZE_BYTES = 4096
_UNKNOWN = -1
"""Where an LSN should be: others wrote, or a failure left it open."""

_EPOCHS_BEHIND_MAX = 1
"""A pin may be so many epochs older than the steady snapshot: it holds the pages freed in them."""


class Steady:
    """A process's part in the protocol. Everything here is called by who holds the write lock and the writer lock.

    Attributes:
        is_dirty: whether something in the journal is not flushed.
        is_unsteady: whether anything was committed since the last advance.
        pin: held while it writes.
        held: the pages that are held for it.
        is_broken: whether nothing may be written: a flush failed, and what the page cache holds is not to be believed,
            or, as `is_gone` says, the journal or the data file was removed, and the page cache has everything.
    """

    def __init__(self, environment: Environment) -> None:
        self.is_dirty = False
        self.pin = Pin()
        self.held = HeldPages()
        self.is_off = not environment.options.flush
        """Nothing is journaled or flushed: for measuring, and while a journal is replayed."""
        self._environment = environment
        self._descriptor = -1
        self._slots: mmap.mmap | None = None
        self._session = b""
        self._epoch = 0
        self.lsn = 0
        """Up to which record the journal, or the steady snapshot, has the log."""
        self.flushed = 0
        """Up to which record it is known to be on the disk; groups bear it."""
        self._lsn_before = 0
        """The last record before the journal's first."""
        self.at = self.end = RECORDS_AT
        """Where the next group goes, and where the one that is being committed ends."""
        self._place_before: Place | None = None
        """Where the next group went when this process knew that last in an earlier epoch."""
        self._size_bytes = 0
        self.is_unsteady = False
        self._flushing = threading.RLock()
        """Held during a flush: who comes meanwhile waits, and knows what it was for."""
        self.is_broken = self.is_gone = self._is_marked = False
        self._reach = NO_REACH

    # --- commits --------------------------------------------------------------------

    def prepare(self) -> None:
        """Make ready for a write transaction (J2); called before each.

        Raises:
            StorageError: the journal cannot be made or flushed, or an earlier flush failed. Facts: path.
            StoreFullError: there is no room for it.
        """
        if self.is_off:
            return
        if self._descriptor < 0 and not self.is_broken:
            self._join()
        if self.is_broken or self._slots is None:
            raise self._broken_error()
        even, is_broken_elsewhere, odd = STATE.unpack_from(self._slots)
        if is_broken_elsewhere:
            raise self._broken_error()
        epoch = odd if odd > even else even  # noqa: FURB136 - max takes five times as long
        if epoch != self._epoch:
            self._follow(epoch)
        if epoch - self.pin.epoch > _EPOCHS_BEHIND_MAX or self.is_due() or not self.have_pin():
            self.advance()

    def is_due(self) -> bool:
        """Tell whether an advance is."""
        return not self.pin.is_near or self.held.left() < 0 or min(self.left()) < 0

    def left(self) -> tuple[int, int]:
        """Return how many records, and how many bytes, the journal takes before an advance is due."""
        return JOURNALED_RECORDS_MAX - self.lsn + self._lsn_before, JOURNAL_SIZE_BYTES_MAX - self.at

    def is_at_hand(self) -> bool:
        """Tell whether a commit finds the journal as this process has left it."""
        if self.is_off or self.is_broken or self._slots is None or self.lsn < 0:
            return False
        even, is_broken_elsewhere, odd = STATE.unpack_from(self._slots)
        return not is_broken_elsewhere and max(even, odd) == self._epoch

    def commit(self, transaction: WriteTransaction, raw: lmdb.Transaction) -> None:
        """Commit `raw`, durably (J1) if the transaction says so; else so that `flush` makes it durable.

        What the journal cannot hold, because it changes more than it appends, or is large, is flushed where it lies.

        Raises:
            StorageError, StoreFullError: the journal refuses; nothing was committed.
            lmdb.Error: LMDB does.
        """
        if self.is_off or not transaction.changes:
            raw.commit()
            return
        if not self.journal(transaction):
            raw.commit()
            self.advance()
            self._check_file()
            self._place_before = None  # what was done since is not all in the journal
            return
        raw.commit()
        self.at, self.lsn = self.end, transaction.first_lsn + len(transaction.appended) - 1
        if transaction.is_flushed:
            self.flushed = self.lsn
        self.held.count(transaction.changes + transaction.size_bytes // _PAGE_SIZE_BYTES)

    def journal(self, transaction: WriteTransaction) -> bool:
        """Put a transaction's records into the journal, flushed if it says so; False if there is no place for them.

        Raises:
            StorageError: the journal refuses.
        """
        is_flushed = transaction.is_flushed
        keeper = self._environment.keeper
        keeper.looks_after(is_flushed=is_flushed)
        self.is_unsteady = True
        keeper.commits += 1
        lsn, size_bytes = transaction.first_lsn, transaction.size_bytes
        if transaction.is_steady or size_bytes > JOURNALED_SIZE_BYTES_MAX:
            return False
        if not (self.lsn + 1 == lsn > 0 or self._catch_up(lsn)):
            return False
        return self.append(lsn, transaction.appended, is_flushed=is_flushed)

    def append(self, lsn: int, records: Sequence[bytes], *, is_flushed: bool) -> bool:
        """Put records into the journal, `lsn` the first; False if there is no place for them.

        Raises:
            StorageError: the journal refuses.
        """
        if self.lsn + 1 != lsn:
            return False
        self._environment.keeper.commits += 1
        group = encode_group(self._session, self._epoch, lsn, records, flushed=self.flushed)
        self.end = self.at + len(group)
        # From here on, whatever happens, there may be a group that is not committed: the next commit looks for its
        # place, and who looks at what became of this one advances first.
        self.lsn = _UNKNOWN
        try:
            if self.end > self._size_bytes:
                self._size_bytes = fill(self._descriptor, self.end, self._size_bytes)
            if armed:
                point("journal.before_append")
            write_all(self._descriptor, group, self.at)
            if armed:
                point("journal.after_append")
        except OSError as error:
            if error.errno in DISK_FULL_ERRNOS:
                return False
            raise translate_os(error, path=journal_path(self._environment.path)) from error
        self.is_dirty = True
        if is_flushed:
            try:
                flush_file(self._descriptor)
            except OSError as error:
                raise translate_os(error, path=journal_path(self._environment.path)) from error
            self.is_dirty = False
            if armed:
                point("journal.after_flush")
        self._check_file()
        return True

    def flush(self) -> None:
        """Make durable what was committed without a flush; needs no lock.

        Raises:
            StorageError: it cannot be done; as for `advance`.
        """
        interrupts = is_owned(self._flushing)  # a flush of this thread's, which is not done
        with self._flushing:
            if self.is_broken:
                raise self._broken_error()
            if (self.is_dirty or interrupts) and self._descriptor >= 0:
                self.is_dirty = False  # before: what is committed meanwhile is for the next time
                lsn = self.lsn
                try:
                    flush_file(self._descriptor)
                except OSError as error:
                    raise self.break_off() from error
                if self.is_broken:  # found by what interrupted this
                    raise self._broken_error()
                self.flushed = max(self.flushed, lsn)
                self.note_flushed()
            if self._descriptor >= 0:
                self._check_file()

    # --- steady snapshots -------------------------------------------------------------

    def advance(self) -> None:
        """Make the last commit's snapshot the steady one, and pin it.

        Raises:
            StorageError: a flush failed; the steady snapshot is what it was, and nothing is written any more until the
                store was closed and opened. Facts: path.
            JournalMissingError: somebody removed the journal of a store in use. Facts: path, journal.
            lmdb.Error: no read transaction can be had; nothing was done.
        """
        environment = self._environment
        handles = environment.handles
        self.look_for_journal()
        if self.is_gone:
            raise self._broken_error()
        pin = self.pin.begin(handles)
        try:
            lsn = last_lsn(pin, handles.log)
            epoch = self._epoch + 1
            if armed:
                point("steady.before_sync")
            handles.raw.sync(True)
            if armed:
                point("steady.after_sync")
            meta = read_live_meta_bytes(environment.locks.descriptor)
            write_slot(self._descriptor, Slot(environment.store_id, self._session, epoch, lsn, meta))
            self._reach = Reach(epoch, min(os.fstat(self._descriptor).st_size, JOURNAL_SIZE_BYTES_MAX), lsn)
            if self._is_marked:
                write_reach(environment.locks.descriptor, self._session, self._reach)
            if armed:
                point("steady.after_slot")
        except BaseException as error:
            self.pin.drop(pin)
            if not isinstance(error, OSError | lmdb.Error):
                raise
            raise self.break_off() from error
        self.pin.keep(pin, epoch)
        if armed:
            point("steady.after_pin")
        self._enter(epoch, lsn)
        self.flushed = lsn
        self.is_unsteady = self.is_dirty = False
        self._size_bytes = shorten(self._descriptor, self._size_bytes)
        self.held.begin(environment)

    def note_flushed(self) -> None:
        """Note in the data file what of the journal is on the disk; needs no lock. It is a help: no error is told."""
        with self._flushing, contextlib.suppress(OSError):
            if self._is_marked and self._descriptor >= 0 and not self.is_broken and self.flushed > self._reach.lsn:
                self._reach = self._reach._replace(lsn=self.flushed)
                write_reach(self._environment.locks.descriptor, self._session, self._reach)

    def look_for_journal(self) -> None:
        """Write no more if somebody has taken the journal away: nobody would read it after a crash. Needs no lock."""
        with self._flushing:
            if self._descriptor >= 0 and not self.is_broken and is_taken_away(self._environment, self._descriptor):
                self.is_broken = self.is_gone = True

    def _check_file(self) -> None:
        """Let no commit be acknowledged into a file that nobody finds. Raises StoreReplacedError. Facts: path."""
        if not self._environment.locks.file.is_kept():
            self.is_broken = self.is_gone = True
            raise self._broken_error()

    def rest(self) -> None:
        """Make everything steady, and give the pin back; the next commit takes it again, or a new one."""
        if self._slots is None or self.is_broken or is_broken(self._slots):
            return
        if newest_epoch(self._slots) != self._epoch:  # another process goes on, and advances
            self.pin.give_back()
            return
        if self.is_unsteady:
            self.advance()
        self.pin.rest(self._epoch)

    def have_pin(self) -> bool:
        """Have a pin, if need be the one that was given back at rest; False if that is to be a new one (J2).

        Raises:
            lmdb.Error: no read transaction can be had.
        """
        if self.pin.is_held:
            return True
        self.look_for_journal()
        if self.is_broken or self._slots is None or newest_epoch(self._slots) != self._epoch:
            return False
        return self.pin.take_again(self._environment.handles, self._epoch)

    def unpin_if_outrun(self) -> None:
        """Give the pin back, which holds more and more pages for nobody, if others have advanced: see `prepare`."""
        if self._slots is not None and newest_epoch(self._slots) - self.pin.epoch > _EPOCHS_BEHIND_MAX:
            self.pin.give_back()

    # --- joining and leaving ------------------------------------------------------------

    def _join(self) -> None:
        """Open the journal that other processes use, or make one."""
        environment = self._environment
        environment.locks.file.check()  # else the journal there may be that of whoever opened what came instead
        path, data = journal_path(environment.path), environment.locks.descriptor
        marked = read_marker(data)
        try:
            store = os.fstat(data) if marked is None else None
            self._descriptor = open_journal(environment.path, store=store)
            self._session, epoch, self._size_bytes = find_or_begin(environment, self._descriptor, marked)
            self._epoch = epoch
            self._slots = mmap.mmap(self._descriptor, RECORDS_AT, mmap.MAP_SHARED, mmap.PROT_READ)
            self._refuse_if_broken()
            self.advance()
            if not epoch:
                sync_directory(path.parent)
            # Again, if it is there: who set it may have been killed, or have failed, before it was on the disk.
            set_marker(data, self._session, self._reach)
            self._is_marked = True
        except BaseException as error:
            self.pin.give_back()
            self._forget()
            if marked is not None and isinstance(error, FileNotFoundError):
                raise missing_error(environment.path) from None
            if isinstance(error, OSError):
                raise translate_os(error, path=path) from error
            raise

    def _follow(self, epoch: int) -> None:
        """Go on in an epoch that another process has begun.

        It may have been killed before it flushed the slot: records are put over the last epoch's only after (J3).
        """
        try:
            flush_file(self._descriptor)
        except OSError as error:
            raise self.break_off() from error
        self._enter(epoch, _UNKNOWN)
        self._size_bytes = os.fstat(self._descriptor).st_size
        self.is_unsteady = True

    def _enter(self, epoch: int, lsn: int) -> None:
        if self.lsn >= 0:
            self._place_before = Place(self._epoch, self.lsn, self.at, self._lsn_before)
        self._epoch, self.at, self.lsn, self._lsn_before = epoch, RECORDS_AT, lsn, lsn

    def records_behind(self, lsn: int, transactions: int) -> tuple[list[bytes], Place] | None:
        """Return what others have appended in so many transactions, and the place behind; None if not all is there."""
        now = Place(self._epoch, self.lsn, self.at, self._lsn_before)
        return find_behind(self._descriptor, self._session, (now, self._place_before), lsn, transactions)

    def _catch_up(self, next_lsn: int) -> bool:
        """Find the place where a record comes next, after others wrote; tell whether there is one (J4).

        There is none for 0: a commit that appends nothing.
        """
        place = find_end(self._descriptor, self._epoch, next_lsn - 1)
        if place is not None:
            self.go_on_at(place)
        return place is not None

    def go_on_at(self, place: Place) -> None:
        """Know where the next record goes, in this epoch (J4)."""
        assert place.epoch == self._epoch
        _epoch, self.lsn, self.at, self._lsn_before = place
        self._size_bytes = os.fstat(self._descriptor).st_size

    def retire(self) -> None:
        """Flush everything and remove the journal: one file is left. The caller is alone with the store.

        Raises:
            OSError, lmdb.Error, StorageError: it cannot be done; the journal stays, and the next opening reads it.
        """
        environment = self._environment
        if self.is_off or (self.is_broken and not self.is_gone):
            return
        if self._descriptor < 0:  # others wrote, who are gone: it is for the last to tidy up
            if not environment.locks.file.is_kept() or read_marker(environment.locks.descriptor) is None:
                return
            if is_journal_broken(environment):
                return
        elif self._slots is None or is_broken(self._slots):
            return
        environment.handles.raw.sync(True)
        session = read_marker(environment.locks.descriptor) or self._session
        with self._flushing:  # the keeper may be about to note something behind the mark
            self._is_marked = False
        try:
            clear_marker(environment.locks.descriptor)
            flush_file(environment.locks.descriptor)
            if armed:
                point("steady.before_unlink")
            if self._descriptor < 0 or is_same_file(journal_path(environment.path), self._descriptor):  # else another's
                remove_journal(environment.path)
        except OSError:
            self._mark_again(session)
            raise
        if armed:
            point("steady.after_unlink")
        self.pin.give_back()
        self._forget()
        sync_directory(environment.path.parent)

    def _mark_again(self, session: bytes) -> None:
        """After a failure to end the session: who goes on in it must not be without its mark, on the disk."""
        try:
            set_marker(self._environment.locks.descriptor, session)
            self._is_marked = self._descriptor >= 0
        except OSError as error:
            raise self.break_off() from error

    def leave(self) -> None:
        """Close what is open; what is committed stays in the journal."""
        with contextlib.suppress(StorageError):
            self.flush()  # nobody else would, before some commit of another process
        self.pin.give_back()
        self._forget()

    def leave_after_fork(self) -> None:
        """In the child: close the journal, and touch nothing else of the parent's."""
        self._flushing = threading.RLock()  # a thread that the child has not may hold it
        self._forget()

    def _forget(self) -> None:
        if self._slots is not None:
            self._slots.close()
            self._slots = None
        with self._flushing:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)
        self.is_unsteady = self.is_dirty = self._is_marked = False
        self._place_before = None
        if self.is_gone:  # another may be made, unless the mark says that there should be one
            self.is_broken = self.is_gone = False

    def break_off(self) -> StorageError | JournalMissingError:
        """Write no more after a failed flush, and let nobody: another process's flush need not tell of it again."""
        self.is_broken, self.is_gone = True, False
        with contextlib.suppress(OSError):
            write_broken(self._descriptor)
        return self._broken_error()

    def _refuse_if_broken(self) -> None:
        if self.is_broken or self._slots is None or is_broken(self._slots):
            raise self._broken_error()

    def _broken_error(self) -> StorageError | JournalMissingError:
        return find_error(self._environment, is_gone=self.is_gone)
