"""Records of a store out of the events and nodes of an export of threads.

The store gives LSNs, and a time later than that of its last record (L1, L2): an event keeps the time
it had where that can be, and else a checkpoint keeps it in its metadata, under `TIME_KEY`. Its id
stays what it was, so that whoever has it finds the checkpoint; therefore its digest is another.
"""

from __future__ import annotations

import time
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from statelog import kernels
from statelog.errors import ConflictError, CorruptionError
from statelog.format import cbor, keys
from statelog.format.record import (
    FLAG_CONTINUES,
    FLAG_REDACTED,
    TYPE_CHECKPOINT,
    TYPE_FORK,
    TYPE_POLICY,
    TYPE_ROLLBACK,
    TYPE_SCHEMA,
    TYPE_TAG,
    TYPE_THREAD,
    NodeRow,
    Redacted,
    checkpoint_digest,
    decode_record,
    encode_record,
    part_digest,
    record_chain_digest,
    varint,
)
from statelog.limits import METADATA_SIZE_BYTES_MAX
from statelog.log.batch import LogEnd, read_log_end
from statelog.log.events import (
    CheckpointEvent,
    Event,
    ForkEvent,
    PolicyEvent,
    SchemaEvent,
    TagEvent,
    ThreadEvent,
    default_id,
    encode_checkpoint_body,
)
from statelog.log.nodes import NodeCache, read_node
from statelog.log.times import to_datetime
from statelog.portable.bodies import METADATA_PAIRS_MAX, children
from statelog.portable.events import check_event, read_checkpoint
from statelog.portable.nodes import read_rows
from statelog.portable.overlay import Overlay
from statelog.portable.thread_events import TYPE_CARRIER, Exported, ExportedCheckpoint
from statelog.tree.check import check_node
from statelog.tree.node import CHUNK, ROOT, is_shared_widely

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.log.view import Transaction, View
    from statelog.storage.transactions import WriteTransaction

TIME_KEY = "statelog:time"
"""In the metadata of an imported checkpoint that could not keep its time: the time it had."""

_REDACTED_BODY = part_digest(b"")
_PLACE = Struct(">B20sQII")
_EVENT = Struct(">20s20sQIII")
_ELSEWHERE = 0xFFFFFFFF
"""In a place: the node lies in a record of a thread that is not of the export."""


class Place(NamedTuple):
    """A node of the stream: its identity, and where it lies in the store (LSN 0: not yet)."""

    type: int
    digest: bytes
    lsn: int
    number: int
    thread: int

    def encode(self) -> bytes:
        """Return the row of a table."""
        return _PLACE.pack(*self)

    @classmethod
    def decode(cls, row: bytes) -> Place:
        """Inverse of `encode`."""
        return cls(*_PLACE.unpack(row))


class EventRow(NamedTuple):
    """An event of the stream that is in the store: digests of a checkpoint there and here, and where it is."""

    source_digest: bytes
    digest: bytes
    lsn: int
    thread: int
    branch: int
    version: int

    def encode(self) -> bytes:
        """Return the row of a table."""
        return _EVENT.pack(*self)

    @classmethod
    def decode(cls, row: bytes) -> EventRow:
        """Inverse of `encode`."""
        return cls(*_EVENT.unpack(row))


PLACE_SIZE_BYTES = _PLACE.size
EVENT_SIZE_BYTES = _EVENT.size


class StagedNode(NamedTuple):
    """A node that was checked: locators are 0 and the number of the child in the stream."""

    number: int
    type: int
    digest: bytes
    data: bytes
    content_size: int
    children: list[int]


class Group(NamedTuple):
    """An event with the nodes that came before it."""

    number: int
    event: Exported
    nodes: list[StagedNode]
    offset: int


class Remembered(NamedTuple):
    """What earlier transactions of the import left, to look up."""

    place: Callable[[int], Place]
    event: Callable[[int], EventRow]
    thread: Callable[[int], int]
    """Number of a thread in the stream to its LSN, 0 where it did not begin yet."""


