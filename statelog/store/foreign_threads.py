"""Recognises threads of LangGraph, of other adapters and of the library, which no user's schema describes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from statelog.errors import UsageError
from statelog.limits import GRAPH_CHANNEL
from statelog.log.names import OWN_CHANNELS, channel_key
from statelog.store.views import MapView
from statelog.tree.node import ROOT
from statelog.tree.tree import Tree

if TYPE_CHECKING:
    from statelog.log.events import CheckpointEvent
    from statelog.store.session import AnySession

__all__ = ["check_not_foreign", "is_foreign_id", "is_langgraphs", "is_of_run"]

_FOREIGN_IDS = re.compile(
    "(statelog|langgraph|openai|claude|agent-framework|autogen|pydantic-ai|strands"
    "|adk(-artifacts|-artifacts-names|-memory)?"
    "|crewai(-pending|-memory|-checkpoints|-checkpoints-ids)?):"
    "|(pydantic-ai-conversations|strands-keys)$|memory/.*/:sessions/"
)
"""Matches the ids of threads that adapters or the library itself create.

Threads with LangGraph's checkpoints do not match, because users choose the ids of these threads.
"""


def is_foreign_id(thread_id: str) -> bool:
    """Return True if an id belongs to an adapter or to the library."""
    return _FOREIGN_IDS.match(thread_id) is not None


def check_not_foreign(thread_id: str) -> None:
    """Raise UsageError if a thread with this id must not have a versioned schema."""
    if is_foreign_id(thread_id):
        message = (
            f"thread {thread_id!r} has an id that is reserved for the library or one of its adapters:"
            " use a schema with a version only for your own threads"
        )
        raise UsageError(message, argument="thread id", thread=thread_id)


def is_langgraphs(session: AnySession, head: CheckpointEvent) -> bool:
    """Return True if a version is a checkpoint of LangGraph, which has the channel `GRAPH_CHANNEL`."""
    return _tree(session, head).find(channel_key(GRAPH_CHANNEL))[1] is not None


def is_of_run(session: AnySession, head: CheckpointEvent) -> bool:
    """Return True if a version belongs to a durable run whose thread has no channels of the user."""
    state = MapView(_tree(session, head), is_state=True)
    return (bool(state) or OWN_CHANNELS.encode() in head.written) and all(map(_is_own, state))


def _is_own(channel: str) -> bool:
    return channel.startswith(OWN_CHANNELS)


def _tree(session: AnySession, head: CheckpointEvent) -> Tree:
    workspace = session.workspace()
    return Tree(workspace, workspace.read(ROOT, head.root_digest, head.root_lsn, head.root_node))
