"""Single supersteps: of a small graph, and of a hundred tasks at once; whole, and the savers' share alone."""

from __future__ import annotations

import operator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from statelog.bench.langgraph import savers
from statelog.bench.langgraph.savers import MEMORY, OURS, SQLITE, Peer
from statelog.bench.measure import Samples, interleave
from statelog.bench.result import Result, at_most

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import Checkpoint

    from statelog.bench.measure import Operation
    from statelog.bench.workload import Bench

_SUPERSTEPS = 10
"""In one run of the small graph."""

_RUNS_PER_REPEAT = 4
_WORKERS = 8
"""Threads that write the tasks' results at once: LangGraph's pool has min(32, processors + 4)."""

_Small = TypedDict("_Small", {"count": int, "note": str})  # noqa: UP013 - hints must be values
_Fan = TypedDict("_Fan", {"results": Annotated[list[Any], operator.add]})  # noqa: UP013 - the same


# --- a small graph --------------------------------------------------------------


def _run_small(peer: Peer) -> Operation:
    builder = StateGraph(_Small)
    builder.add_node("work", lambda state: {"count": state["count"] + 1, "note": f"step {state['count']}"})
    builder.add_edge(START, "work")
    builder.add_conditional_edges("work", lambda state: END if state["count"] % _SUPERSTEPS == 0 else "work")
    graph = builder.compile(checkpointer=peer.saver)
    config = peer.new_config()
    return lambda: graph.invoke({"count": 0, "note": ""}, config, durability="sync")


def _put_small(peer: Peer) -> Operation:
    """Return a superstep as the saver sees it: the writes of one task, then the checkpoint."""
    config = peer.new_config()
    at = peer.saver.put(config, empty_checkpoint(), {"source": "input", "step": -1, "parents": {}}, {})
    last: Checkpoint = empty_checkpoint()
    step = 0

    def operation() -> None:
        nonlocal at, last, step
        step += 1
        changed = {"count": step, "note": f"step {step}"}
        peer.saver.put_writes(at, list(changed.items()), f"task-{step}", "~__pregel_pull, work")
        last, versions = savers.next_checkpoint(peer.saver, last, changed)
        at = peer.saver.put(at, last, {"source": "loop", "step": step, "parents": {}}, versions)

    return operation


def measure_small(bench: Bench) -> Result:
    """Measure a superstep of a graph with two small channels."""
    runs = bench.repeats * _RUNS_PER_REPEAT
    with ExitStack() as stack:
        peers = _opened(stack, bench, "small")
        whole = interleave({peer.name: _run_small(peer) for peer in peers}, count=runs)
        alone = interleave({peer.name: _put_small(peer) for peer in peers}, count=runs * _SUPERSTEPS)
    return _compared(
        f"a small graph's {_SUPERSTEPS} supersteps",
        whole,
        "a superstep, the saver's calls alone",
        alone,
        target=0.8,
        note=f"small graph: an int and a short text written in each of {_SUPERSTEPS} supersteps of a run",
    )


# --- many tasks -----------------------------------------------------------------


def _run_fan(peer: Peer, width: int) -> Operation:
    builder = StateGraph(_Fan)
    builder.add_node("work", lambda task: {"results": [task["number"]]})
    builder.add_conditional_edges(START, lambda _state: [Send("work", {"number": number}) for number in range(width)])
    graph = builder.compile(checkpointer=peer.saver)
    return lambda: graph.invoke({"results": []}, peer.new_config(), durability="sync")


def _put_fan(peer: Peer, pool: ThreadPoolExecutor, width: int) -> Operation:
    """Return a superstep as the saver sees it: writes of `width` tasks from several threads, then the checkpoint."""

    def operation() -> None:
        config = peer.new_config()
        first = empty_checkpoint()
        at = peer.saver.put(config, first, {"source": "input", "step": -1, "parents": {}}, {})
        write = partial(_write_task, peer, at)
        list(pool.map(write, range(width)))
        last, versions = savers.next_checkpoint(peer.saver, first, {"results": list(range(width))})
        peer.saver.put(at, last, {"source": "loop", "step": 0, "parents": {}}, versions)

    return operation


def _write_task(peer: Peer, at: RunnableConfig, number: int) -> None:
    peer.saver.put_writes(at, [("results", [number])], f"task-{number}", f"~__pregel_push, {number:010d}")


def measure_fan_out(bench: Bench) -> Result:
    """Measure a superstep of a hundred tasks."""
    width = bench.size(100, at_least=8)
    with ExitStack() as stack:
        peers = _opened(stack, bench, "fan")
        pool = stack.enter_context(ThreadPoolExecutor(_WORKERS))
        whole = interleave({peer.name: _run_fan(peer, width) for peer in peers}, count=bench.repeats)
        alone = interleave({peer.name: _put_fan(peer, pool, width) for peer in peers}, count=bench.repeats)
    return _compared(
        f"{width}-way fan-out",
        whole,
        f"{width}-way fan-out, the saver's calls alone",
        alone,
        target=0.3,
        note=f"fan-out: {width} tasks by Send; alone: their writes from {_WORKERS} threads, then the checkpoint",
    )


def _opened(stack: ExitStack, bench: Bench, of_what: str) -> list[Peer]:
    return [
        stack.enter_context(savers.opened(name, bench.directory, of_what)) for name in savers.names(with_memory=True)
    ]


def _compared(
    what: str, whole: dict[str, Samples], what_alone: str, alone: dict[str, Samples], *, target: float, note: str
) -> Result:
    return Result(
        checks=(
            at_most(f"{what}, of {SQLITE}'s", whole[OURS].p50_us / whole[SQLITE].p50_us, target),
            at_most(f"{what_alone}, of {SQLITE}'s", alone[OURS].p50_us / alone[SQLITE].p50_us, target),
        ),
        sides=(
            *(samples.side(f"{name}: {what}") for name, samples in whole.items()),
            *(samples.side(f"{name}: {what_alone}") for name, samples in alone.items()),
        ),
        notes=(f"{note}; {MEMORY} shows what LangGraph itself takes",),
    )
