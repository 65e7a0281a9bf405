"""Measures a long chat with one message in each superstep: the last supersteps, reading, and copying."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from benchmarks.corpus import Corpus
from benchmarks.langgraph import savers
from benchmarks.langgraph.savers import MEMORY, OURS, SQLITE, SaverPeer
from benchmarks.measure import Samples, interleave
from benchmarks.result import Result, at_most
from statelog.adapters.langgraph import StatelogSaver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

    from benchmarks.measure import Operation
    from benchmarks.result import Side
    from benchmarks.workload import Bench

_MESSAGE_BYTES = 2048
_LISTED = 10
_PUTS_PER_REPEAT = 8

_Times = dict[str, float]
"""Median times in microseconds, keyed by saver."""

_Chat = TypedDict("_Chat", {"messages": Annotated[list[Any], add_messages]})  # noqa: UP013 - hints must be values


def messages() -> Iterator[AIMessage]:
    """Yield endless messages, the same in every run."""
    for message in Corpus().endless(_MESSAGE_BYTES):
        yield AIMessage(message["content"], id=message["id"])


def run_chat(saver: BaseCheckpointSaver[str], config: RunnableConfig, *, count: int) -> Samples:
    """Run a graph of one node until its list has `count` messages. Return the time of each superstep."""
    samples = Samples()
    coming = messages()
    builder = StateGraph(_Chat)
    builder.add_node("reply", lambda _state: {"messages": [next(coming)]})
    builder.add_edge(START, "reply")
    builder.add_conditional_edges("reply", lambda state: "reply" if len(state["messages"]) < count else END)
    graph = builder.compile(checkpointer=saver)
    limited: RunnableConfig = {**config, "recursion_limit": count + 10}
    stream = graph.stream({"messages": []}, limited, stream_mode="updates", durability="sync")
    samples.take(lambda: next(stream), count)
    for _ in stream:
        pass
    return samples


def puts(peer: SaverPeer, config: RunnableConfig, *, count: int, length: int) -> Operation:
    """Return a `put` that adds a message to a list, which has `length` messages at first."""
    coming = messages()
    found = peer.saver.get_tuple(config)
    if found is None:  # No chat was run with InMemorySaver, which keeps every version of the list.
        last = empty_checkpoint()
        values = [next(coming) for _ in range(length)]
        at = config
    else:
        last, at = found.checkpoint, found.config
        values = last["channel_values"]["messages"]
    steps = []
    for number in range(count):
        values = [*values, AIMessage(next(coming).content, id=f"put{number}")]
        last, versions = savers.next_checkpoint(peer.saver, last, {"messages": values})
        steps.append((last, versions))
    left = iter(enumerate(steps, start=length))

    def operation() -> None:
        nonlocal at
        number, (checkpoint, versions) = next(left)
        at = peer.saver.put(at, checkpoint, {"source": "loop", "step": number, "parents": {}}, versions)

    return operation


def _read(found: CheckpointTuple) -> int:
    """Read all parts of a tuple, because a saver may decode it lazily."""
    assert found.pending_writes is not None
    return len(found.checkpoint["channel_values"]["messages"])


def _listing(peer: SaverPeer, config: RunnableConfig, *, length: int) -> Operation:
    def operation() -> None:
        lengths = [_read(each) for each in peer.saver.list(config, limit=_LISTED)]
        assert lengths == list(range(length, length - _LISTED, -1))

    return operation


def _naming(peer: SaverPeer, config: RunnableConfig) -> Operation:
    """Return an operation that lists checkpoints, and reads their configs and metadata, as a search would."""

    def operation() -> None:
        listed = [(each.config, each.metadata, each.parent_config) for each in peer.saver.list(config, limit=_LISTED)]
        assert len(listed) == _LISTED

    return operation


def _getting(peer: SaverPeer, config: RunnableConfig, *, length: int) -> Operation:
    def operation() -> None:
        found = peer.saver.get_tuple(config)
        assert found is not None
        assert _read(found) == length

    return operation


_FIRST = """
import json, sys, time
from pathlib import Path
from benchmarks.langgraph import savers
name, directory, config = json.loads(sys.argv[1])
with savers.opened(name, Path(directory), "chat") as peer:
    began = time.perf_counter_ns()
    assert peer.saver.get_tuple(config) is not None
    print((time.perf_counter_ns() - began) / 1000)
