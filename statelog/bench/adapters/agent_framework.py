"""Checkpoints of Agent Framework beside its files, which nobody flushes: one pickle in JSON a checkpoint."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import statelog
from statelog.bench.adapters.measuring import Clock, Row, size_of, text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CHECKPOINTS = 200
_TEXT_SIZE_BYTES = 2000
_TIMED = 20


def rows(folder: Path, *, scale: float, repeats: int) -> Iterator[Row]:
    """Save a conversation that grows by a message a checkpoint, on both sides in turns."""
    for durability, bound in (("commit", 2.0), ("interval", 1.0)):
        for number in range(repeats):
            (folder / f"{durability}-{number}").mkdir(parents=True)
        clocks = [
            asyncio.run(_measure(folder / f"{durability}-{number}", durability, max(int(_CHECKPOINTS * scale), 2)))
            for number in range(repeats)
        ]
        theirs, ours, size_theirs, size_ours = min(clocks, key=lambda each: each[1] / each[0])
        what = f"Agent Framework: save at {_CHECKPOINTS}, {durability}"
        yield Row(what, theirs * 1e6, ours * 1e6, bound, "us")
        if durability == "commit":
            yield Row("Agent Framework: folder", size_theirs, size_ours, 0.06, "bytes")


async def _measure(folder: Path, durability: Any, count: int) -> tuple[float, float, float, float]:
    from agent_framework import FileCheckpointStorage, WorkflowCheckpoint

    from statelog.adapters.agent_framework import StatelogCheckpointStorage

    clock, messages = Clock(), []
    with statelog.open(folder / "ours", durability=durability) as store:
        theirs, ours = FileCheckpointStorage(folder / "theirs"), StatelogCheckpointStorage(store)
        for number in range(count):
            messages.append({"role": "user", "text": text(_TEXT_SIZE_BYTES, number)})
            state = {"messages": list(messages), "n": number, **{f"e{key}": text(500, key) for key in range(10)}}
            checkpoint = WorkflowCheckpoint("w", "h", iteration_count=number, state=state)
            is_timed = number >= count - _TIMED
            with clock(f"theirs {is_timed}"):
                await theirs.save(checkpoint)
            with clock(f"ours {is_timed}"):
                await ours.save(checkpoint)
    return (
        clock.median_s("theirs True"),
        clock.median_s("ours True"),
        _size_of_files(folder / "theirs"),
        float(size_of(folder / "ours")),
    )


def _size_of_files(folder: Path) -> float:
    return float(sum(file.stat().st_blocks * 512 for file in folder.iterdir()))
