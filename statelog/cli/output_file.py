"""Replaces the output file of a command atomically.

The old file stays until the new file is complete and on the disk. The next command removes temporary files that a
killed command has left.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
from typing import IO, TYPE_CHECKING

from statelog.errors import UsageError
from statelog.storage.file.creation import FILE_MODE, remove_leftovers, sync_directory
from statelog.storage.file.disk import flush_file
from statelog.storage.file.sidecar_files import journal_path, lock_path
from statelog.storage.notify.slot_file import wake_path
from statelog.storage.registry import real_path
from statelog.storage.wal.shared_state import shared_state_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TEMPORARY_SUFFIX = ".exporting"
_NAME_LENGTH_MAX = 50
"""The maximum number of characters of the target's name in the temporary name, because file systems limit names."""


def refuse_files_of(store: Path, target: Path) -> None:
    """Refuse to overwrite a store or one of its sidecar files. No file is opened.

    Raises:
        UsageError: `target` is one of these files, by any name.
    """
    real, resolved = real_path(store), str(real_path(target))
    for own in (real, lock_path(real), journal_path(real), shared_state_path(real), wake_path(real)):
        if resolved == str(own) or _is_same(own, target):
            message = f"{target} is a file of the store {store}: choose another output file"
            raise UsageError(message, path=str(target))


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


@contextlib.contextmanager
def opened_for_replacing(target: Path, *, like: Path) -> Iterator[IO[bytes]]:
    """Yield a stream that replaces the file `target`, or its link target, if the block succeeds.

    A pipe or a device is written directly.

    Args:
        target: the file.
        like: the file whose permissions a new file gets. An existing file keeps its permissions.

    Raises:
        OSError: with the name of `target`.
    """
    real = real_path(target)
    shortened = real.with_name(real.name[:_NAME_LENGTH_MAX])
    temporary = real.with_name(f".{shortened.name}.{secrets.token_hex(8)}{_TEMPORARY_SUFFIX}")
    try:
        status = _status(target)
        if status is not None and not (stat.S_ISREG(status.st_mode) and real.exists()):
            with target.open("wb") as stream:
                yield stream
                stream.flush()
            return
        if status is not None:
            os.close(os.open(real, os.O_WRONLY | os.O_CLOEXEC))  # Do not replace a write-protected file.
        with contextlib.suppress(OSError):  # If the directory cannot be read, leave them.
            remove_leftovers(shortened, suffix=_TEMPORARY_SUFFIX)
        with _temporary(temporary) as stream:
            _take_permissions(stream.fileno(), status, like)
            yield stream
            stream.flush()
            flush_file(stream.fileno())
            temporary.replace(real)
        sync_directory(real.parent)
    except OSError as error:
        if error.filename in (None, str(real), str(temporary)):
            error.filename = str(target)
        raise


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def _temporary(path: Path) -> Iterator[IO[bytes]]:
    """Create a file and remove it at the end of the block, unless it was renamed."""
    descriptor = _create_locked(path)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
    finally:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def _create_locked(path: Path) -> int:
    """Create a file and lock it while it is open, because `remove_leftovers` deletes unlocked files."""
    while True:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        with contextlib.suppress(OSError):  # Without locks, `remove_leftovers` deletes nothing either.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # Another process removed the file before the lock, so try again.


def _take_permissions(descriptor: int, status: os.stat_result | None, like: Path) -> None:
    """Give a file the owner and mode of the replaced file, or else the read and write permissions of `like`."""
    with contextlib.suppress(PermissionError):  # The file then stays owned by this user.
        if status is None:
            os.fchmod(descriptor, like.stat().st_mode & 0o666)
            return
        own = os.fstat(descriptor)
        if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
            os.fchown(descriptor, status.st_uid, status.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
