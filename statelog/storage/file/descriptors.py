"""Opening files: never as a standard stream, and beside a store as the store's owner needs them."""

from __future__ import annotations

import contextlib
import os

_STANDARD_MAX = 2
"""Descriptors up to this one are the standard streams. Any library writes to them."""

SHARED_MODE = 0o666
"""What a side file takes of the data file's mode: nobody executes it, and no bit changes whose it is."""


def keep_standard_streams() -> None:
    """Open what is closed of descriptors 0 to 2 on /dev/null, for good.

    The system gives the lowest free descriptor to whoever opens a file. In a process that was started with its standard
    streams closed that would be 2, and the next warning of any library would be written into the store. A child that
    is started later finds them closed again.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= _STANDARD_MAX:
        pass
    os.close(descriptor)


def open_file(path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> int:
    """Open a file, closed in children, above the standard streams. Raises OSError."""
    keep_standard_streams()
    return os.open(path, flags | os.O_CLOEXEC, mode)


def open_side_file(path: str | os.PathLike[str], flags: int, store: os.stat_result) -> int:
    """Open a file that belongs to a store; if there is none, make it, with the store's owner and mode. Raises OSError.

    What is there already keeps its own: it may be a link to somebody's file.

    Args:
        path: of the file.
        flags: of the opening, without those of a creation.
        store: status of the data file.
    """
    try:
        return open_file(path, flags)
    except FileNotFoundError:
        pass
    try:
        descriptor = open_file(path, flags | os.O_CREAT | os.O_EXCL)
    except FileExistsError:  # another process made it
        return open_file(path, flags)
    try:
        follow_owner(descriptor, store, store.st_mode & SHARED_MODE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def follow_owner(descriptor: int, store: os.stat_result, mode: int) -> None:
    """Give a file that was just made to the owner of a store, as far as this user may, with a mode. Raises OSError.

    The mode comes last: a change of owner may take bits of it, and the umask took some at the creation.
    """
    own = os.fstat(descriptor)
    for user, group in ((store.st_uid, store.st_gid), (-1, store.st_gid)):
        if (own.st_uid, own.st_gid) == (store.st_uid, store.st_gid):
            break
        with contextlib.suppress(PermissionError):  # then it stays this user's, as any file made here
            os.fchown(descriptor, user, group)
            break
    os.fchmod(descriptor, mode)
