"""Fills large boards fast: some hundred entries in a commit, without a flush for each commit."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from statelog.store.store import Store

PER_FOLDER = 1000
_PER_COMMIT = 200
"""The number of entries in a commit. With more, each `set` would search more staged entries."""

_TEXT = "x" * 100


def folder_of(number: int) -> str:
    """Return the folder of an entry of a large board."""
    return f"research/{number // PER_FOLDER:04d}/"


def key_of(number: int) -> str:
    """Return the key of an entry of a large board."""
    return f"{folder_of(number)}{number % PER_FOLDER:03d}"


def value_of(number: int) -> Any:
    """Return the value of an entry of a large board."""
    return {"number": number, "text": _TEXT}


def entries(stop: int) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a large board."""
    return ((key_of(number), value_of(number)) for number in range(stop))


def fill(store: Store, wanted: Iterable[tuple[str, Any]], **options: Any) -> None:
    """Set entries, some hundred in a commit. `options` are options of `set`."""
    left = iter(wanted)
    while some := list(islice(left, _PER_COMMIT)):
        with store.transaction() as transaction:
            board = transaction.board()
            for key, value in some:
                board.set(key, value, **options)
