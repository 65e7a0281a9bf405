"""Checkpoints that go: at once for LangGraph, and from the file as far as nothing is made of them.

The order makes each step safe to be cut off after: they are hidden, in one commit, and their pending writes gone; lines
that end with one of them are ended, since the head of a branch cannot go; then they expire; then nothing needs hiding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.adapters.kit import items
from statelog.adapters.kit.lineage import Lineage
from statelog.adapters.langgraph.saver.ordering import Ordered
from statelog.adapters.langgraph.saver.reading import END_OF_LINE, writes_state
from statelog.adapters.langgraph.saver.replaying import needed_by
from statelog.adapters.langgraph.values.codec import Parts
from statelog.adapters.langgraph.values.names import (
    CHECKPOINT_CHANNEL,
    METADATA_CHANNEL,
    WRITES_BRANCH,
    checkpoint_name,
    hidden_name,
    writes_prefix,
    writes_range,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from statelog import Checkpoint, Store
    from statelog.adapters.langgraph.saver.ordering import Found
    from statelog.adapters.langgraph.values.codec import Codec

_ALL = 1 << 62
_TRUE = b"\xf5"


def keep_latest(store: Store, codec: Codec, thread_id: str) -> None:
    """Remove all checkpoints of a thread but the latest of each namespace."""
    kept: set[str] = set()

    def is_doomed(found: Found) -> bool:
        is_first = found.own.namespace not in kept
        kept.add(found.own.namespace)
        return not is_first

    _remove(store, codec, thread_id, is_doomed)


def remove_all(store: Store, codec: Codec, thread_id: str) -> None:
    """Remove all checkpoints of a thread."""
    _remove(store, codec, thread_id, lambda _found: True)


def remove_runs(store: Store, codec: Codec, thread_id: str, run_ids: frozenset[str]) -> None:
    """Remove the checkpoints of a thread whose metadata has one of these run ids."""
    _remove(store, codec, thread_id, lambda found: _run_of(found) in run_ids)


def _run_of(found: Found) -> str | None:
    run_id = found.checkpoint.metadata.get("run_id")
    return run_id if isinstance(run_id, str) else None


def _remove(store: Store, codec: Codec, thread_id: str, is_doomed: Callable[[Found], bool]) -> None:
    lineage = Lineage(store, thread_id)
    doomed: list[Found] = []
    needed: set[int] = set()
    for found in Ordered(codec, lineage, None).draw(lineage, _ALL):
        if is_doomed(found):
            doomed.append(found)
        else:
            needed.update(_needed(codec, lineage, found))
    if not doomed:
        return
    going = [found for found in doomed if found.checkpoint.lsn not in needed]
    _hide(lineage, doomed, going)
    gone = {found.checkpoint.lsn for found in going}
    for head in lineage.heads():
        if head.checkpoint.lsn in gone:
            others = [name for name in head.checkpoint.state if name != CHECKPOINT_CHANNEL]
            lineage.commit_aside(head.branch, [items.put(CHECKPOINT_CHANNEL, END_OF_LINE), *map(items.remove, others)])
    store.expire([*[found.checkpoint for found in going], *_old_writes(lineage)])
    _unhide(lineage, going)


def _needed(codec: Codec, lineage: Lineage, found: Found) -> set[int]:
    stored = items.get(found.checkpoint.state, METADATA_CHANNEL)
    whole = None if stored is None else Parts().read(stored)
    metadata = codec.decode_metadata(found.checkpoint.metadata, whole)
    return set(needed_by(codec, lineage, found.place, found.checkpoint, metadata))


def _hide(lineage: Lineage, doomed: Sequence[Found], going: Sequence[Found]) -> None:
    """Hide checkpoints, and take out the pending writes of those that go."""
    state = writes_state(lineage)
    writes = [items.put(hidden_name(writes_prefix(found.place)), _TRUE) for found in doomed]
    if state is not None:
        for found in going:
            writes += map(items.remove, items.keys_between(state, *writes_range(writes_prefix(found.place))))
    names = [checkpoint_name(found.own.namespace, found.own.id) for found in going]
    lineage.commit_aside(WRITES_BRANCH, writes, untag=names)


def _old_writes(lineage: Lineage) -> list[Checkpoint]:
    """Return the versions of the branch of pending writes before its head: they hold nothing that is asked for."""
    return lineage.versions(WRITES_BRANCH, None, _ALL)[1:]


def _unhide(lineage: Lineage, going: Sequence[Found]) -> None:
    gone = [found for found in going if lineage.find(checkpoint_name(found.own.namespace, found.own.id)) is None]
    if gone:
        lineage.commit_aside(WRITES_BRANCH, [items.remove(hidden_name(writes_prefix(found.place))) for found in gone])
