"""Events of a store out of those of an export of threads: what stays, and what cannot.

An event keeps the time it had where that can be, and else a checkpoint keeps it in its metadata, under
`TIME_KEY`. The id of a checkpoint stays what it was, so that whoever has it finds the checkpoint;
therefore its digest is another, unless all of it comes out the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.errors import CorruptionError
from statelog.format import cbor
from statelog.format.record import (
    TYPE_CHECKPOINT,
    TYPE_FORK,
    TYPE_POLICY,
    TYPE_ROLLBACK,
    TYPE_SCHEMA,
    TYPE_TAG,
    TYPE_THREAD,
    Redacted,
    checkpoint_digest,
    part_digest,
)
from statelog.limits import METADATA_SIZE_BYTES_MAX
from statelog.log.events import (
    CheckpointEvent,
    Event,
    ForkEvent,
    PolicyEvent,
    SchemaEvent,
    TagEvent,
    ThreadEvent,
    default_id,
    encode_checkpoint,
)
from statelog.log.times import to_datetime
from statelog.portable.bodies import DICT, METADATA_PAIRS_MAX, children
from statelog.portable.events import read_checkpoint
from statelog.portable.thread_events import ROOT_FIELD, TYPE_CARRIER, Exported, ExportedCheckpoint
from statelog.portable.thread_rows import EventRow, Group
from statelog.tree.node import ROOT

if TYPE_CHECKING:
    from statelog.portable.thread_lookups import Lookups

TIME_KEY = "statelog:time"
"""In the metadata of an imported checkpoint that could not keep its time: the time it had."""

_REDACTED_BODY = part_digest(b"")


def make_event(lookups: Lookups, group: Group, lsn: int, time_us: int, thread: int) -> Event | Redacted:
    """Return an event of the stream as an event of the store (borrowed digests left out).

    Raises:
        CorruptionError: it refers to what it cannot refer to.

    """
    exported = group.event
    fields = exported.fields
    if exported.type in (TYPE_CHECKPOINT, TYPE_ROLLBACK):
        return _make_checkpoint(lookups, group, lsn, time_us, thread)
    if exported.type == TYPE_CARRIER:
        return Redacted(thread, _REDACTED_BODY, [])
    if exported.type == TYPE_THREAD:
        return ThreadEvent(*fields)
    if exported.type == TYPE_FORK:
        return ForkEvent(thread, *fields)
    if exported.type == TYPE_SCHEMA:
        return SchemaEvent(thread, *fields)
    if exported.type == TYPE_POLICY:
        return PolicyEvent(thread, *fields)
    assert exported.type == TYPE_TAG
    name, target = fields
    return TagEvent(thread, name, 0 if target is None else _referred(lookups, group, target).lsn)


def _make_checkpoint(lookups: Lookups, group: Group, lsn: int, time_us: int, thread: int) -> CheckpointEvent:
    exported = group.event
    fields = ExportedCheckpoint(*exported.fields)
    root = lookups.place(fields.root)
    if root.type != ROOT:
        message = "the state of a checkpoint is no root"
        raise CorruptionError(message)
    if exported.type == TYPE_CHECKPOINT:
        target = 0
    else:  # the record of the thread stands for one that has expired
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
        return event  # its default id is what it was
    return event._replace(id=default_id(exported.lsn, source) if fields.id is None else fields.id)


def source_digest(exported: Exported, root_digest: bytes) -> bytes:
    """Return the digest a checkpoint had where it came from."""
    fields = ExportedCheckpoint(*exported.fields)
    return checkpoint_digest(fields.parent_digest, root_digest, exported.time_us, fields.id, fields.metadata)


def _parent_digest(lookups: Lookups, group: Group, fields: ExportedCheckpoint, thread: int) -> bytes | None:
    if fields.parent is None:
        if fields.parent_branch is None or fields.parent_version is None:
            return fields.parent_digest
        entry = lookups.view.entry(thread, fields.parent_branch, fields.parent_version)
        found = None if entry is None else read_checkpoint(lookups.view, entry.lsn)
        return fields.parent_digest if found is None else found.digest
    parent = _referred(lookups, group, fields.parent)
    if parent[3:] != (group.event.thread, fields.parent_branch, fields.parent_version):
        message = "the parent of a checkpoint is another than it says"
        raise CorruptionError(message)
    if parent.source_digest != fields.parent_digest:
        message = "the parent of a checkpoint is not what the digest says"
        raise CorruptionError(message)
    return parent.digest


def _referred(lookups: Lookups, group: Group, number: int) -> EventRow:
    """Return an earlier checkpoint of the same thread that an event refers to."""
    if number < group.number:
        row = lookups.event(number)
        if row.thread == group.event.thread and any(row.digest):
            return row
    message = f"an event refers to event {number}, which is no checkpoint of its thread"
    raise CorruptionError(message)


def _dated(metadata: bytes, source_us: int, time_us: int) -> bytes:
    """Return metadata with the time a checkpoint had, if that is not its time any more.

    Of one that was imported before it is the first time that stays. Metadata stays encoded: it may
    hold values whose codec is not known here.
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
    return encode_checkpoint(event, lsn)[0] if isinstance(event, CheckpointEvent) else cbor.encode(list(event))


def event_row(exported: Exported, event: Event | Redacted, lsn: int, lookups: Lookups) -> EventRow:
    """Return what later events may ask of an event that is in the store."""
    if not isinstance(event, CheckpointEvent):
        return EventRow(bytes(20), bytes(20), lsn, exported.thread, 0, 0)
    source = source_digest(exported, lookups.place(exported.fields[ROOT_FIELD]).digest)
    return EventRow(source, event.digest, lsn, exported.thread, event.branch, event.version)
