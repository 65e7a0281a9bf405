"""Bytes of a file: all of them written, and put on the disk."""

from __future__ import annotations

import errno
import os
import sys

_ZEROS = memoryview(bytes(64 * 1024))
_NO_FULL_FLUSH_ERRNOS = frozenset({errno.ENOTSUP, errno.EINVAL, errno.ENOTTY})


def write_all(descriptor: int, data: bytes, at: int) -> None:
    """Write bytes at a place in a file, in as many calls as the system takes. Raises OSError."""
    written = os.pwrite(descriptor, data, at)
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], at + written)


def write_zeros(descriptor: int, at: int, end: int) -> None:
    """Fill a part of a file with zeros. Raises OSError.

    Always the same few, which are in the processor's caches (measured: half of the time that fresh ones take). And not
    many at once: what one call writes Linux may keep as one folio, and ext4 goes through all blocks of a folio for
    whatever is written there later (measured: 3 us for a small write where 1 MB came at once, 1 us for 64 KB).
    """
    while at < end:
        at += os.pwrite(descriptor, _ZEROS[: end - at], at)


def flush_file(descriptor: int) -> None:
    """Return when what was written to a file is on the disk, its length included. Raises OSError.

    On macOS `fsync` leaves it in the drive's own cache, and there is no `fdatasync`.
    """
    if sys.platform != "darwin":
        os.fdatasync(descriptor)
        return
    import fcntl

    try:
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    except OSError as error:  # a network file system has none
        if error.errno not in _NO_FULL_FLUSH_ERRNOS:
            raise
        os.fsync(descriptor)
