"""Finds items in the state of one snapshot."""

from __future__ import annotations

import heapq
import sys
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.adapters.langgraph.memory.items.changes import ItemFacts, expiring_bound, recent_key
from statelog.adapters.langgraph.memory.items.namespaces import common_prefix, cut, fits, from_text, to_text
from statelog.store.checkpoint import event_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from langgraph.store.base import ListNamespacesOp

    from statelog import Thread
    from statelog.adapters.langgraph.memory.items.filters import Matches
    from statelog.adapters.langgraph.memory.items.namespaces import Namespace
    from statelog.adapters.langgraph.memory.items.versions import ItemSchemas

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_MISSES_MAX = 100
_MISSES_SHARE = 8
"""If more items than `_MISSES_MAX`, or more than 1/`_MISSES_SHARE` of all items, do not match, the other items are read
in the order in which they are stored. This takes about an eighth of the time for each item."""

_MERGED_MAX = 64
_SAMPLE = 32
_SMALL = 8
"""All items are read if there are more than `_MERGED_MAX` namespaces, and a sample of them has fewer than `_SMALL`
items each on average. Opening a namespace takes as long as reading about ten items of an open one."""

_WALKED_SHARE = 32
"""After a walk over this share of all namespaces (1/32), the names of all namespaces are compared instead, because
comparing a name takes a fraction of the time of a step."""

_NOTHING: Mapping[str, Any] = {}


class FoundItem(NamedTuple):
    """An item that was found."""

    namespace: str
    key: str
    about: ItemFacts
    value: Any
    """A dict, or a view if the dict is large."""
    score: float | None = None


def to_time(time_us: int) -> datetime:
    """Return a stored time as a datetime."""
    return _EPOCH + timedelta(microseconds=time_us)


