"""The control page: what the processes that write to one store tell each other, in a small file that all of them map.

The first page is the writer lock, the second the lock of who flushes the journal. Behind them stand words of 64 bits.
Who owns the writer lock writes them; `flushed` is written by whoever has flushed, `done` by who holds the lock of
the advance, and `is_broken` by anybody. Nothing here is for the disk: the first process that opens a store for writing
makes the page anew, and the last one removes it, unless a flush has failed: that counts until the store was recovered,
which waits until those are gone who read it. DESIGN.md section 6.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
from typing import TYPE_CHECKING, Final

from statelog.errors import FormatError, StorageError
from statelog.kernels import wake_notify, wake_read, wake_wait
from statelog.storage.file.descriptors import open_file
from statelog.storage.file.disk import write_all
from statelog.storage.file.failures import translate_os
from statelog.storage.file.neighbours import in_the_way_error, open_own, refuse_store, rename_aside
from statelog.storage.file.writer_lock import PAGE_MAGIC, WriterLock
from statelog.storage.journal.journal import HALVES_AT

if TYPE_CHECKING:
    from pathlib import Path

UNKNOWN: Final = 2**64 - 1
"""Where an LSN should be: an append has begun and its commit has not ended, or it has failed."""

_FLUSH_LOCK_AT: Final = mmap.ALLOCATIONGRANULARITY
_WORDS_AT: Final = 2 * mmap.ALLOCATIONGRANULARITY
_WORDS: Final = 24
EPOCH: Final = 1
AT: Final = 2
LSN: Final = 3
LSN_BEFORE: Final = 4
STEADY: Final = 5
DONE: Final = 7
WRITTEN: Final = 8
FLUSHED: Final = 9
TAKEN: Final = 10
TAKEN_MAX: Final = 12
PATH_PAGES: Final = 13
IS_BROKEN: Final = 15
PINS: Final = 18
"""Of two: that of an even epoch, that of an odd one."""
FILLED: Final = 20
"""Of two, likewise: how far each half of the journal is filled with zeros."""

_SLOT_AT: Final = _WORDS_AT + 8 * _WORDS
_SLOT_SIZE_BYTES: Final = 2048
_SIZE_BYTES: Final = _SLOT_AT + _SLOT_SIZE_BYTES
_MAGIC: Final = int.from_bytes(b"stlgctl1")


class _Word:
    """A word of the page, as an attribute; its store is a single one of the processor's."""

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        self._number = number

    def __get__(self, control: Control, _kind: type[Control]) -> int:
        return control.words[self._number]

    def __set__(self, control: Control, value: int) -> None:
        control.words[self._number] = value


def control_path(path: Path) -> Path:
    """Return where the control page of a store lies."""
    return path.with_name(f"{path.name}-control")


