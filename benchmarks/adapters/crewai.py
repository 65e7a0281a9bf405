"""Compares `StatelogFlowPersistence` with CrewAI's SQLiteFlowPersistence, on a flow with a growing conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crewai.flow.persistence.sqlite import SQLiteFlowPersistence

import statelog
from benchmarks.adapters.measurement import Stopwatch, size_of, text
from benchmarks.result import Result, at_most
from statelog.adapters.crewai import StatelogFlowPersistence

if TYPE_CHECKING:
    from benchmarks.workload import Bench

MESSAGES = 300
MESSAGE_SIZE_BYTES = 2000
LATE = 20


def measure(bench: Bench) -> Result:
    """Measure saves, loads, and the file."""
    folder, clock = bench.directory, Stopwatch()
    theirs_at, ours_at = folder / "flows.db", folder / "agent.state"
    count = bench.size(MESSAGES, at_least=2 * LATE)
    theirs = SQLiteFlowPersistence(str(theirs_at))
    messages: list[dict[str, Any]] = []
    with statelog.open(ours_at) as store:
        ours = StatelogFlowPersistence(store)
        for number in range(count):
            late = " late" if number >= count - LATE else ""
            messages.append({"role": "user", "text": text(MESSAGE_SIZE_BYTES, number)})
            state = {"id": "f", "n": number, "messages": messages}
            with clock("theirs save" + late):
                theirs.save_state("f", "method", state)
            with clock("ours save" + late):
                ours.save_state("f", "method", state)
        for _ in range(5 * bench.repeats):
            with clock("theirs load"):
                theirs.load_state("f")
            with clock("ours load"):
                ours.load_state("f")
    return Result(
        (
            clock.check(f"CrewAI: save_state at message {count}", "ours save late", "theirs save late", 0.5),
            clock.check(f"CrewAI: load_state of {count} messages", "ours load", "theirs load", 1.2),
            at_most("CrewAI: file, all versions kept", size_of(ours_at) / size_of(theirs_at), 0.03),
        ),
        (),
    )
