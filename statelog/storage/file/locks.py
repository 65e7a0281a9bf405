"""Locks between processes that can time out.

LMDB does not report which processes have the file open. So processes lock bytes far beyond the end of the data file.
All processes that have the store open share one lock, and those that may write share another. A process holds a third
lock while it opens the store, and a fourth while it finishes a checkpoint. These locks belong to the open file
description (OFD locks) and end with the process. Unlike plain POSIX locks, they are not released when the process
closes another descriptor of the file. The writer lock is separate (`writer_lock.py`), and `lock_file.py` protects
LMDB's own locks.

If the system has no OFD locks (`supported` becomes False), one process at a time has a store open for writing, or
several have it open for reading. A lock of the whole file (`flock`) ensures this. Closing another descriptor does not
release this lock either. Other processes get StoreLockedError.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import time
from operator import methodcaller
from typing import TYPE_CHECKING, NamedTuple

from statelog.errors import StoreLockedError
from statelog.storage.file.failures import is_of_system
from statelog.storage.file.file_identity import FileIdentity, former_error, lock_file_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from statelog.storage.file.writer_lock import WriterLock

_FLOCK = struct.Struct("hhqqi")
"""The layout of `struct flock` on Linux. A system that does not accept it counts as a system without OFD locks."""

_SET_LOCK: int = getattr(fcntl, "F_OFD_SETLK", -1)
_GET_LOCK: int = getattr(fcntl, "F_OFD_GETLK", -1)
_BUSY_ERRNOS = frozenset({errno.EAGAIN, errno.EACCES})
_MISSING_ERRNOS = frozenset({errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP})
_CLOSING_TIMEOUT_S = 1.0
"""How long a process that closes a store waits for processes that are opening it."""

_PAUSE_S_MIN = 0.00005
_PAUSE_S_MAX = 0.00025


def range_lock(kind: int, at: int, size: int = 1) -> bytes:
    """Return the argument of `fcntl` for a lock of `size` bytes.

    With size 0, the lock reaches to the end of the file, however far it grows.
    """
    return _FLOCK.pack(kind, os.SEEK_SET, at, size, 0)


class _ByteLocks(NamedTuple):
    """The arguments of `fcntl` that lock and unlock one byte far beyond the end of the data file."""

    shared: bytes
    exclusive: bytes
    free: bytes

    @classmethod
    def at(cls, at: int) -> _ByteLocks:
        return cls(range_lock(fcntl.F_RDLCK, at), range_lock(fcntl.F_WRLCK, at), range_lock(fcntl.F_UNLCK, at))


_PRESENCE = _ByteLocks.at(2**62)
_OPENING = _ByteLocks.at(2**62 + 3)
_WRITABLE = _ByteLocks.at(2**62 + 4)
_FINISHING = _ByteLocks.at(2**62 + 5)
_UNTABLED = _ByteLocks.at(2**62 + 6)
_LMDB_ANY = range_lock(fcntl.F_WRLCK, 0)
"""The argument of `fcntl` that tests whether any process has LMDB's lock file open. Each such process holds a lock on
the first byte.
"""

_FORMER_TIMEOUT_S = 1.0
"""How long an opening process waits for an exiting process, which releases its locks one after another."""


class FileLocks:
    """The locks of one open data file.

    The owner of the descriptor closes it, which releases the locks.

    Attributes:
        file: checks whether the path still leads to the data file.
    """

    __slots__ = ("_file_kind", "_path", "descriptor", "file", "supported", "writer")

    def __init__(self, descriptor: int, path: Path) -> None:
        self.descriptor = descriptor
        self.supported = _SET_LOCK >= 0
        self._file_kind = fcntl.LOCK_SH
        self._path = path
        self.file = FileIdentity(descriptor, path)
        self.writer: WriterLock | None = None
        """The writer lock, if the store is open for writing."""

    def acquire_presence(self, timeout_s: float) -> None:
        """Register this process as a user of the store.

        Raises:
            StoreLockedError: another process has the store open exclusively. Facts: path, timeout_s.
        """
        self._acquire(_PRESENCE.shared, timeout_s)
        if not self.supported:
            self._until(self._try_file, timeout_s)

    @contextlib.contextmanager
    def opening(self, timeout_s: float, *, read_only: bool) -> Iterator[None]:
        """Register this process as a user of the store. Other processes cannot open it while the `with` block runs.

        On a system without OFD locks, if this process opens the store for writing, other processes cannot open it until
        this process closes it.

        Raises:
            StoreLockedError: another process is opening the store, or has it open exclusively. Facts: path, timeout_s.
        """
        self._acquire(_OPENING.shared if read_only else _OPENING.exclusive, timeout_s)
        if not (self.supported or read_only):
            self._file_kind = fcntl.LOCK_EX
        try:
            self.acquire_presence(timeout_s)
            if not read_only:
                # This lock keeps other processes from ending the current session of the WAL.
                self._acquire(_WRITABLE.shared, timeout_s)
            yield
        except BaseException:
            self._try(_PRESENCE.free)
            raise
        finally:
            if self.supported:
                set_lock(self.descriptor, _OPENING.free)

    @contextlib.contextmanager
    def moving(self, timeout_s: float) -> Iterator[None]:
        """Keep other processes from opening the file while the `with` block replaces it.

        Raises:
            StoreLockedError: other processes are still opening the file at the timeout. Facts: path, timeout_s.
        """
        self._acquire(_OPENING.exclusive, timeout_s)
        try:
            yield
        finally:
            self._try(_OPENING.free)

    @contextlib.contextmanager
    def closing(self) -> Iterator[bool]:
        """Keep other processes from opening the store while the `with` block closes it.

        Yield True if no other process has the store open for writing.
        """
        if not self.supported:
            yield self._flock(fcntl.LOCK_EX)
            return
        is_alone = is_left = False
        try:
            with contextlib.suppress(StoreLockedError):
                self._acquire(_OPENING.exclusive, _CLOSING_TIMEOUT_S)
                is_alone = self._try(_WRITABLE.exclusive)
            yield is_alone
            is_left = True
        finally:
            # Release `_WRITABLE` first, so that the next process that holds `_OPENING` can see whether it is alone.
            if self.supported:
                set_lock(self.descriptor, _WRITABLE.free if is_left else _WRITABLE.shared)
                set_lock(self.descriptor, _OPENING.free)

    def is_open_for_writing(self) -> bool:
        """Return True if another process has the store open for writing."""
        return is_held(self.descriptor, _WRITABLE.exclusive)

    def is_open_elsewhere(self) -> bool:
        """Return True if another process has the store open, or if this cannot be determined."""
        return not self.supported or is_held(self.descriptor, _PRESENCE.exclusive)

    def check_lock_file(self, descriptor: int) -> None:
        """Raise StoreReplacedError if other users of this data file use a different lock file.

        Call this before an environment is opened. Two cases are errors:

        - The lock file is in use, but the data file is not. Its users have a different data file open, and LMDB would
          use the number of that file's last commit to read this file, and read a wrong commit or none.
        - The data file is in use, but the lock file is not. Its users have a removed lock file open, or have lost their
          locks on this one. LMDB would assume that it is alone, and would not see their commits and snapshots.

        Raises:
            StoreReplacedError: another process has an earlier data file of this path open, or uses a different lock
                file. Facts: path.
        """
        deadline = time.monotonic() + _FORMER_TIMEOUT_S
        while self.supported:
            is_used, is_open = is_held(descriptor, _LMDB_ANY), self.is_open_elsewhere()
            if is_used == is_open or (is_open and self._may_be_open_without()):
                return
            if time.monotonic() >= deadline:
                raise former_error(self._path) if is_used else lock_file_error(self._path)
            time.sleep(_PAUSE_S_MAX)

    def _may_be_open_without(self) -> bool:
        """Return True if another process may have the data file open without LMDB's lock file, at least for now."""
        return is_held(self.descriptor, _OPENING.exclusive) or is_held(self.descriptor, _UNTABLED.exclusive)

    def note_untabled(self) -> None:
        """Register this process as a reader without LMDB's lock file, for example on a read-only file system."""
        self._try(_UNTABLED.shared)

    def try_exclusive(self) -> bool:
        """Keep all other processes from using the store. Return False if any other process has it open."""
        if self.supported and not self._try(_PRESENCE.exclusive):
            return False
        return self.supported or self._flock(fcntl.LOCK_EX)

    def acquire_writer(self, timeout_s: float) -> None:
        """Acquire the writer lock.

        Raises:
            StoreLockedError: another process wrote until the timeout. Facts: path, timeout_s.
        """
        if self.writer is not None:
            self.writer.acquire(timeout_s)

    def release_writer(self) -> None:
        """Release the writer lock."""
        if self.writer is not None:
            self.writer.release()

    @contextlib.contextmanager
    def writing(self, timeout_s: float) -> Iterator[None]:
        """Hold the writer lock while the `with` block runs. Raises StoreLockedError, as `acquire_writer` does."""
        if self.writer is None or self.writer.is_held:
            yield
            return
        try:
            self.acquire_writer(timeout_s)
            yield
        finally:
            try:
                self.release_writer()
            except BaseException:  # An interrupt may have come just as the release began, so release the lock again.
                self.release_writer()
                raise

    @contextlib.contextmanager
    def finishing_checkpoint(self, timeout_s: float, *, is_awaited: bool) -> Iterator[bool]:
        """Let one process at a time finish a checkpoint in its `with` block. Yield True if this process may do so.

        Raises:
            StoreLockedError: `is_awaited` is True, and another process did not finish a checkpoint in time. Facts:
                path, timeout_s.
        """
        if is_awaited:
            self._acquire(_FINISHING.exclusive, timeout_s)
        elif not self._try(_FINISHING.exclusive):
            yield False
            return
        try:
            yield True
        finally:
            self._try(_FINISHING.free)

    def _acquire(self, lock: bytes, timeout_s: float) -> None:
        self._until(lambda: self._try(lock), timeout_s)

    def _until(self, is_taken: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        pause_s = _PAUSE_S_MIN
        while not is_taken():
            if time.monotonic() >= deadline:
                raise locked_error(self._path, timeout_s)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    def _try_file(self) -> bool:
        """Lock the whole file. On a system without OFD locks, this shows other processes that the store is in use.

        Returns:
            False if another process has a conflicting lock, otherwise True, even if the file system has no such locks.
        """
        try:
            fcntl.flock(self.descriptor, self._file_kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            _raise_foreign(error)
        return True

    def _flock(self, kind: int) -> bool:
        """Change the lock of the whole file to `kind`. Return False if another process has a conflicting lock."""
        try:
            fcntl.flock(self.descriptor, kind | fcntl.LOCK_NB)
        except OSError as error:
            _raise_foreign(error)
            self._try_file()  # The failed request has released the previous lock, so take it again.
            return False
        return True

    def _try(self, lock: bytes) -> bool:
        """Acquire a lock if it is free. On a system without such locks, return True."""
        if not self.supported:
            return True
        try:
            set_lock(self.descriptor, lock)
        except OSError as error:
            if error.errno in _BUSY_ERRNOS:
                return False
            if error.errno not in _MISSING_ERRNOS:
                raise
            self.supported = False
        return True


def set_lock(descriptor: int, lock: bytes) -> None:
    """Take or release an OFD lock. Raises OSError: BlockingIOError if others hold the lock."""
    fcntl.fcntl(descriptor, _SET_LOCK, lock)


def is_held(descriptor: int, lock: bytes) -> bool:
    """Return True if a lock of another process, or a POSIX lock of this process, keeps this descriptor from `lock`."""
    try:
        lock = fcntl.fcntl(descriptor, _GET_LOCK, lock)
    except OSError as error:
        _raise_foreign(error)
        return False
    kind: int = _FLOCK.unpack(lock)[0]
    return kind != fcntl.F_UNLCK


def locked_error(path: Path, timeout_s: float) -> StoreLockedError:
    """Return the error for a lock that another process did not release before the timeout."""
    message = f"{path} was locked by another process for {timeout_s:g} s"
    return StoreLockedError(message, path=str(path), timeout_s=timeout_s)


def is_same_file(path: Path, descriptor: int) -> bool:
    """Return True if `path` still leads to the open file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError as error:
        _raise_foreign(error)
        return False


def _raise_foreign(error: OSError) -> None:
    """Raise `error` again if a signal handler raised it (a TimeoutError), not the operating system."""
    if not is_of_system(error):
        raise error


is_owned = methodcaller("_is_owned")
"""A function that returns True if this thread holds a re-entrant lock. `threading.Condition` calls the same method."""
