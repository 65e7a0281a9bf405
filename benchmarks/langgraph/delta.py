"""Measures a thread whose messages are a DeltaChannel. LangGraph stores its writes, and sometimes a snapshot."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph

from benchmarks.langgraph import chat, savers
from benchmarks.langgraph.savers import OURS, SQLITE, SaverPeer
from benchmarks.measure import Samples, interleave
from benchmarks.result import Result, at_most

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.graph.state import CompiledStateGraph

    from benchmarks.workload import Bench


def _concatenated(messages: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
    return [*messages, *(message for write in writes for message in write)]


_Chat = TypedDict("_Chat", {"messages": Annotated[list[Any], DeltaChannel(_concatenated)]})  # noqa: UP013 - values


def _graph(peer: SaverPeer) -> CompiledStateGraph[Any, Any, Any, Any]:
    coming = chat.messages()
    builder = StateGraph(_Chat)
    builder.add_node("reply", lambda _state: {"messages": [next(coming)]})
    builder.add_edge(START, "reply")
    builder.add_edge("reply", END)
    return builder.compile(checkpointer=peer.saver)


def _run(graph: CompiledStateGraph[Any, Any, Any, Any], config: RunnableConfig, *, turns: int) -> Samples:
    samples = Samples()
    samples.take(lambda: graph.invoke({"messages": []}, config, durability="sync"), turns)
    return samples


def measure(bench: Bench) -> Result:
    """Measure turns, the file, and `get_state`."""
    turns = bench.size(1000, at_least=20)
    names = savers.names()
    sides, configs = [], {}
    for name in names:
        with savers.opened(name, bench.directory, "delta") as peer:
            # Use a new peer, because `peer` deletes its threads at its end.
            configs[name] = SaverPeer(name, peer.saver).new_config()
            samples = _run(_graph(peer), configs[name], turns=turns)
        sides.append(
            samples.side(f"{name}: delta turn", file_size_bytes=savers.file_size_bytes(name, bench.directory, "delta"))
        )
    sizes = {name: side.file_size_bytes or 0 for name, side in zip(names, sides, strict=True)}
    with ExitStack() as stack:
        states = {}
        for name, config in configs.items():
            peer = stack.enter_context(savers.opened(name, bench.directory, "delta"))
            peer.thread_ids.append(config["configurable"]["thread_id"])
            states[name] = partial(_graph(peer).get_state, config)
            assert len(states[name]().values["messages"]) == turns, f"{name} lost messages of a DeltaChannel"
        got = interleave(states, count=bench.repeats * 2)
    sides += [samples.side(f"{name}: delta get_state") for name, samples in got.items()]
    return Result(
        checks=(
            at_most(f"DeltaChannel thread: file, relative to {SQLITE}'s", sizes[OURS] / sizes[SQLITE], 1.0),
            at_most(
                f"DeltaChannel thread: get_state, relative to {SQLITE}'s", got[OURS].p50_us / got[SQLITE].p50_us, 1.0
            ),
        ),
        sides=tuple(sides),
        notes=(f"delta: {turns:,} runs of a graph, each adding a message of 2 KB to a DeltaChannel",),
    )
