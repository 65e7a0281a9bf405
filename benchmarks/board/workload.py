"""The workload with all rows for the board."""

from __future__ import annotations

from benchmarks import sqlite_peer
from benchmarks.board import claims, fences, reads, watches, writes
from benchmarks.result import Result
from benchmarks.workload import Bench, BenchWorkload


def _measure(bench: Bench) -> Result:
    return Result.joined(
        [
            claims.measure_claims(bench),
            claims.measure_waiting(bench),
            writes.measure_update(bench),
            writes.measure_set(bench),
            reads.measure_large(bench),
            reads.measure_newest(bench),
            watches.measure_events(bench),
            watches.measure_watched(bench),
            fences.measure_fenced(bench),
        ]
    )


BOARD = BenchWorkload(
    "board",
    "The board, compared with tables of SQLite",
    f"commit ({sqlite_peer.NAME}: {sqlite_peer.DURABILITY}), and interval"
    f" ({sqlite_peer.NAME}: synchronous={sqlite_peer.NORMAL}) for large boards and where a row names it",
    _measure,
)
