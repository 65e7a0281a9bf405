"""Protects the locks in LMDB's lock file from a stray `close`, and limits how long this process waits for them.

LMDB uses two POSIX locks in the file to find the processes that use the store. Every process holds a shared lock on
byte 0 and a lock on the byte whose offset is its process id. If a process closes *any* descriptor of the file, it loses
its POSIX locks. Any code of this process that reads the file and closes it, such as a copy of the folder, has this
effect. Then the next process that opens the store would assume that it is alone, and would initialise the mutexes and
the reader table while others use them. A process that looks for dead readers would free the slots of this process. So
`hold` takes a shared lock of the open file description (OFD lock) on both bytes. This lock conflicts with POSIX locks,
and only this descriptor releases it.

LMDB locks a mutex in the file whenever it takes a slot in its reader table. While it waits for this mutex, it holds
Python's interpreter lock, and it has no timeout. So a process that is stopped while it holds the mutex would block all
threads of all other processes. Therefore a read first checks whether the mutex is free (`reader_lock`), and waits here
with a timeout. One case remains: the owner is stopped within the microsecond between this check and LMDB's own lock.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import sys
import time
from typing import TYPE_CHECKING

from statelog.kernels import mutex_owner_at
from statelog.storage.file.failures import translate_os
from statelog.storage.file.locks import is_held, locked_error, range_lock, set_lock

if TYPE_CHECKING:
    from pathlib import Path

_HEAD = struct.Struct("=II")
_FORMAT = 1 << 16 | 1
"""The only layout number of LMDB's lock file that this module knows. The file begins with a magic, its layout number,
and the mutex of the reader table.
"""

_OWNER_MASK = 0x3FFFFFFF
"""The bits of a mutex word that identify the owner. The other bits show whether threads wait or the owner has died."""

_WORD_SIZE_BYTES = 4
_MAP_SIZE_BYTES = 4096
_LOOKS_AT_ONCE = 200
"""The number of checks before the first pause. LMDB holds the mutex for less than a microsecond."""

_PAUSE_S = 0.0002

UNLOCKED = memoryview(bytes(_WORD_SIZE_BYTES)).cast("I")
"""A stand-in for the word of a mutex that nobody holds."""

_FIRST_SHARED = range_lock(fcntl.F_RDLCK, 0)
_FIRST_EXCLUSIVE = range_lock(fcntl.F_WRLCK, 0)
_ALL_FREE = range_lock(fcntl.F_UNLCK, 0, 0)


class LockFile:
    """The lock file of one LMDB environment.

    Closing this file releases LMDB's own locks, so close the environment first.

    Args:
        descriptor: a descriptor of the file for reading and writing, opened before LMDB opened the file.
        path: the path of the data file.
        timeout_s: how long to wait for other processes.
        has_locks: whether the system has OFD locks.

    Attributes:
        reader_lock: the mutex word of the reader table. It is 0 while no thread holds the mutex.
    """

    __slots__ = ("_descriptor", "_has_locks", "_map", "_path", "_process_id", "_timeout_s", "reader_lock")

    def __init__(self, descriptor: int, path: Path, timeout_s: float, *, has_locks: bool) -> None:
        self._descriptor = descriptor
        self._path = path
        self._timeout_s = timeout_s
        self._has_locks = has_locks
        self._process_id = os.getpid()
        self._map: mmap.mmap | None = None
        self.reader_lock = UNLOCKED

    def await_opening(self) -> None:
        """Wait until LMDB can open the file without waiting, because LMDB's own wait has no timeout.

        Raises:
            StoreLockedError: another process was stopped while it opened the file, or while it holds the mutex.
                Facts: path, timeout_s.
        """
        if not self._has_locks:
            return
        deadline_s = time.monotonic() + self._timeout_s
        while is_held(self._descriptor, _FIRST_SHARED) or (
            is_held(self._descriptor, _FIRST_EXCLUSIVE) and self._is_mutex_held()
        ):
            if time.monotonic() >= deadline_s:
                raise locked_error(self._path, self._timeout_s)
            time.sleep(_PAUSE_S)

    def hold(self) -> bool:
        """Secure the locks that LMDB has just taken, until `close`.

        Returns:
            False if another thread of this process has closed the file. Then LMDB has lost its locks, and another
            process may have initialised the reader table, so the caller must close LMDB and open it again.

        Raises:
            StorageError: the operating system reports an error. Facts: path.
        """
        try:
            if self._has_locks and not self._take_locks():
                return False
            if (at := self._find_owner()) >= 0:
                self._map = mmap.mmap(self._descriptor, _MAP_SIZE_BYTES, prot=mmap.PROT_READ)
                self.reader_lock = memoryview(self._map)[at : at + _WORD_SIZE_BYTES].cast("I")
        except OSError as error:
            raise translate_os(error, path=self._path) from error
        return True

    def _take_locks(self) -> bool:
        process_id = self._process_id
        try:
            set_lock(self._descriptor, _FIRST_SHARED)
        except BlockingIOError:
            return False
        # A stray close releases both of LMDB's locks. So if the second lock still exists, no stray close came between
        # LMDB's locks and ours.
        if not is_held(self._descriptor, range_lock(fcntl.F_WRLCK, process_id)):
            return False
        # LMDB holds an exclusive lock on this byte, which conflicts with our lock. So downgrade it to a shared lock,
        # which is enough for LMDB's own checks.
        shared = range_lock(fcntl.F_RDLCK, process_id)
        fcntl.fcntl(self._descriptor, fcntl.F_SETLK, shared)
        set_lock(self._descriptor, shared)
        return True

    def await_reader_lock(self) -> None:
        """Wait until no thread holds the mutex of the reader table.

        Raises:
            StoreLockedError: a process that was stopped holds the mutex. Facts: path, timeout_s.
        """
        deadline_s = time.monotonic() + self._timeout_s
        looks = 0
        while self.reader_lock[0] & _OWNER_MASK:
            looks += 1
            if looks < _LOOKS_AT_ONCE:
                continue
            if time.monotonic() >= deadline_s:
                raise locked_error(self._path, self._timeout_s)
            time.sleep(_PAUSE_S)

    def _find_owner(self) -> int:
        """Return the offset of the mutex's owner word in the file, or -1 if the layout is unknown or has no mutex."""
        at = mutex_owner_at()
        head = os.pread(self._descriptor, _HEAD.size, 0).ljust(_HEAD.size, b"\0")
        return -1 if at < 0 or _HEAD.unpack(head)[1] != _FORMAT else _HEAD.size + at

    def _is_mutex_held(self) -> bool:
        at = self._find_owner()
        word = b"" if at < 0 else os.pread(self._descriptor, _WORD_SIZE_BYTES, at)
        return bool(int.from_bytes(word, sys.byteorder) & _OWNER_MASK)

    def close(self) -> None:
        """Close the file, and release its locks. A forked child leaves the locks of its parent alone."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        word, self.reader_lock = self.reader_lock, UNLOCKED
        if self._map is not None:
            word.release()
            self._map.close()
        try:
            if self._has_locks and self._process_id == os.getpid():
                # Release the locks explicitly: a child that was forked without Python's hooks may have a copy of the
                # descriptor, so closing this copy would not release them.
                set_lock(descriptor, _ALL_FREE)
        finally:
            os.close(descriptor)
