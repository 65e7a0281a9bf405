"""Read nodes from records, digests verified, recent ones remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog import kernels
from statelog.errors import CorruptionError, ExpiredError
from statelog.format.record import ENVELOPE_SIZE_BYTES, FLAG_REDACTED, FLAGS_AT, NODE_COUNT_AT
from statelog.tree.node import Node, node_digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from statelog.log.view import Transaction

CACHE_SIZE_BYTES_MAX = 32 * 1024 * 1024
"""Two generations of at most half of it each: enough for the spines of thousands of threads."""

_OVERHEAD_BYTES = 200


TABLES_MAX = 16
TABLE_NODES_MIN = 32
TABLE_READS_MIN = 64
"""Places are kept of at most so many records, of so many nodes or more, after so many reads: finding all
costs what about three hundred single looks do."""

NodePlace = tuple[int, bytes, int, int, int]
NodeRef = tuple[int, bytes, int, int]
"""Type, digest, LSN, number."""


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
        self._tables: dict[int, tuple[int, int, list[NodePlace]]] = {}
        """By LSN: how often read, the record's size, and once that was often the places of its nodes."""

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

    def wants_table(self, lsn: int, size_bytes: int) -> bool:
        """Whether a record of many nodes is read so often that all their places are worth finding at once."""
        seen, size, _table = self._tables.get(lsn, (0, size_bytes, []))
        # A record may have been vacuumed since: its places have moved, and its size has changed.
        seen = seen + 1 if size == size_bytes else 1
        if seen <= TABLE_READS_MIN:
            if len(self._tables) >= TABLES_MAX and lsn not in self._tables:
                self._tables.clear()
            self._tables[lsn] = (seen, size_bytes, [])
        return seen > TABLE_READS_MIN

    def table(self, record: memoryview, lsn: int) -> list[NodePlace]:
        """Return where all nodes of a record lie."""
        seen, size, table = self._tables.get(lsn, (TABLE_READS_MIN + 1, 0, []))
        if not table or size != len(record):
            table = kernels.record_nodes(record)
            self._tables[lsn] = (seen, len(record), table)
        return table

    def clear(self) -> None:
        """Forget everything."""
        self._young, self._old, self._size = {}, {}, 0
        self._tables = {}


def read_node(
    transaction: Transaction, cache: NodeCache, type_: int, digest: bytes, lsn: int, number: int
) -> Node:
    """Return a node; what comes from disk is hashed and compared with the digest referred to.

    Raises:
        CorruptionError: no such record or node, or its content is not what the digest says.
        ExpiredError: it was vacuumed.

    """
    node = cache.get(lsn, number)
    if node is not None:
        return node
    record = _get_record(transaction, lsn, number)
    (place,) = _find(cache, record, lsn, [number])
    return _check(cache, record, place, type_, digest, lsn, number)


def read_nodes(transaction: Transaction, cache: NodeCache, refs: Sequence[NodeRef]) -> list[Node]:
    """Return several nodes, as `read_node`; those of one record are found in one pass."""
    nodes: dict[tuple[int, int], Node] = {}
    by_record: dict[int, list[NodeRef]] = {}
    for ref in refs:
        node = cache.get(ref[2], ref[3])
        if node is None:
            by_record.setdefault(ref[2], []).append(ref)
        else:
            nodes[ref[2:]] = node
    for lsn, wanted in by_record.items():
        wanted.sort(key=_number)
        record = _get_record(transaction, lsn, wanted[0][3])
        places = _find(cache, record, lsn, [ref[3] for ref in wanted])
        for (type_, digest, _lsn, number), place in zip(wanted, places, strict=True):
            nodes[lsn, number] = _check(cache, record, place, type_, digest, lsn, number)
    return [nodes[ref[2:]] for ref in refs]


def _number(ref: NodeRef) -> int:
    return ref[3]


def _get_record(transaction: Transaction, lsn: int, number: int) -> memoryview:
    record = transaction.get_log(lsn)
    if record is None:
        message = f"record {lsn} is missing, node {number} of it is referred to"
        raise CorruptionError(message, lsn=lsn, node=number)
    return record


def _find(cache: NodeCache, record: memoryview, lsn: int, numbers: list[int]) -> Sequence[NodePlace]:
    """Return where nodes of a record lie; numbers ascend."""
    count = int.from_bytes(record[NODE_COUNT_AT:ENVELOPE_SIZE_BYTES], "big")
    if not count and record[FLAGS_AT] & FLAG_REDACTED:
        return [kernels.VACUUMED] * len(numbers)
    try:
        if count < TABLE_NODES_MIN or numbers[-1] >= count or not cache.wants_table(lsn, len(record)):
            if len(numbers) == 1:
                return [kernels.record_node(record, numbers[0])]
            return kernels.record_select(record, numbers)
        table = cache.table(record, lsn)
    except CorruptionError as error:
        message = f"record {lsn}: node {numbers[0]} cannot be read: {error}"
        raise CorruptionError(message, lsn=lsn, node=numbers[0]) from None
    return [table[number] for number in numbers]


def _check(  # noqa: PLR0917 - a place, and what is expected there
    cache: NodeCache, record: memoryview, place: NodePlace, type_: int, digest: bytes, lsn: int, number: int
) -> Node:
    stored_type, stored_digest, at, content_size, total_size = place
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
