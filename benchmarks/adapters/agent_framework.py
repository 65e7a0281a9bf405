"""Compares checkpoints of Agent Framework with its own files: one pickle in JSON for each checkpoint, not flushed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from agent_framework import FileCheckpointStorage, WorkflowCheckpoint

import statelog
from benchmarks.adapters.measurement import Stopwatch, size_of, text
from benchmarks.result import Result, at_most
from statelog.adapters.agent_framework import StatelogCheckpointStorage

if TYPE_CHECKING:
    from benchmarks.result import TargetCheck
    from benchmarks.workload import Bench

CHECKPOINTS = 200
TEXT_SIZE_BYTES = 2000
LATE = 20
"""The number of saves that are timed, at the end."""


def measure(bench: Bench) -> Result:
    """Measure a conversation that grows by one message in each checkpoint."""
    bench.directory.mkdir(parents=True, exist_ok=True)
    checks = asyncio.run(_measure(bench, "commit", 2.0)) + asyncio.run(_measure(bench, "interval", 1.0))[:1]
    return Result(tuple(checks), ())


async def _measure(bench: Bench, durability: Any, target: float) -> list[TargetCheck]:
    count, folder, clock = bench.size(CHECKPOINTS, at_least=2 * LATE), bench.directory, Stopwatch()
    theirs_at, ours_at = (folder / f"{name}-{durability}" for name in ("files", "statelog"))
    messages = []
    with statelog.open(ours_at, durability=durability) as store:
        theirs, ours = FileCheckpointStorage(theirs_at), StatelogCheckpointStorage(store)
        for number in range(count):
            messages.append({"role": "user", "text": text(TEXT_SIZE_BYTES, number)})
            state = {"messages": list(messages), "n": number, **{f"e{key}": text(500, key) for key in range(10)}}
            checkpoint = WorkflowCheckpoint("w", "h", iteration_count=number, state=state)
            late = " late" if number >= count - LATE else ""
            with clock("theirs save" + late):
                await theirs.save(checkpoint)
            with clock("ours save" + late):
                await ours.save(checkpoint)
    what = f"Agent Framework, {count} checkpoints"
    return [
        clock.check(
            f"{what}: save, {durability}, relative to a file that is never flushed",
            "ours save late",
            "theirs save late",
            target,
        ),
        at_most(f"{what}: folder", size_of(ours_at) / size_of(theirs_at), 0.06),
    ]
