"""The workload with all rows for LangGraph."""

from __future__ import annotations

from benchmarks.result import Result
from benchmarks.workload import Bench, BenchWorkload


def _measure(bench: Bench) -> Result:
    from benchmarks.langgraph import (
        chat,
        conversations,
        delta,
        handover,
        long,
        servers,
        short,
        steps,
        together,
        turns,
    )

    return Result.joined(
        [
            chat.measure(bench),
            steps.measure_small(bench),
            together.measure_together(bench),
            delta.measure(bench),
            handover.measure_handed(bench),
            turns.measure_turns(bench),
            short.measure_short(bench),
            conversations.measure_conversations(bench),
            servers.measure_serving(bench),
            long.measure_long(bench),
        ]
    )


LANGGRAPH = BenchWorkload(
    "langgraph",
    "LangGraph: StatelogSaver, compared with SqliteSaver and InMemorySaver",
    "commit (what tasks write is flushed with the checkpoint that follows); SqliteSaver: WAL, synchronous=FULL;"
    ' graphs run with durability="sync", of short threads, conversations and servers with their default, "async"',
    _measure,
    needs=("langgraph.graph", "langgraph.checkpoint.sqlite"),
    extra="bench-langgraph",
)
