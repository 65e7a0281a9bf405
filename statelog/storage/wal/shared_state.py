"""The shared state: a small mapped file with which the processes that write to one store coordinate.

The first page contains the writer lock, and the second page the lock that a process holds while it flushes the WAL.
Words of 64 bits follow. The owner of the writer lock writes them, with three exceptions: any process that has flushed
writes `flushed`, the owner of the checkpoint lock writes `done`, and any process may set `is_broken`. The file is not
durable: the first process that opens a store for writing initialises it, and the last one removes it. But the mark of a
failed flush (`is_broken`) stays until recovery, which waits until all processes that use the file have ended. DESIGN.md
section 6.
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
from statelog.storage.file.sidecar_files import in_the_way_error, open_own, refuse_store, rename_aside
from statelog.storage.file.writer_lock import PAGE_MAGIC, WriterLock
from statelog.storage.wal.wal_format import HALVES_AT

if TYPE_CHECKING:
    from pathlib import Path

UNKNOWN: Final = 2**64 - 1
"""The value of the word `lsn` while a commit appends to the WAL, and after its append or its LMDB commit has failed."""

_FLUSH_LOCK_AT: Final = mmap.ALLOCATIONGRANULARITY
_WORDS_AT: Final = 2 * mmap.ALLOCATIONGRANULARITY
_WORDS: Final = 24
EPOCH: Final = 1
AT: Final = 2
LSN: Final = 3
LSN_BEFORE: Final = 4
DURABLE: Final = 5
DONE: Final = 7
WRITTEN: Final = 8
FLUSHED: Final = 9
TAKEN: Final = 10
TAKEN_MAX: Final = 12
PATH_PAGES: Final = 13
IS_BROKEN: Final = 15
PINS: Final = 18
"""The index of the first of two words: the pinned even epoch and the pinned odd epoch. A word is 0 without a pin."""
FILLED: Final = 20
"""The index of the first of two words: for each half of the WAL, the offset at which its zero-filled part ends."""

_SLOT_AT: Final = _WORDS_AT + 8 * _WORDS
_SLOT_SIZE_BYTES: Final = 2048
_SIZE_BYTES: Final = _SLOT_AT + _SLOT_SIZE_BYTES
_MAGIC: Final = int.from_bytes(b"stlgctl1")


class _Word:
    """A Python descriptor that makes a word of the file an attribute. One processor instruction writes the word."""

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        self._number = number

    def __get__(self, shared: SharedState, _kind: type[SharedState]) -> int:
        return shared.words[self._number]

    def __set__(self, shared: SharedState, value: int) -> None:
        shared.words[self._number] = value


def shared_state_path(path: Path) -> Path:
    """Return the path of the shared state of the store at `path`."""
    return path.with_name(f"{path.name}-control")


def flushed_to(path: Path) -> int:
    """Return the LSN up to which the store at `path` is flushed, or UNKNOWN if no process writes to it.

    Raises:
        FormatError: a symbolic link has the name of the shared state. Facts: path, journal.
        StorageError: the operating system reports an error. Facts: path.
    """
    try:
        descriptor = open_file(shared_state_path(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return UNKNOWN
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise in_the_way_error(path, shared_state_path(path), "is not a regular file") from None
        raise translate_os(error, path=shared_state_path(path)) from error
    try:
        words = os.pread(descriptor, _SLOT_AT - _WORDS_AT, _WORDS_AT)
    finally:
        os.close(descriptor)
    found = memoryview(words.ljust(_SLOT_AT - _WORDS_AT, b"\0")).cast("Q")
    return found[FLUSHED] if found[0] == _MAGIC and found[EPOCH] else UNKNOWN


def is_leftover(descriptor: int) -> bool:
    """Return True if a file is a leftover shared state, or has only zeros, like an unfinished one.

    After a power failure, any sector of a leftover may be zeros.
    """
    places = {0: PAGE_MAGIC, _FLUSH_LOCK_AT: PAGE_MAGIC, _WORDS_AT: _MAGIC.to_bytes(8, sys.byteorder)}
    starts = {at: os.pread(descriptor, len(magic), at) for at, magic in places.items()}
    is_own = [starts[at] == magic for at, magic in places.items()]
    return all(own or not any(start) for own, start in zip(is_own, starts.values(), strict=True)) and (
        any(is_own) or os.fstat(descriptor).st_size <= _SIZE_BYTES
    )


class SharedState:
    """The shared state of one store, mapped by this process.

    Args:
        path: the path of the data file.
        store: the status of the data file. A new shared state file gets the same owner and mode.
        is_first: initialise the file, because no other process has the store open for writing.

    Raises:
        FormatError: a store, or something other than a regular file, has the name of the shared state, or a different
            build has written the file. Facts: path.
        AccessError, StoreFullError, StorageError: the operating system reports an error, or the file was removed while
            other processes use it. Facts: path.

    Attributes:
        words: all words, by number. A commit uses some of them directly, which is faster than an attribute.
        epoch: the epoch of the groups that commits append; 0 before the first process has joined.
        at: the offset of the next group.
        lsn: the LSN of the record before the next group, or UNKNOWN.
        lsn_before: the LSN of the last record before the epoch.
        durable_epoch: the epoch of the durable snapshot, the same for all processes.
        durable_number: LMDB's transaction number of the durable snapshot.
        done: the newest epoch whose slot is flushed: `durable_epoch` or the epoch after it.
        prepared_number: LMDB's transaction number of the snapshot in the prepared slot.
        written: the LSN up to which groups are written and committed.
        flushed: the LSN up to which groups are on the disk. It may be too low after two processes flushed at once.
        taken: the number of pages that commits took in this epoch.
        taken_before: the number of pages that commits took in the previous epoch.
        taken_max: the number of pages after which a checkpoint is due.
        path_pages: the number of pages that a commit takes in addition to the leaves that it changes.
        size_bytes: the size of the part of the WAL that is on the disk.
        rewritten: the number of commits that did more than append records.
        is_broken: whether a flush has failed in any process. Nothing is written until the store is recovered.
    """

    _magic = _Word(0)
    epoch = _Word(EPOCH)
    at = _Word(AT)
    lsn = _Word(LSN)
    lsn_before = _Word(LSN_BEFORE)
    durable_epoch = _Word(DURABLE)
    durable_number = _Word(6)
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
        self.path = shared_state_path(path)
        try:
            self.descriptor = self._open_first(path, store) if is_first else open_own(path, self.path)
        except FileNotFoundError as error:
            message = f"{self.path} was removed while the store is in use: close the store in all processes"
            if is_first:
                message = f"{self.path} cannot be created: {error.strerror}"
            raise StorageError(message, path=str(path)) from None
        try:
            self._map(path, is_first=is_first)
        except BaseException:
            os.close(self.descriptor)
            raise

    def _open_first(self, path: Path, store: os.stat_result) -> int:
        """Open or create the file as its first user. Rename a foreign file with the same name."""
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
                # Write real zeros: if the file had a hole, a write to it would fail later on a full disk.
                page = bytearray(_SIZE_BYTES)
                page[_WORDS_AT : _WORDS_AT + 8] = _MAGIC.to_bytes(8, sys.byteorder)
                write_all(self.descriptor, bytes(page), 0)
            elif os.fstat(self.descriptor).st_size < _SIZE_BYTES:
                message = (
                    f"{self.path} is not a shared state file of this build: close the store in all processes first"
                )
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
            message = f"{self.path} is not a shared state file of this build: close the store in all processes first"
            raise FormatError(message, path=str(path))
        self.lock = WriterLock(self.descriptor, path, is_first=is_first)
        self.flush_lock = WriterLock(self.descriptor, path, is_first=is_first, at=_FLUSH_LOCK_AT)
        if is_first:
            self.at, self.lsn = HALVES_AT[0], UNKNOWN
            words = memoryview(before)[_WORDS_AT:_SLOT_AT].cast("Q")
            self.is_broken = words[IS_BROKEN] if words[0] == _MAGIC else 0

    def is_pinned(self, epoch: int) -> bool:
        """Return True if some process pins the snapshot of `epoch`, which is `durable_epoch` or the epoch after it."""
        return self._pins[epoch & 1] == epoch

    def note_pin(self, epoch: int, *, is_held: bool) -> None:
        """Record whether some process pins the snapshot of `epoch`.

        If `is_held` is False and the word now names a different epoch, leave it unchanged.
        """
        if is_held:
            self._pins[epoch & 1] = epoch
        elif self._pins[epoch & 1] == epoch:
            self._pins[epoch & 1] = 0

    def prepare_slot(self, slot: bytes, number: int) -> None:
        """Store the encoded slot of the new epoch, for the process that finishes the checkpoint."""
        self._slot[: len(slot)] = slot
        self._slot_size, self.prepared_number = len(slot), number

    def prepared_slot(self) -> bytes:
        """Return the slot that was prepared last."""
        return bytes(self._slot[: self._slot_size])

    def begin_epoch(self, epoch: int, lsn: int) -> None:
        """Begin a new epoch after the record `lsn`.

        The word `lsn` is UNKNOWN while the others change, and is set last. So after an interrupt, no commit can append.
        """
        self.lsn = UNKNOWN
        self.at, self.lsn_before = HALVES_AT[epoch & 1], lsn
        self.taken_before, self.taken = self.taken, 0
        self.epoch = epoch
        self.lsn = lsn

    def note_filled(self, half: int, end: int) -> None:
        """Record the offset at which the zero-filled part of a WAL half ends."""
        self._filled[half] = end

    def note_flushed(self, lsn: int) -> None:
        """Record that the log is on the disk up to `lsn`, and wake the processes that wait for a flush."""
        self.flushed = max(self.flushed, lsn)
        wake_notify(self._wake)

    def flush_sequence(self) -> int:
        """Return the number of flushes so far, for `await_flush`."""
        return wake_read(self._wake)

    def await_flush(self, sequence: int, timeout_s: float) -> None:
        """Wait until any process has flushed since `flush_sequence` returned `sequence`."""
        wake_wait(self._wake, sequence, timeout_s)

    def reset(self) -> None:
        """Initialise all words except `is_broken`. The caller ensures that no other process uses the file."""
        is_broken = self.is_broken
        for number in range(1, _WORDS):
            self.words[number] = 0
        self.at, self.lsn, self.is_broken = HALVES_AT[0], UNKNOWN, is_broken

    def close(self) -> None:
        """Unmap and close the file."""
        self.lock.close()
        self.flush_lock.close()
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
