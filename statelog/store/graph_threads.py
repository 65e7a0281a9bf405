"""Reads LangGraph's threads for searches, through one view of the store and without read checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.format import cbor
from statelog.log.batch import NOTHING_HELD, Head
from statelog.store.checkpoint import Checkpoint, event_of
from statelog.store.frameworks import COUNTERS, deltas, keeper
from statelog.store.session import session_of
from statelog.store.snapshot import SnapshotSession
from statelog.store.views import state_view

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.log.engine import Engine
    from statelog.log.events import CheckpointEvent, Digested
    from statelog.log.view import View
    from statelog.store.views import MapView

_COUNTERS_ITEM = cbor.encode(COUNTERS)
_CHANNELS_MAX = 32
_LISTS_MAX = 4
"""The maximum number of lists that are cached for one channel. A new list is built from a cached list, and shares its
items.
"""


class _HeldView:
    """Wraps a view, so that the adapter's functions can use it like a store."""

    def __init__(self, engine: Engine, view: View) -> None:
        self._session = SnapshotSession(engine, view)


class GraphThreadsInView:
    """Implements `statelog.search.graphs.GraphThreads` with one view at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._view: View | None = None
        self._held: _HeldView
        self._shows: dict[str, Callable[[Checkpoint[Any]], bool]] = {}
        self._lists: dict[tuple[str, str], dict[int, list[Any]]] = {}
        """The most recently built lists of delta channels, keyed by thread and channel, and then by LSN."""

    def forget(self) -> None:
        """Clear all caches, because the store's file may have been replaced."""
        self._view, self._lists = None, {}

    def _hold(self, view: View) -> _HeldView:
        if self._view is not view:
            self._view, self._held, self._shows = view, _HeldView(self._engine, view), {}
        return self._held

    def _checkpoint(self, view: View, thread_id: str, found: Digested) -> Checkpoint[Any]:
        session = session_of(self._hold(view))
        return Checkpoint(session, thread_id, tuple.__new__(Head, (*found, None, NOTHING_HELD)))

    def is_shown(self, view: View, thread_id: str, found: Digested) -> bool:
        """Return False for a version that the user removed through LangGraph, but that other versions still need."""
        checkpoint = self._checkpoint(view, thread_id, found)
        shows = self._shows.get(thread_id)
        if shows is None:
            shows = self._shows[thread_id] = keeper().shows(self._held, thread_id)
        return shows(checkpoint)

    def delta_channels(self, event: CheckpointEvent) -> list[str]:
        """Return the delta channels of a version, which LangGraph stores as writes."""
        if _COUNTERS_ITEM not in event.metadata:
            return []
        return deltas().delta_channels(cbor.decode(event.metadata, as_stored=True))

    def delta_items(self, view: View, thread_id: str, found: Digested, channel: str) -> list[Any]:
        """Return the items of a delta channel at a version whose state does not have the channel."""
        checkpoint = self._checkpoint(view, thread_id, found)
        known = self._lists.pop((thread_id, channel), {})
        items = known.get(checkpoint.lsn)
        if items is None:
            items = deltas().delta_items(self._held, checkpoint, channel, _unchecked_state, known)
            if len(known) >= _LISTS_MAX:
                del known[next(iter(known))]
            known[checkpoint.lsn] = items
        if len(self._lists) >= _CHANNELS_MAX:
            del self._lists[next(iter(self._lists))]
        self._lists[thread_id, channel] = known
        return items

    def written_items(self, view: View, thread_id: str, found: Digested, channel: str) -> list[Any]:
        """Return the items that were written to a delta channel after a version, and that the next version includes."""
        checkpoint = self._checkpoint(view, thread_id, found)
        return deltas().written_items(self._held, checkpoint, channel, _unchecked_state)


def _unchecked_state(checkpoint: Checkpoint[Any]) -> MapView:
    """Return the state of a checkpoint. The search runs the read checks itself, outside of the view."""
    event = event_of(checkpoint)
    workspace = checkpoint._session.workspace()  # noqa: SLF001 - a checkpoint has no such state to offer
    return state_view(workspace, event.root_digest, event.root_lsn, event.root_node)
