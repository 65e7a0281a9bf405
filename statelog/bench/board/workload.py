"""The workload with all rows for the board."""

from __future__ import annotations

from statelog.bench import sqlite_peer
from statelog.bench.board import claiming, fencing, reading, watching, writing
from statelog.bench.result import Result
from statelog.bench.workload import Bench, Workload


def _measure(bench: Bench) -> Result:
    return Result.joined(
        [
            claiming.measure_claims(bench),
            claiming.measure_waiting(bench),
            writing.measure_update(bench),
            writing.measure_set(bench),
            reading.measure_large(bench),
            reading.measure_newest(bench),
            watching.measure_events(bench),
            watching.measure_watched(bench),
            fencing.measure_fenced(bench),
        ]
    )


BOARD = Workload(
    "board",
    "The board beside tables of SQLite",
    f"commit ({sqlite_peer.NAME}: {sqlite_peer.DURABILITY}), and interval"
    f" ({sqlite_peer.NAME}: synchronous={sqlite_peer.NORMAL}) for large boards and where it is said",
    _measure,
)
