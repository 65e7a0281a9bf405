"""Refuses to continue a thread that is paused at a node which the graph does not have.

LangGraph skips such a node. The run ends at once, and a person's answer is never read.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from langgraph.pregel._loop import PregelLoop
from langgraph.types import Command, Send

from statelog.adapters.langgraph.saver.arguments import number_of
from statelog.errors import MigrationError, NodeNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from langgraph.checkpoint.base import CheckpointTuple

    from statelog.adapters.langgraph.values.migration import Migration

_TASKS = "__pregel_tasks"
_INPUT = "__start__"
_ENTRYPOINT = re.compile(r"~__pregel_pull, (.+?)(?:, \d{10}\b|$)")
_LEADING = ("branch:to:", "join:")
LEADS = re.compile(f"{'|'.join(_LEADING)}|{_TASKS}$").match
"""Matches the names of channels that lead to a node."""


def check_paused(found: CheckpointTuple, migration: Migration | None) -> None:
    """Check a checkpoint that leads to a node, for the run that reads it.

    LangGraph gives a saver the thread, not the graph. So this function looks for the loop of the run among its callers.
    It does not refuse calls that only read, or a run with new input, which abandons the paused node.

    Raises:
        NodeNotFoundError: the run would continue at a node that its graph does not have.
        MigrationError: a node calls the graph, and the checkpoint has a channel with a former name.
    """
    loop = _loop_that_asks()
    if loop is None or not _goes_on(loop):
        return
    check_next_nodes(found, loop.specs, loop.nodes)
    named = found.config["configurable"]
    if migration is None or not named.get("checkpoint_ns"):
        return
    for channel in found.checkpoint["channel_values"]:
        if channel not in loop.specs and channel in migration.schema.changed_names:
            message = (
                f"thread {named['thread_id']!r} is paused in the graph {named['checkpoint_ns']!r} with channel"
                f" {channel!r}, which that graph no longer has. migrations= does not apply to graphs that nodes"
                " call, so its value would be lost: resume the thread with the previous code"
            )
            raise MigrationError(message, thread=named["thread_id"], channel=channel, schema=migration.schema.name)


def check_next_nodes(found: CheckpointTuple, channels: Mapping[str, Any], nodes: Mapping[str, Any]) -> None:
    """Raise NodeNotFoundError if a checkpoint leads to a node that a graph does not have."""
    for node in _next_nodes(found.checkpoint, channels):
        if node not in nodes:
            thread = found.config["configurable"]["thread_id"]
            message = (
                f"thread {thread!r} is paused at node {node!r}, which the graph does not have: an answer would be lost."
                f" If the node was renamed, give its name: StatelogSaver(nodes={{{node!r}: ...}})"
            )
            raise NodeNotFoundError(message, thread=thread, node=node, nodes=sorted(nodes))


def may_be_functional(found: CheckpointTuple) -> bool:
    """Return True if a checkpoint may come from LangGraph's functional API and have finished tasks."""
    return bool(found.pending_writes) and _INPUT in found.checkpoint["channel_values"]


def check_entrypoint(found: CheckpointTuple, read_paths: Callable[[], Iterable[str]]) -> None:
    """Check a checkpoint of the functional API for the run that reads it, like `check_paused`.

    LangGraph makes task ids from the names of the entrypoint and the task. If the entrypoint was renamed, LangGraph
    finds neither finished tasks nor answers, and calls the tasks again.

    Args:
        found: the checkpoint.
        read_paths: returns the paths of the tasks that have written to the checkpoint.

    Raises:
        NodeNotFoundError: the run would continue in an entrypoint that its graph does not have.
    """
    loop = _loop_that_asks()
    if loop is None or not _goes_on(loop):
        return
    for path in read_paths():
        named = _ENTRYPOINT.search(path)
        if named is not None and named[1] not in loop.nodes:
            thread, node = found.config["configurable"]["thread_id"], named[1]
            message = (
                f"thread {thread!r} is paused in entrypoint {node!r}, which the graph does not have: its finished tasks"
                f" would run again. nodes= does not map entrypoints: give the function the name {node!r} again"
            )
            raise NodeNotFoundError(message, thread=thread, node=node, nodes=sorted(loop.nodes))


def _loop_that_asks() -> Any:
    """Return the loop of the run that has called the saver, or None.

    Only LangGraph's code may be between the loop and this saver, because a saver that wraps this one may still rename
    the checkpoint's nodes.
    """
    frame = sys._getframe(3)  # noqa: SLF001 - the frame of the saver's caller
    while frame is not None and frame.f_globals.get("__name__", "").startswith("langgraph."):
        caller = frame.f_locals.get("self")
        if isinstance(caller, PregelLoop):
            return caller
        frame = frame.f_back  # type: ignore[assignment]  # The last frame has None.
    return None


def _goes_on(loop: Any) -> bool:
    """Return True if a run continues from its checkpoint, by the rules of LangGraph."""
    if loop.is_nested:
        return bool(loop.config["configurable"].get("__pregel_resuming"))
    given = loop.input
    return given is None or (isinstance(given, Command) and (given.resume is not None or not given.goto))


def _next_nodes(checkpoint: Mapping[str, Any], channels: Mapping[str, Any]) -> Iterator[str]:
    """Yield the nodes that a checkpoint leads to by channels that the graph does not have, and by tasks.

    Only channels that the last step has written count, because a run with new input leaves the channels of an
    abandoned pause in the thread.
    """
    versions: Mapping[str, Any] = checkpoint["channel_versions"]
    latest = max(map(number_of, versions.values()), default=0)
    for name in checkpoint["channel_values"]:
        if name.startswith(_LEADING) and name not in channels and number_of(versions.get(name)) == latest:
            yield from re.split(r"[:+]", name.removeprefix("branch:to:").removeprefix("join:"))
    for sent in checkpoint["channel_values"].get(_TASKS) or ():
        if isinstance(sent, Send):
            yield sent.node
