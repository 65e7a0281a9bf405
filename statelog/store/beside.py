"""Writes beside an open transaction: they would outlive its abort, so they are refused."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

from statelog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Opened(Protocol):
    """A transaction."""

    is_open: bool

    @property
    def owner(self) -> object:
        """The engine it belongs to."""


_OPENED: ContextVar[tuple[Opened, ...]] = ContextVar("statelog transactions", default=())
"""The transactions of this OS thread or task; one that has ended may be among them in a task that began inside it."""

transactions_here = _OPENED.get
"""Returns the transactions of this OS thread or task, a tuple. For most commits it is empty."""


@contextmanager
def opened_here(transaction: Opened) -> Iterator[None]:
    """Run a block inside a transaction."""
    _OPENED.set((*_OPENED.get(), transaction))
    try:
        yield
    finally:
        _OPENED.set(tuple(each for each in _OPENED.get() if each is not transaction))


BY_TX = "write by the transaction's own `tx.thread(...)`"
AFTER_IT = "do it after the transaction"


def refuse_beside(owner: object, instead: str) -> None:
    """Refuse a write to a store in whose open transaction this OS thread or task is."""
    if any(each.owner is owner and each.is_open for each in _OPENED.get()):
        message = f"a transaction of this store is open here, and this write would outlive its abort: {instead}"
        raise UsageError(message)
