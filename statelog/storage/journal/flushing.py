"""The journal as one process has it open: what it appends to it, and flushes. DESIGN.md section 6."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

from statelog.limits import JOURNALED_SIZE_BYTES_MAX
from statelog.storage.faults import armed, point
from statelog.storage.file.disk import flush_file, write_all
from statelog.storage.file.failures import DISK_FULL_ERRNOS, is_of_system, translate_os
from statelog.storage.file.neighbours import journal_path
from statelog.storage.journal.control import AT, EPOCH, FILLED, FLUSHED, LSN, UNKNOWN, Control
from statelog.storage.journal.journal import HALF_SIZE_BYTES, HALVES_AT, encode_group, fill
from statelog.storage.journal.marker import NO_REACH, Reach, write_reach
from statelog.storage.journal.pin import Pins
from statelog.storage.journal.session import find_error, is_taken_away

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog.errors import JournalMissingError, StorageError
    from statelog.storage.file.opened import OpenFile
    from statelog.storage.file.writing import TableWriter

_FLUSH_SLICE_S = 0.05
_SLICES_MAX = 5
"""So long it waits for another process's flush: one that was stopped in it does not end."""


class OpenJournal:
    """Appends and flushes. Unless said otherwise, it is called by who holds the writer lock.

    Attributes:
        control: what is shared with the other processes; None where nothing is written.
        flushing: held during a flush: who comes meanwhile waits, and knows what it was for; and while the journal, or
            the data file, becomes another.
        is_broken: whether nothing may be written: a flush failed, and what the page cache holds is not to be believed,
            or, as `is_gone` says, the journal or the data file was removed, and the page cache has everything.
        pins: of this process.
        is_off: nothing is journaled or flushed: for measuring, and while a journal is replayed.
    """

    def __init__(self, environment: OpenFile) -> None:
        self.control: Control | None = None
        self.pins = Pins()
        self.flushing = threading.RLock()
        self._completing = threading.RLock()
        self.is_off = not environment.options.flush
        self.is_broken = self.is_gone = self._is_marked = False
        self._environment = environment
        self._descriptor = -1
        self._session = b""
        self._end = 0
        self._reach = NO_REACH

    @property
    def is_dirty(self) -> bool:
        """Whether something in the journal is not flushed."""
        return self.unflushed_to() > 0

    def unflushed_to(self) -> int:
        """Return the last record of what is not flushed, 0 if all is."""
        control = self.control
        return control.written if control is not None and control.written > control.flushed else 0

    def flushed_to(self) -> int:
        """Return up to which record the log is on the disk, as far as processes that write know; `UNKNOWN`: all."""
        return UNKNOWN if self.is_off or self.control is None else self.control.flushed_to()

    @property
    def has_joined(self) -> bool:
        """Whether this process has the journal open."""
        return self._descriptor >= 0

    def _shared(self) -> Control:
        assert self.control is not None, "a store that is open for reading is not written to"
        return self.control

    def _append(self, transaction: TableWriter) -> bool:
        """Put a transaction's records into the journal; False if there is no place for them (J4).

        Raises:
            StorageError: the journal refuses.
        """
        control = self.control
        assert control is not None
        words, lsn = control.words, transaction.first_lsn
        if transaction.is_steady or transaction.size_bytes > JOURNALED_SIZE_BYTES_MAX or words[LSN] + 1 != lsn:
            return False
        at, epoch = words[AT], words[EPOCH]
        half = epoch & 1
        group = encode_group(self._session, epoch, lsn, transaction.appended, flushed=words[FLUSHED])
        self._end = at + len(group)
        if self._end > HALVES_AT[half] + HALF_SIZE_BYTES:
            return False
        # From here on, whatever happens, there may be a group that is not committed: the next commit finds no place,
        # and who looks at what became of this one advances first.
        words[LSN] = UNKNOWN
        try:
            filled = max(words[FILLED + half], HALVES_AT[half])
            if self._end > filled:
                control.note_filled(half, fill(self._descriptor, HALVES_AT[half], self._end, filled))
            if armed:
                point("journal.before_append")
            write_all(self._descriptor, group, at)
            if armed:
                point("journal.after_append")
        except OSError as error:
            if error.errno in DISK_FULL_ERRNOS:
                return False
            raise translate_os(error, path=journal_path(self._environment.path)) from error
        return True

    def flush(self, lsn: int | None = None) -> None:
        """Make durable what is committed, up to a record or all of it; needs no lock. Others' flushes count.

        Raises:
            StorageError: a flush failed, here or in another process; as `advance` does.
        """
        control = self.control
        if self.is_off or control is None or self._descriptor < 0:
            return
        lsn = control.written if lsn is None else lsn
        slices = 0
        while control.flushed < lsn:
            sequence = control.flush_sequence()
            with self.flushing:
                if control.flushed >= lsn or self._descriptor < 0 or control is not self.control:
                    break  # retired, or of the file before a compaction: all of it lies in the data file
                try:
                    # Without the lock, if its owner has been stopped: one flush more harms nobody.
                    if control.flush_lock.try_acquire() or slices >= _SLICES_MAX:
                        self.refuse_if_broken()  # a flush after one that failed need not tell of it
                        written = control.written  # before: what is committed meanwhile is for the next time
                        self._flush_journal()
                        if written > control.flushed:
                            control.note_flushed(written)
                        continue
                finally:
                    try:
                        control.flush_lock.release()
                    except BaseException:  # an interrupt, as it began
                        control.flush_lock.release()
                        raise
            control.await_flush(sequence, _FLUSH_SLICE_S)
            slices = slices + 1 if control.flush_sequence() == sequence else 0
        if self.is_broken or control.is_broken:
            raise self._broken_error()
        self.check_file()
        if armed:
            point("journal.after_flush")

    def _flush_journal(self) -> None:
        try:
            flush_file(self._descriptor)
        except BaseException as error:
            if not is_of_system(error):
                raise
            raise self.break_off() from error

    def _size_bytes(self) -> int:
        return os.fstat(self._descriptor).st_size

    def note_flushed(self) -> None:
        """Note in the data file what of the journal is on the disk; needs no lock."""
        control = self.control
        if control is not None and self._is_marked and control.flushed > self._reach.lsn and not control.is_broken:
            self._note_reach(Reach(control.done, control.size_bytes, control.flushed))

    def _note_reach(self, reach: Reach) -> None:
        """Note how far the journal has come. It is a help: no error is told."""
        with self.flushing, contextlib.suppress(OSError):
            if self._is_marked and self._descriptor >= 0:
                write_reach(self._environment.locks.descriptor, self._session, reach)
            self._reach = reach

    def look_for_journal(self) -> None:
        """Write no more if somebody has taken the journal away: nobody would read it after a crash. Needs no lock."""
        with self.flushing:
            if self._descriptor >= 0 and not self.is_broken and is_taken_away(self._environment, self._descriptor):
                self.is_broken = self.is_gone = not self._environment.has_moved

    def check_file(self) -> None:
        """Let no commit be acknowledged into a file that nobody finds. Raises StoreReplacedError. Facts: path."""
        with self.flushing:
            if not (self._environment.locks.file.is_kept() or self._environment.has_moved):  # a successor has it, too
                self.is_broken = self.is_gone = True
                raise self._broken_error()

    def _forget(self) -> None:
        with self.flushing:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)
        self._is_marked = False
        self._reach = NO_REACH
        if self.is_gone:  # another may be made, unless the mark says that there should be one
            self.is_broken = self.is_gone = False

    @contextlib.contextmanager
    def moving(self) -> Iterator[None]:
        """Have no part in any session while the `with` block runs, which opens the successor of the data file.

        What this process had of the former one is closed at its end. If the block fails, the process has it again.
        """
        with self._completing, self.flushing:
            former = self.control, self.pins, self._descriptor, self._is_marked
            self.control, self.pins, self._descriptor, self._is_marked = None, Pins(), -1, False
            try:
                yield
            except BaseException:
                self.control, self.pins, self._descriptor, self._is_marked = former
                raise
            self.is_broken = self.is_gone = False
            self._reach = NO_REACH
        control, pins, descriptor, _is_marked = former
        pins.drop()
        if control is not None:
            control.close()
        if descriptor >= 0:
            os.close(descriptor)

    def break_off(self) -> StorageError | JournalMissingError:
        """Write no more after a failed flush, and let nobody: another process's flush need not tell of it again."""
        self.is_broken, self.is_gone = True, False
        if self.control is not None:
            self.control.is_broken = 1
        return self._broken_error()

    def refuse_if_broken(self) -> None:
        """Raise if nothing may be written. Needs no lock."""
        if self.is_broken or self._shared().is_broken:
            raise self._broken_error()

    def _broken_error(self) -> StorageError | JournalMissingError:
        return find_error(self._environment, is_gone=self.is_gone)
