"""Who the wake-up file reaches: it is mapped, looked for, and compared with how the log grows."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

import lmdb

from statelog.errors import StatelogError
from statelog.storage.file.reading import ReadTransaction
from statelog.storage.wake_file import WakeFile, identity_of, map_wake_file, wake_path

if TYPE_CHECKING:
    from statelog import kernels
    from statelog.storage.file.opened import OpenFile

SLICE_S = 0.05
"""Longest sleep on a slot; and how often one who commits looks whether somebody has made a file to wait on."""

_LOOK_S = 0.5
"""How often one who has the file looks whether it is still there."""

_REACH_S = 0.25
"""How long a commit may be unnoted before it counts as one that does not reach; by then all have found a file."""

_COUNTS = 1 << 64


class Reach:
    """The wake-up file of one environment, as this process has it."""

    def __init__(self, environment: OpenFile) -> None:
        self._environment = environment
        self._path = str(wake_path(environment.path))
        self._file: WakeFile | None = None
        self._mapped_at_s = 0.0
        self.look_at_s = 0.0
        """When to look again whether the file is there, and still the same."""
        self._suspect: tuple[int, float] | None = None
        """How many records were not noted before some more were not, and when that was seen."""
        self._is_unreached = False

    def slots(self, *, create: bool) -> kernels.WakeSlots | None:
        """Return the slots, if there are some, or some can be made. Never raises for lack of them."""
        file, now_s = self._file, time.monotonic()
        if now_s < self.look_at_s and not (create and file is None):
            return None if file is None else file.slots
        if self.look_at_s != float("inf"):
            self.look_at_s = now_s + (SLICE_S if file is None else _LOOK_S)
            found = identity_of(self._path)
            if file is not None and found != file.identity:
                self._file = file = None
            if file is None and (create or found is not None):
                file = self._map(create=create)
        return None if file is None else file.slots

    def note_no_file(self) -> None:
        """Say that somebody has committed, and that there is no file."""
        self._is_unreached = True

    def _map(self, *, create: bool) -> WakeFile | None:
        with contextlib.suppress(OSError, ValueError):
            store = os.fstat(self._environment.locks.descriptor)
            self._file = map_wake_file(self._path, store, create=create)
            self._mapped_at_s, self._suspect = time.monotonic(), None
        return self._file

    def let_go(self) -> None:
        """Use no file any more."""
        self._file = None
        self.look_at_s = float("inf")

    # --- what it does not reach ----------------------------------------------------------

    @property
    def unreached(self) -> bool:
        """Whether a commit was seen of a process that does not reach this one."""
        with contextlib.suppress(StatelogError):
            self.settle_suspicion(None)
        return self._is_unreached

    def gap(self, slots: kernels.WakeSlots) -> int:
        """Return how many records of the log are not noted: as of now, more, since commits are noted a little later."""
        noted = slots.noted()
        gap = (self.last_lsn() - noted) % _COUNTS
        return gap - _COUNTS if gap >= _COUNTS // 2 else gap

    def commit_number(self) -> int | None:
        """Return LMDB's number of the last commit, which costs next to nothing; None where that cannot be told."""
        environment = self._environment
        with contextlib.suppress(lmdb.Error, AttributeError):  # closed, or being opened anew
            if not environment.has_moved:
                return int(environment.handles.raw.info()["last_txnid"])
        return None

    def last_lsn(self) -> int:
        """Return the last record, flushed or not."""
        with ReadTransaction(self._environment) as transaction:
            return transaction.last_lsn()

    def settle_suspicion(self, gap: int | None) -> None:
        """Give a commit that was not noted when it was seen some time, before it counts as one that does not reach.

        Args:
            gap: how many records were not noted before, if there is such a commit.
        """
        now_s = time.monotonic()
        if gap is not None and now_s >= self._mapped_at_s + _REACH_S and self._suspect is None:
            self._suspect = (gap, now_s)
        elif self._suspect is not None and (file := self._file) is not None:
            before, seen_s = self._suspect
            is_noted = self.gap(file.slots) <= before
            if is_noted or now_s >= seen_s + _REACH_S:
                self._suspect = None
                self._is_unreached |= not is_noted
