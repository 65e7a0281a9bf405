"""Locks between processes that can time out.

LMDB's writer lock waits for ever, also for a process that is stopped, and LMDB
does not tell who has the file open. So bytes far beyond the end of the data file
are locked: one is shared by all who have the store open, one belongs to the one
who writes, and one is shared by those who wait to. They are locks of the open file description: they end with
the process, and closing another descriptor of the file does not drop them, as it
does with plain POSIX locks.

Where the system has no such locks (`supported` turns False), LMDB's own remain.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from typing import TYPE_CHECKING

from statelog.errors import StoreLockedError

if TYPE_CHECKING:
    from pathlib import Path

_PRESENCE_AT = 2**62
_WRITER_AT = 2**62 + 1
_WAITING_AT = 2**62 + 2
_FLOCK = struct.Struct("hhqqi")
_SET_LOCK: int = getattr(fcntl, "F_OFD_SETLK", -1)
_GET_LOCK: int = getattr(fcntl, "F_OFD_GETLK", -1)
_BUSY_ERRNOS = frozenset({errno.EAGAIN, errno.EACCES})
_MISSING_ERRNOS = frozenset({errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP})
_TURN_S = 0.005
_YIELD_S = 0.001
"""Who writes without end looks once a turn whether others wait, and stands back for that long, some polls of theirs."""

_PAUSE_S_MIN = 0.00005
_PAUSE_S_MAX = 0.00025


def _range_lock(kind: int, at: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, at, 1, 0)


_PRESENCE_SHARED = _range_lock(fcntl.F_RDLCK, _PRESENCE_AT)
_PRESENCE_EXCLUSIVE = _range_lock(fcntl.F_WRLCK, _PRESENCE_AT)
_WRITER_TAKEN = _range_lock(fcntl.F_WRLCK, _WRITER_AT)
_WRITER_FREE = _range_lock(fcntl.F_UNLCK, _WRITER_AT)
_WAITING_SHARED = _range_lock(fcntl.F_RDLCK, _WAITING_AT)
_WAITING_ANY = _range_lock(fcntl.F_WRLCK, _WAITING_AT)
_WAITING_FREE = _range_lock(fcntl.F_UNLCK, _WAITING_AT)


class FileLocks:
    """The locks of one open data file.

    Args:
        descriptor: of the data file; its owner closes it, which drops the locks.
        path: for messages.
    """

    __slots__ = ("_look_at_s", "_path", "descriptor", "supported")

    def __init__(self, descriptor: int, path: Path) -> None:
        self.descriptor = descriptor
        self.supported = _SET_LOCK >= 0
        self._path = path
        self._look_at_s = 0.0

    def acquire_presence(self, timeout_s: float) -> None:
        """Say that this process has the store open.

        Raises:
            StoreLockedError: another holds it for itself alone. Facts: path, timeout_s.
        """
        self._acquire(_PRESENCE_SHARED, timeout_s)

    def try_exclusive(self) -> bool:
        """Turn presence into exclusive presence; False if any other process has the store open."""
        return self.supported and self._try(_PRESENCE_EXCLUSIVE) and self.supported

    def acquire_writer(self, timeout_s: float) -> None:
        """Become the one process that writes.

        Raises:
            StoreLockedError: another writes, and did not end within the time. Facts: path, timeout_s.
        """
        if not self.supported:
            return
        now_s = time.monotonic()
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + _TURN_S
            if self._is_awaited():
                time.sleep(_YIELD_S)
        if self._try(_WRITER_TAKEN):
            return
        self._try(_WAITING_SHARED)
        try:
            self._acquire(_WRITER_TAKEN, timeout_s)
        finally:
            self._try(_WAITING_FREE)

    def release_writer(self) -> None:
        """Let the next process write."""
        if self.supported:
            fcntl.fcntl(self.descriptor, _SET_LOCK, _WRITER_FREE)

    def _acquire(self, lock: bytes, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        pause_s = _PAUSE_S_MIN
        while not self._try(lock):
            if time.monotonic() >= deadline:
                message = f"{self._path} is locked by another process, and stayed so for {timeout_s:g} s"
                raise StoreLockedError(message, path=str(self._path), timeout_s=timeout_s)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    def _is_awaited(self) -> bool:
        try:
            lock = fcntl.fcntl(self.descriptor, _GET_LOCK, _WAITING_ANY)
        except OSError:
            return False
        kind: int = _FLOCK.unpack(lock)[0]
        return kind != fcntl.F_UNLCK

    def _try(self, lock: bytes) -> bool:
        """Take a lock if it is free; where there are no such locks, it is."""
        if not self.supported:
            return True
        try:
            fcntl.fcntl(self.descriptor, _SET_LOCK, lock)
        except OSError as error:
            if error.errno in _BUSY_ERRNOS:
                return False
            if error.errno not in _MISSING_ERRNOS:
                raise
            self.supported = False
        return True


def is_same_file(path: Path, descriptor: int) -> bool:
    """Tell whether `path` still names the file behind `descriptor`: a lock on another one is worth nothing."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False
