"""Measures the bytes in the file after many turns of two short messages in one thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

from benchmarks.corpus import Corpus
from benchmarks.langgraph import savers
from benchmarks.langgraph.savers import OURS
from benchmarks.measure import Samples
from benchmarks.result import Result, at_most

if TYPE_CHECKING:
    from benchmarks.langgraph.savers import SaverPeer
    from benchmarks.workload import Bench

_TURNS, _MESSAGE_BYTES = 1000, 500
_TARGET = 4.0


def _run(peer: SaverPeer, *, turns: int) -> Samples:
    texts = (message["content"] for message in Corpus().endless(_MESSAGE_BYTES))
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda _state: {"messages": [AIMessage(next(texts))]})
    builder.add_edge(START, "model")
    graph: Any = builder.compile(checkpointer=peer.saver)
    config = peer.new_config()
    samples = Samples()
    samples.take(lambda: graph.invoke({"messages": [HumanMessage(next(texts))]}, config, durability="sync"), turns)
    return samples


def measure_turns(bench: Bench) -> Result:
    """Measure the file of a chat with short messages. SqliteSaver takes minutes, because it stores whole states."""
    turns = bench.size(_TURNS, at_least=20)
    with savers.opened(OURS, bench.directory, "turns") as peer:
        samples = _run(peer, turns=turns)
    size = savers.file_size_bytes(OURS, bench.directory, "turns")
    what = f"{turns:,} turns of two messages of {_MESSAGE_BYTES} bytes"
    return Result(
        checks=(at_most(f"{what}: file, relative to the text", (size or 0) / (2 * turns * _MESSAGE_BYTES), _TARGET),),
        sides=(samples.side(f"{OURS}: {what}", file_size_bytes=size),),
    )
