"""Boards of many entries, made in haste: some hundred in a commit, and no flush for each."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from statelog.store.store import Store

PER_FOLDER = 1000
_PER_COMMIT = 200
"""Of more, each looks through what the others have staged before it."""

_TEXT = "x" * 100


def folder_of(number: int) -> str:
    """Return the folder that an entry of a large board is in."""
    return f"research/{number // PER_FOLDER:04d}/"


def key_of(number: int) -> str:
    """Return the key of an entry of a large board."""
    return f"{folder_of(number)}{number % PER_FOLDER:03d}"


def value_of(number: int) -> Any:
    """Return what is in an entry."""
    return {"number": number, "text": _TEXT}


def entries(stop: int) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a large board."""
    return ((key_of(number), value_of(number)) for number in range(stop))


def fill(store: Store, wanted: Iterable[tuple[str, Any]], **options: Any) -> None:
    """Set entries, some hundred in a commit; `options` are those of `set`."""
    left = iter(wanted)
    while some := list(islice(left, _PER_COMMIT)):
        with store.transaction() as transaction:
            board = transaction.board()
            for key, value in some:
                board.set(key, value, **options)
