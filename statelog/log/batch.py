"""Records and index changes on their way into one transaction.

Invariant L1: LSNs are dense from 1. L2: time strictly ascends. L3: every record holds the
chain digest of the one before. All three are kept here and nowhere else.

A batch is applied as a whole after everything that can be refused has been: until then
nothing is written. Over a read transaction it serves as a rehearsal.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from statelog.errors import CorruptionError
from statelog.format import keys
from statelog.format.record import (
    FLAG_CONTINUES,
    NO_DIGEST,
    NodeRow,
    decode_record,
    encode_record,
    record_chain_digest,
)
from statelog.log.index import apply_nodes
from statelog.log.nodes import NodeCache, read_node
from statelog.log.view import View, ordered
from statelog.tree.node import Node, Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from statelog.log.events import CheckpointEvent
    from statelog.log.view import Transaction
    from statelog.storage.transactions import WriteTransaction


EVENTS_MAX = 4096
"""Events of checkpoints in memory: a jump pointer mostly leads to a recent one."""


class LogEnd(NamedTuple):
    """The last record of the log."""

    lsn: int
    chain: bytes
    time_us: int


class Head(NamedTuple):
    """The last checkpoint of a branch, with what the next one needs of it."""

    event: CheckpointEvent
    digest: bytes
    page: bytes | None = None
    """The version page it stands on, if this process has just written it."""


class _Staged(NamedTuple):
    type: int
    time_us: int
    body: bytes
    rows: Sequence[NodeRow]


def read_log_end(transaction: Transaction) -> LogEnd:
    """Read the last record."""
    lsn = transaction.last_lsn()
    if not lsn:
        return LogEnd(0, NO_DIGEST, 0)
    data = transaction.get_log(lsn)
    if data is None:
        message = f"record {lsn}, the last one, is missing"
        raise CorruptionError(message, lsn=lsn)
    record = decode_record(data, lsn)
    return LogEnd(lsn, record_chain_digest(data, record), record.time_us)


class Batch:
    """Staged changes over a transaction, readable through `view` as if made."""

    def __init__(
        self, transaction: Transaction, cache: NodeCache, end: LogEnd, heads: dict[tuple[int, int], Head]
    ) -> None:
        self._transaction = transaction
        self._cache = cache
        self._end = end
        self._staged: list[_Staged] = []
        self._index: dict[bytes, bytes | None] = {}
        self._known_heads = heads
        self._new_heads: dict[tuple[int, int], Head] = {}
        self.view = View(self)
        self.identities: dict[bytes, bytes] = {}
        self.forgotten: set[int] = set()
        self.events: dict[tuple[int, int, int], CheckpointEvent] = {}

    # --- reading ---------------------------------------------------------------

    def get_index(self, key: bytes) -> bytes | None:
        """Return a payload, staged ones first."""
        if key in self._index:
            return self._index[key]
        return self._transaction.get_index(key)

    def last_index(self, prefix: bytes) -> tuple[bytes, bytes] | None:
        """Return the greatest key with a prefix."""
        staged = [key for key, payload in self._index.items() if payload is not None and key.startswith(prefix)]
        found = self._transaction.last_index(prefix)
        if staged and (found is None or max(staged) >= found[0]):
            key = max(staged)
            return key, self._index[key] or b""
        return found

    def scan_index(self, prefix: bytes, *, start: bytes = b"", reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys with a prefix, from a key on, ascending or descending."""
        merged = dict(self._transaction.scan_index(prefix))
        for key, payload in self._index.items():
            if key.startswith(prefix):
                if payload is None:
                    merged.pop(key, None)
                else:
                    merged[key] = payload
        yield from ordered(merged, start, reverse=reverse)

    def get_log(self, lsn: int) -> memoryview | None:
        """Return a record that is in the log already or, encoded for the purpose, a staged one."""
        index = lsn - self._end.lsn - 1
        if 0 <= index < len(self._staged):
            return memoryview(self._encode()[index])
        return self._transaction.get_log(lsn)

    def last_lsn(self) -> int:
        """Return the last LSN, staged ones included."""
        return self._end.lsn + len(self._staged)

    def read_node(self, type_: int, digest: bytes, lsn: int, number: int) -> Node:
        """Return a node of the log or of a staged record."""
        index = lsn - self._end.lsn - 1
        if 0 <= index < len(self._staged):
            row = self._staged[index].rows[number]
            return Node(row.data, row.content_size, lsn)
        return read_node(self._transaction, self._cache, type_, digest, lsn, number)

    def workspace(self, thread: int, borrowed: list[bytes]) -> Workspace:
        """Return a workspace for the nodes of one record of a thread.

        Args:
            thread: the thread.
            borrowed: gets the digests of other threads' nodes that it is the first to borrow.

        """

        def find_large(digest: bytes) -> tuple[int, int] | None:
            payload = self.get_index(keys.encode_digest_key(digest))
            if payload is None:
                return None
            place = keys.decode_place(payload)
            if place.thread != thread and not place.is_borrowed:
                borrowed.append(digest)
            return place.lsn, place.node

        return Workspace(self.read_node, find_large)

    def head(self, thread: int, branch: int) -> Head | None:
        """Return a branch's head."""
        found = self._new_heads.get((thread, branch)) or self._known_heads.get((thread, branch))
        if found is not None:
            return found
        event = self.view.head_checkpoint(thread, branch)
        return None if event is None else Head(event, event.digest)

    def event(self, thread: int, branch: int, version: int) -> CheckpointEvent | None:
        """Return a version's event, recent ones from memory; None if it has expired."""
        found = self.events.get((thread, branch, version))
        if found is None:
            head = self._new_heads.get((thread, branch))
            found = head.event if head is not None and head.event.version == version else None
        return self.view.checkpoint_of(thread, branch, version) if found is None else found

    # --- staging ---------------------------------------------------------------

    def next_lsn(self) -> int:
        """Return the LSN the next record will get."""
        return self._end.lsn + len(self._staged) + 1

    def next_time_us(self) -> int:
        """Return the time the next record will bear (L2)."""
        last = self._staged[-1].time_us if self._staged else self._end.time_us
        return max(time.time_ns() // 1000, last + 1)

    def append(
        self,
        type_: int,
        time_us: int,
        body: bytes,
        thread: int,
        rows: Sequence[NodeRow] = (),
        *,
        has_shared: bool = False,
    ) -> None:
        """Stage a record of a thread; those of its nodes that are widely shared enter the index here."""
        if has_shared:
            facts = [(row.type, row.digest, row.content_size, row.data[0]) for row in rows]
            apply_nodes(self, self.next_lsn(), thread, facts)
        self._staged.append(_Staged(type_, time_us, body, rows))

    def put_index(self, key: bytes, payload: bytes) -> None:
        """Stage an index change."""
        self._index[key] = payload

    def delete_index(self, key: bytes) -> None:
        """Stage a deletion from the index."""
        self._index[key] = None

    def set_head(self, thread: int, branch: int, head: Head) -> None:
        """Remember the head of a branch as staged."""
        self._new_heads[(thread, branch)] = head

    def forget_heads(self, thread: int) -> None:
        """Forget what is remembered of a thread that ends."""
        self.forgotten.add(thread)

    # --- applying --------------------------------------------------------------

    def _encode(self) -> list[bytes]:
        records = []
        chain = self._end.chain
        last = len(self._staged) - 1
        for offset, staged in enumerate(self._staged):
            record, chain = encode_record(
                staged.type,
                lsn=self._end.lsn + offset + 1,
                time_us=staged.time_us,
                previous_chain=chain,
                body=staged.body,
                nodes=staged.rows,
                flags=FLAG_CONTINUES if offset < last else 0,
            )
            records.append(record)
        self._chain = chain
        return records

    def apply(self, transaction: WriteTransaction) -> None:
        """Put everything staged into `transaction`. Only an error of storage can stop this."""
        records = self._encode()
        lsn = self._end.lsn
        for record in records:
            lsn += 1
            transaction.put_log(lsn, record)
        for key, payload in self._index.items():
            if payload is None:
                transaction.delete_index(key)
            else:
                transaction.put_index(key, payload)

    def outcome(self) -> tuple[LogEnd, dict[tuple[int, int], Head]]:
        """Return the log's end and the new heads, as they are once this is applied and committed."""
        if not self._staged:
            return self._end, self._new_heads
        end = LogEnd(self.last_lsn(), self._chain, self._staged[-1].time_us)
        return end, self._new_heads

    def remember_nodes(self) -> None:
        """Put the new nodes into the cache. Call after the commit has succeeded."""
        lsn = self._end.lsn
        for staged in self._staged:
            lsn += 1
            if staged.rows:
                self._cache.put_rows(lsn, staged.rows)
