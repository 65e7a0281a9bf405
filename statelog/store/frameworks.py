"""Connects the store to threads of LangGraph: the checkpoint that LangGraph shows, and rollbacks.

LangGraph addresses checkpoints by their ids, and does not know branches. So the checkpoint that LangGraph shows may not
be the head of a branch, and only the adapter can find it. Adapters are in a layer above the store, so the adapter's
module is imported by its name when a thread of LangGraph is read.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from statelog.errors import UsageError
from statelog.log.events import MAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from statelog.log.batch import Batch
    from statelog.log.operations import Seen
    from statelog.store.checkpoint import Checkpoint
    from statelog.store.session import AnySession, Holder
    from statelog.store.views import MapView

    StateOf = Callable[[Checkpoint[Any]], MapView]

COUNTERS = "counters_since_delta_snapshot"
"""The metadata key under which a version names its delta channels."""

_MODULE = "statelog.adapters.langgraph.shown"
_DELTAS_MODULE = "statelog.adapters.langgraph.deltas"
_LINE_PREFIXES = (f"{MAIN}@", "ns:")
_WRITES = "writes"


class Keeper(Protocol):
    """The adapter's functions for a thread of LangGraph."""

    def latest(self, held: Holder[AnySession], thread_id: str) -> Checkpoint[Any] | None:
        """Return the checkpoint that LangGraph shows, or None if it shows none."""

    def shows(self, held: Holder[AnySession], thread_id: str) -> Callable[[Checkpoint[Any]], bool]:
        """Return a function that returns False for a removed checkpoint that another checkpoint still needs."""

    def roll_back(
        self,
        held: Holder[AnySession],
        thread_id: str,
        target: Checkpoint[Any],
        *,
        metadata: Mapping[str, Any],
        expected: int | Seen | None,
        check: Callable[[Batch], None] | None,
    ) -> Checkpoint[Any]:
        """Add and return a checkpoint that makes LangGraph show the state of `target` again."""


class Deltas(Protocol):
    """The adapter's functions for delta channels, whose values LangGraph stores as writes."""

    def delta_channels(self, metadata: Mapping[str, Any]) -> list[str]:
        """Return the names of a version's delta channels, given the version's metadata."""

    def delta_items(
        self,
        held: Holder[AnySession],
        checkpoint: Checkpoint[Any],
        channel: str,
        state_of: StateOf,
        known: Mapping[int, list[Any]],
    ) -> list[Any]:
        """Return the items of a delta channel at a checkpoint whose state does not have the channel.

        `known` has the items of other checkpoints of the thread, keyed by LSN.
        """

    def written_items(
        self, held: Holder[AnySession], checkpoint: Checkpoint[Any], channel: str, state_of: StateOf
    ) -> list[Any]:
        """Return the items that tasks have written to a channel after a checkpoint."""


@cache
def keeper() -> Keeper:
    """Import the adapter's module, which does not import LangGraph."""
    return cast("Keeper", import_module(_MODULE))


@cache
def deltas() -> Deltas:
    """Import the adapter's module for delta channels, which does not import LangGraph."""
    return cast("Deltas", import_module(_DELTAS_MODULE))


def is_line(branch: str) -> bool:
    """Return True if the name of a branch shows that the branch belongs to LangGraph."""
    return branch in (MAIN, _WRITES) or branch.startswith(_LINE_PREFIXES)


def refused(thread_id: str) -> UsageError:
    """Return the error for a write to a thread of LangGraph that LangGraph would not show."""
    message = (
        f"thread {thread_id!r} belongs to LangGraph, which does not show other commits to it: change its state with"
        " graph.update_state, or commit to a branch that fork() has made"
    )
    return UsageError(message, thread=thread_id, argument="thread")
