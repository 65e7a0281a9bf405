"""Export threads: write their events, each after the nodes that its state needs and that were not written yet.

The stream does not depend on locations in this store, because nodes and events are numbered in order. Nodes may come
from records of other threads and of expired versions. Events of expired versions no longer exist and are left out.
"""

from __future__ import annotations

import struct
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from statelog.errors import CorruptionError, ExpiredError, ThreadDeletedError, ThreadNotFoundError
from statelog.format.fields import ROOT, Field
from statelog.format.record import (
    ENVELOPE_SIZE_BYTES,
    FLAG_CONTINUES,
    FLAG_REDACTED,
    FLAG_VACUUMED,
    FLAGS_AT,
    NO_DIGEST,
    RECORD_SIZE_BYTES_MIN,
    TYPE_AT,
    TYPE_MASK,
    TYPE_ROLLBACK,
    TYPE_THREAD,
    Record,
    Redacted,
    decode_record,
)
from statelog.log.kinds.table import KINDS, kind_of, owner_of, version_in
from statelog.log.nodes import removed_node
from statelog.log.view import missing
from statelog.portable.bodies import read_event
from statelog.portable.frames import EVENT, NODE, THREADS, FrameWriter, Header
from statelog.portable.nodes import read_rows
from statelog.portable.reports import ExportReport
from statelog.portable.tables import Table
from statelog.portable.thread_events import (
    TYPE_CARRIER,
    Exported,
    ExportedCheckpoint,
    encode_event,
    encode_node,
    take_out,
)
from statelog.storage.mapped_pages import MappedPages
from statelog.tree.check import check_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from statelog.log.engine import Engine
    from statelog.log.events import CheckpointEvent, Event
    from statelog.log.view import View
    from statelog.portable.frames import ExportTarget
    from statelog.tree.node import Node

CARRIED_SIZE_BYTES = 64 * 1024 * 1024
"""If the nodes before one event reach this size, the export writes a carrier event, and then the other nodes."""

_PAGE_RECORDS = 4096
_PAGE_SIZE_BYTES = 4 * 1024 * 1024
_REMEMBERED_MAX = 65_536
_TOUCHED_SIZE_BYTES = 4096
"""The estimated number of bytes that are read from the store for the head of a record."""

_NUMBER = struct.Struct(">Q")
_BLOCK = struct.Struct(">QQ")


class _Ref(NamedTuple):
    type: int
    digest: bytes
    lsn: int
    number: int


class _FoundRecord(NamedTuple):
    """A record of one of the threads, its event and its nodes."""

    record: Record
    event: Event
    nodes: list[_Ref]


def export_threads(
    engine: Engine, target: ExportTarget, thread_ids: list[str], *, progress: Callable[[int, int], None] | None = None
) -> ExportReport:
    """Write some threads; see `Store.export`.

    Raises:
        ThreadNotFoundError: a thread does not exist. Nothing has been written. Facts: thread.
        CorruptionError: a record or node is damaged.
    """
    with engine.read() as view:
        last = view.transaction.last_lsn()
        threads = {_find_thread(view, thread_id) for thread_id in thread_ids}
    writer = FrameWriter(target, Header(THREADS, engine.store_file.lmdb_file.store_id, 0, NO_DIGEST, last))
    with ExitStack() as closing:
        exporter = _Exporter(engine, writer, last, closing)
        previous: _FoundRecord | None = None
        for found in _events(engine, threads, last, progress):
            if previous is not None:
                exporter.put(previous, is_followed=found.record.lsn == previous.record.lsn + 1)
            previous = found
        if previous is not None:
            exporter.put(previous, is_followed=False)
        count = exporter.events
    writer.finish(last=last, chain=NO_DIGEST)
    return ExportReport(THREADS, count, len(threads), 0, last, writer.size_bytes)


def _find_thread(view: View, thread_id: str) -> int:
    lsn = view.thread_lsn(thread_id)
    if lsn is None:
        if view.is_deleted(thread_id):
            message = f"thread {thread_id!r} was deleted"
            raise ThreadDeletedError(message, thread=thread_id)
        message = f"there is no thread {thread_id!r}"
        raise ThreadNotFoundError(message, thread=thread_id)
    return lsn


