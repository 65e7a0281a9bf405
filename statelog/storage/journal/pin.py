"""The pin: a process's read transaction that keeps LMDB from reusing pages of the steady snapshot (invariant J2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import lmdb

    from statelog.storage.file.opening import Handles


class Pin:
    """Of one process, not newer than the steady snapshot; called by who holds the write lock and the writer lock.

    Attributes:
        epoch: of the steady snapshot that it was taken for.
        count: read transactions held: one, for a moment two, or none.
    """

    __slots__ = ("_rested", "_transaction", "count", "epoch")

    def __init__(self) -> None:
        self._transaction: lmdb.Transaction | None = None
        self._rested = 0
        """Id of the last transaction, where the pin was given back at rest, on the steady snapshot."""
        self.epoch = 0
        self.count = 0

    @property
    def is_held(self) -> bool:
        """Whether there is one."""
        return self._transaction is not None

    @property
    def is_near(self) -> bool:
        """Whether there is one, or may be again without an advance."""
        return self._transaction is not None or self._rested > 0

    def begin(self, handles: Handles) -> lmdb.Transaction:
        """Return a read transaction of the present, for `keep` or `drop`.

        Raises:
            lmdb.Error: none can be had.
        """
        transaction = handles.begin(None, None, False, False)
        self.count += 1
        return transaction

    def drop(self, transaction: lmdb.Transaction) -> None:
        """End one."""
        transaction.abort()
        self.count -= 1

    def keep(self, transaction: lmdb.Transaction, epoch: int) -> None:
        """Make one, which is of the steady snapshot, the pin."""
        self.give_back()
        self._transaction, self.epoch = transaction, epoch

    def give_back(self) -> None:
        """Hold none: the process then advances before it writes."""
        self._rested = 0
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            self.drop(transaction)

    def rest(self, epoch: int) -> None:
        """Hold none, and note whose it was, if it was the steady snapshot's."""
        transaction = self._transaction
        rested = self._rested if transaction is None else transaction.id() if self.epoch == epoch else 0
        self.give_back()
        self._rested = rested

    def take_again(self, handles: Handles, epoch: int) -> bool:
        """Have the one again that was given back at rest; False if it would be newer than the steady snapshot.

        It is not where LMDB's last transaction, in the same epoch, is what it was then: nobody has written.

        Raises:
            lmdb.Error: as `begin`.
        """
        rested, self._rested = self._rested, 0
        if not rested:
            return False
        transaction = self.begin(handles)
        if transaction.id() != rested:
            self.drop(transaction)
            return False
        self.keep(transaction, epoch)
        return True


def last_lsn(transaction: lmdb.Transaction, log: Any) -> int:
    """Return the LSN of the last record of a read transaction."""
    cursor: Any = transaction.cursor(log)
    return int.from_bytes(cursor.key()) if cursor.last() else 0
