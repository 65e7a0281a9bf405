"""All workloads of this folder, in the order of the table in the README."""

from __future__ import annotations

from benchmarks.regression import care, length, reading, reducing, retaining, time_travel

WORKLOADS = {
    workload.name: workload
    for workload in (
        length.ADD,
        length.UPSERT,
        time_travel.ROLLBACK,
        time_travel.FORK,
        reading.LAST_ITEMS,
        reducing.REDUCERS,
        retaining.SIZE,
        retaining.COST,
        care.VERIFY,
        care.COPIES,
    )
}
"""The workloads by name."""
