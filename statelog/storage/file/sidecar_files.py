"""The sidecar files of a data file: the write-ahead log (WAL), the shared state, and LMDB's lock file.

A foreign file with the name of a sidecar file is neither read nor overwritten nor removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from typing import TYPE_CHECKING, TypeVar

from statelog.errors import AccessError, CorruptionError, FormatError, JournalMissingError, StorageError
from statelog.storage.file.descriptors import open_file, open_side_file
from statelog.storage.file.failures import translate_os

if TYPE_CHECKING:
    from pathlib import Path

    from statelog.storage.file.locks import FileLocks

Error = TypeVar("Error", bound=CorruptionError)

_MAGIC = 0xBEEFC0DE.to_bytes(4, sys.byteorder)
"""The first bytes of LMDB's lock files. A data file has them after the header of its first page."""

_META_MAGIC_AT = 16
_NO_FILE_ERRNOS = frozenset({errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENODEV})
_ASIDE_MAX = 1000


def journal_path(path: Path) -> Path:
    """Return the path of the WAL of the store at `path`."""
    return path.with_name(f"{path.name}-journal")


def lock_path(path: Path) -> Path:
    """Return the path of LMDB's lock file of the store at `path`."""
    return path.with_name(f"{path.name}-lock")


def is_lock_file(descriptor: int) -> bool:
    """Return True if a file is a lock file of LMDB."""
    return os.pread(descriptor, len(_MAGIC), 0) == _MAGIC


def open_journal(path: Path, *, store: os.stat_result | None = None) -> int:
    """Open the WAL of the store at `path` for reading and writing.

    Args:
        path: the path of the data file.
        store: the status of the data file. If given, create the WAL if it does not exist.

    Raises:
        FileNotFoundError: there is no WAL, and `store` was not given.
        FormatError: something other than a regular file has the WAL's name. Facts: path, journal.
        AccessError, StoreFullError, StorageError: the operating system reports an error. Facts: path (of the WAL).
    """
    return open_own(path, journal_path(path), store=store)


def open_own(path: Path, own: Path, *, store: os.stat_result | None = None) -> int:
    """Open `own`, a sidecar file of the store at `path`.

    Raises the errors of `open_journal`. Their fact `journal` is the path `own`.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = open_file(own, flags) if store is None else open_side_file(own, flags, store)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in _NO_FILE_ERRNOS:
            raise in_the_way_error(path, own, "is not a regular file") from None
        raise translate_os(error, path=own) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise in_the_way_error(path, own, "is not a regular file")
    return descriptor


def in_the_way_error(path: Path, other: Path, what: str) -> FormatError:
    """Return the error for a store whose sidecar file needs a name that the foreign file `other` has."""
    message = f"{other} {what}, and {path} needs this name for its own file: move the other file elsewhere"
    return FormatError(message, path=str(path), journal=str(other))


def missing_error(path: Path) -> JournalMissingError:
    """Return the error for a store that was not closed and has no WAL."""
    what = (
        "was not closed, and its journal {} is missing: the last commits, up to some seconds or megabytes, may"
        " be lost, and the file may be damaged; `statelog recover --without-journal` continues without the journal"
    )
    return _of_both(JournalMissingError, path, what)


def older_error(path: Path) -> FormatError:
    """Return the error for a store that an older release has open, or did not close."""
    message = (
        f"{path} was not closed by an older release of statelog, or is still open in it: open it with that"
        " release, which"
        " reads its journal, and close it; then this release can open it"
    )
    return FormatError(message, path=str(path), journal=str(journal_path(path)))


def removed_error(path: Path) -> JournalMissingError:
    """Return the error for a store in use whose WAL was removed."""
    what = (
        "has lost its journal {}, which was removed while the store is in use: nothing more is written; close the"
        " store, which writes every commit into the file, and open it again"
    )
    return _of_both(JournalMissingError, path, what)


def misfit_error(path: Path, what: str) -> CorruptionError:
    """Return the error for a store that was not closed and that its WAL cannot recover."""
    way_out = (
        "`statelog salvage` saves the undamaged records of both files, `statelog recover --without-journal`"
        " continues with"
        " the records of the first file alone"
    )
    return _of_both(CorruptionError, path, f"was not closed, and {what} ({{}}); {way_out}")


def _of_both(kind: type[Error], path: Path, what: str) -> Error:
    """Return an error about a store and its WAL. The WAL's name replaces the `{}` in `what`."""
    journal = journal_path(path)
    return kind(f"{path} {what.replace('{}', journal.name)}", path=str(path), journal=str(journal))


