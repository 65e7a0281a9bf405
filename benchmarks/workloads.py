"""All workloads, in the order of the table of targets."""

from __future__ import annotations

from benchmarks import (
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
from benchmarks.adapters import workload as adapters
from benchmarks.board import workload as board
from benchmarks.durable import workload as durable
from benchmarks.fleet import workload as fleet
from benchmarks.langgraph import workload as langgraph

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
