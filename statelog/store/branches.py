"""Branches as a thread lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from statelog import kernels
from statelog.tree.node import LEAF

if TYPE_CHECKING:
    from statelog.log.batch import Batch
    from statelog.log.view import View


@dataclass(frozen=True, slots=True)
class BranchInfo:
    """A branch of a thread: versions 0..base_version are its parent's, the rest its own."""

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


def leaves_beside(batch: Batch, thread: int, branch: int) -> list[tuple[bytes, int, int]]:
    """Return (digest, LSN, number) of the leaves that the branch's parent has stored at its next version.

    A fork that goes the same way, as where a run is done again, writes them once more.
    """
    head = batch.head(thread, branch)
    parent = None if head is None else batch.view.branch(thread, branch).parent
    if head is None or parent is None:
        return []
    beside = batch.view.checkpoint_of(thread, parent, head.event.version + 1)
    record = None if beside is None else batch.get_log(beside[0].lsn)
    if beside is None or record is None:
        return []
    rows = kernels.record_rows(record)
    return [(row[1], beside[0].lsn, number) for number, row in rows.items() if row[0] == LEAF]
