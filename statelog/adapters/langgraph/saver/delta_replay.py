"""Reads the parts of a DeltaChannel's value: the last value stored before a checkpoint, and the writes since then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.adapters.kit import items
from statelog.adapters.kit.lineage import Lineage
from statelog.adapters.kit.notes import noted
from statelog.adapters.langgraph.saver.checkpoint_order import Ordered
from statelog.adapters.langgraph.saver.checkpoint_reader import (
    decode_writes,
    find_place,
    read_writes,
)
from statelog.adapters.langgraph.saver.metadata import deltas_of
from statelog.adapters.langgraph.values.names import METADATA_CHANNEL, CheckpointName, channel_name, checkpoint_name
from statelog.adapters.langgraph.values.own import decode_own, kept_item, writes_state
from statelog.errors import ExpiredError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from langgraph.checkpoint.base import DeltaChannelHistory

    from statelog import Checkpoint, Store
    from statelog.adapters.langgraph.saver.checkpoint_reader import WriteRow
    from statelog.adapters.langgraph.values.codec import Read
    from statelog.adapters.langgraph.values.copies import DecodedBy
    from statelog.store.views import MapView


def ancestors(
    lineage: Lineage, place: CheckpointName, checkpoint: Checkpoint
) -> Iterator[tuple[CheckpointName, Checkpoint, MapView]]:
    """Yield a checkpoint's ancestors as LangGraph knows them, including removed ones. A cycle is followed once."""
    seen = {place.id}
    state = checkpoint.state
    superseded = lineage.superseded()
    found: Checkpoint | None = checkpoint
    while found is not None:
        item = kept_item(state)
        own = None if item is None else decode_own(item)
        if own is None or own.parent is None or own.parent in seen:
            return
        seen.add(own.parent)
        place = place._replace(id=own.parent)
        found = lineage.find_parent(found, checkpoint_name(place.namespace, place.id), superseded)
        if found is not None:
            state = found.state
            yield place, found, state


def delta_history(
    store: Store, decoded: DecodedBy, asked: CheckpointName, channels: Sequence[str]
) -> Mapping[str, DeltaChannelHistory]:
    """Return, for each channel, the value that was stored last, if any, and the writes since then.

    Raises:
        ExpiredError: a part of a DeltaChannel's value has expired. Facts: thread, checkpoint, channels.
    """
    codec = decoded.codec
    steps: list[list[WriteRow]] = []
    ends: dict[str, tuple[int, Read]] = {}
    cut_short: tuple[dict[str, Any], Read | None] | None = None
    with store.snapshot() as snapshot:
        lineage = Lineage(snapshot, asked.thread_id)
        place, checkpoint = _start(lineage, asked)
        writes = writes_state(lineage)
        pending = None if writes is None else items.Ranges(writes)
        remaining = dict.fromkeys(channels)
        last = checkpoint
        for ancestor, held, state in () if checkpoint is None else ancestors(lineage, place, checkpoint):
            last = held
            steps.append(read_writes(pending, ancestor))
            for channel in list(remaining):
                stored = items.get(state, channel_name(channel))
                if stored is not None:
                    ends[channel] = (len(steps), decoded.read(stored))
                    del remaining[channel]
            if not remaining:
                break
        else:
            if remaining and checkpoint is not None and last is not None and _has_lost_its_parent(last):
                stored = items.get(checkpoint.state, METADATA_CHANNEL)
                cut_short = (checkpoint.metadata, None if stored is None else decoded.read(stored))
    if cut_short is not None:
        lost = sorted(deltas_of(codec.decode_metadata(*cut_short)) & remaining.keys())
        if lost:
            raise _expired(place, lost)
    with noted(f"raised as the DeltaChannels of thread {place.thread_id!r} were decoded"):
        return _decode(decoded, steps, ends, channels)


def _has_lost_its_parent(checkpoint: Checkpoint) -> bool:
    item = kept_item(checkpoint.state)
    own = None if item is None else decode_own(item)
    return own is not None and own.parent is not None and checkpoint.has_parent and checkpoint.parent is None


def _expired(place: CheckpointName, channels: list[str]) -> ExpiredError:
    message = (
        f"thread {place.thread_id!r}: checkpoints that its DeltaChannels {', '.join(map(repr, channels))} need"
        " have expired: an older release stored this checkpoint without recording that it needs them"
    )
    return ExpiredError(message, thread=place.thread_id, checkpoint=place.id, channels=channels)


def _decode(
    decoded: DecodedBy,
    steps: list[list[WriteRow]],
    ends: dict[str, tuple[int, Read]],
    channels: Sequence[str],
) -> dict[str, DeltaChannelHistory]:
    found: dict[str, DeltaChannelHistory] = {channel: {"writes": []} for channel in channels}
    for depth in range(len(steps), 0, -1):
        wanted = {channel for channel in channels if channel not in ends or ends[channel][0] >= depth}
        for write in decode_writes(decoded.codec, steps[depth - 1], wanted, decoded):
            found[write[1]]["writes"].append(write)
    for channel, (_depth, encoded) in ends.items():
        with noted(f"raised by the serialiser for channel {channel!r}"):
            found[channel]["seed"] = decoded.codec.decode(encoded, decoded)
    return found


def _start(lineage: Lineage, asked: CheckpointName) -> tuple[CheckpointName, Checkpoint | None]:
    """Return the checkpoint that a config names, or the latest one, with its place."""
    if asked.id:
        return asked, find_place(lineage, asked)
    latest = next(Ordered(lineage, asked.namespace).draw(lineage, 1), None)
    return (asked, None) if latest is None else (latest.place, latest.checkpoint)


def keepset(store: Store, asked: CheckpointName, channels: Sequence[str]) -> set[str]:
    """Return the ids of a checkpoint and of its ancestors back to the last value of each channel."""
    with store.snapshot() as snapshot:
        lineage = Lineage(snapshot, asked.thread_id)
        place, checkpoint = _start(lineage, asked)
        if checkpoint is None:
            return set()
        kept, state = {place.id}, checkpoint.state
        missing = set(map(channel_name, channels))
        walk = ancestors(lineage, place, checkpoint)
        while missing := {name for name in missing if items.get(state, name) is None}:
            found = next(walk, None)
            if found is None:
                break
            kept.add(found[0].id)
            state = found[2]
        return kept


def needed_by(lineage: Lineage, place: CheckpointName, checkpoint: Checkpoint, metadata: Any) -> Iterator[int]:
    """Yield the LSN of each ancestor that a checkpoint's DeltaChannels need for their values."""
    missing = {channel_name(channel) for channel in deltas_of(metadata)}
    missing = {name for name in missing if items.get(checkpoint.state, name) is None}
    if not missing:
        return
    for _place, held, state in ancestors(lineage, place, checkpoint):
        yield held.lsn
        missing = {name for name in missing if items.get(state, name) is None}
        if not missing:
            return
