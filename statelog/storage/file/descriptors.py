"""Opens files above the standard streams, and sidecar files with the owner and mode of the store."""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

_MAPS = "/proc/self/maps"
_STANDARD_MAX = 2
"""The highest descriptor of a standard stream. Any library may write to the standard streams."""

SHARED_MODE = 0o666
"""A mask of the mode bits that a sidecar file takes from the data file."""


class FileMap(NamedTuple):
    """A part of a file that this process has mapped: the addresses, the offset in the file, and the permissions."""

    start: int
    stop: int
    offset: int
    permissions: str


def maps_of(descriptor: int) -> list[FileMap]:
    """Return the maps of a file that the system lists for this process.

    The result may include maps of a file that has the same inode number on a different device. The devices cannot be
    compared, because the numbers that btrfs lists differ from those that `fstat` returns. So callers also compare an
    address.
    """
    found = []
    with contextlib.suppress(OSError, ValueError):
        inode = str(os.fstat(descriptor).st_ino)
        with open(_MAPS) as maps:  # noqa: PTH123 - without an import of pathlib
            for line in maps:
                if f" {inode} " in line:  # Test this before splitting, because most lines are maps of other files.
                    addresses, permissions, offset, _device, number = line.split()[:5]
                    if number == inode:
                        start, stop = addresses.split("-")
                        found.append(FileMap(int(start, 16), int(stop, 16), int(offset, 16), permissions))
    return found


def keep_standard_streams() -> None:
    """Open /dev/null for each of the descriptors 0 to 2 that is closed.

    The system uses the lowest free descriptor for a new file. If a process was started without standard streams, the
    store could get descriptor 2, and a library that writes a warning would write it into the store. Programs started
    later do not inherit these descriptors.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= _STANDARD_MAX:
        pass
    os.close(descriptor)


def open_file(path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> int:
    """Open a file with a descriptor above 2. Programs started later do not inherit it. Raises OSError."""
    keep_standard_streams()
    return os.open(path, flags | os.O_CLOEXEC, mode)


def open_side_file(path: str | os.PathLike[str], flags: int, store: os.stat_result) -> int:
    """Open a sidecar file, or create it with the store's owner and mode. Raises OSError.

    An existing file keeps its owner and mode, because it may be a link to another file.
    """
    try:
        return open_file(path, flags)
    except FileNotFoundError:
        pass
    try:
        descriptor = open_file(path, flags | os.O_CREAT | os.O_EXCL)
    except FileExistsError:  # Another process has created the file since the first attempt.
        return open_file(path, flags)
    try:
        follow_owner(descriptor, store, store.st_mode & SHARED_MODE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def follow_owner(descriptor: int, store: os.stat_result, mode: int) -> None:
    """Set the mode of a new file, and, if this user has the permission, the store's owner. Raises OSError.

    The mode is set last, because a change of owner may clear some mode bits. The umask may also have cleared some when
    the file was created.
    """
    own = os.fstat(descriptor)
    for user, group in ((store.st_uid, store.st_gid), (-1, store.st_gid)):
        if (own.st_uid, own.st_gid) == (store.st_uid, store.st_gid):
            break
        with contextlib.suppress(PermissionError):  # Without the permission, the file keeps this user as its owner.
            os.fchown(descriptor, user, group)
            break
    os.fchmod(descriptor, mode)
