"""All workloads, in the order of the table of targets."""

from __future__ import annotations

from statelog.bench import (
    durability,
    growth,
    guard,
    inspector,
    memory,
    otel,
    processes,
    recovery,
    small,
    start,
    versions,
    waits,
)
from statelog.bench.adapters import workload as adapters
from statelog.bench.board import workload as board
from statelog.bench.durable import workload as durable
from statelog.bench.fleet import workload as fleet
from statelog.bench.langgraph import workload as langgraph

WORKLOADS = {
    workload.name: workload
    for workload in (
        small.SMALL,
        processes.PROCESSES,
        durability.DURABILITY,
        growth.LARGE,
        growth.SMALL,
        recovery.OPEN,
        start.START,
        board.BOARD,
        langgraph.LANGGRAPH,
        durable.DURABLE,
        waits.WAITING,
        fleet.FLEET,
        adapters.ADAPTERS,
        guard.GUARD,
        inspector.INSPECTOR,
        otel.OTEL,
        memory.MEMORY,
        versions.VERSIONS,
    )
}
"""The workloads by name."""
