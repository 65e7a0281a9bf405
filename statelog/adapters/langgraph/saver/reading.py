"""What is in a store of one checkpoint, and what LangGraph gets of it.

Reading is done on one moment of the store, and ended before anything is decoded: a serialiser is somebody else's code.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from langgraph.checkpoint.base import CheckpointTuple, writes_sort_key

from statelog.adapters.kit import items
from statelog.adapters.kit.notes import note
from statelog.adapters.langgraph.saver.bundles import decode_bundles, decode_write, read_bundle
from statelog.adapters.langgraph.saver.listed import ListedTuple
from statelog.adapters.langgraph.values.names import (
    CHECKPOINT_CHANNEL,
    METADATA_CHANNEL,
    Place,
    channel_name,
    checkpoint_name,
    config_of,
    writes_prefix,
    writes_range,
)
from statelog.adapters.langgraph.values.own import END_OF_LINE, OWN_PARTS, Own, decode_own, kept_item
from statelog.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import Checkpoint as LangGraphCheckpoint
    from langgraph.checkpoint.base import CheckpointMetadata, PendingWrite

    from statelog import Checkpoint
    from statelog.adapters.kit.lineage import Lineage
    from statelog.adapters.langgraph.saver.bundles import Bundle, BundledWrite
    from statelog.adapters.langgraph.values.codec import Codec, Read
    from statelog.adapters.langgraph.values.copying import DecodedBy
    from statelog.store.views import MapView

_new = tuple.__new__
"""Makes a named tuple without a call of Python's."""


def encode_kept(codec: Codec, own: Own, checkpoint: Mapping[str, Any]) -> bytes:
    """Return the item of `CHECKPOINT_CHANNEL`: where it stands, and what LangGraph keeps of it but id and values."""
    kept = {**checkpoint}
    for part in ("id", "channel_values"):
        kept.pop(part, None)
    return codec.encode_parts(own.texts, kept, "checkpoint")


def is_in_namespace(namespace: str, state: MapView) -> bool:
    """Whether a state is that of a checkpoint of LangGraph's in a namespace."""
    kept = kept_item(state)
    own = None if kept is None else decode_own(kept)
    return own is not None and own.namespace == namespace


def decode_checkpoint(codec: Codec, item: bytes) -> dict[str, Any]:
    """Return what LangGraph keeps of a checkpoint besides values and its id."""
    checkpoint: dict[str, Any] = codec.decode_value(item, OWN_PARTS)
    return checkpoint


# --- pending writes -----------------------------------------------------------------


WriteRow = list[bytes]
"""Pending writes of some tasks, as `read_bundle` returns them."""


def read_writes(state: MapView | items.Ranges | None, place: Place) -> list[WriteRow]:
    """Return the pending writes of a checkpoint in the head of `WRITES_BRANCH`; of many, by `items.Ranges` of it."""
    if state is None:
        return []
    first, last = writes_range(writes_prefix(place))
    found = state.between(first, last) if isinstance(state, items.Ranges) else items.keys_between(state, first, last)
    return [read_bundle(stored) for stored in found.values()]


# --- one checkpoint -----------------------------------------------------------------


class Row(NamedTuple):
    """One checkpoint, as stored: everything is read."""

    place: Place
    checkpoint: Checkpoint
    kept: bytes
    metadata: dict[str, Any]
    channels: dict[str, Read]
    writes: list[WriteRow]
    is_orphan: bool

    def parent_config(self, own: Own) -> RunnableConfig | None:
        """Return the config of the parent, None if there is none."""
        return None if own.parent is None or self.is_orphan else config_of(self.place._replace(id=own.parent))


def find_place(lineage: Lineage, place: Place) -> Checkpoint | None:
    """Return the checkpoint that a place names, be it hidden or not."""
    return lineage.find(checkpoint_name(place.namespace, place.id))


def read_row(decoded: DecodedBy, checkpoint: Checkpoint, place: Place, pending: MapView | None) -> Row | None:
    """Read a checkpoint whole; None if it is none of LangGraph's."""
    channels: dict[str, Read] = {name: decoded.read(stored) for name, stored in items.read(checkpoint.state).items()}
    kept = channels.pop(CHECKPOINT_CHANNEL, None)
    if not isinstance(kept, bytes) or kept == END_OF_LINE:
        return None
    first, last = writes_range(writes_prefix(place))
    found = {} if pending is None else items.keys_between(pending, first, last)
    # The name `first` is `orphan_name`, which no write has.
    is_orphan = found.pop(first, None) is not None
    writes = [read_bundle(stored) for stored in found.values()]
    return Row(place, checkpoint, kept, checkpoint.metadata, channels, writes, is_orphan)


