"""What a search must know about LangGraph's threads. The adapter, in a layer above the store, provides it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from statelog.log.events import CheckpointEvent, Digested
    from statelog.log.view import View


class GraphThreads(Protocol):
    """Answers for versions of LangGraph's threads, which are read through a view."""

    def forget(self) -> None:
        """Forget what was read, for a store whose file may be another one."""

    def is_shown(self, view: View, thread_id: str, found: Digested) -> bool:
        """Return False for a version that LangGraph was told to remove, and that others still need."""

    def delta_channels(self, event: CheckpointEvent) -> list[str]:
        """Return the channels of a version that LangGraph keeps as writes."""

    def delta_items(self, view: View, thread_id: str, found: Digested, channel: str) -> list[Any]:
        """Return the items of a delta channel at a version whose state lacks it."""

    def written_items(self, view: View, thread_id: str, found: Digested, channel: str) -> list[Any]:
        """Return the items that were written to a delta channel after a version, and made the next version."""
