"""Reads stored checkpoints, and converts them to LangGraph's types.

A read ends before decoding starts, because a serialiser is foreign code.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import ormsgpack
from langgraph.checkpoint.base import CheckpointTuple, writes_sort_key

from statelog.adapters.kit import items
from statelog.adapters.kit.moment import ThreadView
from statelog.adapters.kit.notes import note
from statelog.adapters.langgraph.saver.bundles import decode_bundles, decode_write, read_bundle
from statelog.adapters.langgraph.saver.listed import ListedTuple
from statelog.adapters.langgraph.saver.metadata import DELTAS
from statelog.adapters.langgraph.values.migration import migrate
from statelog.adapters.langgraph.values.msgpack_items import pack_bytes, unpack_bytes
from statelog.adapters.langgraph.values.names import (
    CHECKPOINT_CHANNEL,
    METADATA_CHANNEL,
    OF_FORK,
    WRITES_BRANCH,
    CheckpointName,
    channel_name,
    checkpoint_name,
    config_of,
    hidden_name,
    line_name,
    orphan_name,
    writes_prefix,
    writes_range,
)
from statelog.adapters.langgraph.values.own import CheckpointItem, Own, decode_own, kept_item, pack_own, split_kept
from statelog.display import graph_versions
from statelog.errors import FormatError
from statelog.format import cbor
from statelog.log.events import SCHEMA_KEY_ITEM
from statelog.store.checkpoint import event_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import EllipsisType

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import Checkpoint as LangGraphCheckpoint
    from langgraph.checkpoint.base import CheckpointMetadata, PendingWrite

    from statelog import Checkpoint
    from statelog.adapters.kit.lineage import Lineage
    from statelog.adapters.langgraph.saver.bundles import Bundle, BundledWrite
    from statelog.adapters.langgraph.values.codec import Read, ValueCodec
    from statelog.adapters.langgraph.values.copies import DecodedBy
    from statelog.log.engine import Engine
    from statelog.store.views import MapView

_new = tuple.__new__
"""Creates a named tuple without calling its `__new__` in Python."""


_APART = ("id", "channel_values")
"""Parts of a checkpoint that are stored separately."""


def encode_kept(codec: ValueCodec, own: Own, checkpoint: Mapping[str, Any]) -> bytes:
    """Return the item of `CHECKPOINT_CHANNEL`: the position, and the checkpoint without its id and values."""
    kept = {part: value for part, value in checkpoint.items() if part not in _APART}
    short = graph_versions.encode(kept) if codec.proves else None
    if short is None:
        return pack_own(own, codec.dump_part(kept, "checkpoint", (CHECKPOINT_CHANNEL,)), is_short=False)
    names, numbers = short
    return pack_own(own, (ormsgpack.packb(names), pack_bytes(numbers)), is_short=True)


def is_in_namespace(namespace: str, state: MapView) -> bool:
    """Return whether a state belongs to a checkpoint of LangGraph in a namespace."""
    kept = kept_item(state)
    own = None if kept is None else decode_own(kept)
    return own is not None and own.namespace == namespace


def load_kept(codec: ValueCodec, kept: CheckpointItem) -> Any:
    """Decode a checkpoint, except its id and values. Raises errors of the serialiser."""
    if kept.is_short:
        names, numbers = kept.value
        return graph_versions.decode(ormsgpack.unpackb(names), unpack_bytes(numbers))
    return codec.load_part(kept.value)


def decode_versions(codec: ValueCodec, item: bytes) -> dict[str, Any]:
    """Return the versions of a checkpoint's channels."""
    kept = split_kept(item)
    checkpoint = {} if kept is None else load_kept(codec, kept)
    return checkpoint.get("channel_versions") or {}


# --- pending writes -----------------------------------------------------------------


WriteRow = list[bytes]
"""Pending writes of some tasks, as `read_bundle` returns them."""


def read_writes(state: MapView | items.Ranges | None, place: CheckpointName) -> list[WriteRow]:
    """Return the pending writes of a checkpoint from the state of `WRITES_BRANCH`.

    To read the writes of many checkpoints, pass one `items.Ranges` of the state to all calls.
    """
    if state is None:
        return []
    first, last = writes_range(writes_prefix(place))
    found = state.between(first, last) if isinstance(state, items.Ranges) else items.keys_between(state, first, last)
    return [read_bundle(stored) for stored in found.values()]


