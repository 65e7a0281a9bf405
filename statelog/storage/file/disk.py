"""Writes files completely, and flushes them."""

from __future__ import annotations

import errno
import os
import sys

_ZEROS = memoryview(bytes(64 * 1024))
_NO_FULL_FLUSH_ERRNOS = frozenset({errno.ENOTSUP, errno.EINVAL, errno.ENOTTY})


def write_all(descriptor: int, data: bytes, at: int) -> None:
    """Write bytes at an offset of a file, in as many calls as needed. Raises OSError."""
    written = os.pwrite(descriptor, data, at)
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], at + written)


def write_zeros(descriptor: int, at: int, end: int) -> None:
    """Fill a file with zeros from the offset `at` up to `end`. Raises OSError.

    The zeros come from one small buffer that stays in the processor's caches, which halves the time. One call writes up
    to 64 KB: Linux may keep the bytes of one call as one folio, and ext4 visits all blocks of a folio at each later
    write to it (a small write takes 3 us after a call of 1 MB, and 1 us after 64 KB).
    """
    while at < end:
        at += os.pwrite(descriptor, _ZEROS[: end - at], at)


def flush_file(descriptor: int) -> None:
    """Flush the content and the length of a file to the disk. Raises OSError.

    On macOS, use F_FULLFSYNC, because `fsync` leaves the content in the drive's cache, and there is no `fdatasync`.
    """
    if sys.platform != "darwin":
        os.fdatasync(descriptor)
        return
    import fcntl

    try:
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    except OSError as error:  # Some network file systems do not support F_FULLFSYNC.
        if error.errno not in _NO_FULL_FLUSH_ERRNOS:
            raise
        os.fsync(descriptor)