def decode_row(
    codec: Codec, row: Row, config: RunnableConfig | None = None, decoded: DecodedBy | None = None
) -> CheckpointTuple:
    """Return what LangGraph gets; `config` is what it asked with, if it asked for this very checkpoint.

    What the serialiser raises comes as it is, with notes that name thread and channel.
    """
    try:
        return _decode_row(codec, row, config, decoded)
    except Exception as error:
        note(error, f"raised as a checkpoint of thread {row.place.thread_id!r} was decoded")
        raise


def _decode_row(codec: Codec, row: Row, config: RunnableConfig | None, decoded: DecodedBy | None) -> CheckpointTuple:
    own = decode_own(row.kept)
    assert own is not None
    checkpoint = decode_checkpoint(codec, row.kept)
    if not isinstance(checkpoint, dict):  # a serialiser may give anything for what another one wrote
        thread_id = row.place.thread_id
        message = f"checkpoint {own.id} of thread {thread_id!r} cannot be read without the serialiser that wrote it"
        raise FormatError(message, thread=thread_id, checkpoint=own.id)
    checkpoint["id"] = own.id
    values: dict[str, Any] = {}
    checkpoint["channel_values"] = values
    for channel in checkpoint.get("channel_versions") or ():
        name = channel_name(channel)
        if name in row.channels:
            try:
                values[channel] = codec.decode(row.channels[name], decoded)
            except Exception as error:
                note(error, f"raised by the serialiser for channel {channel!r}")
                raise
    return CheckpointTuple(
        config=config_of(row.place) if config is None else config,
        checkpoint=cast("LangGraphCheckpoint", checkpoint),
        metadata=cast("CheckpointMetadata", row_metadata(codec, row)),
        parent_config=row.parent_config(own),
        pending_writes=decode_writes(codec, row.writes, decoded=decoded),
    )


def list_row(codec: Codec, row: Row, decoded: DecodedBy) -> CheckpointTuple:
    """Return what LangGraph gets of one of several, decoded as far as it is looked at."""
    own = decode_own(row.kept)
    assert own is not None
    return ListedTuple.of(
        config_of(row.place),
        cast("CheckpointMetadata", row_metadata(codec, row)),
        row.parent_config(own),
        partial(decode_row, codec, row, None, decoded),
    )


def row_metadata(codec: Codec, row: Row) -> dict[str, Any]:
    """Return LangGraph's metadata."""
    return codec.decode_metadata(row.metadata, row.channels.get(METADATA_CHANNEL))


class Written(NamedTuple):
    """Where a pending write stands."""

    task_id: str
    number: int
    channel: str
    path: str
    """Of its task, which orders it among others'. A task may have several: `update_state` of what waits for an answer
    writes for the task that asked, by a path of its own."""


def written(rows: Sequence[WriteRow]) -> list[Written]:
    """Return where pending writes stand, in LangGraph's order; nothing is decoded."""
    return [each for each, _write in _sorted(rows)]


def decode_writes(
    codec: Codec,
    rows: Sequence[WriteRow],
    channels: set[str] | None = None,
    decoded: DecodedBy | None = None,
) -> list[PendingWrite]:
    """Return pending writes in LangGraph's order, those of some channels alone if these are given."""
    return [
        (each.task_id, each.channel, decode_write(codec, write, decoded))
        for each, write in _sorted(rows)
        if channels is None or each.channel in channels
    ]


def _sorted(rows: Sequence[WriteRow]) -> list[tuple[Written, BundledWrite]]:
    found: dict[tuple[str, int], tuple[Written, BundledWrite]] = {}
    for task_id, path, writes in _in_order(rows):
        for number, write in writes.items():
            found.setdefault((task_id, number), (_new(Written, (task_id, number, write.channel, path)), write))
    return sorted(found.values(), key=_sort_key)


def _in_order(rows: Sequence[WriteRow]) -> Iterator[Bundle]:
    """Yield what tasks have written, the first of each task before its others."""
    groups: list[Bundle] = []
    for row in reversed(rows):  # writes that were stored one by one stand behind those of their task: they were first
        bundles, is_alone = decode_bundles(row)
        if is_alone:
            yield from bundles  # and those of a task by itself were stored before there were groups
        else:
            groups += reversed(bundles)
    yield from reversed(groups)


def _sort_key(pair: tuple[Written, BundledWrite]) -> Any:
    task_id, number, _channel, path = pair[0]
    return writes_sort_key(path, task_id, number)
