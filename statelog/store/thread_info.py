"""Describes threads for a list of threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from statelog.log.times import to_datetime
from statelog.schema import SCHEMA_ENTRY

if TYPE_CHECKING:
    from datetime import datetime

    from statelog.log.view import ThreadRow, View


@dataclass(frozen=True, slots=True)
class ThreadInfo:
    """The description of a thread in a list of threads."""

    id: str
    created: datetime
    branches: int
    versions: int
    """The number of checkpoints on all branches. Shared checkpoints count once."""
    channels: dict[str, str]
    """The reducer of each channel; empty without a schema."""
    policy: dict[str, Any]
    """The retention policy: "keep_last" and "max_age_s" (a number or None), and "keep_tags"; empty without a policy."""
    schema: str | None = None
    """The name and the newest version of the versioned schema, as `research:3`; None without one."""


def read_thread_info(view: View, row: ThreadRow) -> ThreadInfo:
    """Return the description of a thread from its index row."""
    versions = 0
    for branch in view.branches(row.lsn):
        versions += view.head_version(row.lsn, branch.number) - branch.base_version
    created = to_datetime(view.record(row.lsn).time_us)
    channels = {name: spec for name, spec in row.specs.items() if name != SCHEMA_ENTRY}
    schema = row.specs.get(SCHEMA_ENTRY)
    return ThreadInfo(row.id, created, row.branch_count, versions, channels, dict(row.policy), schema)
