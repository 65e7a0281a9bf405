"""The list of a thread's branches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from statelog.log.view import View


@dataclass(frozen=True, slots=True)
class BranchInfo:
    """A branch of a thread. Versions 0 to base_version belong to its parent, all later versions to the branch."""

    name: str
    parent: str | None
    base_version: int
    head_version: int


def list_branches(view: View, thread: int) -> list[BranchInfo]:
    """Return a thread's branches in order of creation."""
    rows = list(view.branches(thread))
    return [
        BranchInfo(
            row.name,
            None if row.parent is None else rows[row.parent].name,
            row.base_version,
            view.head_version(thread, row.number),
        )
        for row in rows
    ]
