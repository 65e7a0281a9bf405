"""Pages that are held for the steady snapshot: how many, about, and when they are enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.limits import HELD_PAGES_MAX, INTERVAL_HELD_PAGES_MAX

if TYPE_CHECKING:
    from statelog.storage.environment import Environment

_OWN_PAGES = 2
"""What a commit takes of LMDB's list of tables, and of its list of free pages."""


class HeldPages:
    """Counts the pages that transactions take after an advance: as many are held, or were free."""

    __slots__ = ("_path", "_taken", "_taken_max")

    def __init__(self) -> None:
        self._taken = 0
        self._taken_max = 0
        self._path = 0
        """What each takes but for the leaves that it changes: the paths to them, and those of LMDB's own trees."""

    def begin(self, environment: Environment) -> None:
        """Count anew, after an advance, until it is due again: so many, or half of those that are free anyway.

        What one epoch takes the next but one takes again, so that the file does not grow by more than that.
        """
        found = environment.statistics()
        held_max = INTERVAL_HELD_PAGES_MAX if environment.options.durability == "interval" else HELD_PAGES_MAX
        self._taken_max = max(held_max, found.pages_free // 2)
        self._taken = 0
        self._path = _OWN_PAGES + sum(table.depth for table in found.tables.values())

    def count(self, pages: int) -> None:
        """Note that a transaction of LMDB's changed so many leaves."""
        self._taken += self._path + pages

    def left(self) -> int:
        """Return how many more may be taken: the file would grow for others."""
        return self._taken_max - self._taken

    @property
    def is_half_taken(self) -> bool:
        """Whether half of them are."""
        return 2 * self._taken > self._taken_max
