"""The writer lock, which one process owns at a time. It is fair, has a timeout, and survives the death of its owner.

The lock is a robust mutex in a small file that all processes map (native/writer_lock.c). Waiting processes get it in
order of arrival. If its owner dies, the next process gets the lock and is told to repair the store.

On a system without robust mutexes (macOS), `fcntl` locks a byte of the same file. There, waiting processes poll, and
get the lock in any order. Such a lock belongs to the process, so a process may have only one `WriterLock` for a file.
Closing any other descriptor of the file releases the lock. This is harmless: such a system has no OFD locks either, so
only one process at a time has the store open for writing (`locks.py`).
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import sys
import time
from typing import TYPE_CHECKING, Final

from statelog.errors import ForkedError, FormatError, StorageError, StoreLockedError, UsageError
from statelog.kernels import (
    LOCK_ABANDONED,
    LOCK_BUSY,
    LOCK_INVALID,
    LOCK_LOST,
    LOCK_OWNED,
    WriterPage,
    writer_page_size,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILE_SIZE_BYTES: Final = 4096
PAGE_MAGIC: Final = 0x736C77726974656C.to_bytes(8, sys.byteorder)
"""The first bytes of a page that contains a mutex. native/writer_lock.c defines them."""

_SLICE_MS: Final = 50
_SLICE_S: Final = _SLICE_MS / 1000
"""The longest time that C code waits before Python checks for signals, such as Ctrl-C."""

_PAUSE_S_MIN: Final = 0.00005
_PAUSE_S_MAX: Final = 0.00025
_HELD_AT: Final = 0
_ABANDONED_AT: Final = 1

_pages_kept: list[WriterPage] = []
"""Pages that stay mapped, because their `WriterLock` was freed by a thread that did not own the lock."""


class WriterLock:
    """One opening of the writer lock.

    The caller ensures that only one thread at a time uses this object. The thread that acquires the lock must release
    it. `release` does nothing if the lock is not held, so the following code is safe from interrupts::

        try:
            if lock.acquire(timeout_s):
                repair()
                lock.mark_repaired()
            write()
        finally:
            lock.release()

    Args:
        descriptor: a descriptor of the lock's file, open for reading and writing while the lock is used.
        path: the path of the data file, for messages.
        is_first: initialise the lock, because no other process uses the file. This is needed after a reboot, when the
            file may name an owner that no longer exists.
        at: the offset of the lock in the file, a multiple of `mmap.ALLOCATIONGRANULARITY`.

    Raises:
        FormatError: the file is not a lock that this build can use. Facts: path.
        StorageError: the file cannot be written or mapped.
    """

    __slots__ = ("_at", "_path", "_pid", "_place", "needs_repair")

    def __init__(self, descriptor: int, path: Path, *, is_first: bool = False, at: int = 0) -> None:
        self._path = path
        self._at = at
        self._pid = os.getpid()
        self._place: WriterPage | _LockedByte | None = None
        self.needs_repair = False
        """Whether a previous owner has died and no process has repaired the store since."""
        try:
            if is_first:
                # Write real zeros: if the file had a hole, a write to it would fail later on a full disk.
                os.pwrite(descriptor, bytes(FILE_SIZE_BYTES), at)
            self._place = self._open(descriptor, is_first=is_first)
        except OSError as error:
            message = f"{path} cannot be used as the writer lock: {error}"
            raise StorageError(message, path=str(path)) from error

    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:
        """If the lock is still owned, mark it as abandoned before its page is unmapped.

        The kernel cannot do this after the page is unmapped.
        """
        place = self._place
        if isinstance(place, WriterPage) and self._pid == getpid() and not place.abandon():
            _pages_kept.append(place)

    @property
    def is_held(self) -> bool:
        """Whether this opening holds the lock. A forked child does not hold it."""
        return self._place is not None and self._pid == os.getpid() and self._place.is_held

    def acquire(self, timeout_s: float) -> bool:
        """Acquire the lock, and return `needs_repair`. Signal handlers run while it waits.

        Raises:
            StoreLockedError: another process held the lock until the timeout. Facts: path, timeout_s.
            ForkedError: this process was forked since the lock was opened.
            StorageError: the lock is damaged, so no process can own it.
        """
        place = self._place
        if place is None or self._pid != os.getpid():
            place = self._usable_place()
        try:
            status = place.acquire(_SLICE_MS if timeout_s >= _SLICE_S else math.ceil(max(timeout_s, 0.0) * 1000))
            if status == LOCK_BUSY:
                status = self._wait(place, timeout_s - _SLICE_S)
            if status != LOCK_OWNED:
                self._note(status, timeout_s)
            else:
                self.needs_repair = False
        except BaseException:
            place.give_back(False)  # An interrupt may come just after the lock was acquired, so release it.
            raise
        return self.needs_repair

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free, even if processes wait for it. Return False if it is not free.

        Raises:
            ForkedError, StorageError: the errors of `acquire`.
        """
        place = self._usable_place()
        assert not place.is_held, "this thread already holds the writer lock"
        try:
            status = place.try_acquire()
            if status != LOCK_BUSY:
                self._note(status, 0.0)
        except BaseException:
            place.give_back(False)
            raise
        return status != LOCK_BUSY

    def mark_repaired(self) -> None:
        """Record that this process has repaired the store after a previous owner died.

        Until this is called, each new owner has to repair the store.
        """
        self._usable_place().mark_repaired()
        self.needs_repair = False

    def release(self, goes_on: bool = False) -> None:  # noqa: FBT001, FBT002 - as in `WriterPage`
        """Release the lock. Do nothing if it is not held.

        Args:
            goes_on: let this process keep its turn if it last acquired the lock within 200 us after releasing it,
                because handing the lock to a different process costs as much as a commit. The turn ends after 2 ms, or
                after 200 us without a write.

        Raises:
            UsageError: another thread has acquired the lock.
        """
        if self._pid != os.getpid():
            self._place = None
        elif self._place is not None and self._place.give_back(goes_on) != LOCK_OWNED:
            message = "only the thread that acquired the writer lock can release it"
            raise UsageError(message)

    def close(self) -> None:
        """Release the lock if it is held, and unmap its page."""
        self.release()
        self._place = None

    def _open(self, descriptor: int, *, is_first: bool) -> WriterPage | _LockedByte:
        end = self._at + FILE_SIZE_BYTES
        if os.fstat(descriptor).st_size < end:
            message = f"{self._path} is too short for a writer lock"
            raise FormatError(message, path=str(self._path))
        if writer_page_size() == 0:
            return _LockedByte(descriptor, self._at)
        page = WriterPage(mmap.mmap(descriptor, FILE_SIZE_BYTES, offset=self._at))
        if is_first and not page.initialise():
            message = "the system has no robust mutexes"
            raise OSError(message)
        if not page.is_valid():
            message = f"{self._path} is not a writer lock of this build: close the store in all processes first"
            raise FormatError(message, path=str(self._path))
        return page

    def _usable_place(self) -> WriterPage | _LockedByte:
        if self._pid != os.getpid():
            self._place = None
            message = f"{self._path} was opened before this process was forked: open the store again"
            raise ForkedError(message)
        if self._place is None:
            message = f"the writer lock {self._path} is closed"
            raise UsageError(message)
        return self._place

    @staticmethod
    def _wait(place: WriterPage | _LockedByte, timeout_s: float) -> int:
        """Wait for the lock in slices, between which Python runs signal handlers.

        Return the status of the last attempt.
        """
        deadline_s = time.monotonic() + timeout_s
        status, left_s = LOCK_BUSY, timeout_s
        while status == LOCK_BUSY and left_s > 0:
            status = place.acquire(math.ceil(min(_SLICE_MS, left_s * 1000)))
            left_s = deadline_s - time.monotonic()
        return status

    def _note(self, status: int, timeout_s: float) -> None:
        if status == LOCK_BUSY:
            message = f"{self._path} was locked by another process for {timeout_s:g} s"
            raise StoreLockedError(message, path=str(self._path), timeout_s=timeout_s)
        if status in {LOCK_LOST, LOCK_INVALID}:
            message = f"the writer lock {self._path} is damaged: close the store in all processes, then open it"
            raise StorageError(message, path=str(self._path))
        self.needs_repair = status == LOCK_ABANDONED


