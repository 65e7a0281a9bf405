"""Where a checkpoint of LangGraph stands in its thread, as stored. Nothing here imports LangGraph."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from statelog.adapters.kit import items
from statelog.adapters.langgraph.values.names import (
    CHECKPOINT_CHANNEL,
    WRITES_BRANCH,
    Place,
    hidden_name,
    orphan_name,
    writes_prefix,
)
from statelog.adapters.langgraph.values.packing import pack, pack_text, unpack, unpack_texts
from statelog.kernels.msgpack import join_array, split_array

if TYPE_CHECKING:
    from statelog.adapters.kit.lineage import Lineage
    from statelog.store.views import MapView


class Own(NamedTuple):
    """Where a checkpoint of LangGraph's stands."""

    namespace: str
    id: str
    parent: str | None
    latest: str
    """The greatest id among it and the versions before it on its line."""

    @property
    def texts(self) -> tuple[str | None, ...]:
        """The texts that `CHECKPOINT_CHANNEL` begins with."""
        return (self.namespace, self.id, self.parent, None if self.latest == self.id else self.latest)


OWN_PARTS = len(Own._fields)

END_OF_LINE = b"\xf6"
"""In place of an `Own`: the line was ended, so that its last checkpoint can go."""


def decode_own(item: bytes) -> Own | None:
    """Return where a checkpoint stands, None for the end of a line. Nothing of anybody's code runs."""
    if item == END_OF_LINE:
        return None
    namespace, id, parent, latest = unpack_texts(item, OWN_PARTS)
    return Own(namespace or "", id or "", parent, latest or id or "")


def replace_own(item: bytes, own: Own) -> bytes:
    """Return the item of `CHECKPOINT_CHANNEL` of a checkpoint that stands elsewhere and is the same otherwise."""
    parts = split_array(unpack(item)) or []
    return pack(join_array([*map(pack_text, own.texts), *parts[OWN_PARTS:]]))


def kept_item(state: MapView) -> bytes | None:
    """Return the item of `CHECKPOINT_CHANNEL` in a state; None if it is none of ours."""
    stored = items.get(state, CHECKPOINT_CHANNEL)
    return stored if isinstance(stored, bytes) else None


def writes_state(lineage: Lineage) -> MapView | None:
    """Return what the branch of pending writes holds."""
    head = lineage.head(WRITES_BRANCH)
    return None if head is None else head.state


def is_hidden(state: MapView | None, place: Place) -> bool:
    """Whether a checkpoint was removed, though it is there for others."""
    return state is not None and items.get(state, hidden_name(writes_prefix(place))) is not None


def is_orphan(state: MapView | None, place: Place) -> bool:
    """Whether the parent of a checkpoint was removed, so that LangGraph is told of none."""
    return state is not None and items.get(state, orphan_name(writes_prefix(place))) is not None