def flushed_to(path: Path) -> int:
    """Return the LSN up to which a store is flushed to disk, or UNKNOWN if no process writes to it.

    Raises:
        FormatError: a symbolic link has the name of the page. Facts: path, journal.
        StorageError: the system refuses. Facts: path.
    """
    try:
        descriptor = open_file(control_path(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return UNKNOWN
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise in_the_way_error(path, control_path(path), "is not a regular file") from None
        raise translate_os(error, path=control_path(path)) from error
    try:
        words = os.pread(descriptor, _SLOT_AT - _WORDS_AT, _WORDS_AT)
    finally:
        os.close(descriptor)
    found = memoryview(words.ljust(_SLOT_AT - _WORDS_AT, b"\0")).cast("Q")
    return found[FLUSHED] if found[0] == _MAGIC and found[EPOCH] else UNKNOWN


def is_leftover(descriptor: int) -> bool:
    """Tell whether a file is a control page that nobody has removed, or the beginning of one: zeros.

    After a loss of power, any of its sectors may be zeros.
    """
    places = {0: PAGE_MAGIC, _FLUSH_LOCK_AT: PAGE_MAGIC, _WORDS_AT: _MAGIC.to_bytes(8, sys.byteorder)}
    starts = {at: os.pread(descriptor, len(magic), at) for at, magic in places.items()}
    is_own = [starts[at] == magic for at, magic in places.items()]
    return all(own or not any(start) for own, start in zip(is_own, starts.values(), strict=True)) and (
        any(is_own) or os.fstat(descriptor).st_size <= _SIZE_BYTES
    )


class Control:
    """The control page of one store, as one process maps it.

    Args:
        path: of the data file.
        store: status of the data file, whose owner and mode a new page gets.
        is_first: make the page anew: nobody else has the store open for writing.

    Raises:
        FormatError: what has the page's name is a store, or no file, and left alone; or none of this build.
            Facts: path.
        AccessError, StoreFullError, StorageError: the system refuses, or the page is gone while others use it.
            Facts: path.

    Attributes:
        words: all of them, by number. Each commit reads and writes some, without an attribute's frame.
        epoch: of the groups that are appended; 0 before the first writer has joined.
        at: where the next group goes.
        lsn: the record that it follows, or UNKNOWN.
        lsn_before: the last record before the epoch's first.
        steady: the epoch whose slot holds, as all writers know.
        steady_number: LMDB's transaction that it is.
        done: the newest epoch whose slot is flushed: `steady`, or the next.
        written: up to which record groups are written, and committed.
        flushed: up to which record they are on the disk: that many, or more where two have flushed at once.
        taken: pages that commits took in this epoch; `taken_before`, in the one before.
        taken_max: after how many an advance is due.
        path_pages: what a commit takes but for the leaves that it changes.
        size_bytes: of the journal, as far as it is on the disk.
        rewritten: how many commits did more than to append records.
        is_broken: a flush has failed in some process: nothing is written any more, until the store was recovered.
    """

    _magic = _Word(0)
    epoch = _Word(EPOCH)
    at = _Word(AT)
    lsn = _Word(LSN)
    lsn_before = _Word(LSN_BEFORE)
    steady = _Word(STEADY)
    steady_number = _Word(6)
    done = _Word(DONE)
    written = _Word(WRITTEN)
    flushed = _Word(FLUSHED)
    taken = _Word(TAKEN)
    taken_before = _Word(11)
    taken_max = _Word(TAKEN_MAX)
    path_pages = _Word(PATH_PAGES)
    size_bytes = _Word(14)
    is_broken = _Word(IS_BROKEN)
    prepared_number = _Word(16)
    rewritten = _Word(23)
    _slot_size = _Word(17)

    def __init__(self, path: Path, store: os.stat_result, *, is_first: bool) -> None:
        self.path = control_path(path)
        try:
            self.descriptor = self._open_first(path, store) if is_first else open_own(path, self.path)
        except FileNotFoundError as error:
            message = f"{path} has lost {self.path.name}, removed while the store is in use: close it everywhere"
            if is_first:
                message = f"{self.path} cannot be made: {error.strerror}"
            raise StorageError(message, path=str(path)) from None
        try:
            self._map(path, is_first=is_first)
        except BaseException:
            os.close(self.descriptor)
            raise

    def _open_first(self, path: Path, store: os.stat_result) -> int:
        """Open the page, or make it; what has its name and is none, as somebody's own file, gets another."""
        descriptor, is_own = open_own(path, self.path, store=store), False
        try:
            is_own = is_leftover(descriptor)
            if not is_own:
                refuse_store(path, self.path, descriptor)
                rename_aside(self.path)
        except OSError as error:
            raise translate_os(error, path=self.path) from error
        finally:
            if not is_own:
                os.close(descriptor)
        return descriptor if is_own else open_own(path, self.path, store=store)

    def _map(self, path: Path, *, is_first: bool) -> None:
        try:
            if is_first:
                before = os.pread(self.descriptor, _SIZE_BYTES, 0).ljust(_SIZE_BYTES, b"\0")
                page = bytearray(_SIZE_BYTES)  # not a hole, which a full disk could not fill
                page[_WORDS_AT : _WORDS_AT + 8] = _MAGIC.to_bytes(8, sys.byteorder)
                write_all(self.descriptor, bytes(page), 0)
            elif os.fstat(self.descriptor).st_size < _SIZE_BYTES:
                message = f"{self.path} is no control page of this build: close the store in all processes first"
                raise FormatError(message, path=str(path))
            self._map_whole = mmap.mmap(self.descriptor, _SIZE_BYTES)
        except OSError as error:
            raise translate_os(error, path=self.path) from error
        self.words = memoryview(self._map_whole)[_WORDS_AT:_SLOT_AT].cast("Q")
        self._slot = memoryview(self._map_whole)[_SLOT_AT:]
        self._pins = self.words[PINS : PINS + 2]
        self._filled = self.words[FILLED : FILLED + 2]
        self._wake = self.words[22:23]
        if not is_first and self._magic != _MAGIC:
            message = f"{self.path} is no control page of this build: close the store in all processes first"
            raise FormatError(message, path=str(path))
        self.lock = WriterLock(self.descriptor, path, is_first=is_first)
        self.flush_lock = WriterLock(self.descriptor, path, is_first=is_first, at=_FLUSH_LOCK_AT)
        if is_first:
            self.at, self.lsn = HALVES_AT[0], UNKNOWN
            words = memoryview(before)[_WORDS_AT:_SLOT_AT].cast("Q")
            self.is_broken = words[IS_BROKEN] if words[0] == _MAGIC else 0

    def is_pinned(self, epoch: int) -> bool:
        """Tell whether some process keeps the snapshot of an epoch, the steady one or the next."""
        return self._pins[epoch & 1] == epoch

    def note_pin(self, epoch: int, *, is_held: bool) -> None:
        """Say whether some process keeps the snapshot of an epoch. Of another epoch, nothing is changed."""
        if is_held:
            self._pins[epoch & 1] = epoch
        elif self._pins[epoch & 1] == epoch:
            self._pins[epoch & 1] = 0

    def prepare_slot(self, slot: bytes, number: int) -> None:
        """Keep the slot of the epoch that begins, for whoever completes the advance."""
        self._slot[: len(slot)] = slot
        self._slot_size, self.prepared_number = len(slot), number

    def prepared_slot(self) -> bytes:
        """Return the slot that was prepared last."""
        return bytes(self._slot[: self._slot_size])

    def begin(self, epoch: int, lsn: int) -> None:
        """Go on in a new epoch, behind a record.

        The place counts when all of it is written: nothing is appended to what an interrupt leaves here.
        """
        self.lsn = UNKNOWN
        self.at, self.lsn_before = HALVES_AT[epoch & 1], lsn
        self.taken_before, self.taken = self.taken, 0
        self.epoch = epoch
        self.lsn = lsn

    def note_filled(self, half: int, end: int) -> None:
        """Say up to where a half of the journal is filled."""
        self._filled[half] = end

    def note_flushed(self, lsn: int) -> None:
        """Say that the log is on the disk up to a record, and wake those who wait for it."""
        self.flushed = max(self.flushed, lsn)
        wake_notify(self._wake)

    def flushed_to(self) -> int:
        """Return up to which record the log is on the disk; UNKNOWN, more than any, before the first writes."""
        words = self.words
        return words[FLUSHED] if words[EPOCH] else UNKNOWN

    def flush_sequence(self) -> int:
        """Return what `await_flush` waits to be left."""
        return wake_read(self._wake)

    def await_flush(self, sequence: int, timeout_s: float) -> None:
        """Wait until somebody has flushed since `flush_sequence` was asked."""
        wake_wait(self._wake, sequence, timeout_s)

    def forget(self) -> None:
        """Be as a new page, but that a flush has failed: no journal is used. The caller is alone with it."""
        is_broken = self.is_broken
        for number in range(1, _WORDS):
            self.words[number] = 0
        self.at, self.lsn, self.is_broken = HALVES_AT[0], UNKNOWN, is_broken

    def close(self) -> None:
        """Let go of the page."""
        self.lock.close()
        self.flush_lock.close()
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
