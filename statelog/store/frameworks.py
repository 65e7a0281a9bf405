"""Threads of LangGraph: the checkpoint that such a thread shows, and its rollbacks.

LangGraph addresses checkpoints by their ids, and does not know branches. So it may not show the head of a branch. The
adapter knows which checkpoint it shows. Adapters are in a layer above the store, so the adapter's module is imported by
its name when such a thread is read.
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
"""The key of a version's metadata that names its delta channels."""

_MODULE = "statelog.adapters.langgraph.shown"
_DELTAS_MODULE = "statelog.adapters.langgraph.deltas"
_LINE_PREFIXES = (f"{MAIN}@", "ns:")
_WRITES = "writes"


class Keeper(Protocol):
    """The functions of the adapter for a thread."""

    def latest(self, held: Holder[AnySession], thread_id: str) -> Checkpoint[Any] | None:
        """Return the checkpoint that LangGraph shows, or None if it shows none."""

    def shows(self, held: Holder[AnySession], thread_id: str) -> Callable[[Checkpoint[Any]], bool]:
        """Return a function that returns False for a removed checkpoint that another one still needs."""

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
        """Add a checkpoint with which LangGraph shows the state of `target` again, and return it."""


class Deltas(Protocol):
    """What the adapter knows of delta channels, whose values LangGraph keeps as what was written to them."""

    def delta_channels(self, metadata: Mapping[str, Any]) -> list[str]:
        """Return the names of a version's delta channels by its metadata."""

    def delta_items(
        self,
        held: Holder[AnySession],
        checkpoint: Checkpoint[Any],
        channel: str,
        state_of: StateOf,
        known: Mapping[int, list[Any]],
    ) -> list[Any]:
        """Return the items of a delta channel at a checkpoint whose state lacks it.

        `known` has those of other checkpoints of the thread, by LSN.
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
    """Import what knows delta channels. It imports no part of LangGraph."""
    return cast("Deltas", import_module(_DELTAS_MODULE))


def is_line(branch: str) -> bool:
    """Return True if the name of a branch shows that it belongs to LangGraph."""
    return branch in (MAIN, _WRITES) or branch.startswith(_LINE_PREFIXES)


def refused(thread_id: str) -> UsageError:
    """Return the error for a write to a line that LangGraph would not show."""
    message = (
        f"thread {thread_id!r} belongs to LangGraph, which does not show other commits to it: change its state with"
        " graph.update_state, or commit to a branch that fork() has made"
    )
    return UsageError(message, thread=thread_id, argument="thread")
