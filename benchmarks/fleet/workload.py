"""The workload with all rows for the fleet."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks.result import Result
from benchmarks.workload import Bench, BenchWorkload, SkipError

if TYPE_CHECKING:
    from benchmarks.fleet.setting import FleetSetting
    from benchmarks.fleet.table import Row

ROWS = ("remote", "local", "bytes", "restore", "fetch", "base", "langgraph", "share", "requests")
"""The names of the rows in `table`, which needs further packages."""


def _measure(bench: Bench) -> Result:
    from benchmarks.fleet import table
    from benchmarks.fleet.setting import FleetSetting

    with ExitStack() as stack:
        asked = [name for name in ROWS if not bench.rows or name in bench.rows]
        return joined({name: table.ROWS[name] for name in asked}, FleetSetting(bench, stack))


def joined(rows: dict[str, Row], setting: FleetSetting) -> Result:
    """Measure rows. A note names the rows whose peers are missing. Raises SkipError if no row can be measured."""
    results, skipped = [], []
    for name, row in rows.items():
        try:
            results.append(row(setting))
        except SkipError as error:
            skipped.append(f"row {name} skipped: {error}")
    if not results:
        raise SkipError("; ".join(skipped))
    return Result.joined([*results, Result(checks=(), sides=(), notes=tuple(skipped))])


FLEET = BenchWorkload(
    "fleet",
    "The fleet, compared with Litestream, PostgresSaver and the storage's own requests",
    "commit; SQLite: WAL, synchronous=FULL (of a database that is restored, NORMAL); Postgres: as shipped",
    _measure,
    needs=("obstore", "zstandard"),
    extra="bench-fleet",
    rows=ROWS,
)
