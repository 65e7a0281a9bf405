"""Snapshot pins: read transactions that keep LMDB from reusing the pages of the durable snapshot (invariant J2)."""

from __future__ import annotations

import contextlib
from typing import Any

import lmdb


class SnapshotPins:
    """The pins of one process, by epoch. There is at most one, and during a checkpoint at most two."""

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
            with contextlib.suppress(lmdb.Error):  # Another thread has ended the pin.
                found.append(pin.id())
        return found

    def keep(self, transaction: lmdb.Transaction, epoch: int) -> None:
        """Make a read transaction the pin of `epoch`, in place of an earlier one."""
        before = self._transactions.pop(epoch, None)
        self._transactions[epoch] = transaction
        if before is not None:
            before.abort()

    def drop_before(self, epoch: int) -> None:
        """End the pins of epochs before `epoch`."""
        for number in tuple(self._transactions):  # Two threads may do this at the same time.
            pin = self._transactions.pop(number, None) if number < epoch else None
            if pin is not None:
                pin.abort()

    def drop(self) -> None:
        """End all pins."""
        for number in self.epochs:
            pin = self._transactions.pop(number, None)
            if pin is not None:
                pin.abort()


def last_lsn(transaction: lmdb.Transaction, log: Any) -> int:
    """Return the LSN of the last record that a read transaction sees."""
    cursor: Any = transaction.cursor(log)
    return int.from_bytes(cursor.key()) if cursor.last() else 0
