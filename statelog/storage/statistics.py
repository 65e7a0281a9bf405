"""Sizes and counts of an open store."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lmdb

from statelog.storage.checks import read_live_meta

if TYPE_CHECKING:
    from statelog.storage.environment import Environment

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
    file grows. `readers` counts transactions open now, `reader_slots` the slots taken for them.
    """

    file_size_bytes: int
    map_size_bytes: int
    page_size_bytes: int
    pages_used: int
    pages_free: int
    tables: dict[str, TableStatistics]
    readers: int
    reader_slots: int
    last_transaction_id: int


def collect_statistics(environment: Environment) -> EnvironmentStatistics:
    """Return the statistics of the last commit."""
    if os.getpid() != environment.process_id:
        raise environment.forked_error()
    readers, reader_slots = _count_readers(environment)
    for _ in range(_ATTEMPTS):  # until no commit comes between the snapshot and the meta page
        tables, transaction_id = _table_statistics(environment)
        meta = read_live_meta(environment.locks.descriptor, environment.path)
        if meta.transaction_id == transaction_id:
            break
    used = _META_PAGES + meta.free.pages + meta.main.pages + sum(table.pages for table in tables.values())
    info = environment.handles.raw.info()
    return EnvironmentStatistics(
        file_size_bytes=os.fstat(environment.locks.descriptor).st_size,
        map_size_bytes=info["map_size"],
        page_size_bytes=meta.page_size_bytes,
        pages_used=used,
        pages_free=max(meta.last_page + 1 - used, 0),
        tables=tables,
        readers=readers,
        reader_slots=reader_slots,
        last_transaction_id=meta.transaction_id,
    )


def _table_statistics(environment: Environment) -> tuple[dict[str, TableStatistics], int]:
    with environment.read() as transaction:
        handles = environment.handles
        named = {"meta": handles.meta, "log": handles.log, "index": handles.index}
        tables = {name: _table(transaction.table_stat(table)) for name, table in named.items()}
        return tables, transaction.id


def _table(stat: dict[str, Any]) -> TableStatistics:
    return TableStatistics(
        entries=stat["entries"],
        depth=stat["depth"],
        branch_pages=stat["branch_pages"],
        leaf_pages=stat["leaf_pages"],
        overflow_pages=stat["overflow_pages"],
    )


def _count_readers(environment: Environment) -> tuple[int, int]:
    """Return how many read transactions are open, and how many slots are taken.

    LMDB lists them as text: a heading, then `pid thread transaction` for each slot, the
    transaction being "-" where the slot is kept for reuse.
    """
    try:
        lines = environment.handles.raw.readers().splitlines()
    except lmdb.Error as error:
        raise environment.translate(error) from error
    slots = [fields for fields in map(str.split, lines) if fields and fields[0].isdigit()]
    return sum(fields[-1] != "-" for fields in slots), len(slots)
