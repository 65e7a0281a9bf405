"""Refuses writes that bypass an open transaction of the same store, because an abort would not undo them."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

from statelog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


class OpenTransaction(Protocol):
    """The part of a transaction that this module uses."""

    is_open: bool

    @property
    def owner(self) -> object:
        """The engine of the transaction."""


_OPENED: ContextVar[tuple[OpenTransaction, ...]] = ContextVar("statelog transactions", default=())
"""The transactions of this OS thread or task.

A task that began inside a transaction may still list the transaction after its end.
"""

transactions_here = _OPENED.get
"""Returns the transactions of this OS thread or task as a tuple, which is usually empty."""


@contextmanager
def opened_here(transaction: OpenTransaction) -> Iterator[None]:
    """Mark a transaction as open in this OS thread or task while a block runs."""
    _OPENED.set((*_OPENED.get(), transaction))
    try:
        yield
    finally:
        _OPENED.set(tuple(each for each in _OPENED.get() if each is not transaction))


BY_TX = "write through the transaction's `tx.thread(...)`"
AFTER_IT = "write after the transaction has ended"


def refuse_beside(owner: object, instead: str) -> None:
    """Raise UsageError with the advice `instead` if this OS thread or task has an open transaction of the store."""
    if any(each.owner is owner and each.is_open for each in _OPENED.get()):
        message = f"a transaction of this store is open here, and aborting it would not undo this write: {instead}"
        raise UsageError(message)
