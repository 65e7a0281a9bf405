"""Measures many concurrent conversations in one process, as tasks of asyncio."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import TYPE_CHECKING

from benchmarks.langgraph import savers
from benchmarks.langgraph.savers import ASYNC_SQLITE, OURS
from benchmarks.langgraph.short import agent, question
from benchmarks.measure import Samples, percentile
from benchmarks.result import Result, at_least, at_most

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.workload import Bench

_CONVERSATIONS, _TURNS = 200, 2
_ROUNDS = 2
_P99_MAX, _THROUGHPUT_MIN = 0.3, 1.0


async def _converse(name: str, directory: Path, count: int) -> Samples:
    """Return the times of the turns of concurrent conversations."""
    samples = Samples(handed_bytes=None, dirtied_bytes=None)
    async with savers.opened_async(name, directory, "conversations") as saver:
        graph = agent(saver)

        async def talk(thread_id: str) -> None:
            for number in range(_TURNS):
                began_ns = time.perf_counter_ns()
                await graph.ainvoke(question(number), {"configurable": {"thread_id": thread_id}})
                samples.durations_ns.append(time.perf_counter_ns() - began_ns)

        await talk("warming up")
        samples.durations_ns.clear()
        began_ns = time.perf_counter_ns()
        await asyncio.gather(*(talk(str(uuid.uuid4())) for _ in range(count)))
        samples.elapsed_ns = time.perf_counter_ns() - began_ns
    return samples


def measure_conversations(bench: Bench) -> Result:
    """Measure the times of turns, the longest time, and the rate of turns."""
    count = bench.size(_CONVERSATIONS, at_least=2)
    taken = {name: Samples(handed_bytes=None, dirtied_bytes=None) for name in (OURS, ASYNC_SQLITE)}
    for number in range(_ROUNDS):
        for name in list(taken)[:: -1 if number % 2 else 1]:
            samples = asyncio.run(_converse(name, bench.directory, count))
            taken[name].durations_ns += samples.durations_ns
            taken[name].elapsed_ns += samples.elapsed_ns
    ours, theirs = taken[OURS], taken[ASYNC_SQLITE]
    what = f"{_CONVERSATIONS} conversations in one process"
    p99 = percentile(ours.durations_ns, 99) / percentile(theirs.durations_ns, 99)
    return Result(
        checks=(
            at_most(f"{what}: p99 of a turn, relative to {ASYNC_SQLITE}'s", p99, _P99_MAX),
            at_least(
                f"{what}: throughput, relative to {ASYNC_SQLITE}'s",
                ours.per_second / theirs.per_second,
                _THROUGHPUT_MIN,
            ),
        ),
        sides=tuple(samples.side(f"{name}: {what}") for name, samples in taken.items()),
        notes=(f"conversations: tasks of asyncio, {_TURNS} turns each, one after the other without a pause",),
    )
