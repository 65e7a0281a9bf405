"""Read nodes from records, digests verified, recent ones remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog import kernels
from statelog.errors import CorruptionError, ExpiredError
from statelog.format.record import ENVELOPE_SIZE_BYTES, FLAG_REDACTED, FLAGS_AT, NODE_COUNT_AT
from statelog.tree.node import Node, node_digest

if TYPE_CHECKING:
    from statelog.log.view import Transaction

CACHE_SIZE_BYTES_MAX = 32 * 1024 * 1024
"""Two generations of at most half of it each: enough for the spines of thousands of threads."""

_OVERHEAD_BYTES = 200


TABLES_MAX = 16
TABLE_NODES_MIN = 32
"""From so many nodes on a record's table is kept, of at most so many records."""


class NodeCache:
    """Nodes by locator. A node never changes, so whatever is here is right.

    Two generations: what was not asked for while one filled up is forgotten. Safe to use
    from several OS threads: every step is one dict operation.
    """

    def __init__(self, size_bytes_max: int = CACHE_SIZE_BYTES_MAX) -> None:
        self._half = size_bytes_max // 2
        self._young: dict[tuple[int, int], Node] = {}
        self._old: dict[tuple[int, int], Node] = {}
        self._size = 0
        self._tables: dict[int, tuple[int, list[tuple[int, bytes, int, int, int]]]] = {}

    def get(self, lsn: int, number: int) -> Node | None:
        """Return a node if it is remembered."""
        found = self._young.get((lsn, number))
        if found is None:
            found = self._old.get((lsn, number))
            if found is not None:
                self.put(lsn, number, found)
        return found

    def put(self, lsn: int, number: int, node: Node) -> None:
        """Remember a node."""
        size = len(node.data) + _OVERHEAD_BYTES
        if size > self._half // 8:
            return
        self._size += size
        if self._size > self._half:
            self._old, self._young, self._size = self._young, {}, size
        self._young[(lsn, number)] = node

    def table(self, record: memoryview, lsn: int) -> list[tuple[int, bytes, int, int, int]]:
        """Return where all nodes of a record of many lie: found once, not once for each."""
        kept = self._tables.get(lsn)
        # A record may have been vacuumed since: its places have moved, and its size has changed.
        if kept is None or kept[0] != len(record):
            kept = (len(record), kernels.record_nodes(record))
            if len(self._tables) >= TABLES_MAX:
                self._tables.clear()
            self._tables[lsn] = kept
        return kept[1]

    def clear(self) -> None:
        """Forget everything."""
        self._young, self._old, self._size = {}, {}, 0
        self._tables = {}


def _find(cache: NodeCache, record: memoryview, lsn: int, number: int) -> tuple[int, bytes, int, int, int]:
    count = int.from_bytes(record[NODE_COUNT_AT:ENVELOPE_SIZE_BYTES], "big")
    if not count and record[FLAGS_AT] & FLAG_REDACTED:
        return kernels.VACUUMED
    if count < TABLE_NODES_MIN or number >= count:
        return kernels.record_node(record, number)
    return cache.table(record, lsn)[number]


def read_node(transaction: Transaction, cache: NodeCache, type_: int, digest: bytes, lsn: int, number: int) -> Node:
    """Return a node; what comes from disk is hashed and compared with the digest referred to.

    Raises:
        CorruptionError: no such record or node, or its content is not what the digest says.
        ExpiredError: it was vacuumed.

    """
    node = cache.get(lsn, number)
    if node is not None:
        return node
    record = transaction.get_log(lsn)
    if record is None:
        message = f"record {lsn} is missing, node {number} of it is referred to"
        raise CorruptionError(message, lsn=lsn, node=number)
    try:
        stored_type, stored_digest, at, content_size, total_size = _find(cache, record, lsn, number)
    except CorruptionError as error:
        message = f"record {lsn}: node {number} cannot be read: {error}"
        raise CorruptionError(message, lsn=lsn, node=number) from None
    if not stored_type:
        message = f"node {number} of record {lsn} went with the versions it belonged to"
        raise ExpiredError(message, lsn=lsn, node=number)
    data = bytes(record[at : at + total_size])
    if stored_type != type_ or stored_digest != digest or node_digest(type_, data[:content_size]) != digest:
        message = f"record {lsn}: node {number} is damaged, its digest does not match"
        raise CorruptionError(message, lsn=lsn, node=number)
    node = Node(data, content_size, lsn)
    cache.put(lsn, number, node)
    return node
