"""Compares `StatelogStorage` with LocalFileStorage. Each turn writes a whole snapshot, like SnapshotSessionManager."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from strands.storage import LocalFileStorage

import statelog
from benchmarks.adapters.measurement import Stopwatch, size_of, text
from benchmarks.result import Result, at_most
from statelog.adapters.strands import StatelogStorage

if TYPE_CHECKING:
    from benchmarks.workload import Bench

SNAPSHOTS = 200
MESSAGE_SIZE_BYTES = 2000
LATE = 20
FOLDER = "session/s/scopes/agent/a/snapshots"


def measure(bench: Bench) -> Result:
    """Measure writes and reads of a snapshot, and the size of all snapshots."""
    return asyncio.run(_measure(bench))


async def _measure(bench: Bench) -> Result:
    clock, messages, count = Stopwatch(), [], bench.size(SNAPSHOTS, at_least=2 * LATE)
    files, path, data = bench.directory / "files", bench.directory / "agent.state", b""
    theirs = LocalFileStorage(str(files))
    latest = f"{FOLDER}/snapshot_latest.json"
    with statelog.open(path) as store:
        ours = StatelogStorage(store)
        for number in range(count):
            messages.append({"role": "user", "content": [{"text": text(MESSAGE_SIZE_BYTES, number)}]})
            data = json.dumps({"schema": "1", "data": {"messages": messages, "state": {"n": number}}}).encode()
            late = " late" if number >= count - LATE else ""
            with clock("theirs write" + late):
                await theirs.write(latest, data)
            with clock("ours write" + late):
                await ours.write(latest, data)
            for side in (theirs, ours):
                await side.write(f"{FOLDER}/immutable_history/{number:05d}.json", data)
        for _ in range(5 * bench.repeats):
            with clock("theirs read"):
                await theirs.read(latest)
            with clock("ours read"):
                await ours.read(latest)
    what = f"Strands: {{}} of {len(data) // 1000} KB"
    return Result(
        (
            clock.check(what.format("write"), "ours write late", "theirs write late", 2.0),
            clock.check(what.format("read"), "ours read", "theirs read", 3.0),
            at_most(f"Strands: file of {count} kept", size_of(path) / size_of(files), 0.06),
        ),
        (),
    )
