"""The registry of store files: one store file for each file that this process has open.

LMDB uses POSIX locks, which belong to the process, so opening a file twice in one process would break them. A second
opening therefore shares the store file of the first. The registry finds it by its real path, or by its device and inode
numbers, because a hard link leads to the same file.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from statelog.errors import ForkedError, FormatError, StorageError, StoreLockedError, StoreNotFoundError, UsageError
from statelog.storage.file.creation import create_store, remove_leftovers
from statelog.storage.file.descriptors import open_file
from statelog.storage.file.failures import is_of_system, translate_os
from statelog.storage.file.file_identity import replaced_error
from statelog.storage.file.locks import is_same_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.format.mac import StoreKey
    from statelog.storage.lmdb_file import LmdbFile

_ATTEMPTS = 10


class RegisteredFile(Protocol):
    """The methods of a store file that the registry calls. See `StoreFile`."""

    path: Path
    lmdb_file: LmdbFile
    inode: tuple[int, int]
    references: int

    def follow(self) -> None:
        """Continue with the file that has replaced this one in a compaction."""

    def shut(self) -> None:
        """Close the store file."""

    def rest_for_fork(self) -> None:
        """Prepare for a fork of the process."""

    def go_on_after_fork(self) -> None:
        """Continue in the parent process."""

    def abandon_after_fork(self) -> bool:
        """Close the child's copy. Return False if LMDB has to stay open."""


_lock = threading.RLock()
_by_path: dict[Path, RegisteredFile] = {}
_by_inode: dict[tuple[int, int], RegisteredFile] = {}
_unusable: set[tuple[int, int]] = set()
"""The device and inode of files that this process can never open, because it was forked within a transaction."""


def acquire(
    path: Path,
    make: Callable[[Path, int], RegisteredFile],
    *,
    writable: bool,
    create: bool,
    key: StoreKey | None = None,
) -> RegisteredFile:
    """Return the store file at `path`, with one more reference.

    Args:
        path: the path of the data file. Symbolic links are followed.
        make: creates the store file if the data file is not open yet. It gets the real path and a descriptor, which it
            then owns.
        writable: open the descriptor for writing.
        create: create the store if there is no file.
        key: the key of a new store, or None for a store without a key.
    """
    with _lock:
        real = real_path(path)
        opened = _find(real)
        # An earlier close was interrupted after it closed LMDB, so complete it.
        if opened is not None and opened.lmdb_file.closed:
            _end(opened)
            opened = None
        for _ in range(_ATTEMPTS):
            if opened is None:
                opened = _make(real, make, writable=writable, create=create, key=key)
        if opened is None:
            message = f"{real} was replaced repeatedly while it was being opened"
            raise StorageError(message, path=str(real))
        opened.references += 1
        return opened


def real_path(path: str | os.PathLike[str]) -> Path:
    """Return an absolute path, with symbolic links resolved.

    Raises:
        StoreNotFoundError: the path is relative, and the working directory was removed. Facts: path.
        AccessError, StorageError: the operating system reports a different error. Facts: path.
    """
    try:
        return Path(os.path.realpath(path))
    except FileNotFoundError as error:
        message = f"{os.fspath(path)} does not exist: the working directory was removed"
        raise StoreNotFoundError(message, path=os.fspath(path)) from error
    except OSError as error:
        raise translate_os(error, path=Path(path)) from error


def _make(
    real: Path,
    make: Callable[[Path, int], RegisteredFile],
    *,
    writable: bool,
    create: bool,
    key: StoreKey | None,
) -> RegisteredFile | None:
    """Open a file that is not open yet. Return None if another process has replaced the file during the opening."""
    descriptor = open_data_file(real, writable=writable, create=create, key=key)
    try:
        opened = make(real, descriptor)
    except BaseException as error:
        is_replaced = isinstance(error, StorageError) and not is_same_file(real, descriptor)
        os.close(descriptor)
        if is_replaced:
            return None
        if isinstance(error, OSError):  # A special file may not be readable at offset 0.
            raise translate_os(error, path=real) from error
        raise
    if not is_same_file(real, descriptor):
        opened.shut()
        return None
    _by_path[real] = opened
    note_inode(opened)
    return opened


