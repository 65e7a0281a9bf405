"""Pins: read transactions of one process that keep LMDB from reusing pages of the steady snapshot (invariant J2)."""

from __future__ import annotations

import contextlib
from typing import Any

import lmdb


class Pins:
    """Of one process, by epoch: one, none, or for the time of an advance two."""

    __slots__ = ("_transactions",)

    def __init__(self) -> None:
        self._transactions: dict[int, lmdb.Transaction] = {}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._transactions)

    def __contains__(self, epoch: int) -> bool:
        """Tell whether the snapshot of an epoch is pinned here."""
        return epoch in self._transactions

    @property
    def epochs(self) -> tuple[int, ...]:
        """Of which there are some."""
        return tuple(self._transactions)

    def numbers(self) -> list[int]:
        """Return LMDB's numbers of the snapshots."""
        found = []
        for pin in tuple(self._transactions.values()):
            with contextlib.suppress(lmdb.Error):  # another thread has ended it
                found.append(pin.id())
        return found

    def keep(self, transaction: lmdb.Transaction, epoch: int) -> None:
        """Make a read transaction the pin of an epoch."""
        before = self._transactions.pop(epoch, None)
        self._transactions[epoch] = transaction
        if before is not None:
            before.abort()

    def drop_before(self, epoch: int) -> None:
        """End those of earlier epochs."""
        for number in tuple(self._transactions):  # Two threads may do this at the same time.
            pin = self._transactions.pop(number, None) if number < epoch else None
            if pin is not None:
                pin.abort()

    def drop(self) -> None:
        """End all."""
        for number in self.epochs:
            pin = self._transactions.pop(number, None)
            if pin is not None:
                pin.abort()


def last_lsn(transaction: lmdb.Transaction, log: Any) -> int:
    """Return the LSN of the last record of a read transaction."""
    cursor: Any = transaction.cursor(log)
    return int.from_bytes(cursor.key()) if cursor.last() else 0
