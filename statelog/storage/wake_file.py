"""The file by which those who wait for commits are woken, beside the store: made by the first who waits.

It is not LMDB's lock file, which LMDB remakes at will and whose plain closing would drop its locks. Beside the store it
reaches every process that has the store's directory, in whichever container.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from statelog.errors import CorruptionError
from statelog.storage.file.descriptors import open_file, open_side_file

if TYPE_CHECKING:
    from pathlib import Path

try:
    from statelog import kernels
except ImportError:  # not compiled: poll
    kernels = None  # type: ignore[assignment]

_MAGIC = b"slgwake1"
_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK


class WakeFile(NamedTuple):
    """A file that is mapped."""

    slots: kernels.WakeSlots
    identity: tuple[int, int]
    """Device and inode."""


def wake_path(path: Path) -> Path:
    """Return where the wake-up file of a store lies."""
    return path.with_name(f"{path.name}-wake")


def identity_of(own: str) -> tuple[int, int] | None:
    """Return device and inode of what has a name; None if nothing has."""
    try:
        status = os.lstat(own)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def map_wake_file(own: str, store: os.stat_result, *, create: bool) -> WakeFile | None:
    """Map the file; None if it is not to be trusted, or is none.

    Args:
        own: its path.
        store: status of the data file.
        create: make it, if there is none.

    Raises:
        OSError: there is none, and none can be made.
    """
    if kernels is None:
        return None
    flags = os.O_RDWR | _FLAGS
    descriptor = open_side_file(own, flags, store) if create else open_file(own, flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in {store.st_uid, os.geteuid()}:
            return None  # anyone may put a file there: trust only our own, and the store's owner
        if not _is_own(descriptor):
            return None
        if status.st_size < kernels.WAKE_FILE_SIZE_BYTES:
            if not create:
                return None
            _lengthen(descriptor, status.st_size)
        mapped = mmap.mmap(descriptor, kernels.WAKE_FILE_SIZE_BYTES)
        with contextlib.suppress(CorruptionError):
            return WakeFile(kernels.WakeSlots(mapped), (status.st_dev, status.st_ino))
        return None
    finally:
        os.close(descriptor)


def remove_wake_file(path: Path) -> None:
    """Remove the file of a store, and no other of its name; only for one who knows that nobody else has it open."""
    with contextlib.suppress(OSError):
        descriptor = open_file(wake_path(path), os.O_RDONLY | _FLAGS)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode) and _is_own(descriptor):
                wake_path(path).unlink()
        finally:
            os.close(descriptor)


def _is_own(descriptor: int) -> bool:
    """Tell whether a file is a wake-up file, or the beginning of one: zeros."""
    start = os.pread(descriptor, len(_MAGIC), 0)
    return start == _MAGIC or not any(start)


def _lengthen(descriptor: int, size_bytes: int) -> None:
    """Give the file its size. A hole would not do: a full disk could not fill it, which kills who writes there."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, kernels.WAKE_FILE_SIZE_BYTES)
    else:
        os.pwrite(descriptor, bytes(kernels.WAKE_FILE_SIZE_BYTES - size_bytes), size_bytes)
