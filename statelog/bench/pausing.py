"""Commits of an agent that waits for a model between them, beside SQLite: nothing is warm, the store may be at rest."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from statelog.bench import sqlite_peer
from statelog.bench.committers import one_each
from statelog.bench.measure import Samples
from statelog.bench.result import Result, at_most
from statelog.bench.workload import Bench, Workload
from statelog.storage.commit.keeper import IDLE_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from statelog.bench.measure import Operation

_PAUSES_S = (0.06, IDLE_S + 0.2)
"""After the first LMDB has got what waited, after the second everything is flushed where it lies."""

_COMMITS_PER_REPEAT = (8, 2)
_WARMING_COMMITS = 100
_OF_SQLITE_MAX = (1.25, 1.5)


def _take(operations: Mapping[str, Operation], pause_s: float, count: int) -> dict[str, Samples]:
    """Run every operation after a pause, in changing order."""
    samples = {name: Samples() for name in operations}
    order = list(operations)
    for _ in range(count):
        for name in order:
            time.sleep(pause_s)
            samples[name].take(operations[name], 1)
        order.reverse()
    return samples


def _measure(bench: Bench) -> Result:
    checks, sides = [], []
    with one_each(bench) as operations:
        for operation in operations.values():
            for _ in range(_WARMING_COMMITS):
                operation()
        for pause_s, count, most in zip(_PAUSES_S, _COMMITS_PER_REPEAT, _OF_SQLITE_MAX, strict=True):
            what = f"after {pause_s * 1000:.0f} ms"
            ours, theirs = _take(operations, pause_s, bench.repeats * count).values()
            ratio = ours.p50_us / theirs.p50_us
            checks.append(at_most(f"median commit {what}, of {sqlite_peer.NAME}'s", ratio, most))
            sides += [ours.side(f"statelog, {what}"), theirs.side(f"{sqlite_peer.NAME}, {what}")]
    return Result(
        checks=tuple(checks),
        sides=tuple(sides),
        notes=("one committer, who does nothing between commits, each of which appends a message",),
    )


PAUSES = Workload(
    "commit-after-a-pause",
    "One durable committer that pauses, beside SQLite",
    f"commit; {sqlite_peer.NAME}: {sqlite_peer.DURABILITY}",
    _measure,
)
