"""Removes the pending writes of checkpoints that have expired.

Retention removes versions, and does not know whose writes the branch `writes` has, so the store calls this module after
each retention. The checkpoint of some writes may not exist yet, because LangGraph may store the writes first.
These writes are marked (`awaited_name`) until the checkpoint is seen, or for a day.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING
from weakref import ref

from statelog.adapters.kit import items
from statelog.adapters.kit.lineage import Lineage
from statelog.adapters.langgraph.values.names import (
    PREFIX_SIZE,
    WRITES_BRANCH,
    awaited_name,
    checkpoint_prefix,
    place_in,
)
from statelog.adapters.langgraph.values.own import decode_own, kept_item, writes_state
from statelog.errors import BranchNotFoundError, ThreadNotFoundError
from statelog.format import cbor
from statelog.log.care.serves import UNMET_US
from statelog.store.session import session_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from statelog import Store
    from statelog.adapters.kit.items import PreparedWrite
    from statelog.store.views import MapView

_NAME = "langgraph"
_COUNT_MIN = 64
_SWEPT_MAX = 1024


def sweep_after_retention(store: Store) -> None:
    """Remove the pending writes of expired checkpoints in all of LangGraph's threads in a store."""
    session_of(store).sweep_with(_NAME, partial(_sweep, ref(store), {}, set()))


def _sweep(
    store_ref: Callable[[], Store | None], left: dict[str, int], busy: set[str], thread_id: str, *, at_once: bool
) -> bool:
    """Remove the pending writes of checkpoints that are gone. Return whether there were any.

    Without `at_once`, nothing is done until there are twice as many writes as the last sweep has left, so that each
    commit costs little however many checkpoints are kept. With `at_once`, earlier versions of the branch also expire,
    because they have the removed writes.
    """
    store = store_ref()
    if store is None or thread_id in busy:
        return False
    with suppress(ThreadNotFoundError, BranchNotFoundError):  # The thread was deleted meanwhile.
        return _swept(store, left, busy, thread_id, at_once=at_once)
    return False


def _swept(store: Store, left: dict[str, int], busy: set[str], thread_id: str, *, at_once: bool) -> bool:
    with store.snapshot() as snapshot:
        lineage = Lineage(snapshot, thread_id)
        state = writes_state(lineage)
        if state is None or (not at_once and len(state) < 2 * left.get(thread_id, 0) + _COUNT_MIN):
            return False
        writes = list(_removals(lineage, state))
        if len(left) >= _SWEPT_MAX:
            left.clear()
        left[thread_id] = len(state) - len(writes)
    if writes:
        Lineage(store, thread_id).commit_aside(WRITES_BRANCH, writes)
    if at_once:
        busy.add(thread_id)
        try:
            store.expire(islice(store.thread(thread_id, branch=WRITES_BRANCH).history(), 1, None))
        finally:
            busy.discard(thread_id)
    return bool(writes)


def _removals(lineage: Lineage, state: MapView) -> Iterator[PreparedWrite]:
    there = {checkpoint_prefix(*place) for place in _places(lineage)}
    oldest_us = time.time_ns() // 1000 - UNMET_US
    names: Sequence[str] = list(state)
    awaited = {
        name[:PREFIX_SIZE]
        for name in names
        if name == awaited_name(name[:PREFIX_SIZE]) and _time_us(items.get(state, name)) > oldest_us
    }
    for name in names:
        prefix = name[:PREFIX_SIZE]
        is_met = name == awaited_name(prefix) and prefix in there
        if is_met or (prefix not in there and prefix not in awaited):
            yield items.remove(name)


def _time_us(stored: items.Stored | None) -> int:
    return int(cbor.decode(stored)) if isinstance(stored, bytes) else 0


def _places(lineage: Lineage) -> Iterator[tuple[str, str]]:
    """Yield the namespace and the id of each existing checkpoint."""
    for name in lineage.names():
        place = place_in(name)
        if place is None:
            found = lineage.find(name)
            item = None if found is None else kept_item(found.state)
            own = None if item is None else decode_own(item)
            place = None if own is None else (own.namespace, own.id)
        if place is not None:
            yield place
