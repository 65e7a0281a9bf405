"""Threads as a store lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from statelog.log.times import to_datetime

if TYPE_CHECKING:
    from datetime import datetime

    from statelog.log.view import ThreadRow, View


@dataclass(frozen=True, slots=True)
class ThreadInfo:
    """A thread, as the store lists it."""

    id: str
    created: datetime
    branches: int
    versions: int
    """Checkpoints on all branches, shared ones once."""
    channels: dict[str, str]
    """Reducer by channel; empty without a schema."""
    policy: dict[str, Any]
    """Its retention policy: "keep_last", "max_age_s" (each a number or None), "keep_tags"; empty for none."""


def read_thread_info(view: View, row: ThreadRow) -> ThreadInfo:
    """Return the description of the thread in a row."""
    versions = 0
    for branch in view.branches(row.lsn):
        versions += view.head_version(row.lsn, branch.number) - branch.base_version
    created = to_datetime(view.record(row.lsn).time_us)
    return ThreadInfo(row.id, created, row.branch_count, versions, dict(row.specs), dict(row.policy))