class Writing:
    """One transaction of an import of threads: nothing of it counts before it has been flushed."""

    def __init__(self, transaction: Transaction, remembered: Remembered) -> None:
        self.places: dict[int, Place] = {}
        self.events: dict[int, EventRow] = {}
        self.threads: dict[int, int] = {}
        self._remembered = remembered
        self._overlay = Overlay(transaction)
        self._end = read_log_end(transaction)
        self._now_us = time.time_ns() // 1000
        self._cache = NodeCache()
        self._checkpoints: dict[int, CheckpointEvent] = {}

    @property
    def view(self) -> View:
        """The store with what has been added."""
        return self._overlay.view

    def add(self, group: Group, *, is_last: bool) -> None:
        """Stage the record of an event.

        Raises:
            CorruptionError: it is not possible where it stands.

        """
        exported = group.event
        lsn, time_us = self._end.lsn + 1, self._time_us(exported.time_us)
        thread = lsn if exported.type == TYPE_THREAD else self.thread(exported.thread)
        borrowed: list[bytes] = []
        rows = self._rows(group, lsn, thread, borrowed)
        event = make_event(self, group, lsn, time_us, thread)
        flags = FLAG_CONTINUES if exported.continues and not is_last else 0
        if isinstance(event, Redacted):
            event = event._replace(borrowed=sorted(set(borrowed)))
            type_, body, flags = TYPE_CHECKPOINT, cbor.encode(list(event)), flags | FLAG_REDACTED
        else:
            if isinstance(event, CheckpointEvent):
                event = event._replace(borrowed=cbor.encode(sorted(set(borrowed))))
                self._check_state(event, rows)
            check_event(self.view, event, lsn, self._checkpoints)
            type_, body = exported.type, encode_body(event, lsn)
        data, _chain = encode_record(
            type_, lsn=lsn, time_us=time_us, previous_chain=self._end.chain, body=body, nodes=rows, flags=flags
        )
        record = decode_record(data, lsn)
        self._overlay.stage(data, record, event, read_rows(data, record))
        self._end = LogEnd(lsn, record_chain_digest(data, record), time_us)
        if isinstance(event, ThreadEvent):
            self.threads[exported.thread] = lsn
        self.events[group.number] = event_row(exported, event, lsn, self)

    def flush(self, transaction: WriteTransaction) -> int:
        """Write what was staged into the transaction this is about; return the LSN of the last record."""
        self._overlay.flush(transaction)
        return self._end.lsn

    def thread(self, number: int) -> int:
        """Return the LSN of a thread of the stream."""
        return self.threads.get(number) or self._remembered.thread(number)

    def place(self, number: int) -> Place:
        """Return where a node of the stream lies."""
        found = self.places.get(number)
        if found is None:
            found = self._remembered.place(number)
            if not found.lsn:
                message = f"it refers to node {number}, which comes later"
                raise CorruptionError(message)
        return found

    def event(self, number: int) -> EventRow:
        """Return what is known of an event of the stream."""
        found = self.events.get(number)
        return self._remembered.event(number) if found is None else found

    def _time_us(self, source_us: int) -> int:
        """Return the time of the next record: not in the future, though the source may say so, and ascending."""
        return max(min(source_us, self._now_us), self._end.time_us + 1)

    # --- nodes ----------------------------------------------------------------------

    def _check_state(self, event: CheckpointEvent, rows: list[NodeRow]) -> None:
        """Check that the state of a checkpoint is a dict."""
        if event.root_lsn == event.lsn:
            kind = rows[event.root_node].data[0]
        else:
            root = (ROOT, event.root_digest, event.root_lsn, event.root_node)
            kind = read_node(self._overlay, self._cache, *root).data[0]
        if kind != kernels.KIND_DICT:
            message = "the state of a checkpoint is no dict"
            raise CorruptionError(message)

    def _rows(self, group: Group, lsn: int, thread: int, borrowed: list[bytes]) -> list[NodeRow]:
        """Return the nodes that the record of a group has to hold, and note where all of them lie.

        What is shared widely and in the store already is not stored again, nor what is below it.
        """
        elsewhere = self._known_elsewhere(group, thread, borrowed)
        rows: list[NodeRow] = []
        for node in group.nodes:
            found = elsewhere.get(node.digest)
            if found is not None:
                self.places[node.number] = Place(node.type, node.digest, *found, _ELSEWHERE)
                continue
            self.places[node.number] = Place(node.type, node.digest, lsn, len(rows), group.event.thread)
            data = self._relocate(node, lsn, group.event.thread, thread, borrowed)
            rows.append(NodeRow(node.type, node.digest, data, node.content_size))
        return rows

    def _relocate(self, node: StagedNode, lsn: int, number: int, thread: int, borrowed: list[bytes]) -> bytes:
        if not node.children:
            return node.data
        parts = [node.data[: node.content_size]]
        for child in node.children:
            place = self.place(child)
            parts += (varint(0 if place.lsn == lsn else place.lsn), varint(place.number))
            if place.thread != number:
                self._borrow(place.digest, thread, borrowed)
        return b"".join(parts)

    def _borrow(self, digest: bytes, thread: int, borrowed: list[bytes]) -> keys.Place | None:
        """Return where a widely shared node lies, None if there is none; note it if it is another thread's."""
        payload = self._overlay.get_index(keys.encode_digest_key(digest))
        if payload is None:
            return None
        place = keys.decode_place(payload)
        if place.thread != thread and not place.is_borrowed:
            borrowed.append(digest)
        return place

    def _known_elsewhere(self, group: Group, thread: int, borrowed: list[bytes]) -> dict[bytes, tuple[int, int]]:
        """Return where nodes of a group lie already: widely shared ones, and those below them."""
        known: dict[bytes, tuple[int, int]] = {}
        for node in group.nodes:
            if not is_shared_widely(node.type, node.content_size, node.data[0]):
                continue
            place = self._borrow(node.digest, thread, borrowed)
            if place is not None:
                known[node.digest] = (place.lsn, place.node)
                if node.type == ROOT:
                    self._know_below((ROOT, node.digest, place.lsn, place.node), known)
        return known

    def _know_below(self, root: tuple[int, bytes, int, int], known: dict[bytes, tuple[int, int]]) -> None:
        pending = [root]
        while pending:
            type_, digest, lsn, number = pending.pop()
            node = read_node(self._overlay, self._cache, type_, digest, lsn, number)
            for child in check_node(type_, node.data, node.content_size, lsn):
                known[child[1]] = (child[2], child[3])
                if child[0] == CHUNK:
                    pending.append(child)

    def find_nodes(self, group: Group, lsn: int, thread: int, here: dict[bytes, int]) -> bool:
        """Note where the nodes of a group lie that was imported before; False if one of them is not there.

        Args:
            group: the group.
            lsn: of its record.
            thread: of the record.
            here: digests of the nodes in it, with their numbers.

        """
        elsewhere = self._known_elsewhere(group, thread, [])
        for node in group.nodes:
            number = here.get(node.digest)
            if number is not None:
                self.places[node.number] = Place(node.type, node.digest, lsn, number, group.event.thread)
            elif node.digest in elsewhere:
                self.places[node.number] = Place(node.type, node.digest, *elsewhere[node.digest], _ELSEWHERE)
            else:
                return False
        return True


