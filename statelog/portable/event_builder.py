"""Convert the events of an export of threads to events of a store.

An event keeps its time if possible. If a checkpoint cannot, its metadata has the original time under
`TIME_KEY`. A checkpoint keeps its id, so that holders of the id still find it. Its digest changes
unless every field stays the same.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from statelog.errors import CorruptionError
from statelog.format import cbor
from statelog.format.fields import CHECKPOINT_LSN, DICT, METADATA_PAIRS_MAX, ROOT, Field, children
from statelog.format.record import TYPE_CHECKPOINT, Redacted, checkpoint_digest, part_digest
from statelog.limits import METADATA_SIZE_BYTES_MAX
from statelog.log.events import CheckpointEvent, Event, default_id, encode_checkpoint
from statelog.log.kinds.checkpoints import read_version
from statelog.log.kinds.table import KINDS, kind_of_event, version_in
from statelog.log.times import to_datetime
from statelog.portable.thread_events import TYPE_CARRIER, Exported, ExportedCheckpoint, take_in
from statelog.portable.thread_rows import EventGroup, EventRow, NodePlace
from statelog.tree.node import ROOT as ROOT_TYPE

if TYPE_CHECKING:
    from statelog.portable.thread_lookups import Lookups

TIME_KEY = "statelog:time"
"""The metadata key for the original time of a checkpoint whose time the import had to change."""

_REDACTED_BODY = part_digest(b"")


def make_event(lookups: Lookups, group: EventGroup, lsn: int, time_us: int, thread: int) -> Event | Redacted:
    """Convert an event of the stream to an event of the store, without borrowed digests.

    Raises:
        CorruptionError: the event has an invalid reference.
    """
    exported = group.event
    if exported.type == TYPE_CARRIER:
        return Redacted(thread, _REDACTED_BODY, [])
    kind = KINDS[exported.type]
    if kind.is_version:
        return _make_checkpoint(lookups, group, lsn, time_us, thread)
    return take_in(kind, exported, thread, partial(_refer, lookups, group))


def _refer(lookups: Lookups, group: EventGroup, field: Field, number: int) -> tuple[Any, ...]:
    if field is ROOT[0]:
        place = _root_at(lookups, number)
        return place.digest, place.lsn, place.number
    return (_referred(lookups, group, number, is_checkpoint=field is CHECKPOINT_LSN).lsn,)


def _root_at(lookups: Lookups, number: int) -> NodePlace:
    place = lookups.place(number)
    if place.type != ROOT_TYPE:
        message = "the state of a checkpoint is not a root node"
        raise CorruptionError(message)
    return place


def _make_checkpoint(lookups: Lookups, group: EventGroup, lsn: int, time_us: int, thread: int) -> CheckpointEvent:
    exported = group.event
    fields = ExportedCheckpoint(*exported.fields)
    root = _root_at(lookups, fields.root)
    if exported.type == TYPE_CHECKPOINT:
        target = 0
    else:  # If the target has expired, use the record of the thread instead.
        target = thread if fields.target is None else _referred(lookups, group, fields.target).lsn
    event = CheckpointEvent(
        thread,
        fields.branch,
        fields.version,
        fields.parent_branch,
        fields.parent_version,
        _parent_digest(lookups, group, fields, thread),
        fields.jump_branch,
        fields.jump_version,
        fields.depth,
        fields.jump_depth,
        root.digest,
        root.lsn,
        root.number,
        None,
        _dated(fields.metadata, exported.time_us, time_us),
        fields.written,
        cbor.encode([]),
        target,
        lsn,
        time_us,
    )
    source = source_digest(exported, root.digest)
    if fields.id is None and (lsn, event.digest) == (exported.lsn, source):
        return event  # LSN and digest make up the default id, so the id also stays the same.
    return event._replace(id=default_id(exported.lsn, source) if fields.id is None else fields.id)


def source_digest(exported: Exported, root_digest: bytes) -> bytes:
    """Return the digest that a checkpoint has in the source store."""
    fields = ExportedCheckpoint(*exported.fields)
    return checkpoint_digest(fields.parent_digest, root_digest, exported.time_us, fields.id, fields.metadata)


def _parent_digest(lookups: Lookups, group: EventGroup, fields: ExportedCheckpoint, thread: int) -> bytes | None:
    if fields.parent is None:
        if fields.parent_branch is None or fields.parent_version is None:
            return fields.parent_digest
        entry = lookups.view.entry(thread, fields.parent_branch, fields.parent_version)
        found = None if entry is None else read_version(lookups.view, entry.lsn)
        return fields.parent_digest if found is None else found.digest
    parent = _referred(lookups, group, fields.parent)
    if parent[3:] != (group.event.thread, fields.parent_branch, fields.parent_version):
        message = "the parent of a checkpoint has a different branch or version than the checkpoint states"
        raise CorruptionError(message)
    if parent.source_digest != fields.parent_digest:
        message = "the parent of a checkpoint does not match its digest"
        raise CorruptionError(message)
    return parent.digest


def _referred(lookups: Lookups, group: EventGroup, number: int, *, is_checkpoint: bool = True) -> EventRow:
    """Return the row of the event `number`, to which the event of `group` refers.

    Raises:
        CorruptionError: this is not an earlier event of the same thread, or with `is_checkpoint` not a checkpoint.
    """
    if number < group.number:
        row = lookups.event(number)
        if row.thread == group.event.thread and (any(row.digest) or not is_checkpoint):
            return row
    what = "checkpoint" if is_checkpoint else "event"
    message = f"an event refers to event {number}, which is not an earlier {what} of its thread"
    raise CorruptionError(message)


def _dated(metadata: bytes, source_us: int, time_us: int) -> bytes:
    """Return metadata with the original time of a checkpoint added, if the import changed the time.

    If an earlier import has already added a time, that time stays. The metadata stays encoded, because
    it may have values of codecs that this process does not know.
    """
    if source_us == time_us:
        return metadata
    key, value = cbor.encode(TIME_KEY), cbor.encode(to_datetime(source_us))
    parts = children(metadata, DICT, METADATA_PAIRS_MAX)
    pairs = dict(zip(parts[::2], parts[1::2], strict=True))
    pairs.setdefault(key, value)
    dated = cbor.head(5, len(pairs)) + b"".join(part for pair in sorted(pairs.items()) for part in pair)
    return dated if len(dated) <= METADATA_SIZE_BYTES_MAX else metadata


def encode_body(event: Event, lsn: int) -> bytes:
    """Return the body of an event."""
    version = version_in(event)
    return kind_of_event(event).encode(event, lsn) if version is None else encode_checkpoint(version, lsn)[0]


def with_borrowed(event: Event, digests: list[bytes]) -> Event:
    """Return the event with `digests` as its borrowed digests, which its thread borrows for the first time."""
    kind = kind_of_event(event)
    if kind.borrowed_field is None:
        return event
    at, value = kind.borrowed_field, cbor.encode(digests) if kind.is_version else digests
    made: Event = kind.event(*event[:at], value, *event[at + 1 :])
    return made


def is_same(held: Event, expected: Event | Redacted) -> bool:
    """Return True if the two events differ only in their borrowed digests."""
    return type(held) is type(expected) and with_borrowed(held, []) == with_borrowed(expected, [])


def event_row(exported: Exported, event: Event | Redacted, lsn: int) -> EventRow:
    """Return the row of an event, which later events look up."""
    version = version_in(event)
    if version is None:
        return EventRow(bytes(20), bytes(20), lsn, exported.thread, 0, 0)
    source = source_digest(exported, version.root_digest)
    return EventRow(source, version.digest, lsn, exported.thread, version.branch, version.version)
