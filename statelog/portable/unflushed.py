"""Read the write-ahead log of a store that was not closed, because a salvage cannot open the store to replay it."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

from statelog.storage.file.descriptors import open_file
from statelog.storage.file.sidecar_files import journal_path
from statelog.storage.wal.dirty_flag import read_dirty_flag, read_extent
from statelog.storage.wal.wal_format import find_records, read_slots

if TYPE_CHECKING:
    from pathlib import Path


class Unflushed(NamedTuple):
    """The durable snapshot, and the records committed after it.

    Attributes:
        meta: LMDB's meta page of the snapshot; empty if the data file is complete, or if no snapshot is left.
        records: records by LSN.
        is_whole: whether the write-ahead log has all records that the data file lists. If not, the data file may have
            more records.
    """

    meta: bytes
    records: dict[int, bytes]
    is_whole: bool


NOTHING = Unflushed(b"", {}, is_whole=True)


def read_unflushed(path: Path, descriptor: int) -> Unflushed:
    """Read the intact part of the write-ahead log of the store at `path`. `descriptor` is its open data file."""
    session = read_dirty_flag(descriptor)
    if session is None:
        return NOTHING
    with contextlib.suppress(OSError):
        journal = open_file(journal_path(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            for slot in read_slots(journal):
                if session in (slot.session, b""):
                    records = find_records(journal, slot)
                    reach = read_extent(descriptor, session)
                    is_whole = (
                        slot.epoch >= reach.epoch
                        and os.fstat(journal).st_size >= reach.size_bytes
                        and all(lsn in records for lsn in range(slot.lsn + 1, reach.lsn + 1))
                    )
                    return Unflushed(slot.meta, records, is_whole=is_whole)
        finally:
            os.close(journal)
    return NOTHING