# --- events -----------------------------------------------------------------------


def make_event(writing: Writing, group: Group, lsn: int, time_us: int, thread: int) -> Event | Redacted:
    """Return an event of the stream as an event of the store (borrowed digests left out).

    Raises:
        CorruptionError: it refers to what it cannot refer to.

    """
    exported = group.event
    fields = exported.fields
    if exported.type in (TYPE_CHECKPOINT, TYPE_ROLLBACK):
        return _make_checkpoint(writing, group, lsn, time_us, thread)
    if exported.type == TYPE_CARRIER:
        return Redacted(thread, _REDACTED_BODY, None, [])
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
    return TagEvent(thread, name, 0 if target is None else _referred(writing, group, target).lsn)


def _make_checkpoint(writing: Writing, group: Group, lsn: int, time_us: int, thread: int) -> CheckpointEvent:
    exported = group.event
    fields = ExportedCheckpoint(*exported.fields)
    root = writing.place(fields.root)
    if root.type != ROOT:
        message = "the state of a checkpoint is no root"
        raise CorruptionError(message)
    if exported.type == TYPE_CHECKPOINT:
        target = 0
    else:  # the record of the thread stands for one that has expired
        target = thread if fields.target is None else _referred(writing, group, fields.target).lsn
    event = CheckpointEvent(
        thread,
        fields.branch,
        fields.version,
        fields.parent_branch,
        fields.parent_version,
        _parent_digest(writing, group, fields, thread),
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


def _parent_digest(writing: Writing, group: Group, fields: ExportedCheckpoint, thread: int) -> bytes | None:
    if fields.parent is None:
        if fields.parent_branch is None or fields.parent_version is None:
            return fields.parent_digest
        entry = writing.view.entry(thread, fields.parent_branch, fields.parent_version)
        found = None if entry is None else read_checkpoint(writing.view, entry.lsn)
        return fields.parent_digest if found is None else found.digest
    parent = _referred(writing, group, fields.parent)
    if parent[3:] != (group.event.thread, fields.parent_branch, fields.parent_version):
        message = "the parent of a checkpoint is another than it says"
        raise CorruptionError(message)
    if parent.source_digest != fields.parent_digest:
        message = "the parent of a checkpoint is not what the digest says"
        raise CorruptionError(message)
    return parent.digest


def _referred(writing: Writing, group: Group, number: int) -> EventRow:
    """Return an earlier checkpoint of the same thread that an event refers to."""
    if number < group.number:
        row = writing.event(number)
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
    parts = children(metadata, METADATA_PAIRS_MAX)
    pairs = dict(zip(parts[::2], parts[1::2], strict=True))
    pairs.setdefault(key, value)
    dated = cbor.head(5, len(pairs)) + b"".join(part for pair in sorted(pairs.items()) for part in pair)
    return dated if len(dated) <= METADATA_SIZE_BYTES_MAX else metadata


def encode_body(event: Event, lsn: int) -> bytes:
    """Return the body of an event."""
    return encode_checkpoint_body(event, lsn) if isinstance(event, CheckpointEvent) else cbor.encode(list(event))


def event_row(exported: Exported, event: Event | Redacted, lsn: int, writing: Writing) -> EventRow:
    """Return what later events may ask of an event that is in the store."""
    if not isinstance(event, CheckpointEvent):
        return EventRow(bytes(20), bytes(20), lsn, exported.thread, 0, 0)
    source = source_digest(exported, writing.place(exported.fields[10]).digest)
    return EventRow(source, event.digest, lsn, exported.thread, event.branch, event.version)


def conflict(thread_id: str, why: str) -> ConflictError:
    """Return the error of a thread that cannot be imported because of what the store has."""
    message = f"thread {thread_id!r} cannot be imported: {why}"
    return ConflictError(message, thread=thread_id)
