"""Check untrusted nodes one by one, in log order, and each ref against the nodes before it.

This checks invariants T3 to T5, as `verify` does. It also checks the seams of a tree: the count, last key and
fingerprints that a parent records for a closed chunk, and the levels that a root records. Since every ref leads to a
node that was checked earlier, every value is complete by induction.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from statelog import kernels
from statelog.errors import CorruptionError
from statelog.format.record import varint
from statelog.limits import BLOB_SIZE_BYTES_MIN
from statelog.tree.check import check_node
from statelog.tree.node import CHUNK, PIECE, ROOT, Node, node_digest
from statelog.tree.tree import STRIDE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from statelog.format.record import Record

    Read = Callable[[int, bytes, int, int], Node]
    """Returns the node at (type, digest, LSN, number)."""
    Identity = Callable[[int, int], bytes]
    """Returns type and digest of the node at (LSN, number), joined; empty if there is none."""

_SEAMS_SIZE_BYTES_MAX = 16 * 1024 * 1024
_OVERHEAD_BYTES = 300
_TYPES = range(1, 5)


class NodeHeader(NamedTuple):
    """The type and digest of a node, and its location in a record."""

    type: int
    digest: bytes
    at: int
    content_size: int
    total_size: int


class Ref(NamedTuple):
    """A reference to a node: its expected type and digest, and its location."""

    type: int
    digest: bytes
    lsn: int
    number: int


class Seam(NamedTuple):
    """What the parent of a chunk or piece must record: the child's kind and level, and its entry in the parent."""

    kind: int
    level: int
    entry: bytes


def read_rows(data: bytes | memoryview, record: Record) -> dict[int, NodeHeader]:
    """Return the nodes of a record, keyed by number, without vacuumed nodes. The record's checksum must be valid.

    Raises:
        CorruptionError: the node table and the nodes do not fill the record exactly.
    """
    try:
        return {number: NodeHeader(*row) for number, row in kernels.record_rows(data).items()}
    except CorruptionError:
        message = f"record {record.lsn}: damaged node table"
        raise CorruptionError(message, lsn=record.lsn) from None


class Seams:
    """The seams of chunks by digest. Recent ones are cached."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Seam] = OrderedDict()
        self._size_bytes = 0

    def learn(self, type_: int, digest: bytes, node: bytes, content_size: int) -> Seam:
        """Return the seam of a checked chunk or piece, and cache it."""
        if type_ == PIECE:
            seam = Seam(kernels.KIND_BYTES, 0, varint(content_size) + digest)
        else:
            kind, level = node[0], node[1]
            seam = Seam(kind, level, kernels.chunk_summary(node, content_size, kind, digest))
        if digest not in self._known:
            self._known[digest] = seam
            self._size_bytes += len(seam.entry) + _OVERHEAD_BYTES
            while self._size_bytes > _SEAMS_SIZE_BYTES_MAX:
                _digest, oldest = self._known.popitem(last=False)
                self._size_bytes -= len(oldest.entry) + _OVERHEAD_BYTES
        return seam

    def of(self, ref: Ref, read: Read) -> Seam:
        """Return the seam of a chunk or piece. Read the node if the seam is not cached."""
        seam = self._known.get(ref.digest)
        if seam is None:
            node = read(*ref)
            return self.learn(ref.type, ref.digest, node.data, node.content_size)
        self._known.move_to_end(ref.digest)
        return seam


def check_content(type_: int, digest: bytes, node: bytes, content_size: int) -> None:
    """Check that a node has a known type, has content, and matches its digest (T3).

    Raises:
        CorruptionError: a check failed.
    """
    if type_ not in _TYPES or not 0 < content_size <= len(node):
        message = f"a node cannot have type {type_} and {content_size} bytes of content"
        raise CorruptionError(message)
    if node_digest(type_, node[:content_size]) != digest:
        message = "a node does not match its digest"
        raise CorruptionError(message)
    if type_ == PIECE and (content_size != len(node) or content_size > BLOB_SIZE_BYTES_MIN):
        message = (
            f"a piece must not have {content_size} bytes of content and {len(node) - content_size} bytes of locators"
        )
        raise CorruptionError(message)


def check_refs(
    type_: int, node: bytes, content_size: int, lsn: int, *, identity: Identity, seams: Seams, read: Read
) -> list[Ref]:
    """Check the content of a node (T4), and that each ref leads to the node it names (T5). Return the refs.

    Args:
        type_: type of the node.
        node: content and locators.
        content_size: size of the content.
        lsn: LSN of the node's record, to which locators with LSN 0 refer.
        identity: returns the identity of the node at a location.
        seams: the seams of checked chunks.
        read: reads a checked node.

    Raises:
        CorruptionError: a check failed.
    """
    refs = [Ref(*child) for child in check_node(type_, node, content_size, lsn)]
    for ref in refs:
        if identity(ref.lsn, ref.number) != bytes((ref.type,)) + ref.digest:
            message = (
                f"it refers to node {ref.number} of record {ref.lsn}, but the type or digest of that node is different"
            )
            raise CorruptionError(message, refers_to=ref.lsn)
    if type_ in (ROOT, CHUNK):
        _check_seams(type_, node, content_size, refs, seams, read)
    return refs


def _check_seams(type_: int, node: bytes, content_size: int, refs: list[Ref], seams: Seams, read: Read) -> None:
    kind = node[0]
    level = node[1] if type_ == CHUNK else 0
    if type_ == ROOT:
        _check_spine(node, content_size, iter(refs), read)
    if not level:
        return
    table = kernels.entries_table(node, content_size, 0, is_root=False, kind=kind)
    for ref, index in zip(refs, range(0, len(table), STRIDE), strict=True):
        seam = seams.of(ref, read)
        is_fit = seam.level == level - 1 and (seam.kind == kind or ref.type == PIECE)
        if not is_fit or seam.entry != node[table[index] : table[index + 2]]:
            message = f"its entry for chunk {ref.digest.hex()} does not match the chunk"
            raise CorruptionError(message)


def _check_spine(node: bytes, content_size: int, refs: Iterator[Ref], read: Read) -> None:
    """Check a root: the kind, level and entry count of each open level, and the count of all entries."""
    head = kernels.root_read(node, content_size, 0)
    below = 0
    for level, (covered, digest, _lsn, _number) in zip(range(len(head.levels), 0, -1), head.levels, strict=True):
        below += covered
        if digest is None:
            continue
        ref = next(refs)
        opened = read(*ref)
        table = kernels.entries_table(opened.data, opened.content_size, 0, is_root=False, kind=head.kind)
        if opened.data[:2] != bytes((head.kind, level)) or sum(table[3::STRIDE]) != covered:
            message = f"its open level {level} does not match the node"
            raise CorruptionError(message)
    if below + head.tail_count != head.count:
        message = f"it states {head.count} entries but has {below + head.tail_count}"
        raise CorruptionError(message)
