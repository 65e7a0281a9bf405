"""All workloads, in the order of the table of targets."""

from __future__ import annotations

from statelog.bench import (
    care,
    committers,
    durability,
    growth,
    length,
    overhead,
    pausing,
    reading,
    recovery,
    reducing,
    retaining,
    time_travel,
)
from statelog.bench.langgraph import workload as langgraph

WORKLOADS = {
    workload.name: workload
    for workload in (
        growth.LARGE,
        growth.SMALL,
        length.ADD,
        length.UPSERT,
        time_travel.ROLLBACK,
        time_travel.FORK,
        committers.ONE,
        committers.SIXTEEN,
        pausing.PAUSES,
        durability.DURABILITY,
        overhead.INTERVAL,
        overhead.PROCESSOR,
        reading.LAST_ITEMS,
        reducing.REDUCERS,
        recovery.OPEN,
        retaining.SIZE,
        retaining.COST,
        care.VERIFY,
        care.COPIES,
        langgraph.LANGGRAPH,
    )
}
"""By name."""
