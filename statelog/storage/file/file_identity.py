"""Checks that a path still leads to the file that was opened there.

Somebody may remove the data file of a store in use, or move a backup into its place. The process then has an open file
without a name, and its commits would be lost. So the path is checked before each commit is acknowledged, and by reads
every `LOOK_S`. This cannot detect a file that was overwritten in place (`cp`), because the file's identity is the same.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from statelog.errors import StoreReplacedError
from statelog.storage.file.failures import is_of_system

if TYPE_CHECKING:
    from pathlib import Path

LOOK_S = 0.02
"""The time in seconds between two checks by reads. A check takes 2 us or more, which is as long as a short read."""


class FileIdentity:
    """The identity of one open data file.

    Attributes:
        is_lost: whether a check has found a different file, or none, at the path. This is final: even if the path
            leads to the open file again, other processes may have used the different file in the meantime.
        look_at_s: the time at which a read has to check again.
    """

    __slots__ = ("_descriptor", "_identity", "_name", "_path", "is_lost", "look_at_s")

    def __init__(self, descriptor: int, path: Path) -> None:
        status = os.fstat(descriptor)
        self._descriptor = descriptor
        self._identity = (status.st_ino, status.st_dev)
        self._path = path
        self._name = os.fspath(path)
        self.is_lost = False
        self.look_at_s = 0.0

    def is_kept(self) -> bool:
        """Check the path, and return True if it leads to the open file."""
        if not self.is_lost:
            try:
                status = os.stat(self._name)  # noqa: PTH116 - a path object takes twice as long
                self.is_lost = (status.st_ino, status.st_dev) != self._identity
            except (FileNotFoundError, NotADirectoryError):
                self.is_lost = self._is_gone()
            except OSError as error:
                if not is_of_system(error):
                    raise
                return True  # The path cannot be checked, for example without permission to search the directory.
        return not self.is_lost

    def _is_gone(self) -> bool:
        """Return True if the file was removed or moved, and False if its directory was renamed."""
        return not os.fstat(self._descriptor).st_nlink or self._path.parent.is_dir()

    def check(self) -> None:
        """Raise StoreReplacedError if the path leads elsewhere."""
        if not self.is_kept():
            raise replaced_error(self._path)

    def look_again(self, now_s: float) -> bool:
        """Check the path for a read, and set the time of the next check. Return True if it leads to the open file."""
        is_kept = self.is_kept()
        if is_kept:
            self.look_at_s = now_s + LOOK_S
        return is_kept


def purged_error(path: Path) -> StoreReplacedError:
    """Return the error for a store in use whose file was replaced by a purge."""
    message = f"{path} was purged of secrets while this process had it open: open it again"
    return StoreReplacedError(message, path=str(path))


def replaced_error(path: Path) -> StoreReplacedError:
    """Return the error for a store in use whose file was removed or replaced."""
    message = (
        f"{path} was replaced or removed while this process had it open, so this process no longer reads or writes it."
        " Close the store in every process that has it open, then open it again. To put a backup back, close the store"
        " everywhere first"
    )
    return StoreReplacedError(message, path=str(path))


def former_error(path: Path) -> StoreReplacedError:
    """Return the error for opening a file that has replaced the file of a store in use."""
    message = (
        f"{path} replaced a file that another process still has open: close the store there, then open it"
        " again. To put a backup back, close the store everywhere first"
    )
    return StoreReplacedError(message, path=str(path))


def lock_file_error(path: Path) -> StoreReplacedError:
    """Return the error for a store whose other users have a different lock file open."""
    message = (
        f"{path}-lock is not in use, although another process has {path} open: it was removed or replaced, or"
        " that process runs an older release and has lost its locks. Close the store in every process, then open"
        " it again"
    )
    return StoreReplacedError(message, path=str(path))