# --- one checkpoint -----------------------------------------------------------------


class CheckpointRow(NamedTuple):
    """One checkpoint as it was read from the store, not yet decoded."""

    place: CheckpointName
    kept: CheckpointItem
    metadata: bytes
    """The encoded metadata of the checkpoint."""
    channels: dict[str, Read]
    writes: list[WriteRow]
    is_orphan: bool

    def parent_config(self) -> RunnableConfig | None:
        """Return the config of the parent, or None if there is none."""
        parent = self.kept.own.parent
        return None if parent is None or self.is_orphan else config_of(self.place._replace(id=parent))


def read_latest(engine: Engine, decoded: DecodedBy, asked: CheckpointName) -> CheckpointRow | EllipsisType | None:
    """Read the checkpoint that a config names, or the latest one, in one short read. Return None if there is none.

    Return Ellipsis if the latest may not be the head of its namespace's only branch. In this case, `Ordered` finds it.
    """
    with engine.read() as view:
        moment = ThreadView(engine, view, asked.thread_id)
        branch = moment.branch(WRITES_BRANCH)
        absent = None if asked.id else ...
        if asked.id:
            head = moment.named(checkpoint_name(asked.namespace, asked.id))
        else:
            lines = moment.lines(line_name(asked.namespace), OF_FORK, branch)
            if len(lines) > 1:
                return ...
            head = moment.head(lines[0]) if lines else None
            if head is None or head.event.branch != lines[0] or head.event.version == 0:
                return None
        if head is None:
            return None
        stored = items.read_tree(moment.state(head))
        item = stored.pop(CHECKPOINT_CHANNEL, None)
        kept = split_kept(item) if isinstance(item, bytes) else None
        if kept is None:
            return absent
        place = asked
        if not asked.id:
            own = kept.own
            place = _new(CheckpointName, (asked.thread_id, own.namespace, own.id))
            if own.latest != own.id or not moment.is_last_of(head, checkpoint_name(own.namespace, own.id)):
                return ...
        pending = None if branch is None else moment.head(branch)
        found: dict[str, items.Stored] = {}
        if pending is not None:
            state, prefix = moment.state(pending), writes_prefix(place)
            if items.has_key(state, hidden_name(prefix)):
                return absent
            found = items.tree_between(state, *writes_range(prefix))
        return _row(place, kept, head.event.metadata, decoded.read_all(stored), found)


def _row(
    place: CheckpointName,
    kept: CheckpointItem,
    metadata: bytes,
    channels: dict[str, Read],
    found: dict[str, items.Stored],
) -> CheckpointRow:
    """Return the row of a checkpoint. `found` has the channels with its pending writes."""
    is_orphan = bool(found) and found.pop(orphan_name(writes_prefix(place)), None) is not None
    return _new(CheckpointRow, (place, kept, metadata, channels, [*map(read_bundle, found.values())], is_orphan))


def find_place(lineage: Lineage, place: CheckpointName) -> Checkpoint | None:
    """Return the checkpoint that a place names, whether or not it is hidden."""
    return lineage.find(checkpoint_name(place.namespace, place.id))


def read_row(
    decoded: DecodedBy, checkpoint: Checkpoint, place: CheckpointName, pending: MapView | None
) -> CheckpointRow | None:
    """Read a whole checkpoint. Return None if it is not LangGraph's."""
    stored = items.read(checkpoint.state)
    item = stored.pop(CHECKPOINT_CHANNEL, None)
    kept = split_kept(item) if isinstance(item, bytes) else None
    if kept is None:
        return None
    found = {} if pending is None else items.keys_between(pending, *writes_range(writes_prefix(place)))
    return _row(place, kept, event_of(checkpoint).metadata, decoded.read_all(stored), found)


def decode_row(
    codec: ValueCodec, row: CheckpointRow, config: RunnableConfig | None = None, decoded: DecodedBy | None = None
) -> CheckpointTuple:
    """Return the tuple for LangGraph. `config` is the config of the caller, if it named this checkpoint.

    Errors of the serialiser get notes that name the thread and channel.
    """
    try:
        return _decode_row(codec, row, config, decoded)
    except Exception as error:
        note(error, f"raised while a checkpoint of thread {row.place.thread_id!r} was decoded")
        raise