class Reader:
    """Reads the items in one snapshot, except those expired by `now_us`."""

    def __init__(self, thread: Thread, now_us: int, schemas: ItemSchemas | None = None) -> None:
        self._thread = thread
        self._schemas = schemas
        self._state: Mapping[str, Any] = thread.state.lazy
        self.now_us = now_us
        self._channels: dict[str, Mapping[str, Any]] = {}
        self._opened: dict[tuple[str, str], Mapping[str, Any]] = {}

    @property
    def line(self) -> tuple[int, int]:
        """A value that changes when the thread is rolled back or re-created, because put numbers then repeat."""
        head = self._thread.head
        return (0, 0) if head is None else (event_of(head).thread, head.version - event_of(head).depth)

    @property
    def last_number(self) -> int:
        """The number of the last put."""
        number: int = self._state.get("last", 0)
        return number

    def _channel(self, channel: str) -> Mapping[str, Any]:
        found = self._channels.get(channel)
        if found is None:
            found = self._channels[channel] = self._state.get(channel, _NOTHING)
        return found

    def of(self, channel: str, namespace: str) -> Mapping[str, Any]:
        """Return the dict of a namespace in a channel."""
        place = channel, namespace
        found = self._opened.get(place)
        if found is None:
            found = self._opened[place] = self._channel(channel).get(namespace, _NOTHING)
        return found

    # --- items ------------------------------------------------------------------

    def find(self, namespace: str, key: str) -> FoundItem | None:
        """Return an item, or None."""
        return self.match(namespace, key, None)

    def older(self, prefix: Namespace) -> list[tuple[str, str]]:
        """Return (namespace, key) of each item in and below a namespace that `migrate` must bring up to date."""
        schemas = self._schemas
        places = [(namespace, key) for namespace in self.namespaces(prefix) for key in self.of("items", namespace)]
        return [] if schemas is None else [each for each in places if schemas.is_older(*each, self._entry(*each))]

    def _entry(self, namespace: str, key: str) -> Mapping[str, Any]:
        entry: Mapping[str, Any] = self.of("items", namespace)[key]
        return entry

    def match(self, namespace: str, key: str, matches: Matches | None) -> FoundItem | None:
        """Return an item if it exists and matches."""
        entry = self.of("items", namespace).get(key)
        return None if entry is None else self._found(namespace, key, entry, matches)

    def _found(self, namespace: str, key: str, entry: Mapping[str, Any], matches: Matches | None) -> FoundItem | None:
        value = entry["value"] if self._schemas is None else self._schemas.shown(namespace, key, entry)
        if matches is not None and not matches(value):
            return None
        about = ItemFacts.of(entry)
        return FoundItem(namespace, key, about, value) if about.is_alive(self.now_us) else None

    def recent(self, prefix: Namespace, matches: Matches | None) -> Iterator[FoundItem]:
        """Yield the items in and below a namespace that match, from the last put to the first."""
        namespaces = self.namespaces(prefix)
        if self._are_many_and_small(namespaces):
            yield from self._all_before("", namespaces, matches)
            return
        streams = [self._recent_in(namespace) for namespace in namespaces]
        misses = 0
        misses_max = -1
        for at, namespace, key in streams[0] if len(streams) == 1 else heapq.merge(*streams):
            found = self.match(namespace, key, matches)
            if found is not None:
                yield found
            elif matches is not None:
                misses += 1
                if misses_max < 0:
                    count = sum(len(self.of("items", each)) for each in namespaces)
                    misses_max = min(_MISSES_MAX, count // _MISSES_SHARE)
                if misses > misses_max:
                    yield from self._all_before(at, namespaces, matches)
                    return

    def _recent_in(self, namespace: str) -> Iterator[tuple[str, str, str]]:
        for at, key in self.of("recent", namespace).items():
            yield at, namespace, key

    def _are_many_and_small(self, namespaces: list[str]) -> bool:
        """Return True if opening `recent` for each namespace would take longer than reading all items."""
        if len(namespaces) <= _MERGED_MAX:
            return False
        some = namespaces[:: len(namespaces) // _SAMPLE]
        return sum(len(self.of("items", each)) for each in some) < _SMALL * len(some)

    def _all_before(self, at: str, namespaces: list[str], matches: Matches | None) -> Iterator[FoundItem]:
        """Yield the matching items that were put before the item at the key `at` of `recent`, latest first.

        All items are read, in the order in which they are stored.
        """
        places = []
        for namespace, entries in self._entries(namespaces):
            for key, entry in entries.items():
                found = self._found(namespace, key, entry, matches)
                if found is not None and recent_key(found.about.number) > at:
                    places.append((found.about.number, namespace, key))
        for _number, namespace, key in sorted(places, reverse=True):
            found = self.find(namespace, key)
            assert found is not None
            yield found

    def _entries(self, namespaces: list[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        items = self._channel("items")
        if len(namespaces) * _SMALL < len(items):
            for namespace in namespaces:
                yield namespace, self.of("items", namespace)
            return
        chosen = frozenset(namespaces)
        for namespace, entries in items.items():
            if namespace in chosen:
                yield namespace, entries

    # --- namespaces ---------------------------------------------------------------

    def namespaces(self, prefix: Namespace) -> list[str]:
        """Return the namespaces in and below `prefix` that have items, expired or not."""
        items = self._channel("items")
        text = to_text(prefix)
        pending = [text] if prefix else []
        found: list[str] = []
        walked_max = len(items) // _WALKED_SHARE
        while pending and walked_max >= 0:
            walked_max -= 1
            namespace = pending.pop()
            if namespace in items:
                found.append(namespace)
            pending += [f"{namespace}.{label}" for label in self.of("namespaces", namespace)]
        if prefix and not pending:
            return found
        return [each for each in items if not prefix or each == text or each.startswith(f"{text}.")]

    def list_namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        """Return the namespaces that match and have items that have not expired, sorted label by label."""
        conditions = op.match_conditions or ()
        dead = self._dead_namespaces()
        found = [
            namespace
            for namespace in map(from_text, self.namespaces(common_prefix(conditions)))
            if namespace not in dead and all(fits(namespace, condition) for condition in conditions)
        ]
        return cut(found, op.max_depth)[op.offset : op.offset + op.limit]

    def _dead_namespaces(self) -> set[Namespace]:
        """Return the namespaces in which all items have expired but have not been deleted yet."""
        counts: dict[str, int] = {}
        bound = expiring_bound(self.now_us)
        for at, (namespace, _key) in self._channel("expiring").items():
            if at > bound:
                break
            counts[namespace] = counts.get(namespace, 0) + 1
        return {from_text(each) for each, count in counts.items() if count == len(self.of("items", each))}


def take(found: Iterator[FoundItem], offset: int, limit: int) -> list[FoundItem]:
    """Return the slice `[offset : offset + limit]` of found items. Negative bounds count from the end."""
    if offset < 0 or limit < 0:
        return list(found)[offset : offset + limit]
    return list(islice(found, min(offset, sys.maxsize), min(offset + limit, sys.maxsize)))