def _events(
    engine: Engine, threads: set[int], last: int, progress: Callable[[int, int], None] | None
) -> Iterator[_FoundRecord]:
    """Yield the records of the threads in order, without expired ones.

    This reads the head of every record in the log.
    """
    after = min(threads, default=last + 1) - 1
    mapped = MappedPages(engine.store_file.lmdb_file)
    while after < last:
        page: list[tuple[int, bytes]] = []
        size_bytes = 0
        with engine.read() as view:
            start, stop = after, min(after + _PAGE_RECORDS, last)
            while after < stop and size_bytes < _PAGE_SIZE_BYTES:
                after += 1
                data = view.transaction.get_log(after)
                if data is None:
                    raise missing("record", after)
                if _thread_of(data, after) in threads:
                    page.append((after, bytes(data)))
                    size_bytes += len(data)
        mapped.read(max(size_bytes, (after - start) * _TOUCHED_SIZE_BYTES))
        for lsn, record_data in page:
            record = decode_record(record_data, lsn)
            event = read_event(record)
            if not isinstance(event, Redacted):
                rows = read_rows(record_data, record)
                yield _FoundRecord(
                    record, event, [_Ref(row.type, row.digest, lsn, number) for number, row in rows.items()]
                )
        if progress is not None:
            progress(after, last)


def _thread_of(data: memoryview, lsn: int) -> int:
    """Return the thread of a record, read from its first bytes; 0 for a redacted record."""
    size = len(data)
    flags = data[FLAGS_AT] if size > FLAGS_AT else 0
    if size < (RECORD_SIZE_BYTES_MIN if flags & FLAG_VACUUMED else ENVELOPE_SIZE_BYTES):
        message = f"record {lsn}: {size} bytes are too few for an envelope"
        raise CorruptionError(message, lsn=lsn)
    type_ = data[TYPE_AT] & TYPE_MASK
    kind = KINDS.get(type_)
    if flags & FLAG_REDACTED or (kind is not None and kind.outlives):
        return 0
    if type_ == TYPE_THREAD:
        return lsn
    item = bytes(data[ENVELOPE_SIZE_BYTES + 1 : ENVELOPE_SIZE_BYTES + 10])  # The body is an array. Skip its head.
    info = item[0] & 31 if item else 0
    return info if info < 24 else int.from_bytes(item[1 : 1 + (1 << (info - 24))])


