"""Compacts a store: writes a new file in key order, without free pages and without unreachable nodes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from statelog.format.record import decode_record
from statelog.log.care.removal_lists import mark_older
from statelog.log.care.sweep import sweep_store
from statelog.storage.compaction import check_compactable, compact_file
from statelog.storage.file.index_file import discard_index

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.format.mac import StoreKey
    from statelog.log.engine import Engine

    Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """The report of a compaction: the file's sizes before and after it, and the number of copied entries."""

    size_before_bytes: int
    size_after_bytes: int
    records: int
    index_entries: int
    vacuumed_nodes: int
    """The number of nodes that were removed because no version reached them."""
    duration_s: float


def compact(engine: Engine, *, progress: Progress | None = None) -> CompactionReport:
    """Copy the store to a new file, without unreachable nodes; see `Store.compact`."""
    started_s = time.perf_counter()
    looked_at = 0

    def advance(done: int, whole: int) -> None:
        nonlocal looked_at
        looked_at = whole
        if progress is not None:
            progress(done, whole)

    def advance_further(done: int, whole: int) -> None:
        if progress is not None:
            progress(looked_at + done, looked_at + whole)

    engine.check_alone()
    check_compactable(engine.store_file.lmdb_file, engine.store_file.wal)
    mark_older(engine)
    # Discard the text index, because it may still contain deleted texts. The next search rebuilds it.
    discard_index(engine.store_file.path)
    swept = sweep_store(engine, progress=advance)
    return _copy(engine, None, advance_further, started_s, swept.vacuumed_nodes)


def rekey(engine: Engine, key: StoreKey, *, progress: Progress | None = None) -> CompactionReport:
    """Copy the store to a new file with a different key. See `Store.rekey`."""
    started_s = time.perf_counter()
    engine.check_alone()
    discard_index(engine.store_file.path)
    return _copy(engine, key, progress, started_s, vacuumed_nodes=0)


def _copy(
    engine: Engine, key: StoreKey | None, progress: Progress | None, started_s: float, vacuumed_nodes: int
) -> CompactionReport:
    """Copy the store to a new file with `key`. If `key` is None, the key does not change."""
    file, wal = engine.store_file.lmdb_file, engine.store_file.wal
    made = compact_file(file, wal, check_record=_check_record, progress=progress, key=key)
    sizes = made.size_before_bytes, made.size_after_bytes
    return CompactionReport(*sizes, made.records, made.index_entries, vacuumed_nodes, time.perf_counter() - started_s)


def _check_record(lsn: int, data: bytes | memoryview) -> None:
    """Raise CorruptionError for a damaged record. The error stops the compaction, so the old file is not replaced."""
    decode_record(data, lsn)
