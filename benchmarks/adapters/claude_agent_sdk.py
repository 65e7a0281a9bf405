"""Compares `StatelogSessionStore` late and early in a transcript. The SDK's own store writes nothing to the disk."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import statelog
from benchmarks.adapters.measurement import Stopwatch, text
from benchmarks.result import Result
from statelog.adapters.claude_agent_sdk import StatelogSessionStore

if TYPE_CHECKING:
    from benchmarks.workload import Bench

ENTRIES = 10_000
BATCH = 5
EARLY = 40
"""The number of batches that are timed at the beginning, and again at the end."""
KEY: Any = {"project_key": "p", "session_id": "s"}


def measure(bench: Bench) -> Result:
    """Measure appends of batches."""
    return asyncio.run(_measure(bench))


async def _measure(bench: Bench) -> Result:
    clock, count = Stopwatch(), bench.size(ENTRIES, at_least=3 * EARLY * BATCH) // BATCH
    with statelog.open(bench.directory / "agent.state") as store:
        sessions = StatelogSessionStore(store)
        for number in range(count):
            batch: list[Any] = [
                {"type": "user", "uuid": f"u{number}-{at}", "message": {"role": "user", "content": text(500, at)}}
                for at in range(BATCH)
            ]
            with clock("early" if number < EARLY else "late" if number >= count - EARLY else "between"):
                await sessions.append(KEY, batch)
    what = f"Claude: append of {BATCH} at entry {count * BATCH}, relative to entry {EARLY * BATCH // 2}"
    return Result((clock.check(what, "late", "early", 1.2),), ())
