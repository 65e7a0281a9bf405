"""Pages that are held for the steady snapshot: how many, about, and when they are enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.limits import HELD_PAGES_BOUND, HELD_PAGES_MAX, INTERVAL_HELD_PAGES_MAX
from statelog.storage.file.statistics import collect_statistics

if TYPE_CHECKING:
    from statelog.storage.file.opened import OpenFile
    from statelog.storage.journal.control import Control

_OWN_PAGES = 2
"""What a commit takes of LMDB's list of tables, and of its list of free pages."""


def measure(environment: OpenFile, control: Control) -> None:
    """Say when the next advance is due: after so many pages, or half of those that are free anyway.

    What one epoch takes the next but one takes again, so that the file does not grow by more than that.
    """
    found = collect_statistics(environment)
    held_max = INTERVAL_HELD_PAGES_MAX if environment.options.durability == "interval" else HELD_PAGES_MAX
    control.taken_max = min(max(held_max, found.pages_free // 2), HELD_PAGES_BOUND // 2)
    control.path_pages = _OWN_PAGES + sum(table.depth for table in found.tables.values())
