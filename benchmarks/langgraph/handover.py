"""Measures the file of a graph that passes its messages to an inner graph at every turn."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, cast

from langgraph.graph import START, MessagesState, StateGraph

from benchmarks.corpus import Corpus
from benchmarks.langgraph import savers
from benchmarks.langgraph.savers import OURS, SQLITE, SaverPeer
from benchmarks.measure import interleave
from benchmarks.result import Result, at_most

if TYPE_CHECKING:
    from benchmarks.measure import Operation
    from benchmarks.workload import Bench
    from statelog.adapters.langgraph import StatelogSaver

_TURNS = 60
_QUESTION_BYTES, _ANSWER_BYTES = 3200, 640
_FILE_TARGET, _TIME_TARGET = 6.0, 1.1
_KEPT_TURNS, _KEEP_LAST, _KEPT_TARGET = 150, 10, 3.0


def _turn(peer: SaverPeer) -> Operation:
    answers, questions = Corpus().endless(_ANSWER_BYTES), Corpus().endless(_QUESTION_BYTES)
    inner = StateGraph(MessagesState)
    inner.add_node("work", lambda _state: {"messages": [("ai", next(answers)["content"])]})
    inner.add_edge(START, "work")
    outer = StateGraph(MessagesState)
    outer.add_node("agent", inner.compile())
    outer.add_edge(START, "agent")
    graph = outer.compile(checkpointer=peer.saver)
    config = peer.new_config()

    def operation() -> None:
        asked = cast("MessagesState", {"messages": [("user", next(questions)["content"])]})
        graph.invoke(asked, config, durability="sync")

    return operation


def _kept_of_text(bench: Bench, turns: int) -> float:
    """Return the file's size relative to its text, after `turns` turns with a retention policy and a compaction."""
    with savers.opened(OURS, bench.directory, "kept") as peer:
        store = cast("StatelogSaver", peer.saver).store
        store.set_retention(keep_last=_KEEP_LAST)
        turn = _turn(peer)
        for _number in range(turns):
            turn()
        store.prune()
        store.compact()
    return (savers.file_size_bytes(OURS, bench.directory, "kept") or 0) / (turns * (_QUESTION_BYTES + _ANSWER_BYTES))


def measure_handed(bench: Bench) -> Result:
    """Measure turns of a graph that calls an inner graph with all of its messages."""
    with ExitStack() as stack:
        peers = [stack.enter_context(savers.opened(name, bench.directory, "handed")) for name in savers.names()]
        samples = interleave({peer.name: _turn(peer) for peer in peers}, count=bench.size(_TURNS))
    sizes = {name: savers.file_size_bytes(name, bench.directory, "handed") for name in samples}
    turns = 1 + len(samples[OURS].durations_ns)
    text = turns * (_QUESTION_BYTES + _ANSWER_BYTES)
    kept_turns = bench.size(_KEPT_TURNS, at_least=_KEPT_TURNS)
    kept = f"{kept_turns} turns, keep_last={_KEEP_LAST}, compacted: file, relative to the text"
    what = f"{turns} turns with a graph inside the graph"
    return Result(
        checks=(
            at_most(f"{what}: file, relative to the text", (sizes[OURS] or 0) / text, _FILE_TARGET),
            at_most(kept, _kept_of_text(bench, kept_turns), _KEPT_TARGET),
            at_most(
                f"{what}: time, relative to {SQLITE}'s", samples[OURS].p50_us / samples[SQLITE].p50_us, _TIME_TARGET
            ),
        ),
        sides=tuple(each.side(f"{name}: {what}", file_size_bytes=sizes[name]) for name, each in samples.items()),
        notes=(f"a turn: {_QUESTION_BYTES} bytes asked, {_ANSWER_BYTES} answered by a graph that gets all messages",),
    )
