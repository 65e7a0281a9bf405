"""Collects sizes and counts of an open store."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.storage.file.preopen_checks import read_live_meta
from statelog.storage.read_transaction import ReadTransaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from statelog.storage.lmdb_file import LmdbFile, LmdbHandles

_META_PAGES = 2
_ATTEMPTS = 5


class TableStatistics(NamedTuple):
    """The entry count of one table, the depth of its tree, and its page counts by kind."""

    entries: int
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int

    @property
    def pages(self) -> int:
        """All pages of the table."""
        return self.branch_pages + self.leaf_pages + self.overflow_pages


class ReaderStatistics(NamedTuple):
    """A process with open read transactions. LMDB reuses no page that was freed since the oldest of them began.

    Attributes:
        process_id: the id of the process, which may be dead.
        reads: the number of its open read transactions.
        commits_behind: the number of LMDB commits since the oldest of these transactions began. One LMDB commit may
            contain several statelog commits.
    """

    process_id: int
    reads: int
    commits_behind: int


class StoreFileStatistics(NamedTuple):
    """Statistics of the file and its readers.

    `pages_used` + `pages_free` are all pages that LMDB has taken. LMDB reuses free pages before the file grows.
    `readers` is the number of open read transactions in all processes, except the pins of this process and the
    transaction that collects these statistics. `readers_by_process` has the same number for each process, the process
    with the oldest snapshot first. Another process that has written counts as a reader until it has been idle for a
    second, because its pin keeps pages from reuse.
    """

    file_size_bytes: int
    map_size_bytes: int
    page_size_bytes: int
    pages_used: int
    pages_free: int
    tables: dict[str, TableStatistics]
    readers: int
    readers_by_process: tuple[ReaderStatistics, ...]


def collect_statistics(file: LmdbFile, pins: Callable[[], Sequence[int]] = tuple) -> StoreFileStatistics:
    """Return the statistics as of one commit, usually the last.

    If other processes commit without a pause, it may be an earlier commit.

    `pins` returns the numbers of the snapshots that this process pins, which do not count as readers.
    """
    for _ in range(_ATTEMPTS):
        with ReadTransaction(file) as transaction:
            handles, transaction_id = transaction.handles, transaction.id
            tables = {
                name.decode(): table_statistics(transaction.table_stat(table)) for name, table in handles.tables.items()
            }
            pins_held = [*pins()]
            slots = _slots_read(handles)
            map_size_bytes = handles.raw.info()["map_size"]
            meta = read_live_meta(handles.descriptor, file.path)
            if meta.transaction_id == transaction_id and [*pins()] == pins_held:
                break
    readers = _readers(slots, [transaction_id, *pins_held], meta.transaction_id)
    used = _META_PAGES + meta.free.pages + meta.main.pages + sum(table.pages for table in tables.values())
    return StoreFileStatistics(
        file_size_bytes=os.fstat(handles.descriptor).st_size,
        map_size_bytes=map_size_bytes,
        page_size_bytes=meta.page_size_bytes,
        pages_used=used,
        pages_free=max(meta.last_page + 1 - used, 0),
        tables=tables,
        readers=sum(reader.reads for reader in readers),
        readers_by_process=readers,
    )


def table_statistics(stat: dict[str, Any]) -> TableStatistics:
    """Return the counts that LMDB reports for a table."""
    return TableStatistics._make(stat[field] for field in TableStatistics._fields)


def _readers(slots: list[tuple[int, int]], own: list[int], last: int) -> tuple[ReaderStatistics, ...]:
    """Return the readers by process, without the snapshots `own` that this process pins."""
    slots = slots.copy()
    for number in own:
        if (os.getpid(), number) in slots:
            slots.remove((os.getpid(), number))
    reads = Counter(process_id for process_id, _number in slots)
    oldest: dict[int, int] = {}
    for process_id, number in sorted(slots, key=lambda slot: slot[1]):
        oldest.setdefault(process_id, number)
    return tuple(ReaderStatistics(each, reads[each], max(last - number, 0)) for each, number in oldest.items())


def numbers_read(handles: LmdbHandles) -> list[int]:
    """Return LMDB's transaction number of each snapshot that some process reads."""
    return [number for _process_id, number in _slots_read(handles)]


def _slots_read(handles: LmdbHandles) -> list[tuple[int, int]]:
    """Return the process id and LMDB's transaction number for each open read transaction.

    LMDB lists the slots as lines: a heading, and then `pid thread transaction` for each slot. The transaction is "-" if
    a slot is only reserved.
    """
    slots = [fields for fields in map(str.split, handles.raw.readers().splitlines()) if fields and fields[0].isdigit()]
    return [(int(fields[0]), int(fields[-1])) for fields in slots if fields[-1] != "-"]
