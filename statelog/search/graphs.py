"""The facts about LangGraph's threads that a search needs.

The adapter, which is in a layer above the store, provides them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from statelog.log.events import CheckpointEvent, Digested
    from statelog.log.view import View


class GraphThreads(Protocol):
    """Reads facts about versions of LangGraph's threads through a view."""

    def forget(self) -> None:
        """Clear all caches, because the store's file may have been replaced."""

    def is_shown(self, view: View, thread_id: str, found: Digested) -> bool:
        """Return False for a version that the user removed through LangGraph, but that other versions still need."""

    def delta_channels(self, event: CheckpointEvent) -> list[str]:
        """Return the delta channels of a version, which LangGraph stores as writes."""

    def delta_items(self, view: View, thread_id: str, found: Digested, channel: str) -> list[Any]:
        """Return the items of a delta channel at a version whose state does not have the channel."""

    def written_items(self, view: View, thread_id: str, found: Digested, channel: str) -> list[Any]:
        """Return the items that were written to a delta channel after a version, and that the next version includes."""
