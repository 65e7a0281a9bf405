"""The workload with all rows for durable execution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.durable import table
from benchmarks.durable.peer import NAME, DbosPeer
from benchmarks.result import Result
from benchmarks.workload import Bench, BenchWorkload

if TYPE_CHECKING:
    from collections.abc import Iterator


def _measure(bench: Bench) -> Result:
    venv = bench.peer_venv or bench.directory.with_name("peer-venv")
    peer = DbosPeer(venv.absolute(), bench.directory)
    return Result.joined(list(_measured(bench, peer)))


def _measured(bench: Bench, peer: DbosPeer) -> Iterator[Result]:
    for name, row in table.ROWS.items():
        if not bench.rows or name in bench.rows:
            yield row(bench, peer)


DURABLE = BenchWorkload(
    "durable",
    f"Durable execution, compared with {NAME} 3 on SQLite",
    f"commit; {NAME}: as shipped (a rollback journal, synchronous=FULL)",
    _measure,
    rows=tuple(table.ROWS),
)
