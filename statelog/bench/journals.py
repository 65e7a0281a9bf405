"""What lies in the journal of a store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from statelog.storage.file.neighbours import journal_path
from statelog.storage.journal.journal import HALVES_AT, Groups, read_slots

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
        slot = read_slots(descriptor)[0]
        count = size_bytes = 0
        lsn = slot.lsn
        for epoch in (slot.epoch, slot.epoch + 1):
            groups = Groups(descriptor, slot.session, epoch, lsn)
            count += sum(1 for _group in groups)
            size_bytes += groups.at - HALVES_AT[epoch & 1]
            lsn = groups.lsn
        return Journaled(count, lsn - slot.lsn, size_bytes)
    finally:
        os.close(descriptor)
