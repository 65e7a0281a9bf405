"""What lies in the journal of a store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from statelog.storage.journal.journal import RECORDS_AT, Groups, journal_path, read_slots

if TYPE_CHECKING:
    from pathlib import Path


class Journaled(NamedTuple):
    """Commit groups of the last epoch, the records in them, and what of the journal they take."""

    groups: int
    records: int
    size_bytes: int


def look_into(path: Path) -> Journaled:
    """Return what a recovery of the store at `path` would replay."""
    descriptor = os.open(journal_path(path), os.O_RDONLY)
    try:
        groups = Groups.of_slot(descriptor, read_slots(descriptor)[0])
        first = groups.place.lsn
        count = sum(1 for _group in groups)
        return Journaled(count, groups.place.lsn - first, groups.place.at - RECORDS_AT)
    finally:
        os.close(descriptor)
