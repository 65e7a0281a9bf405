"""Removes checkpoints. LangGraph no longer sees them. They are deleted from the file unless others need them.

A crash after any step leaves a consistent state. First, one commit hides the checkpoints, and removes the pending
writes of those that will expire. Then each branch whose head is removed gets an end marker, because a head cannot
expire. (The exception is a head that expires together with the checkpoint that called its graph.) Then the checkpoints
expire, and `write_sweep.py` removes the marks that hid them. A checkpoint that other checkpoints need stays hidden.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from statelog.adapters.kit import items
from statelog.adapters.kit.lineage import Lineage
from statelog.adapters.langgraph.saver.bundles import encode_bundles
from statelog.adapters.langgraph.saver.checkpoint_order import Ordered
from statelog.adapters.langgraph.saver.delta_replay import needed_by
from statelog.adapters.langgraph.values.codec import read_whole
from statelog.adapters.langgraph.values.names import (
    CHECKPOINT_CHANNEL,
    METADATA_CHANNEL,
    WRITES_BRANCH,
    checkpoint_name,
    hidden_name,
    orphan_name,
    served_by,
    writes_prefix,
    writes_range,
)
from statelog.adapters.langgraph.values.own import END_OF_LINE, is_orphan, writes_state
from statelog.errors import BranchNotFoundError, ExpiredError, ThreadNotFoundError
from statelog.log.care.serves import UNMET_US
from statelog.log.events import SERVES_KEY
from statelog.store.checkpoint import event_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from statelog import Checkpoint, Store
    from statelog.adapters.kit.lineage import LineHead
    from statelog.adapters.langgraph.saver.checkpoint_order import FoundCheckpoint
    from statelog.adapters.langgraph.values.codec import ValueCodec

_ALL = 1 << 62
_TRIES_MAX = 8
"""The maximum number of attempts to read the checkpoints of a thread while other processes remove some of them."""
_TRUE = b"\xf5"


def keep_latest(store: Store, codec: ValueCodec, thread_id: str) -> None:
    """Remove all checkpoints of a thread, except the latest of each namespace.

    In the namespace of a called graph, the latest is kept only if the checkpoint that called the graph is kept.
    """
    _retry(partial(_keep_latest, store, codec, thread_id))


def _retry(remove: Callable[[], None]) -> None:
    """Call `remove`, and call it again if another process removes versions meanwhile. Ignore a deleted thread."""
    for tries_left in reversed(range(_TRIES_MAX)):
        try:
            remove()
        except (ThreadNotFoundError, BranchNotFoundError):
            return
        except ExpiredError:
            if not tries_left:
                raise
        else:
            return


def _keep_latest(store: Store, codec: ValueCodec, thread_id: str) -> None:
    lineage = Lineage(store, thread_id)
    latest: dict[str, tuple[FoundCheckpoint, str | None]] = {}
    there: set[str] = set()
    for found in Ordered(lineage, None).draw(lineage, _ALL):
        there.add(_name(found))
        if found.own.namespace not in latest:
            latest[found.own.namespace] = (found, _served_by(codec, found))
    kept = {_name(found) for found, serves in latest.values() if serves is None or _is_awaited(found, serves, there)}
    count = 0
    while count != (count := len(kept)):
        kept.update(_name(found) for found, serves in latest.values() if serves in kept)
    _remove(store, codec, lineage, lambda found: _name(found) not in kept, leaves_orphans=True)


def _name(found: FoundCheckpoint) -> str:
    return checkpoint_name(found.own.namespace, found.own.id)


def _served_by(codec: ValueCodec, found: FoundCheckpoint) -> str | None:
    """Return the name of the checkpoint that called `found`'s graph. Older releases did not store this name."""
    parents = _metadata(codec, found).get("parents") if found.own.namespace else None
    return served_by(found.own.namespace, parents)


def _is_awaited(found: FoundCheckpoint, serves: str, there: Collection[str]) -> bool:
    """Return True if the checkpoint that called the graph may still be put."""
    age_us = time.time_ns() // 1000 - event_of(found.checkpoint).time_us
    return serves not in there and age_us < UNMET_US


def remove_all(store: Store, codec: ValueCodec, thread_id: str) -> None:
    """Remove all checkpoints of a thread."""
    _retry(partial(_remove, store, codec, Lineage(store, thread_id), lambda _found: True))