def _decode_row(
    codec: ValueCodec, row: CheckpointRow, config: RunnableConfig | None, decoded: DecodedBy | None
) -> CheckpointTuple:
    own = row.kept.own
    checkpoint = load_kept(codec, row.kept)
    if not isinstance(checkpoint, dict):  # A serialiser may decode another serialiser's bytes to anything.
        thread_id = row.place.thread_id
        message = f"checkpoint {own.id} of thread {thread_id!r} cannot be read without the serialiser that wrote it"
        raise FormatError(message, thread=thread_id, checkpoint=own.id)
    checkpoint["id"] = own.id
    values: dict[str, Any] = {}
    checkpoint["channel_values"] = values
    for channel in checkpoint.get("channel_versions") or ():
        read = row.channels.get(channel_name(channel))
        if read is not None:
            try:
                values[channel] = codec.decode(read, decoded)
            except Exception as error:
                note(error, f"raised by the serialiser for channel {channel!r}")
                raise
    metadata = row_metadata(codec, row)
    pending = decode_writes(codec, row.writes, decoded=decoded) if row.writes else []
    migration = codec.migration
    if migration is not None or SCHEMA_KEY_ITEM in row.metadata:
        pending = migrate(migration, row.place, checkpoint, row.metadata, pending, metadata.get(DELTAS) or ())
    if codec.renaming is not None:
        pending = codec.renaming.apply(checkpoint, row.place.namespace, metadata.get("step"), pending)
    return CheckpointTuple(
        config=config_of(row.place) if config is None else config,
        checkpoint=cast("LangGraphCheckpoint", checkpoint),
        metadata=cast("CheckpointMetadata", metadata),
        parent_config=row.parent_config(),
        pending_writes=pending,
    )


def list_row(codec: ValueCodec, row: CheckpointRow, decoded: DecodedBy) -> CheckpointTuple:
    """Return a tuple whose checkpoint is decoded on first use."""
    return ListedTuple.of(
        config_of(row.place),
        cast("CheckpointMetadata", row_metadata(codec, row)),
        row.parent_config(),
        partial(decode_row, codec, row, None, decoded),
    )


def row_metadata(codec: ValueCodec, row: CheckpointRow) -> dict[str, Any]:
    """Return LangGraph's metadata."""
    metadata = cbor.decode(row.metadata, loosely=True)
    return codec.decode_metadata(metadata, row.channels.get(METADATA_CHANNEL))


class WritePosition(NamedTuple):
    """The position of a pending write."""

    task_id: str
    number: int
    channel: str
    path: str
    """The path of its task, by which tasks are sorted. A task may have several paths: `update_state` writes for a task
    that waits for an answer, with a different path."""


def written(rows: Sequence[WriteRow]) -> list[WritePosition]:
    """Return the positions of pending writes in LangGraph's order. Nothing is decoded."""
    return [each for each, _write in _sorted(rows)]


def decode_writes(
    codec: ValueCodec,
    rows: Sequence[WriteRow],
    channels: set[str] | None = None,
    decoded: DecodedBy | None = None,
) -> list[PendingWrite]:
    """Return pending writes in LangGraph's order, of all channels or of those in `channels`."""
    return [
        (each.task_id, each.channel, decode_write(codec, write, decoded))
        for each, write in _sorted(rows)
        if channels is None or each.channel in channels
    ]


def _sorted(rows: Sequence[WriteRow]) -> list[tuple[WritePosition, BundledWrite]]:
    found: dict[tuple[str, int], tuple[WritePosition, BundledWrite]] = {}
    for task_id, path, writes in _in_order(rows):
        for number, write in writes.items():
            found.setdefault((task_id, number), (_new(WritePosition, (task_id, number, write.channel, path)), write))
    return sorted(found.values(), key=_sort_key)


def _in_order(rows: Sequence[WriteRow]) -> Iterator[Bundle]:
    """Yield the writes of tasks, the earliest writes of each task first."""
    groups: list[Bundle] = []
    # Older releases stored single writes. Their rows sort last, although these writes were made first. So go backwards.
    for row in reversed(rows):
        bundles, is_alone = decode_bundles(row)
        if is_alone:
            yield from bundles  # Writes that are stored alone are older than groups.
        else:
            groups += reversed(bundles)
    yield from reversed(groups)


def _sort_key(pair: tuple[WritePosition, BundledWrite]) -> Any:
    task_id, number, _channel, path = pair[0]
    return writes_sort_key(path, task_id, number)
