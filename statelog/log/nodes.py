"""Reads nodes from records, checks their digests, and caches recent nodes."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, cast

from statelog import kernels
from statelog.errors import CorruptionError, ExpiredError, StoreReplacedError
from statelog.format.record import find_node
from statelog.limits import COPIED_SIZE_BYTES_MAX
from statelog.tree.node import Node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from statelog.log.transaction import Log

CACHE_SIZE_BYTES_MAX = 32 * 1024 * 1024
"""The maximum size of the cache, half of it for each of two generations. It is enough for the spines of thousands of
threads.
"""

_OVERHEAD_BYTES = 200

NodeRef = tuple[int, bytes, int, int]
"""The type, digest, LSN and number of a node."""

_TYPE_AND_LSN = itemgetter(0, 2)

_new = tuple.__new__
"""Constructs a named tuple without calling its `__new__`, which is a slower Python function."""


class NodeCache:
    """A cache of nodes by locator. A node never changes, so a cached node is always valid.

    The cache has two generations. A node that is not requested while the young generation fills up is dropped. Several
    OS threads may use the cache at once, because every access to its dicts is one dict operation.
    """

    def __init__(self, size_bytes_max: int = CACHE_SIZE_BYTES_MAX) -> None:
        self._half = size_bytes_max // 2
        # In `_young` and `_old`, an entry has the rows and data of all nodes of a record that this process wrote, as a
        # tuple of bytes. There may be many thousands of such tuples, and the garbage collector does not track them. A
        # node that was read has its own entry, in `_young_nodes` or `_old_nodes`.
        self._young: dict[int, tuple[bytes, bytes]] = {}
        self._old: dict[int, tuple[bytes, bytes]] = {}
        self._young_nodes: dict[tuple[int, int], tuple[bytes, Node]] = {}
        self._old_nodes: dict[tuple[int, int], tuple[bytes, Node]] = {}
        self._size = 0
        self.purged_lsn = 0
        """A purge by this process has rewritten the records up to this LSN. Refs read before the purge may be wrong."""

    def get(self, digest: bytes, lsn: int, number: int) -> Node | None:
        """Return a node if it is cached and matches `digest`.

        No digest covers a locator, so a damaged locator may lead to the wrong node.
        """
        nodes = self._young.get(lsn)
        if nodes is None:
            nodes = self._old.get(lsn)
            if nodes is not None:
                self.put_nodes(lsn, *nodes)
        if nodes is not None:
            place = find_node(*nodes, digest, number)
            return None if place is None else _new(Node, (*place, lsn))
        found = self._young_nodes.get((lsn, number))
        if found is None:
            found = self._old_nodes.get((lsn, number))
            if found is not None:
                self.put(*found, lsn, number)
        return found[1] if found is not None and found[0] == digest else None

    def get_all(self, refs: Sequence[NodeRef]) -> list[Node | None]:
        """Return several nodes, like `get`."""
        young, found = self._young, []
        if not (young or self._old or self._young_nodes or self._old_nodes):
            return [None] * len(refs)
        for _type, digest, lsn, number in refs:
            nodes = young.get(lsn)
            if nodes is None:
                found.append(self.get(digest, lsn, number))
            else:
                place = find_node(*nodes, digest, number)
                found.append(None if place is None else _new(Node, (*place, lsn)))
        return found

    def put(self, digest: bytes, node: Node, lsn: int, number: int) -> None:
        """Cache a node."""
        size = len(node.data) + _OVERHEAD_BYTES
        if size > self._half // 8:
            return
        self._size += size
        if self._size > self._half:
            self._age(size)
        self._young_nodes[lsn, number] = (digest, node)

    def put_nodes(self, lsn: int, rows: bytes, data: bytes) -> None:
        """Cache all nodes of a newly written record in one entry."""
        size = len(data) + len(rows) + _OVERHEAD_BYTES
        if size > self._half // 8:
            return
        self._size += size
        if self._size > self._half:
            self._age(size)
        self._young[lsn] = (rows, data)

    def _age(self, size: int) -> None:
        """Begin a new generation, whose first entry has this size. Drop the old generation."""
        self._old, self._young = self._young, {}
        self._old_nodes, self._young_nodes = self._young_nodes, {}
        self._size = size

    def clear(self) -> None:
        """Remove all nodes from the cache."""
        self._young, self._old = {}, {}
        self._young_nodes, self._old_nodes = {}, {}
        self._size = 0


def read_node(transaction: Log, cache: NodeCache, type_: int, digest: bytes, lsn: int, number: int) -> Node:
    """Return a node. A node from disk is hashed and compared with the digest.

    Raises:
        CorruptionError: the record or node does not exist, or the content does not match the
            digest.
        ExpiredError: the node was vacuumed.
    """
    node = cache.get(digest, lsn, number)
    return _read_record(transaction, cache, type_, lsn, (digest,), (number,))[0] if node is None else node


def read_nodes(transaction: Log, cache: NodeCache, refs: Sequence[NodeRef]) -> list[Node]:
    """Return several nodes, like `read_node`. Look up the record of consecutive refs to the same record only once."""
    nodes = cache.get_all(refs)
    missing = [at for at, node in enumerate(nodes) if node is None]
    places = iter(missing)
    for (type_, lsn), group in groupby([refs[at] for at in missing], key=_TYPE_AND_LSN):
        _types, digests, _lsns, numbers = zip(*group, strict=True)
        for node, at in zip(_read_record(transaction, cache, type_, lsn, digests, numbers), places, strict=False):
            nodes[at] = node
    return cast("list[Node]", nodes)


def _read_record(
    transaction: Log, cache: NodeCache, type_: int, lsn: int, digests: Sequence[bytes], numbers: Sequence[int]
) -> list[Node]:
    """Return nodes of one record, and cache them."""
    record = _get_record(transaction, lsn, numbers[0])
    places = kernels.record_find(kernels.lend(record), len(record), type_, digests, numbers)
    if len(places) < len(numbers):
        if lsn <= cache.purged_lsn:
            message = f"a purge has rewritten record {lsn} since this value was read: read the value again"
            raise StoreReplacedError(message, lsn=lsn)
        raise _missing_node(bytes(record), lsn, numbers[len(places)])
    nodes = [_new(Node, (bytes(record[at : at + total]), content, lsn)) for at, content, total in places]
    for node, digest, number in zip(nodes, digests, numbers, strict=True):
        cache.put(digest, node, lsn, number)
    return nodes


def _get_record(transaction: Log, lsn: int, number: int) -> memoryview | bytes:
    record = transaction.lend_log(lsn)
    if record is None:
        message = f"record {lsn} is missing, but a reference names its node {number}"
        raise CorruptionError(message, lsn=lsn, node=number)
    return record if len(record) > COPIED_SIZE_BYTES_MAX else bytes(record)


def _missing_node(record: bytes, lsn: int, number: int) -> CorruptionError | ExpiredError:
    """Return the error for a ref to a node that the record does not contain."""
    try:
        if kernels.record_node(record, number) == kernels.VACUUMED:
            return removed_node(lsn, number)
    except CorruptionError as error:
        message = f"record {lsn}: node {number} cannot be read: {error}"
        return CorruptionError(message, lsn=lsn, node=number)
    message = f"record {lsn}: node {number} is damaged, its digest does not match"
    return CorruptionError(message, lsn=lsn, node=number)


def removed_node(lsn: int, number: int) -> ExpiredError:
    """Return the error for a node that retention has removed."""
    message = f"node {number} of record {lsn} was removed with its versions"
    return ExpiredError(message, lsn=lsn, node=number)
