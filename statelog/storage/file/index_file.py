"""The sidecar file of the text index: `agent.state-search`, a database of SQLite with a WAL and shared memory.

SQLite finds the WAL and the shared memory by their names. So a process opens, creates or removes a database only under
a lock of its directory. This keeps a process from opening a new database while another removes the files of the old
one. A process that has a removed database open notices that its path leads elsewhere (`is_same`), and opens the new
one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from statelog.errors import FormatError, StoreLockedError
from statelog.storage.file.descriptors import open_file, open_side_file
from statelog.storage.file.failures import translate_os
from statelog.storage.file.sidecar_files import in_the_way_error

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

APPLICATION_ID = 0x73_74_6C_73
"""The SQLite application id of an index, which distinguishes it from other databases."""

_SQLITE = b"SQLite format 3\0"
_START_SIZE_BYTES = 64 * 1024
"""A file that begins with this many zero bytes counts as an erased index. A disk image begins with fewer zeros."""
_LOCK_TIMEOUT_S = 10.0
_POLL_S = 0.005


def index_path(path: Path) -> Path:
    """Return the path of the text index of the store at `path`."""
    return path.with_name(f"{path.name}-search")


def _files(path: Path) -> list[Path]:
    """Return the paths of an index's files, the database last."""
    index = index_path(path)
    return [index.with_name(f"{index.name}{suffix}") for suffix in ("-wal", "-shm", "-journal", "")]


@contextmanager
def index_lock(path: Path) -> Iterator[None]:
    """While the `with` block runs, keep others from opening, creating or removing the index of the store at `path`.

    Raises:
        StoreLockedError: another process holds the lock too long. Facts: path.
        AccessError, StorageError: the directory cannot be opened. Facts: path.
    """
    try:
        descriptor = open_file(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise translate_os(error, path=path.parent) from error
    try:
        deadline_s = time.monotonic() + _LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES, errno.EINTR):
                    raise translate_os(error, path=path.parent) from error
                if time.monotonic() > deadline_s:
                    message = f"another process has locked the directory {path.parent} for {_LOCK_TIMEOUT_S:.0f} s"
                    raise StoreLockedError(message, path=str(path)) from None
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


def create_index(path: Path) -> None:
    """Create the index file with the store's owner and mode if it does not exist. The caller holds the lock.

    An existing file is not opened here, because closing it would release SQLite's locks on it in this process.

    Raises:
        FormatError: one of the index's file names is taken by a link, a folder or anything but a regular file. Facts:
            path, journal.
        AccessError, StoreFullError, StorageError: the operating system reports an error. Facts: path.
    """
    index = index_path(path)
    try:
        for own in _files(path):
            with suppress(FileNotFoundError):
                if not stat.S_ISREG(own.lstat().st_mode):
                    raise in_the_way_error(path, own, "is not a regular file")
        if not index.exists():
            os.close(open_side_file(index, os.O_RDWR | os.O_NOFOLLOW, path.stat()))
    except OSError as error:
        raise translate_os(error, path=index) from error


def refuse_foreign(path: Path) -> None:
    """Raise FormatError if the file with the index's name does not begin like an index. Facts: path, journal.

    A file that begins with zeros counts as an index that a power failure has erased.
    """
    with index_path(path).open("rb") as file:
        start = file.read(_START_SIZE_BYTES)
    if any(start) and not _SQLITE.startswith(start[: len(_SQLITE)]):
        raise foreign_error(path)


def foreign_error(path: Path) -> FormatError:
    """Return the error for a store whose index needs a file name that a foreign file has."""
    return in_the_way_error(path, index_path(path), "is not a text index")


def remove_index(path: Path) -> None:
    """Remove the files of the index. The caller holds the lock. Raises AccessError, StorageError. Facts: path."""
    for own in _files(path):
        try:
            own.unlink(missing_ok=True)
        except OSError as error:
            raise translate_os(error, path=own) from error


def discard_index(path: Path) -> None:
    """Remove the index of the store at `path` if it exists, so that no byte of removed texts stays in its files.

    A symbolic link with the index's name stays. The next search creates a new index.

    Raises:
        StoreLockedError, AccessError, StorageError: the errors of `index_lock` and `remove_index`. Facts: path.
    """
    index = index_path(path)
    if index.is_file() and not index.is_symlink():
        with index_lock(path):
            remove_index(path)


def inode_of(path: Path | str) -> int:
    """Return the inode of a file, or 0 if there is no file."""
    try:
        return os.stat(path).st_ino  # noqa: PTH116 - each search calls this
    except OSError:
        return 0
