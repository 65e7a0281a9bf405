"""Compares `StatelogSession` with SQLiteSession and AdvancedSQLiteSession."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession

import statelog
from benchmarks.adapters.measurement import Stopwatch, size_of, text
from benchmarks.result import Result, at_most
from statelog.adapters.openai_agents import StatelogSession

if TYPE_CHECKING:
    from benchmarks.result import TargetCheck
    from benchmarks.workload import Bench

ITEMS = 1000
SMALL, LARGE = 500, 2000
LATE = 50
"""The number of calls that are timed, at the end."""


def measure(bench: Bench) -> Result:
    """Measure conversations of small and of large items."""
    bench.directory.mkdir(parents=True, exist_ok=True)
    checks: list[TargetCheck] = []
    for size, read_target, file_target in ((SMALL, 1.0, 2.5), (LARGE, 1.0, 1.2)):
        checks += asyncio.run(_measure(bench, size, read_target, file_target))
    return Result(tuple(checks), ())


def _item(number: int, size: int) -> Any:
    return {"role": "assistant" if number % 2 else "user", "content": text(size, number)}


async def _measure(bench: Bench, size: int, read_target: float, file_target: float) -> list[TargetCheck]:
    count, folder, clock = bench.size(ITEMS, at_least=2 * LATE), bench.directory, Stopwatch()
    theirs_at, branched_at, ours_at = (folder / f"{name}-{size}" for name in ("sqlite", "advanced", "statelog"))
    theirs = SQLiteSession("s", theirs_at)
    branched = AdvancedSQLiteSession(session_id="s", db_path=branched_at, create_tables=True)
    ours = StatelogSession("s", statelog.open(ours_at))
    for number in range(count):
        late = " late" if number >= count - LATE else ""
        one = [_item(number, size)]
        with clock("theirs add" + late):
            await theirs.add_items(one)
        with clock("ours add" + late):
            await ours.add_items(one)
        with clock("branched add" + late):
            await branched.add_items(one)
    for number in range(10 * bench.repeats):
        with clock("theirs read"):
            await theirs.get_items()
        with clock("ours again"):
            await ours.get_items()
        anew = StatelogSession("s", ours.store)
        with clock("ours read"):
            await anew.get_items()
        one = [_item(-number, size)]
        await theirs.add_items(one)
        await ours.add_items(one)
        with clock("theirs pop"):
            await theirs.pop_item()
        with clock("ours pop"):
            await ours.pop_item()
    for number in range(2 * bench.repeats):
        with clock("branched branch"):
            await branched.create_branch_from_turn(count // 2 - 5, f"b{number}")
        await branched.switch_to_branch("main")
        with clock("ours branch"):
            await ours.create_branch_from_turn(count // 2 - 5, f"b{number}")
        await ours.switch_to_branch("main")
    theirs.close()
    branched.close()
    ours.store.close()
    what = f"OpenAI, {count} items of {size} B"
    return [
        clock.check(f"{what}: add_items, relative to SQLiteSession", "ours add late", "theirs add late", 0.9),
        clock.check(f"{what}: add_items, relative to Advanced", "ours add late", "branched add late", 0.55),
        clock.check(f"{what}: get_items()", "ours read", "theirs read", read_target),
        clock.check(f"{what}: get_items() again, unchanged", "ours again", "theirs read", 0.2),
        clock.check(f"{what}: pop_item", "ours pop", "theirs pop", 1.2),
        clock.check(f"{what}: branch, relative to Advanced", "ours branch", "branched branch", 0.12),
        at_most(f"{what}: file, all versions kept", size_of(ours_at) / size_of(theirs_at), file_target),
    ]
