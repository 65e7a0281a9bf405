"""Measures single supersteps of a small graph, and the savers' part of them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, TypedDict

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import END, START, StateGraph

from benchmarks.langgraph import savers
from benchmarks.langgraph.savers import MEMORY, OURS, SQLITE, SaverPeer
from benchmarks.measure import interleave
from benchmarks.result import Result, at_most

if TYPE_CHECKING:
    from langgraph.checkpoint.base import Checkpoint

    from benchmarks.measure import Operation
    from benchmarks.workload import Bench

_SUPERSTEPS = 10
"""The number of supersteps in one run of the small graph."""

_RUNS_PER_REPEAT = 4
_TARGET = 0.9
_Small = TypedDict("_Small", {"count": int, "note": str})  # noqa: UP013 - hints must be values


# --- a small graph --------------------------------------------------------------


def _run_small(peer: SaverPeer) -> Operation:
    builder = StateGraph(_Small)
    builder.add_node("work", lambda state: {"count": state["count"] + 1, "note": f"step {state['count']}"})
    builder.add_edge(START, "work")
    builder.add_conditional_edges("work", lambda state: END if state["count"] % _SUPERSTEPS == 0 else "work")
    graph = builder.compile(checkpointer=peer.saver)
    config = peer.new_config()
    return lambda: graph.invoke({"count": 0, "note": ""}, config, durability="sync")


def _put_small(peer: SaverPeer) -> Operation:
    """Return the saver's part of a superstep: the writes of one task, and then the checkpoint."""
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
    what, what_alone = f"a small graph's {_SUPERSTEPS} supersteps", "a superstep, the saver's calls alone"
    return Result(
        checks=(
            at_most(f"{what}, relative to {SQLITE}'s", whole[OURS].p50_us / whole[SQLITE].p50_us, _TARGET),
            at_most(f"{what_alone}, relative to {SQLITE}'s", alone[OURS].p50_us / alone[SQLITE].p50_us, _TARGET),
        ),
        sides=(
            *(samples.side(f"{name}: {what}") for name, samples in whole.items()),
            *(samples.side(f"{name}: {what_alone}") for name, samples in alone.items()),
        ),
        notes=(
            (
                f"small graph: an int and a short text written in each of {_SUPERSTEPS} supersteps of a run;"
                f" {MEMORY} shows what LangGraph itself takes"
            ),
        ),
    )


def _opened(stack: ExitStack, bench: Bench, of_what: str) -> list[SaverPeer]:
    return [
        stack.enter_context(savers.opened(name, bench.directory, of_what)) for name in savers.names(with_memory=True)
    ]
