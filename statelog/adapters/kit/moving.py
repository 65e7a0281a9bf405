"""Sessions of a framework's own database, copied into a store one by one and compared.

Each adapter has a module `move` with a function `opened`, which yields a `Source`. It reads the database by the
framework's public classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from statelog.errors import StatelogError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from statelog import Store

__all__ = ["LeftOut", "MoveReport", "Source", "move"]


class Source(Protocol):
    """A framework's database, which is only read."""

    def names(self) -> Sequence[str]:
        """Return what is to be copied, by names that a person knows: of sessions, or of users and sessions."""

    def copy(self, name: str, store: Store) -> bool:
        """Copy what a name stands for, in one transaction, read it back, and compare.

        Returns:
            False if it was there already, as whole as it is now.

        Raises:
            ConflictError: something else stands under its name. FormatError: it cannot be read, or does not come back
                equal. What the store raises.

        """


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What was not copied, and why."""

    name: str
    error: StatelogError


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveReport:
    """What came of a move.

    Attributes:
        found: names in the database.
        copied: those that were not there before.
        left_out: those that are not there now, each with its error.

    """

    found: int
    copied: int
    left_out: tuple[LeftOut, ...]


def move(source: Source, store: Store, *, progress: Callable[[int, int], None] | None = None) -> MoveReport:
    """Copy everything that a database holds. A move that was cut off is done again, and goes on where it ended.

    Args:
        source: what is read.
        store: what is written.
        progress: called with how many names are done, of how many.

    """
    names = source.names()
    copied = 0
    left_out = []
    for number, name in enumerate(names):
        if progress is not None:
            progress(number, len(names))
        try:
            copied += source.copy(name, store)
        except StatelogError as error:
            left_out.append(LeftOut(name, error))
    return MoveReport(found=len(names), copied=copied, left_out=tuple(left_out))
