"""Encodes and decodes the position of a LangGraph checkpoint in its thread. Nothing here imports LangGraph."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from statelog.adapters.kit import items
from statelog.adapters.langgraph.values.msgpack_items import pack, pack_id, pack_text, split_parts, unpack_id
from statelog.adapters.langgraph.values.names import (
    CHECKPOINT_CHANNEL,
    WRITES_BRANCH,
    CheckpointName,
    hidden_name,
    orphan_name,
    writes_prefix,
)
from statelog.kernels.msgpack import join_array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from statelog.adapters.kit.lineage import Lineage
    from statelog.store.views import MapView

_new = tuple.__new__
"""Creates a named tuple without calling its `__new__` in Python."""


class Own(NamedTuple):
    """The position of a LangGraph checkpoint in its thread."""

    namespace: str
    id: str
    parent: str | None
    latest: str
    """The greatest id among this checkpoint and its ancestors in the branch."""


_OWN_PARTS = len(Own._fields)
SHORT = b"\x01"
"""The first byte of items of `CHECKPOINT_CHANNEL` whose versions `display.graph_versions` has encoded."""

END_OF_LINE = b"\xf6"
"""The end marker of a branch, stored instead of an `Own`, so that the branch's last checkpoint can be removed."""


class CheckpointItem(NamedTuple):
    """The parts of an item of `CHECKPOINT_CHANNEL`."""

    own: Own
    value: Sequence[bytes]
    """The checkpoint without its id and values: the names and numbers of its versions, or the parts of `dump_part`."""
    is_short: bool


def split_kept(item: bytes) -> CheckpointItem | None:
    """Split an item of `CHECKPOINT_CHANNEL`, or return None for an end marker. This runs no user code."""
    if item == END_OF_LINE:
        return None
    parts = split_parts(item)
    is_short = parts[:1] == [SHORT]
    if is_short:
        del parts[0]
    namespace, id, parent, latest = map(unpack_id, parts[:_OWN_PARTS])
    id = id or ""
    return _new(CheckpointItem, (_new(Own, (namespace or "", id, parent, latest or id)), parts[_OWN_PARTS:], is_short))


def decode_own(item: bytes) -> Own | None:
    """Return the position of a checkpoint, or None for an end marker. No user code runs."""
    kept = split_kept(item)
    return None if kept is None else kept.own


def pack_own(own: Own, value: Sequence[bytes], *, is_short: bool) -> bytes:
    """Return the item for a position and a value. This is the inverse of `split_kept`."""
    latest = None if own.latest == own.id else own.latest
    if is_short:
        ids = [pack_id(own.id), pack_id(own.parent), pack_id(latest)]
        return pack(join_array([SHORT, pack_text(own.namespace), *ids, *value]))
    return pack(join_array([*map(pack_text, (own.namespace, own.id, own.parent, latest)), *value]))


def replace_own(item: bytes, own: Own) -> bytes:
    """Return an item of `CHECKPOINT_CHANNEL` with its position replaced by `own`."""
    kept = split_kept(item)
    assert kept is not None
    return pack_own(own, kept.value, is_short=kept.is_short)


def kept_item(state: MapView) -> bytes | None:
    """Return the item of `CHECKPOINT_CHANNEL` in a state, or None if the state is not from this adapter."""
    stored = items.get(state, CHECKPOINT_CHANNEL)
    return stored if isinstance(stored, bytes) else None


def writes_state(lineage: Lineage) -> MapView | None:
    """Return the state of the branch `writes`, which has the pending writes, or None if there are none."""
    head = lineage.head(WRITES_BRANCH)
    return None if head is None else head.state


def is_hidden(state: MapView | None, place: CheckpointName) -> bool:
    """Return True if LangGraph has removed the checkpoint, but other checkpoints still need it."""
    return state is not None and items.get(state, hidden_name(writes_prefix(place))) is not None


def is_orphan(state: MapView | None, place: CheckpointName) -> bool:
    """Return True if the parent was removed, so that LangGraph sees no parent."""
    return state is not None and items.get(state, orphan_name(writes_prefix(place))) is not None
