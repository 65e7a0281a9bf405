"""Manages the slots of LMDB's reader table, which all processes share for snapshot pins, snapshots and short reads.

A snapshot pin keeps LMDB from reusing the pages of the durable snapshot (invariant J2).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import lmdb

from statelog.errors import LimitError, StoreLockedError
from statelog.limits import READER_SLOTS, READERS_MAX, SHORT_READS_MIN
from statelog.storage.read_transaction import ReadTransaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from statelog.storage.lmdb_file import LmdbFile

_CHECK_TIMEOUT_S = 0.1
"""How long a search for the readers of dead processes waits for the writer lock. A failed search is repeated later."""


class SnapshotPins:
    """The pins of one process, by epoch. A process has at most one pin, or two during a checkpoint."""

    __slots__ = ("_transactions",)

    def __init__(self) -> None:
        self._transactions: dict[int, lmdb.Transaction] = {}

    def __len__(self) -> int:
        """Return the number of pins."""
        return len(self._transactions)

    def __contains__(self, epoch: int) -> bool:
        """Return True if this process pins the snapshot of `epoch`."""
        return epoch in self._transactions

    @property
    def epochs(self) -> tuple[int, ...]:
        """The epochs whose snapshots this process pins."""
        return tuple(self._transactions)

    def numbers(self) -> list[int]:
        """Return LMDB's transaction numbers of the pinned snapshots."""
        found = []
        for pin in tuple(self._transactions.values()):
            with contextlib.suppress(lmdb.Error):  # Skip a pin that another thread has just ended.
                found.append(pin.id())
        return found

    def keep(self, transaction: lmdb.Transaction, epoch: int) -> None:
        """Keep a read transaction as the pin of `epoch`. End an earlier pin of the same epoch."""
        before = self._transactions.pop(epoch, None)
        self._transactions[epoch] = transaction
        if before is not None:
            before.abort()

    def drop_before(self, epoch: int) -> None:
        """End the pins of epochs before `epoch`."""
        for number in tuple(self._transactions):  # Another thread may end the same pins, so expect missing ones.
            pin = self._transactions.pop(number, None) if number < epoch else None
            if pin is not None:
                pin.abort()

    def drop(self) -> None:
        """End all pins."""
        for number in self.epochs:
            pin = self._transactions.pop(number, None)
            if pin is not None:
                pin.abort()


class ReaderSlots:
    """The reader slots of one store.

    Args:
        file: the LMDB file.
        may_release_dead: returns True if no pin of a dead process is needed. It is called under the writer lock.
    """

    def __init__(self, file: LmdbFile, may_release_dead: Callable[[], bool]) -> None:
        self._file = file
        self._may_release_dead = may_release_dead
        self._snapshots: list[None] = []
        """One element for each open snapshot. It is a list because appending and popping are atomic between threads."""

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Count a snapshot as open while the `with` block runs. The block begins the snapshot's transaction.

        Some slots are kept free, so that commits and short reads work even if the maximum number of snapshots is open.

        Raises:
            LimitError: the maximum number of snapshots is open, in this process or in all processes. Facts: path,
                limit, actual.
        """
        self._snapshots.append(None)
        try:
            if len(self._snapshots) > READERS_MAX or not self._has_free_slots():
                path = self._file.path
                message = f"{path}: more than {READERS_MAX} snapshots are open at the same time"
                raise LimitError(message, path=str(path), limit=READERS_MAX, actual=READERS_MAX + 1)
            yield
        finally:
            self._snapshots.pop()

    def _has_free_slots(self) -> bool:
        taken_max = READER_SLOTS - SHORT_READS_MIN
        if self._count(taken_max) < taken_max:
            return True
        with contextlib.suppress(StoreLockedError):
            self.release_dead()
        return self._count(taken_max) < taken_max

    def _count(self, enough: int) -> int:
        """Return the number of used reader slots. If the result is below `enough`, it is only an upper bound."""
        with ReadTransaction(self._file) as transaction:
            raw = transaction.handles.raw
            most_ever: int = raw.info()["num_readers"]
            # Subtract 1, because the first line of the listing is a heading.
            return most_ever if most_ever < enough else len(raw.readers().splitlines()) - 1

    def release_dead(self) -> int:
        """Release the slots of dead processes, whose snapshots keep pages from reuse. Return their number.

        Raises:
            StoreLockedError: another process is writing, so a pin in one of the slots may be needed.
        """
        file = self._file
        with file.write_lock, file.locks.writing(min(file.lock_timeout_s, _CHECK_TIMEOUT_S)):
            if not self._may_release_dead():
                return 0
            return file.handles.check_readers()


def last_lsn(transaction: lmdb.Transaction, log: Any) -> int:
    """Return the LSN of the last record in the snapshot of a read transaction."""
    cursor: Any = transaction.cursor(log)
    return int.from_bytes(cursor.key()) if cursor.last() else 0