def note_inode(opened: RegisteredFile) -> None:
    """Register a store file under the device and inode of its open file."""
    if _by_inode.get(opened.inode) is opened:
        del _by_inode[opened.inode]
    status = os.fstat(opened.lmdb_file.locks.descriptor)
    opened.inode = (status.st_dev, status.st_ino)
    _by_inode[opened.inode] = opened


def release(opened: RegisteredFile) -> None:
    """Release one reference. The last release closes the store file."""
    with _lock:
        if opened.references == 0 or opened.lmdb_file.process_id != os.getpid():
            return
        if opened.references == 1:
            _end(opened)
        opened.references -= 1


def _end(opened: RegisteredFile) -> None:
    """Close a store file, and remove it from the registry."""
    opened.shut()
    if _by_path.get(opened.path) is opened:
        del _by_path[opened.path]
    if _by_inode.get(opened.inode) is opened:
        del _by_inode[opened.inode]


def _find(real: Path) -> RegisteredFile | None:
    """Return the open store file of a path, or None.

    Raises:
        ForkedError: this process was forked within a transaction on that file. Facts: path.
        StoreReplacedError: the path used to lead to a file that this process has open. That file was moved away, or it
            was replaced and is still in use. Facts: path.
    """
    former = _by_path.get(real)
    try:
        status = real.stat()
    except OSError as error:
        if not is_of_system(error):
            raise
        if former is not None:
            raise replaced_error(real) from error
        return None
    inode = (status.st_dev, status.st_ino)
    if inode in _unusable:
        message = f"{real} cannot be opened here: this process was forked during one of its transactions"
        raise ForkedError(message, path=str(real))
    opened = _by_inode.get(inode)
    if opened is None and former is not None and former.lmdb_file.has_moved:
        former.follow()
        return former
    if opened is None and former is not None:
        try:
            former.lmdb_file.locks.file.is_kept()  # This marks the old file as lost, so that its users get an error.
            _end(former)
        except (UsageError, StoreLockedError):
            raise replaced_error(real) from None
    return opened


def open_data_file(real: Path, *, writable: bool, create: bool, key: StoreKey | None = None) -> int:
    """Open the data file for checks and locks. Return its descriptor."""
    flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_NONBLOCK
    for attempt in range(_ATTEMPTS):
        try:
            descriptor = open_file(real, flags)
            break
        except OSError as error:
            if not isinstance(error, FileNotFoundError) or not create or attempt == _ATTEMPTS - 1:
                raise translate_os(error, path=real) from error
        create_store(real, key=key)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        message = f"{real} is not a regular file"
        raise FormatError(message, path=str(real))
    # A process that was killed while creating the store may have left the temporary name of the file.
    if writable and status.st_nlink > 1:
        remove_leftovers(real)
    return descriptor


def _close_at_exit() -> None:
    """Close the open stores when the interpreter exits, so that no sidecar files remain."""
    with _lock:
        for opened in list(_by_path.values()):
            if opened.lmdb_file.process_id == os.getpid():
                with contextlib.suppress(Exception):
                    opened.shut()


def _before_fork() -> None:
    """Shut every gate, so that a child can close its copies without affecting the parent."""
    _lock.acquire()
    for opened in _by_path.values():
        opened.rest_for_fork()


def _after_fork_in_parent() -> None:
    for opened in _by_path.values():
        opened.go_on_after_fork()
    _lock.release()


def _after_fork_in_child() -> None:
    """Close the child's copies of the parent's store files. The child may then open the files."""
    for opened in _by_path.values():
        if not opened.abandon_after_fork():
            _unusable.add(opened.inode)
    _by_path.clear()
    _by_inode.clear()
    _lock.release()


atexit.register(_close_at_exit)
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
