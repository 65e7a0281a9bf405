"""The one way to have a file's bytes put on the disk."""

from __future__ import annotations

import errno
import os
import sys

_NO_FULL_FLUSH_ERRNOS = frozenset({errno.ENOTSUP, errno.EINVAL, errno.ENOTTY})


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
