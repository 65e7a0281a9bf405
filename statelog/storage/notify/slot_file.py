"""The slot file: the file beside a store that holds the slots of waiters. The first waiter creates it.

The slots are not in LMDB's lock file, because LMDB may initialise that file at any time, and closing it would release
LMDB's locks. Processes in different containers can share the slot file if they see the store's directory. Some
processes may still not share it. To detect their commits, each commit adds its number of records to a count in the
file, and `SlotFile` compares this count with the growth of the log.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import time
from typing import TYPE_CHECKING, NamedTuple

import lmdb

from statelog import kernels
from statelog.errors import CorruptionError, StatelogError
from statelog.storage.file.descriptors import open_file, open_side_file
from statelog.storage.read_transaction import ReadTransaction

if TYPE_CHECKING:
    from pathlib import Path

    from statelog.storage.lmdb_file import LmdbFile

SLICE_S = 0.05
"""The longest sleep on a slot, and the time after which a committing process looks for a missing file again."""

_LOOK_S = 0.5
"""The time between two checks by a process with an open slot file that the file still exists."""

_COUNT_S = 0.25
"""After this time, an uncounted commit is taken to be from a process that does not share the file.

Within this time, its process would have found the file if it could.
"""

_COUNTS = 1 << 64

_MAGIC = b"slgwake1"
_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK


class WakeFile(NamedTuple):
    """A mapped wake-up file: its slots, and its device and inode."""

    slots: kernels.WakeSlots
    identity: tuple[int, int]


def wake_path(path: Path) -> Path:
    """Return the path of the wake-up file of the store at `path`."""
    return path.with_name(f"{path.name}-wake")


def identity_of(own: str) -> tuple[int, int] | None:
    """Return the device and inode of the file at the path `own`, or None if there is no file."""
    try:
        status = os.lstat(own)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def map_wake_file(own: str, store: os.stat_result, *, create: bool) -> WakeFile | None:
    """Map the file at the path `own`. Return None if it cannot be trusted, or is not a wake-up file.

    Raises:
        OSError: there is no file, or it cannot be created.
    """
    flags = os.O_RDWR | _FLAGS
    descriptor = open_side_file(own, flags, store) if create else open_file(own, flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in {store.st_uid, os.geteuid()}:
            return None  # Any user may put a file there, so trust only files of the store's owner and of this user.
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
    """Remove the wake-up file of a store that no other process has open. Keep a foreign file with the same name."""
    with contextlib.suppress(OSError):
        descriptor = open_file(wake_path(path), os.O_RDONLY | _FLAGS)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode) and _is_own(descriptor):
                wake_path(path).unlink()
        finally:
            os.close(descriptor)


class SlotFile:
    """The wake-up file of one store.

    Attributes:
        file: the mapped file, or None.
        look_at_s: when to check again whether the path still leads to the mapped file.
    """

    def __init__(self, file: LmdbFile) -> None:
        self.file: WakeFile | None = None
        self.look_at_s = 0.0
        self._file = file
        self._path = str(wake_path(file.path))
        self._mapped_at_s = 0.0
        self._suspect: tuple[int, float] | None = None
        """A commit that is not counted yet: the number of uncounted records before it, and the time it was noticed."""
        self._is_unreached = False

    def slots(self, *, create: bool) -> kernels.WakeSlots | None:
        """Return the slots, or None if there is no usable file. With `create`, try to create the file."""
        file, now_s = self.file, time.monotonic()
        if now_s < self.look_at_s and not (create and file is None):
            return None if file is None else file.slots
        if self.look_at_s != float("inf"):
            self.look_at_s = now_s + (SLICE_S if file is None else _LOOK_S)
            found = identity_of(self._path)
            if file is not None and found != file.identity:
                self.file = file = None
            if file is None and (create or found is not None):
                file = self._map(create=create)
        return None if file is None else file.slots

    def _map(self, *, create: bool) -> WakeFile | None:
        with contextlib.suppress(OSError, ValueError):
            store = os.fstat(self._file.locks.descriptor)
            self.file = map_wake_file(self._path, store, create=create)
            self._mapped_at_s, self._suspect = time.monotonic(), None
        return self.file

    def close(self) -> None:
        """Stop using the file."""
        self.file = None
        self.look_at_s = float("inf")

    # --- commits that do not reach the file -----------------------------------------------

    def note_no_file(self) -> None:
        """Record that a commit was made while there was no file to count it in."""
        self._is_unreached = True

    @property
    def unreached(self) -> bool:
        """Whether a process that does not share the file has committed, so that its commits wake nobody."""
        with contextlib.suppress(StatelogError):
            self.settle_suspicion(None)
        return self._is_unreached

    def gap(self, slots: kernels.WakeSlots) -> int:
        """Return the number of log records that are not counted in the file. A commit is counted just after it ends."""
        noted = slots.noted()
        gap = (self.last_lsn() - noted) % _COUNTS
        return gap - _COUNTS if gap >= _COUNTS // 2 else gap

    def commit_number(self) -> int | None:
        """Return LMDB's number of the last commit, or None if it is not known now. This is faster than `last_lsn`."""
        file = self._file
        with contextlib.suppress(lmdb.Error, AttributeError):  # Return None if the store is closed or being reopened.
            if not file.has_moved:
                return int(file.handles.raw.info()["last_txnid"])
        return None

    def last_lsn(self) -> int:
        """Return the LSN of the last record, flushed or not."""
        with ReadTransaction(self._file) as transaction:
            return transaction.last_lsn()

    def settle_suspicion(self, gap: int | None) -> None:
        """Decide whether a commit has not reached the file, once the time to count it is over.

        Args:
            gap: the number of uncounted records before a new uncounted commit. None if there is no new one.
        """
        now_s = time.monotonic()
        if gap is not None and now_s >= self._mapped_at_s + _COUNT_S and self._suspect is None:
            self._suspect = (gap, now_s)
        elif self._suspect is not None and (file := self.file) is not None:
            before, seen_s = self._suspect
            is_noted = self.gap(file.slots) <= before
            if is_noted or now_s >= seen_s + _COUNT_S:
                self._suspect = None
                self._is_unreached |= not is_noted


def _is_own(descriptor: int) -> bool:
    """Return True if a file begins like a wake-up file, or with zeros like an unfinished one."""
    start = os.pread(descriptor, len(_MAGIC), 0)
    return start == _MAGIC or not any(start)


def _lengthen(descriptor: int, size_bytes: int) -> None:
    """Allocate all blocks of the file: a process that writes into a mapped hole on a full disk would be killed."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, kernels.WAKE_FILE_SIZE_BYTES)
    else:
        os.pwrite(descriptor, bytes(kernels.WAKE_FILE_SIZE_BYTES - size_bytes), size_bytes)
