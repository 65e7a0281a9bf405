"""Import threads into any store. Each node is checked against its digest, and each event at its position.

A thread that is not in the store is created, with new LSNs. A thread that exists must come from an
earlier import of the same thread, complete or not. Its events are compared with the stream one by
one, and the import continues where the thread ends. So an import may be repeated, and a longer
export of the same threads adds the new events.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from statelog.errors import ConflictError, CorruptionError, ThreadDeletedError
from statelog.format.record import TYPE_THREAD, Redacted, decode_record
from statelog.limits import VALUE_SIZE_BYTES_MAX
from statelog.log.events import CHECKPOINT_TYPES
from statelog.log.index import redacted_records
from statelog.log.kinds.table import records_of, version_in
from statelog.portable.bodies import read_event
from statelog.portable.event_builder import event_row, is_same, make_event
from statelog.portable.events import TIME_US_MAX
from statelog.portable.frames import EVENT, NODE, THREADS
from statelog.portable.log_import import BATCH_RECORDS, BATCH_SIZE_BYTES, BATCH_STRETCH
from statelog.portable.node_checks import damage_at
from statelog.portable.nodes import Seams, check_content, check_refs, read_rows
from statelog.portable.reports import ImportReport
from statelog.portable.tables import Table
from statelog.portable.thread_events import TYPE_CARRIER, decode_event, decode_node
from statelog.portable.thread_export import CARRIED_SIZE_BYTES
from statelog.portable.thread_records import Writing
from statelog.portable.thread_rows import (
    EVENT_SIZE_BYTES,
    PLACE_SIZE_BYTES,
    EventGroup,
    EventRow,
    ImportLookups,
    NodePlace,
    StagedNode,
)
from statelog.storage.mapped_pages import MappedPages
from statelog.tree.node import CHUNK, PIECE, Node, node_digest

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.log.engine import Engine
    from statelog.portable.frames import Frame, FrameReader
    from statelog.portable.thread_events import Exported
    from statelog.storage.write_transaction import WriteTransaction

_GROUP_SIZE_BYTES_MAX = CARRIED_SIZE_BYTES + VALUE_SIZE_BYTES_MAX + 4096
"""The maximum size of the nodes for one event. An export splits larger states."""

_NODE_TYPES = range(1, 5)
_TOUCHED_SIZE_BYTES = 16_384
"""The estimated number of bytes that the import of an event reads from the store."""


class _ImportedThread:
    """A thread of the stream, and its records in the store."""

    __slots__ = ("existing", "heads", "id", "lsn", "matched")

    def __init__(self, thread_id: str, lsn: int, existing: list[int]) -> None:
        self.id = thread_id
        self.lsn = lsn
        self.existing = existing
        """LSNs of the thread's records from an earlier import."""
        self.matched = 0
        """The number of records in `existing` that the stream has matched so far."""
        self.heads: dict[int, int] = {}
        """The last version of each branch, as this import left it."""


