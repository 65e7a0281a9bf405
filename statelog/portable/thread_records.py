"""Convert the events and nodes of an export of threads to records of a store.

The store assigns LSNs (L1). A version's time is later than the time of its thread's last version (L2).
`event_builder.py` lists the other changes. Nothing is written until the whole transaction has been
checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog import kernels
from statelog.errors import CorruptionError
from statelog.format import cbor, keys
from statelog.format.record import (
    FLAG_CONTINUES,
    FLAG_NAMED,
    FLAG_REDACTED,
    TYPE_CHECKPOINT,
    TYPE_LOAN,
    TYPE_THREAD,
    NodeRow,
    Redacted,
    decode_record,
    encode_record,
    pack_nodes,
    record_chain_digest,
    varint,
)
from statelog.log.batch import LogEnd, read_log_end
from statelog.log.events import CHECKPOINT_TYPES, CheckpointEvent, LoanEvent
from statelog.log.kinds.table import version_in
from statelog.log.nodes import NodeCache, read_node
from statelog.log.times import now_us
from statelog.portable.event_builder import encode_body, event_row, make_event, with_borrowed
from statelog.portable.events import check_event
from statelog.portable.nodes import read_rows
from statelog.portable.thread_events import root_number
from statelog.portable.thread_lookups import Lookups
from statelog.portable.thread_rows import ELSEWHERE, EventGroup, ImportLookups, NodePlace, StagedNode
from statelog.tree.check import check_node
from statelog.tree.node import CHUNK, ROOT, is_shared_widely

if TYPE_CHECKING:
    from statelog.guard.hook import Redactor
    from statelog.log.events import Event
    from statelog.log.transaction import IndexedLog
    from statelog.portable.thread_events import Exported
    from statelog.storage.write_transaction import WriteTransaction


class Writing(Lookups):
    """One transaction of a thread import. After `flush`, later transactions may use the locations it has recorded."""

    def __init__(self, transaction: IndexedLog, remembered: ImportLookups, guard: Redactor | None = None) -> None:
        super().__init__(transaction, remembered, guard)
        self._end = read_log_end(transaction)
        self._now_us = now_us()
        self._cache = NodeCache()
        self._checkpoints: dict[int, CheckpointEvent] = {}
        self._lenders: dict[int, int] = {}
        """Other threads whose nodes the current event uses, keyed by number in the stream.

        Maps each thread to the last LSN that has such a node.
        """

    def add(self, group: EventGroup, *, is_last: bool) -> None:
        """Stage the record of an event.

        Raises:
            CorruptionError: the event is not possible at its position.
        """
        exported = group.event
        lsn = self._end.lsn + 1
        thread = lsn if exported.type == TYPE_THREAD else self.thread(exported.thread)
        time_us = self._time_us(exported, thread)
        borrowed: list[bytes] = []
        self._lenders = {}
        rows = self._rows(group, lsn, thread, borrowed)
        event = make_event(self, group, lsn, time_us, thread)
        root = root_number(exported)
        if root is not None:
            self._note_lender(self.place(root), exported.thread)
        loans = self._new_loans(thread)
        flags = FLAG_CONTINUES if exported.continues and not is_last else 0
        if isinstance(event, Redacted):
            event = event._replace(borrowed=sorted(set(borrowed)))
            type_, body, flags = TYPE_CHECKPOINT, cbor.encode(list(event)), flags | FLAG_REDACTED
        else:
            event = with_borrowed(event, sorted(set(borrowed)))
            version = version_in(event)
            if version is not None:
                self._check_state(version, rows)
            check_event(self.view, event, lsn, self._checkpoints)
            type_, body = exported.type, encode_body(event, lsn)
        self._stage(type_, time_us, body, event, rows, flags=flags | (FLAG_CONTINUES if loans else 0))
        if exported.type == TYPE_THREAD:
            self.threads[exported.thread] = lsn
        self.events[group.number] = event_row(exported, event, lsn)
        for loan in loans:
            rest = FLAG_CONTINUES if loan is not loans[-1] else 0
            body = cbor.encode(list(loan))
            self._stage(TYPE_LOAN, time_us, body, loan, [], flags=flags | rest)

    def _stage(
        self, type_: int, time_us: int, body: bytes, event: Event | Redacted, rows: list[NodeRow], *, flags: int
    ) -> None:
        lsn = self._end.lsn + 1
        data, _chain = encode_record(
            type_,
            lsn=lsn,
            time_us=time_us,
            previous_chain=self._end.chain,
            body=body,
            nodes=pack_nodes(rows),
            flags=flags | FLAG_NAMED if lsn == 1 else flags,
        )
        record = decode_record(data, lsn)
        self._overlay.stage(data, record, event, read_rows(data, record))
        self._end = LogEnd(lsn, record_chain_digest(data, record), time_us)

    def _note_lender(self, place: NodePlace, number: int) -> None:
        """Add the thread of the node at `place` to `_lenders`, if it is in the stream and not the thread `number`."""
        if place.thread not in (number, ELSEWHERE):
            self._lenders[place.thread] = max(place.lsn, self._lenders.get(place.thread, 0))

    def _new_loans(self, thread: int) -> list[LoanEvent]:
        """Return a copy reference for each of `_lenders` that no earlier copy reference of the thread covers."""
        loans = []
        for number, lsn in self._lenders.items():
            lender = self.thread(number)
            known = self._overlay.get_index(keys.encode_debt_key(thread, lender))
            if known is None or keys.decode_lsn(known) < lsn:
                loans.append(LoanEvent(thread, lender, []))
        return loans

    def flush(self, transaction: WriteTransaction) -> int:
        """Write the staged records into `transaction`, and return the last LSN."""
        self._overlay.flush(transaction)
        return self._end.lsn

    def _time_us(self, exported: Exported, thread: int) -> int:
        """Return the exported time, but not a time in the future. For a version, raise the time if L2 requires it."""
        time_us = min(exported.time_us, self._now_us)
        if exported.type in CHECKPOINT_TYPES:
            return max(time_us, self._overlay.last_time_us(thread) + 1)
        return time_us

    # --- nodes ----------------------------------------------------------------------

    def _check_state(self, event: CheckpointEvent, rows: list[NodeRow]) -> None:
        """Check that the state of a checkpoint is a dict."""
        if event.root_lsn == event.lsn:
            kind = rows[event.root_node].data[0]
        else:
            root = (ROOT, event.root_digest, event.root_lsn, event.root_node)
            kind = read_node(self._overlay, self._cache, *root).data[0]
        if kind != kernels.KIND_DICT:
            message = "the state of a checkpoint is not a dict"
            raise CorruptionError(message)

    def _rows(self, group: EventGroup, lsn: int, thread: int, borrowed: list[bytes]) -> list[NodeRow]:
        """Return the nodes to store in the record of a group, and note the location of every node.

        Widely shared nodes that the store has, and the nodes below them, are not stored again.
        """
        elsewhere = self._known_elsewhere(group, thread, borrowed)
        rows: list[NodeRow] = []
        for node in group.nodes:
            found = elsewhere.get(node.digest)
            if found is not None:
                self.places[node.number] = NodePlace(node.type, node.digest, *found, ELSEWHERE)
                continue
            self.places[node.number] = NodePlace(node.type, node.digest, lsn, len(rows), group.event.thread)
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
            if place.thread != number and self._borrow(place.digest, thread, borrowed) is None:
                self._note_lender(place, number)
        return b"".join(parts)

    def _borrow(self, digest: bytes, thread: int, borrowed: list[bytes]) -> keys.SharedNodePlace | None:
        """Return the location of a widely shared node, or None.

        If another thread owns the node, add its digest to `borrowed`.
        """
        payload = self._overlay.get_index(keys.encode_digest_key(digest))
        if payload is None:
            return None
        place = keys.decode_place(payload)
        if place.thread != thread and not place.is_borrowed:
            borrowed.append(digest)
        return place

    def _known_elsewhere(self, group: EventGroup, thread: int, borrowed: list[bytes]) -> dict[bytes, tuple[int, int]]:
        """Return the known locations of a group's widely shared nodes and of the nodes below them."""
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

    def find_nodes(self, group: EventGroup, lsn: int, thread: int, here: dict[bytes, int]) -> bool:
        """Record where the store has the nodes of a group from an earlier import. Return False if a node is missing.

        Args:
            group: the group.
            lsn: LSN of the group's record.
            thread: LSN of the thread.
            here: numbers of the record's nodes by digest.
        """
        elsewhere = self._known_elsewhere(group, thread, [])
        for node in group.nodes:
            number = here.get(node.digest)
            if number is not None:
                self.places[node.number] = NodePlace(node.type, node.digest, lsn, number, group.event.thread)
            elif node.digest in elsewhere:
                self.places[node.number] = NodePlace(node.type, node.digest, *elsewhere[node.digest], ELSEWHERE)
            else:
                return False
        return True