class _LockedByte:
    """The lock on a system without robust mutexes: a locked byte, whose value shows whether the owner released it."""

    __slots__ = ("_at", "_descriptor", "is_held")

    def __init__(self, descriptor: int, at: int) -> None:
        self._descriptor = descriptor
        self._at = at
        self.is_held = False

    def acquire(self, timeout_ms: int) -> int:
        deadline_s = time.monotonic() + timeout_ms / 1000
        pause_s = _PAUSE_S_MIN
        while (status := self.try_acquire()) == LOCK_BUSY and time.monotonic() < deadline_s:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)
        return status

    def try_acquire(self) -> int:
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._at)
        except (BlockingIOError, PermissionError):
            return LOCK_BUSY
        was_held, was_abandoned = os.pread(self._descriptor, 2, self._at + _HELD_AT)
        os.pwrite(self._descriptor, bytes([1, was_held | was_abandoned]), self._at + _HELD_AT)
        self.is_held = True
        return LOCK_ABANDONED if was_held | was_abandoned else LOCK_OWNED

    def give_back(self, _goes_on: bool) -> int:  # noqa: FBT001 - no process queues for it
        if self.is_held:
            os.pwrite(self._descriptor, b"\0", self._at + _HELD_AT)
        self.is_held = False
        # Unlock even if `is_held` is False, because an interrupt may have come just after the byte was locked.
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, self._at)
        return LOCK_OWNED

    def mark_repaired(self) -> None:
        os.pwrite(self._descriptor, b"\0", self._at + _ABANDONED_AT)