def remove_runs(store: Store, codec: ValueCodec, thread_id: str, run_ids: frozenset[str]) -> None:
    """Remove the checkpoints of a thread whose metadata has one of these run ids."""
    lineage = Lineage(store, thread_id)
    _retry(partial(_remove, store, codec, lineage, lambda found: _run_of(found) in run_ids))


def _run_of(found: FoundCheckpoint) -> str | None:
    run_id = found.checkpoint.metadata.get("run_id")
    return run_id if isinstance(run_id, str) else None


def _remove(
    store: Store,
    codec: ValueCodec,
    lineage: Lineage,
    is_doomed: Callable[[FoundCheckpoint], bool],
    *,
    leaves_orphans: bool = False,
) -> None:
    """Remove checkpoints. With `leaves_orphans`, a kept checkpoint loses a removed parent."""
    doomed: list[FoundCheckpoint] = []
    kept: dict[str, FoundCheckpoint] = {}
    alone: list[FoundCheckpoint] = []
    needed: set[int] = set()
    for found in Ordered(lineage, None).draw(lineage, _ALL):
        if is_doomed(found):
            doomed.append(found)
            continue
        kept[_name(found)] = found
        needs = _needed(codec, lineage, found)
        needed.update(needs)
        if leaves_orphans and not needs:
            alone.append(found)
    orphans = [
        each
        for each in alone
        if each.own.parent and checkpoint_name(*_parent(each)) not in kept and not is_orphan(each.pending, each.place)
    ]
    if not doomed and not orphans:
        return
    going = [found for found in doomed if found.checkpoint.lsn not in needed]
    _hide(lineage, doomed, going, orphans)
    gone = {found.checkpoint.lsn for found in going}
    names = set(map(_name, going))
    heads = lineage.heads()
    for head in heads:
        if head.checkpoint.lsn in gone and not _goes_by_itself(head, names, heads):
            with suppress(ExpiredError):  # Another process has removed the version, so it is not the head anymore.
                others = [name for name in head.checkpoint.state if name != CHECKPOINT_CHANNEL]
                ends = [items.put(CHECKPOINT_CHANNEL, END_OF_LINE), *map(items.remove, others)]
                lineage.commit_aside(head.branch, ends)
    store.expire(found.checkpoint for found in going)  # write_sweep.py then removes the marks that hide them.
    store.expire(_old_writes(lineage))


def _goes_by_itself(head: LineHead, going: Collection[str], heads: Sequence[LineHead]) -> bool:
    """Return True if a branch expires with the checkpoint that called its graph (`care.serves`). Forks prevent this."""
    is_left = any(other.branch.startswith(f"{head.branch}@") for other in heads)
    return head.checkpoint.metadata.get(SERVES_KEY) in going and not is_left


def _needed(codec: ValueCodec, lineage: Lineage, found: FoundCheckpoint) -> set[int]:
    return set(needed_by(lineage, found.place, found.checkpoint, _metadata(codec, found)))


def _metadata(codec: ValueCodec, found: FoundCheckpoint) -> dict[str, Any]:
    stored = items.get(found.checkpoint.state, METADATA_CHANNEL)
    whole = None if stored is None else read_whole(stored)
    return codec.decode_metadata(found.checkpoint.metadata, whole)


def _parent(found: FoundCheckpoint) -> tuple[str, str]:
    return found.own.namespace, found.own.parent or ""


def _hide(
    lineage: Lineage,
    doomed: Sequence[FoundCheckpoint],
    going: Sequence[FoundCheckpoint],
    orphans: Sequence[FoundCheckpoint],
) -> None:
    """Hide checkpoints, mark their children as orphans, and remove the pending writes of those that expire.

    A checkpoint whose DeltaChannels need hidden checkpoints keeps its parent, because LangGraph gives a copy of the
    checkpoint the same parent.
    """
    state = writes_state(lineage)
    writes = [items.put(hidden_name(writes_prefix(found.place)), _TRUE) for found in doomed]
    writes += [items.put(orphan_name(writes_prefix(found.place)), encode_bundles([])) for found in orphans]
    if state is not None:
        for found in going:
            writes += map(items.remove, items.keys_between(state, *writes_range(writes_prefix(found.place))))
    lineage.commit_aside(WRITES_BRANCH, writes, untag=list(map(_name, going)))


def _old_writes(lineage: Lineage) -> list[Checkpoint]:
    """Return the versions of the branch `writes` before its head, which are never read."""
    return lineage.versions(WRITES_BRANCH, None, _ALL)[1:]
