"""Translates errors from LMDB and the operating system into statelog's exceptions."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import lmdb

from statelog.errors import (
    AccessError,
    CorruptionError,
    FormatError,
    LimitError,
    StatelogError,
    StorageError,
    StoreFullError,
    StoreLockedError,
    StoreNotFoundError,
)
from statelog.limits import READER_SLOTS

if TYPE_CHECKING:
    from pathlib import Path

DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The error codes of a full disk, an exhausted user quota, and a file at its size limit."""

_ACCESS_ERRNOS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_DAMAGE = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.InvalidError,
    lmdb.BadTxnError,  # After one call of a transaction has met damage, all later calls raise this.
    lmdb.IncompatibleError,
    lmdb.CursorFullError,
)


def is_full(error: BaseException) -> bool:
    """Return True if there is no room left in the map or on the disk."""
    if isinstance(error, lmdb.MapFullError):
        return True
    if isinstance(error, OSError):
        return error.errno in DISK_FULL_ERRNOS
    return isinstance(error, lmdb.Error) and error_code(error) in DISK_FULL_ERRNOS


def is_of_lmdb(error: BaseException) -> bool:
    """Return True if LMDB raised `error`."""
    return isinstance(error, lmdb.Error)


def is_map_full(error: BaseException) -> bool:
    """Return True if LMDB found no free page in its map."""
    return isinstance(error, lmdb.MapFullError)


def error_code(error: BaseException) -> int:
    """Return LMDB's code (negative) or the errno; 0 if LMDB was not called, for example on a closed environment."""
    return getattr(error, "code", 0)


def translate_lmdb(error: lmdb.Error, *, path: Path, max_size_bytes: int) -> StatelogError:
    """Return the statelog exception for an error raised by LMDB. The caller raises it `from` the original error."""
    if is_full(error):
        disk_full = not isinstance(error, lmdb.MapFullError)
        return full_error(path=path, max_size_bytes=max_size_bytes, disk_full=disk_full)
    if isinstance(error, _DAMAGE):
        return CorruptionError(f"{path}: LMDB found damage: {error}", path=str(path))
    if isinstance(error, lmdb.VersionMismatchError):
        return FormatError(f"{path} has a different LMDB format: {error}", path=str(path))
    if isinstance(error, lmdb.ReadersFullError):
        message = f"{path}: more than {READER_SLOTS} transactions read at once"
        return LimitError(message, path=str(path), limit=READER_SLOTS, actual=READER_SLOTS + 1)
    if isinstance(error, lmdb.BadValsizeError):
        return LimitError(f"{path}: LMDB does not accept a key or value: {error}", path=str(path))
    if isinstance(error, lmdb.MemoryError):
        message = f"{path}: cannot reserve {max_size_bytes} bytes of address space: open with a smaller max_size_bytes"
        return StorageError(message, path=str(path), max_size_bytes=max_size_bytes)
    if isinstance(error, lmdb.LockError):
        return StoreLockedError(f"{path} is locked by another process: {error}", path=str(path))
    if error_code(error) in _ACCESS_ERRNOS:
        return AccessError(f"{path} or its lock file: no permission: {error}", path=str(path))
    return StorageError(f"{path}: {error}", path=str(path))


def full_error(*, path: Path, max_size_bytes: int, disk_full: bool) -> StoreFullError:
    """Return the error for a full store: its quota or the disk is full."""
    if disk_full:
        message = f"{path} cannot grow: the disk is full; reading, retention and deletion still work"
        return StoreFullError(message, path=str(path), full="disk")
    message = f"{path} is full: its quota of {max_size_bytes} bytes is used up; reading still works"
    return StoreFullError(message, path=str(path), full="quota", max_size_bytes=max_size_bytes, limit=max_size_bytes)


def is_of_system(error: BaseException) -> bool:
    """Return True if the operating system or LMDB raised `error`.

    Return False for a TimeoutError raised by a signal handler, which has no errno.
    """
    return isinstance(error, lmdb.Error) or (isinstance(error, OSError) and error.errno is not None)


def translate_os(error: OSError, *, path: Path) -> StatelogError:
    """Return the statelog exception for an error that the operating system reports about `path`.

    If a signal handler raised `error`, raise it again.
    """
    if not is_of_system(error):
        raise error
    facts = {"path": str(path)}
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return StoreNotFoundError(f"no store at {path}", **facts)
    if isinstance(error, IsADirectoryError):
        return FormatError(f"{path} is a directory, not a store", **facts)
    if error.errno in _ACCESS_ERRNOS:
        return AccessError(f"no permission for {path}: {error.strerror}", **facts)
    if error.errno in DISK_FULL_ERRNOS:
        return StoreFullError(f"the disk has no room for {path}: {error.strerror}", full="disk", **facts)
    return StorageError(f"{path}: {error.strerror}", **facts)
