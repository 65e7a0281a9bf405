"""Sizes and counts of an open store."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from statelog.storage.file.checks import read_live_meta
from statelog.storage.file.reading import ReadTransaction

if TYPE_CHECKING:
    from collections.abc import Sized

    from statelog.storage.file.opened import Handles, OpenFile

_META_PAGES = 2
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """One table: entries, depth of its tree, pages by kind."""

    entries: int
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int

    @property
    def pages(self) -> int:
        """All pages of the table."""
        return self.branch_pages + self.leaf_pages + self.overflow_pages


@dataclass(frozen=True, slots=True)
class EnvironmentStatistics:
    """The file and who reads it.

    `pages_used` + `pages_free` are all pages LMDB ever took; free ones are reused before the
    file grows. `readers` are read transactions open now, in all processes, but for the one that counts.
    """

    file_size_bytes: int
    map_size_bytes: int
    page_size_bytes: int
    pages_used: int
    pages_free: int
    tables: dict[str, TableStatistics]
    readers: int
    last_transaction_id: int


def collect_statistics(environment: OpenFile, pins: Sized = ()) -> EnvironmentStatistics:
    """Return the statistics of one commit, the last if commits leave time enough; `pins` count for no readers."""
    for _ in range(_ATTEMPTS):
        with ReadTransaction(environment) as transaction:
            handles = transaction.handles
            named = {"meta": handles.meta, "log": handles.log, "index": handles.index}
            tables = {name: _table(transaction.table_stat(table)) for name, table in named.items()}
            pins_held = len(pins)
            readers = len(numbers_read(handles)) - 1 - pins_held
            map_size_bytes = handles.raw.info()["map_size"]
            meta = read_live_meta(handles.descriptor, environment.path)
            if meta.transaction_id == transaction.id and len(pins) == pins_held:
                break
    used = _META_PAGES + meta.free.pages + meta.main.pages + sum(table.pages for table in tables.values())
    return EnvironmentStatistics(
        file_size_bytes=os.fstat(handles.descriptor).st_size,
        map_size_bytes=map_size_bytes,
        page_size_bytes=meta.page_size_bytes,
        pages_used=used,
        pages_free=max(meta.last_page + 1 - used, 0),
        tables=tables,
        readers=readers,
        last_transaction_id=meta.transaction_id,
    )


def _table(stat: dict[str, Any]) -> TableStatistics:
    return TableStatistics(
        entries=stat["entries"],
        depth=stat["depth"],
        branch_pages=stat["branch_pages"],
        leaf_pages=stat["leaf_pages"],
        overflow_pages=stat["overflow_pages"],
    )


def numbers_read(handles: Handles) -> list[int]:
    """Return LMDB's numbers of the snapshots that are being read, by whomever.

    LMDB lists them as text: a heading, then `pid thread transaction` for each slot, the transaction being "-" where a
    slot is only reserved.
    """
    slots = [fields for fields in map(str.split, handles.raw.readers().splitlines()) if fields and fields[0].isdigit()]
    return [int(fields[-1]) for fields in slots if fields[-1] != "-"]