"""


def _first_get_us(bench: Bench, name: str, config: RunnableConfig) -> float:
    """Return the time of the first `get_tuple` of a process."""
    given = json.dumps([name, str(bench.directory), {"configurable": config["configurable"]}])
    command = [sys.executable, "-c", _FIRST, given]
    runs = [subprocess.run(command, stdout=subprocess.PIPE, check=True) for _ in range(2 * bench.repeats + 1)]
    return median(float(run.stdout) for run in runs)


def _commits_of_a_copy(saver: StatelogSaver, config: RunnableConfig) -> int:
    before = saver.store.last_lsn
    thread_id = config["configurable"]["thread_id"]
    saver.copy_thread(thread_id, f"copy of {thread_id}")
    return sum(not record.continues for record in saver.store.log(after=before))


def _run_chats(bench: Bench, *, count: int) -> tuple[list[Side], dict[str, RunnableConfig]]:
    """Run the chat with each saver that stores it. Return the costs, with the file's size, and the configs."""
    sides, configs = [], {}
    for name in savers.names():
        with savers.opened(name, bench.directory, "chat") as peer:
            # Use a new peer, because `peer` deletes its threads at its end.
            configs[name] = SaverPeer(name, peer.saver).new_config()
            samples = run_chat(peer.saver, configs[name], count=count)
        sides.append(
            samples.side(f"{name}: chat", file_size_bytes=savers.file_size_bytes(name, bench.directory, "chat"))
        )
    return sides, configs


def measure(bench: Bench) -> Result:
    """Measure the rows about one long thread."""
    count = bench.size(1000, at_least=20)
    sides, configs = _run_chats(bench, count=count)
    file_size_bytes = sides[0].file_size_bytes
    assert file_size_bytes is not None
    with ExitStack() as stack:
        names = savers.names(with_memory=True)
        peers = {name: stack.enter_context(savers.opened(name, bench.directory, "chat")) for name in names}
        for name, config in configs.items():
            peers[name].thread_ids.append(config["configurable"]["thread_id"])
        configs[MEMORY] = peers[MEMORY].new_config()

        def compare(
            what: str, make: Callable[[SaverPeer, RunnableConfig], Operation], runs: int, *compared: str
        ) -> _Times:
            operations = {name: make(peers[name], configs[name]) for name in compared or savers.names()}
            taken = interleave(operations, count=runs)
            sides.extend(samples.side(f"{name}: {what}") for name, samples in taken.items())
            return {name: samples.p50_us for name, samples in taken.items()}

        first = {name: _first_get_us(bench, name, configs[name]) for name in (OURS, SQLITE)}
        got = compare("get_tuple", partial(_getting, length=count), bench.repeats * 2)
        listed = compare("list", partial(_listing, length=count), bench.repeats)
        named = compare("list, values not looked at", _naming, bench.repeats)
        copied = Samples()
        commits: list[int] = []
        ours = peers[OURS].saver
        assert isinstance(ours, StatelogSaver)
        copied.take(lambda: commits.append(_commits_of_a_copy(ours, configs[OURS])), 1)
        sides.append(copied.side(f"{OURS}: copy_thread"))
        runs = bench.repeats * _PUTS_PER_REPEAT
        put = compare("put", partial(puts, count=runs + 1, length=count), runs, *names)
    checks = (
        at_most("file of the chat, relative to its text", file_size_bytes / (count * _MESSAGE_BYTES), 4.0),
        at_most(f"put at message {count:,}, relative to {MEMORY}'s", put[OURS] / put[MEMORY], 0.6),
        at_most(f"put at message {count:,}, relative to {SQLITE}'s", put[OURS] / put[SQLITE], 0.05),
        at_most(f"get_tuple at message {count:,}, relative to {SQLITE}'s", got[OURS] / got[SQLITE], 1.0),
        at_most(f"the first get_tuple of a process, relative to {SQLITE}'s", first[OURS] / first[SQLITE], 1.0),
        at_most(f"list(limit={_LISTED}), relative to {SQLITE}'s", named[OURS] / named[SQLITE], 0.2),
        at_most("the same, every value looked at", listed[OURS] / listed[SQLITE], 0.2),
        at_most("copy_thread of it", commits[0], 1, "commits"),
    )
    note = (
        f"chat: a graph that adds a message with {_MESSAGE_BYTES} bytes of text in each of {count:,} supersteps;"
        f" get_tuple, list and put are on the thread it leaves ({MEMORY}: on a list as long)"
    )
    return Result(checks=checks, sides=tuple(sides), notes=(note,))