class _Exporter:
    """Numbers nodes and events, and writes each of them once."""

    def __init__(self, engine: Engine, writer: FrameWriter, last: int, closing: ExitStack) -> None:
        self.events = 0
        self._engine = engine
        self._writer = writer
        self._threads: dict[int, int] = {}
        self._nodes = 0
        self._carried_size_bytes = 0
        self._continues = False
        self._events_by_lsn = closing.enter_context(Table(_NUMBER.size))
        """Maps the LSN of a record to the number of its event, plus 1. 0 means that the event is not written yet."""
        self._events_by_lsn.extend(last + 1)
        self._blocks = closing.enter_context(Table(_BLOCK.size))
        """Maps the LSN of a record to the row of its first node in `_numbers`, and to the number of its rows."""
        self._blocks.extend(last + 1)
        self._numbers = closing.enter_context(Table(_NUMBER.size))
        """Has a row for each node: its number in the stream, plus 1. 0 means that the node is not written yet."""
        self._remembered: dict[tuple[int, int], int] = {}
        self._mapped = MappedPages(engine.store_file.lmdb_file)

    def put(self, found: _FoundRecord, *, is_followed: bool) -> None:
        """Write an event after the nodes that its state needs. The nodes of its record keep their order.

        Args:
            found: the record.
            is_followed: whether the record with the next LSN is also exported.
        """
        record, event, nodes = found
        lsn = record.lsn
        thread = self._threads.setdefault(owner_of(event, lsn), len(self._threads))
        roots = [_Ref(*root) for root in kind_of(record).roots(event)]
        if roots:
            carrier = Exported(TYPE_CARRIER, thread, lsn, record.time_us, self._continues, [])
            try:
                for ref in (*nodes, *roots):
                    self._put_nodes(ref, carrier)
            except ExpiredError:
                with self._engine.read() as view:
                    if view.record(lsn).flags & FLAG_REDACTED:  # A concurrent retention has redacted the record.
                        return
                raise
        self._continues = is_followed and bool(record.flags & FLAG_CONTINUES)
        fields = self._fields(record, event)
        self._put_event(Exported(record.type, thread, lsn, record.time_us, self._continues, fields))
        self._events_by_lsn.put(lsn, _NUMBER.pack(self.events))

    # --- events ---------------------------------------------------------------------

    def _put_event(self, event: Exported) -> None:
        self._writer.put(EVENT, encode_event(event))
        self.events += 1
        self._carried_size_bytes = 0

    def _fields(self, record: Record, event: Event) -> list[object]:
        version = version_in(event)
        if version is None:
            return take_out(kind_of(record), event, self._number_referred_to)
        fields: list[object] = list(self._checkpoint(version))
        return fields if record.type == TYPE_ROLLBACK else fields[:-1]

    def _number_referred_to(self, field: Field, lsn: int, number: int) -> int | None:
        return self._number_of(lsn, number) if field is ROOT[0] else self._number_of_event(lsn)

    def _checkpoint(self, event: CheckpointEvent) -> ExportedCheckpoint:
        parent = None
        if event.parent_branch is not None and event.parent_version is not None:
            with self._engine.read() as view:
                entry = view.entry(event.thread, event.parent_branch, event.parent_version)
            parent = None if entry is None else self._number_of_event(entry.lsn)
        root = self._number_of(event.root_lsn, event.root_node)
        assert root is not None
        return ExportedCheckpoint(
            event.branch,
            event.version,
            parent,
            event.parent_branch,
            event.parent_version,
            event.parent_digest,
            event.jump_branch,
            event.jump_version,
            event.depth,
            event.jump_depth,
            root,
            event.id,
            event.metadata,
            event.written,
            None if event.target in {0, event.thread} else self._number_of_event(event.target),
        )

    def _number_of_event(self, lsn: int) -> int | None:
        if lsn >= len(self._events_by_lsn):
            return None
        number: int = _NUMBER.unpack(self._events_by_lsn.get(lsn))[0]
        return number - 1 if number else None

    # --- nodes ----------------------------------------------------------------------

    def _put_nodes(self, top: _Ref, carrier: Exported) -> None:
        """Write the node `top` and all nodes below it, children first. Skip nodes that are already written."""
        pending = [(top, False)]
        while pending:
            ref, is_expanded = pending.pop()
            if self._number_of(ref.lsn, ref.number) is not None:
                continue
            node = self._engine.read_node(*ref)
            children = [_Ref(*child) for child in check_node(ref.type, node.data, node.content_size, ref.lsn)]
            if not is_expanded:
                missing_ones = [child for child in children if self._number_of(child.lsn, child.number) is None]
                if missing_ones:
                    pending.append((ref, True))
                    pending += [(child, False) for child in reversed(missing_ones)]
                    continue
            if self._carried_size_bytes >= CARRIED_SIZE_BYTES:
                self._put_event(carrier)
            self._put_node(ref, node, children)

    def _put_node(self, ref: _Ref, node: Node, children: list[_Ref]) -> None:
        first, count = _BLOCK.unpack(self._blocks.get(ref.lsn))
        if not count:
            count = self._node_count(ref.lsn)
            first = self._numbers.extend(count)
            self._blocks.put(ref.lsn, _BLOCK.pack(first, count))
        if ref.number >= count:  # A concurrent retention has removed the node from the record.
            raise removed_node(ref.lsn, ref.number)
        numbers = [self._number_of(child.lsn, child.number) for child in children]
        payload = encode_node(ref.type, node.content, [number for number in numbers if number is not None])
        self._writer.put(NODE, payload)
        self._carried_size_bytes += len(payload)
        self._mapped.read(len(payload))
        self._numbers.put(first + ref.number, _NUMBER.pack(self._nodes + 1))
        self._nodes += 1

    def _node_count(self, lsn: int) -> int:
        with self._engine.read() as view:
            return view.record(lsn).node_count

    def _number_of(self, lsn: int, number: int) -> int | None:
        """Return the number of a node in the stream, or None if it is not written yet."""
        found = self._remembered.get((lsn, number))
        if found is not None:
            return found
        first, count = _BLOCK.unpack(self._blocks.get(lsn))
        found = _NUMBER.unpack(self._numbers.get(first + number))[0] if number < count else 0
        if not found:
            return None
        if len(self._remembered) >= _REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered[(lsn, number)] = found - 1
        return found - 1