class ThreadImporter:
    """Imports threads into a store."""

    def __init__(self, engine: Engine, reader: FrameReader, progress: Callable[[int, int], None] | None) -> None:
        self._engine = engine
        self._reader = reader
        self._progress = progress
        self._threads: list[_ImportedThread] = []
        self._nodes: list[StagedNode] = []
        self._nodes_size_bytes = 0
        self._groups: list[EventGroup] = []
        self._groups_size_bytes = 0
        self._staged: dict[int, StagedNode] = {}
        self._seams = Seams()
        self._mapped = MappedPages(engine.store_file.lmdb_file)
        self._events = 0
        self._added = 0
        self._last_lsn = 0
        with engine.read() as view:
            self._last_lsn = view.transaction.last_lsn()

    def run(self) -> ImportReport:
        """Import the whole stream.

        Raises:
            ConflictError: the store has a thread with an imported id, but a different history. Facts: thread.
            ThreadDeletedError: a thread with an imported id was deleted from the store. Facts: thread.
            CorruptionError, FormatError: the export is damaged, or its format is newer. The store may have earlier
                events. Facts: offset.
        """
        with ExitStack() as closing:
            self._places = closing.enter_context(Table(PLACE_SIZE_BYTES))
            self._rows = closing.enter_context(Table(EVENT_SIZE_BYTES))
            self._remembered = ImportLookups(self._place, self._event, self._thread_lsn)
            while (frame := self._reader.read()) is not None:
                with damage_at(frame.offset):
                    self._take(frame)
            if self._nodes:
                self._reader.refuse(self._reader.offset, "it ends with nodes that belong to no event")
            self._reader.check_end()
            self._flush()
        ids = tuple(thread.id for thread in self._threads)
        return ImportReport(THREADS, self._events, self._added, ids, self._last_lsn, self._reader.offset)

    def _take(self, frame: Frame) -> None:
        if frame.kind == NODE:
            self._take_node(frame.payload)
        elif frame.kind == EVENT:
            self._take_event(frame)
        else:
            self._reader.refuse(frame.offset, "a frame that does not belong in an export of threads")

    # --- nodes ----------------------------------------------------------------------

    def _take_node(self, payload: bytes) -> None:
        """Check a node and its refs, and keep it for the next event."""
        type_, data, content_size = decode_node(payload)
        if type_ not in _NODE_TYPES:
            message = f"a node has the unknown type {type_}"
            raise CorruptionError(message)
        digest = node_digest(type_, data[:content_size])
        check_content(type_, digest, data, content_size)
        refs = check_refs(type_, data, content_size, 0, identity=self._identity, seams=self._seams, read=self._read)
        if type_ in (CHUNK, PIECE):
            self._seams.learn(type_, digest, data, content_size)
        number = self._places.append(NodePlace(type_, digest, 0, 0, 0).encode())
        node = StagedNode(number, type_, digest, data, content_size, [ref.number for ref in refs])
        self._nodes.append(node)
        self._staged[number] = node
        self._nodes_size_bytes += len(data)
        if self._nodes_size_bytes > _GROUP_SIZE_BYTES_MAX:
            message = f"{self._nodes_size_bytes} bytes of nodes are too many for one event"
            raise CorruptionError(message)

    def _identity(self, lsn: int, number: int) -> bytes:
        if lsn or number >= len(self._places):
            return b""
        return self._places.get(number)[:21]

    def _read(self, type_: int, digest: bytes, _lsn: int, number: int) -> Node:
        staged = self._staged.get(number)
        if staged is not None:
            return Node(staged.data, staged.content_size, 0)
        place = self._place(number)
        return self._engine.read_node(type_, digest, place.lsn, place.number)

    def _place(self, number: int) -> NodePlace:
        if number >= len(self._places):
            message = f"node {number} is not in the stream yet"
            raise CorruptionError(message)
        return NodePlace.decode(self._places.get(number))

    # --- events ---------------------------------------------------------------------

    def _take_event(self, frame: Frame) -> None:
        event = decode_event(frame.payload)
        if not 0 < event.time_us <= TIME_US_MAX or not event.lsn:
            message = f"an event has an invalid LSN or time: {event.lsn}, {event.time_us}"
            raise CorruptionError(message)
        if event.type == TYPE_THREAD:
            self._begin_thread(event)
        elif event.thread >= len(self._threads):
            message = f"an event of thread {event.thread}, which has not begun yet"
            raise CorruptionError(message)
        nodes, self._nodes, size_bytes, self._nodes_size_bytes = self._nodes, [], self._nodes_size_bytes, 0
        group = EventGroup(self._events, event, nodes, frame.offset)
        self._mapped.read(size_bytes + _TOUCHED_SIZE_BYTES)
        self._events += 1
        self._rows.append(bytes(EVENT_SIZE_BYTES))
        thread = self._threads[event.thread]
        if thread.matched < len(thread.existing):
            self._flush()
            self._match(thread, group)
        else:
            self._groups.append(group)
            self._groups_size_bytes += size_bytes + len(frame.payload)
            fill = max(self._groups_size_bytes / BATCH_SIZE_BYTES, len(self._groups) / BATCH_RECORDS)
            if fill >= BATCH_STRETCH or (fill >= 1 and not event.continues):
                self._flush()
        if self._progress is not None and self._events % 256 == 0:
            self._progress(event.lsn, max(self._reader.header.last, event.lsn))

    def _begin_thread(self, event: Exported) -> None:
        if event.thread != len(self._threads):
            message = f"thread {event.thread} is out of order"
            raise CorruptionError(message)
        thread_id = event.fields[0]
        if any(thread.id == thread_id for thread in self._threads):
            message = f"thread {thread_id!r} begins twice"
            raise CorruptionError(message)
        with self._engine.read() as view:
            if view.is_deleted(thread_id):
                message = f"thread {thread_id!r} was deleted from this store"
                raise ThreadDeletedError(message, thread=thread_id)
            lsn = view.thread_lsn(thread_id) or 0
            existing = sorted({*records_of(view, lsn), *redacted_records(view, lsn)}) if lsn else []
        self._threads.append(_ImportedThread(thread_id, lsn, existing))

    def _thread_lsn(self, number: int) -> int:
        return self._threads[number].lsn

    def _event(self, number: int) -> EventRow:
        return EventRow.decode(self._rows.get(number))

    # --- events that the store already has ------------------------------------------

    def _match(self, thread: _ImportedThread, group: EventGroup) -> None:
        """Check that the next of the thread's existing records was imported from the event of `group`.

        Record the locations of its nodes.
        """
        lsn = thread.existing[thread.matched]
        differs = f"the store has a thread with this id, but its record {lsn} differs"
        with self._engine.read() as view:
            writing = Writing(view.transaction, self._remembered)
            data = view.transaction.get_log(lsn)
            assert data is not None
            record = decode_record(data, lsn)
            held = read_event(record)
            here = {row.digest: number for number, row in read_rows(data, record).items()}
            if isinstance(held, Redacted) != (group.event.type == TYPE_CARRIER):
                raise _conflict(thread.id, f"{differs} or has expired")
            if not writing.find_nodes(group, lsn, thread.lsn, here):
                raise _conflict(thread.id, differs)
            expected = make_event(writing, group, lsn, record.time_us, thread.lsn)
            if not isinstance(held, Redacted) and not is_same(held, expected):
                raise _conflict(thread.id, differs)
            row = event_row(group.event, expected, lsn)
        self._settle(writing.places, {group.number: row})
        thread.matched += 1
        if (version := version_in(held)) is not None:
            thread.heads[version.branch] = version.version

    # --- one transaction --------------------------------------------------------------

    def _flush(self) -> None:
        """Commit the pending events."""
        groups, self._groups, self._groups_size_bytes = self._groups, [], 0
        if not groups:
            return

        def work(transaction: WriteTransaction) -> Writing:
            self._engine.check_guarded(transaction)
            writing = Writing(transaction, self._remembered, self._engine.guard)
            self._check_heads(writing, groups)
            for group in groups:
                with damage_at(group.offset):
                    writing.add(group, is_last=group is groups[-1])
            self._last_lsn = writing.flush(transaction)
            return writing

        writing = self._engine.care(work, may_use_reserve=False)
        for number, lsn in writing.threads.items():
            self._threads[number].lsn = lsn
        self._settle(writing.places, writing.events)
        for group in groups:
            if group.event.type in CHECKPOINT_TYPES:
                branch, version = group.event.fields[:2]
                self._threads[group.event.thread].heads[branch] = version
        self._added += len(groups)

    def _check_heads(self, writing: Writing, groups: list[EventGroup]) -> None:
        """Raise ConflictError if another writer has created or changed one of the threads since the import read it."""
        for number in {group.event.thread for group in groups}:
            thread = self._threads[number]
            if not thread.lsn:
                if writing.view.thread_lsn(thread.id) is not None:
                    raise _conflict(thread.id, "another writer has created a thread with this id")
                continue
            for branch, version in thread.heads.items():
                if writing.view.head_version(thread.lsn, branch) != version:
                    raise _conflict(thread.id, "another writer has committed to it")

    def _settle(self, places: dict[int, NodePlace], events: dict[int, EventRow]) -> None:
        """Record the locations of nodes and events after their commit."""
        for number, place in places.items():
            self._places.put(number, place.encode())
            self._staged.pop(number, None)
        for number, row in events.items():
            self._rows.put(number, row.encode())


def _conflict(thread_id: str, why: str) -> ConflictError:
    """Return the error of a thread whose import conflicts with the store."""
    message = f"thread {thread_id!r} cannot be imported: {why}"
    return ConflictError(message, thread=thread_id)