def broken_error(path: Path) -> StorageError:
    """Return the error for a store after a failed flush."""
    message = (
        f"{path}: a flush failed, and later writes may be lost: close the store in every process that"
        " has it open, and open it again"
    )
    return StorageError(message, path=str(path))


def check_before_creation(path: Path) -> None:
    """Raise FormatError if there is no store at `path`, but a file with the name of its WAL."""
    journal = journal_path(path)
    try:
        status = journal.lstat()
    except OSError:
        return
    is_empty = stat.S_ISREG(status.st_mode) and not status.st_size
    # Check `path` last, because another process may be creating the store and its WAL.
    if not is_empty and not path.exists():
        raise in_the_way_error(path, journal, "belongs to a store that does not exist, or to no store")


def open_lock_file(path: Path, locks: FileLocks, *, read_only: bool) -> int | None:
    """Open the lock file before LMDB does. Create it with the store's owner and mode if it does not exist.

    The content of an existing lock file does not matter: it is never flushed, so a power failure may leave anything in
    it.

    Returns:
        A descriptor, or None if LMDB reads without a lock file because the file system is read-only.

    Raises:
        FormatError: a store, a symbolic link, or something other than a regular file has the lock file's name. LMDB
            would overwrite it, or the target of the link. Facts: path, journal.
        StoreReplacedError: the lock file belongs to an earlier data file of this path, which is still in use, or other
            processes use a different lock file. Facts: path.
        AccessError, StoreFullError, StorageError: the operating system reports an error. Facts: path (of the lock
            file).
    """
    lock_file = lock_path(path)
    try:
        descriptor = open_own(path, lock_file, store=os.fstat(locks.descriptor))
    except AccessError as error:
        if read_only and isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EROFS:
            return None
        raise
    try:
        locks.check_lock_file(descriptor)
        refuse_store(path, lock_file, descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def refuse_link(path: Path, own: Path) -> None:
    """Raise FormatError if `own`, a file of the store at `path`, is a symbolic link. Facts: path, journal."""
    if own.is_symlink():
        raise in_the_way_error(path, own, "is not a regular file")


def remove_journal(path: Path) -> None:
    """Remove the WAL of a store that is complete without it. Raises OSError.

    If the user may not remove files from the directory, the WAL stays as an unused leftover.
    """
    with contextlib.suppress(PermissionError):
        journal_path(path).unlink(missing_ok=True)


def set_aside(path: Path) -> Path | None:
    """Rename the WAL of the store at `path`. Return its new path, or None if there is no WAL."""
    journal = journal_path(path)
    return rename_aside(journal) if os.path.lexists(journal) else None


def rename_aside(own: Path) -> Path:
    """Rename a file to an unused name, and return its new path. Raises OSError."""
    names = (f"{own.name}-aside{number or ''}" for number in range(_ASIDE_MAX))
    aside = next(own.with_name(name) for name in names if not os.path.lexists(own.with_name(name)))
    own.rename(aside)
    return aside


def refuse_store(path: Path, own: Path, descriptor: int) -> None:
    """Raise FormatError if `own`, which has the name of a sidecar file, is a store. Facts: path, journal."""
    start = os.pread(descriptor, _META_MAGIC_AT + len(_MAGIC), 0)
    if start[_META_MAGIC_AT:] == _MAGIC and not start.startswith(_MAGIC):
        raise in_the_way_error(path, own, "is a store")
