"""Measures the processor time of the turns of many short chats, in all OS threads of the process."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from benchmarks.corpus import Corpus
from benchmarks.langgraph import savers
from benchmarks.langgraph.savers import OURS, SQLITE, SaverPeer
from benchmarks.measure import Samples
from benchmarks.result import Result, Side, TargetCheck, at_most

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import CompiledStateGraph

    from benchmarks.workload import Bench

_TURNS_BY_THREADS = {15: 8, 160: 2}
_TEXT_BYTES = 200
_TARGET = 0.9


def agent(saver: BaseCheckpointSaver[str]) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return a graph whose model calls a tool in each turn, and then answers, in three supersteps."""
    text = Corpus().text(_TEXT_BYTES)

    def model(state: MessagesState) -> dict[str, Any]:
        number = len(state["messages"])
        if isinstance(state["messages"][-1], ToolMessage):
            return {"messages": [AIMessage(text, id=f"m{number}")]}
        call = {"name": "search", "args": {"query": text[:20]}, "id": f"call{number}"}
        return {"messages": [AIMessage("", tool_calls=[call], id=f"m{number}")]}

    def tool(state: MessagesState) -> dict[str, Any]:
        number = len(state["messages"])
        return {"messages": [ToolMessage(text, tool_call_id=f"call{number - 1}", id=f"m{number}")]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("tool", tool)
    builder.add_edge(START, "model")
    builder.add_conditional_edges(
        "model", lambda state: "tool" if state["messages"][-1].tool_calls else END, ["tool", END]
    )
    builder.add_edge("tool", "model")
    return builder.compile(checkpointer=saver)


def question(number: int) -> dict[str, Any]:
    """Return the first message of a turn. Adding it again does not change the messages of a thread."""
    return {"messages": [HumanMessage(f"question {number}", id=question_id(number))]}


def question_id(number: int) -> str:
    """Return the id of the first message of a turn."""
    return f"q{number}"


def _turns(peer: SaverPeer, *, threads: int, turns: int) -> Iterator[Samples]:
    """Yield, for each turn, the times that it took in all threads."""
    graph = agent(peer.saver)
    configs = [peer.new_config() for _ in range(threads)]
    for number in range(turns):
        samples = Samples(handed_bytes=None, dirtied_bytes=None)
        for config in configs:
            began_ns, processor_began_ns = time.perf_counter_ns(), time.process_time_ns()
            graph.invoke(question(number), config)
            samples.processor_ns.append(time.process_time_ns() - processor_began_ns)
            samples.durations_ns.append(time.perf_counter_ns() - began_ns)
        yield samples


def measure_short(bench: Bench) -> Result:
    """Measure turns in a few short threads and in many."""
    checks: list[TargetCheck] = []
    sides: list[Side] = []
    for threads, turns in _TURNS_BY_THREADS.items():
        what = f"a turn of {threads} short threads"
        with ExitStack() as stack:
            peers = [
                stack.enter_context(savers.opened(name, bench.directory, f"short{threads}")) for name in savers.names()
            ]
            count = bench.size(threads, at_least=2)
            coming = {peer.name: _turns(peer, threads=count, turns=turns) for peer in peers}
            taken = {name: Samples(handed_bytes=None, dirtied_bytes=None) for name in coming}
            for number in range(turns):
                for name in list(coming)[:: -1 if number % 2 else 1]:
                    samples = next(coming[name])
                    taken[name].durations_ns += samples.durations_ns
                    taken[name].processor_ns += samples.processor_ns
        sides += [samples.side(f"{name}: {what}") for name, samples in taken.items()]
        ratio = taken[OURS].processor_p50_us / taken[SQLITE].processor_p50_us
        checks.append(at_most(f"{what}: processor time, relative to {SQLITE}'s", ratio, _TARGET))
    note = "short threads: a question, a tool called, an answer; the processor time is that of the whole process"
    return Result(checks=tuple(checks), sides=tuple(sides), notes=(note,))
