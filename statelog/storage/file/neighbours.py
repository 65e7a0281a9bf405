"""What lies beside a data file under names that belong to it: its journal, its control page, and LMDB's lock file.

Whatever else somebody keeps there is neither read, written over nor removed.
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
"""A lock file of LMDB's begins with it; in a data file it stands behind the head of the first page."""

_META_MAGIC_AT = 16
_NO_FILE_ERRNOS = frozenset({errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENODEV})
_ASIDE_MAX = 1000


def journal_path(path: Path) -> Path:
    """Return where the journal of a store lies."""
    return path.with_name(f"{path.name}-journal")


def lock_path(path: Path) -> Path:
    """Return where LMDB's lock file of a store lies."""
    return path.with_name(f"{path.name}-lock")


def is_lock_file(descriptor: int) -> bool:
    """Tell whether a file is a lock file of LMDB's."""
    return os.pread(descriptor, len(_MAGIC), 0) == _MAGIC


def open_journal(path: Path, *, store: os.stat_result | None = None) -> int:
    """Open the journal of the store at `path` for reading and writing.

    Args:
        path: of the data file.
        store: its status, if a journal is to be made where there is none.

    Raises:
        FileNotFoundError: there is none, and none is to be made.
        FormatError: what lies there is no file. Facts: path, journal.
        AccessError, StoreFullError, StorageError: the system refuses. Facts: path, of the journal.
    """
    return open_own(path, journal_path(path), store=store)


def open_own(path: Path, own: Path, *, store: os.stat_result | None = None) -> int:
    """Open a file of the store at `path`, as `open_journal`, which names the errors. Fact journal: `own`."""
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
    """Return the error of a store that needs a name which something else has."""
    message = f"{other} {what}, and stands where {path} needs a file of its own: move it elsewhere"
    return FormatError(message, path=str(path), journal=str(other))


def missing_error(path: Path) -> JournalMissingError:
    """Return the error of a store that was not closed and has no journal."""
    what = (
        "was not closed, and its journal {} is missing: what was committed last, up to some seconds or megabytes, may"
        " be lost, and the file be damaged; `statelog recover --without-journal` goes on without it"
    )
    return _of_both(JournalMissingError, path, what)


def older_error(path: Path) -> FormatError:
    """Return the error of a store that an older release has open, or has left unclosed."""
    message = (
        f"{path} was not closed by an older release of statelog, or is open in one: open it with that release, which"
        " reads its journal, and close it; then this one opens it"
    )
    return FormatError(message, path=str(path), journal=str(journal_path(path)))


def removed_error(path: Path) -> JournalMissingError:
    """Return the error of a store in use whose journal somebody has taken away."""
    what = (
        "has lost its journal {}, which was removed while the store is in use: nothing is written any more; close the"
        " store, which puts all that was committed into the file, and open it again"
    )
    return _of_both(JournalMissingError, path, what)


def misfit_error(path: Path, what: str) -> CorruptionError:
    """Return the error of a store that was not closed and cannot be recovered with the journal that it has."""
    way_out = (
        "`statelog salvage` saves what is whole in both files, `statelog recover --without-journal` goes on with what"
        " the first one has alone"
    )
    return _of_both(CorruptionError, path, f"was not closed, and {what} ({{}}); {way_out}")


def _of_both(kind: type[Error], path: Path, what: str) -> Error:
    """Return an error about a store and its journal, whose name takes the place of the braces."""
    journal = journal_path(path)
    return kind(f"{path} {what.replace('{}', journal.name)}", path=str(path), journal=str(journal))


def broken_error(path: Path) -> StorageError:
    """Return the error of a store of which a flush has failed."""
    message = (
        f"{path}: a flush failed, and what was written since may be lost: close the store, in every process that"
        " has it open, and open it again"
    )
    return StorageError(message, path=str(path))


def check_before_creation(path: Path) -> None:
    """Raise FormatError where there is no store, but something that bears the name of its journal."""
    journal = journal_path(path)
    try:
        status = journal.lstat()
    except OSError:
        return
    is_empty = stat.S_ISREG(status.st_mode) and not status.st_size
    if not is_empty and not path.exists():  # asked last: others make stores, too
        raise in_the_way_error(path, journal, "belongs to a store that is not there, or to none")


def open_lock_file(path: Path, locks: FileLocks, *, read_only: bool) -> int | None:
    """Open the lock file before LMDB opens it. If there is none, create it with the store's owner and mode.

    The content of an existing lock file does not matter, because it is never flushed: after a power failure, it may be
    anything.

    Returns:
        A descriptor, or None if LMDB reads without the file, on a read-only file system.

    Raises:
        FormatError: a store, a symbolic link, or something other than a regular file has its name. LMDB would overwrite
            it, or the target of the link. Facts: path, journal.
        StoreReplacedError: it belongs to an earlier data file of this path, which is still in use; or others use
            another lock file. Facts: path.
        AccessError, StoreFullError, StorageError: the operating system refuses. Facts: path, of the lock file.
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
    """Remove the journal of a store that is complete without. Raises OSError.

    Where the directory does not let this user remove it, it stays, and is a leftover: nobody reads it.
    """
    with contextlib.suppress(PermissionError):
        journal_path(path).unlink(missing_ok=True)


def set_aside(path: Path) -> Path | None:
    """Give the journal of the store at `path` another name, where nobody looks for it; None if there is none."""
    journal = journal_path(path)
    return rename_aside(journal) if os.path.lexists(journal) else None


def rename_aside(own: Path) -> Path:
    """Give a file another name, where nobody looks for it. Raises OSError."""
    names = (f"{own.name}-aside{number or ''}" for number in range(_ASIDE_MAX))
    aside = next(own.with_name(name) for name in names if not os.path.lexists(own.with_name(name)))
    own.rename(aside)
    return aside


def refuse_store(path: Path, own: Path, descriptor: int) -> None:
    """Raise FormatError if what bears the name of a store's own file is a store itself. Facts: path, journal."""
    start = os.pread(descriptor, _META_MAGIC_AT + len(_MAGIC), 0)
    if start[_META_MAGIC_AT:] == _MAGIC and not start.startswith(_MAGIC):
        raise in_the_way_error(path, own, "is a store")
