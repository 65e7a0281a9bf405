"""Which files this process has open: each once, however it is called.

Opening a file twice in one process breaks LMDB's locks (design: POSIX locks belong
to the process), so a second opening shares the first one's environment. Files are
known by device and inode as well as by real path: a hard link is the same file.
"""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from statelog.errors import FormatError, StorageError
from statelog.storage.creation import create_store, remove_leftovers
from statelog.storage.failures import translate_os

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.storage.environment import Environment

_ATTEMPTS = 10

_lock = threading.RLock()
_by_path: dict[Path, Environment] = {}
_by_inode: dict[tuple[int, int], Environment] = {}
_inherited: list[Environment] = []
"""Environments of the parent, in a forked child: kept, since to close one would disturb the parent."""


def acquire(path: Path, make: Callable[[Path, int], Environment], *, writable: bool, create: bool) -> Environment:
    """Return the environment of the file at `path`, with one more reference.

    Args:
        path: symbolic links are followed.
        make: builds the environment of a file not yet open, from its real path and a
            descriptor of it that the environment then owns.
        writable: whether the descriptor must be.
        create: make a store where there is no file.
    """
    with _lock:
        real = Path(os.path.realpath(path))
        environment = _find(real)
        for _ in range(_ATTEMPTS):
            if environment is None:
                environment = _make(real, make, writable=writable, create=create)
        if environment is None:
            message = f"{real} was replaced again and again while it was being opened"
            raise StorageError(message, path=str(real))
        environment.references += 1
        return environment


def _make(real: Path, make: Callable[[Path, int], Environment], *, writable: bool, create: bool) -> Environment | None:
    """Open a file that is not open yet; None if another process put a new file in its place meanwhile."""
    descriptor = _open_file(real, writable=writable, create=create)
    try:
        environment = make(real, descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    status = os.fstat(descriptor)
    if not _is_same_file(real, status):
        environment.shut()
        return None
    environment.inode = (status.st_dev, status.st_ino)
    _by_path[real] = _by_inode[environment.inode] = environment
    return environment


def release(environment: Environment) -> None:
    """Give one reference back; the last one closes the environment."""
    with _lock:
        if environment.references == 0 or environment.process_id != os.getpid():
            return
        if environment.references == 1:
            environment.shut()
            _by_path.pop(environment.path)
            _by_inode.pop(environment.inode)
        environment.references -= 1


def _find(real: Path) -> Environment | None:
    """Return the open environment of that file, if there is one.

    Raises:
        StorageError: the file was moved away or replaced while open here. Facts: path.
    """
    try:
        status = real.stat()
        environment = _by_inode.get((status.st_dev, status.st_ino))
    except OSError:
        environment = None
    if environment is None and real in _by_path:
        message = f"{real} was replaced or removed while open in this process: close it first"
        raise StorageError(message, path=str(real))
    return environment


def _open_file(real: Path, *, writable: bool, create: bool) -> int:
    """Open the data file by itself, for checks and locks."""
    flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC | os.O_NONBLOCK
    for attempt in range(_ATTEMPTS):
        try:
            descriptor = os.open(real, flags)
            break
        except OSError as error:
            if not isinstance(error, FileNotFoundError) or not create or attempt == _ATTEMPTS - 1:
                raise translate_os(error, path=real) from error
        create_store(real)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        message = f"{real} is not a regular file"
        raise FormatError(message, path=str(real))
    if writable and status.st_nlink > 1:  # a creation killed between link and unlink
        remove_leftovers(real)
    return descriptor


def _is_same_file(real: Path, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(real.stat(), status)
    except OSError:
        return False


def _forget_in_child() -> None:
    """After fork: the parent's environments are not ours; let go of their locks, and start afresh."""
    global _lock  # noqa: PLW0603 - the old one may be held by a thread that does not exist here
    _lock = threading.RLock()
    for environment in _by_path.values():
        environment.abandon()
        _inherited.append(environment)
    _by_path.clear()
    _by_inode.clear()


os.register_at_fork(after_in_child=_forget_in_child)
