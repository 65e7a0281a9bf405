"""Nodes that nobody vouches for: checked one by one, in the order of the log, each ref against what is there.

Invariants T3 to T5, as `verify` has them, and beyond it the seams of a tree: what a parent says of a
closed chunk (its count, last key, fingerprints), and a root of its levels, is what the child is. As
every ref leads to something checked before, every value is whole by induction.
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
    """Type, digest, LSN and number to node."""
    Identity = Callable[[int, int], bytes]
    """LSN and number to type and digest, joined; empty where there is no such node."""

_SEAMS_SIZE_BYTES_MAX = 16 * 1024 * 1024
_OVERHEAD_BYTES = 300
_TYPES = range(1, 5)


class Row(NamedTuple):
    """A node of a record, and where in it."""

    type: int
    digest: bytes
    at: int
    content_size: int
    total_size: int


class Ref(NamedTuple):
    """A reference to a node: what is expected, and where it is to be found."""

    type: int
    digest: bytes
    lsn: int
    number: int


class Seam(NamedTuple):
    """What a chunk or piece is to the level above: its own level, and the entry that stands for it there."""

    kind: int
    level: int
    entry: bytes


def read_rows(data: bytes | memoryview, record: Record) -> dict[int, Row]:
    """Return the nodes of a record whose checksum holds, by number; vacuumed ones are not there.

    Raises:
        CorruptionError: table and nodes do not fill the record exactly.

    """
    try:
        return {number: Row(*row) for number, row in kernels.record_rows(data).items()}
    except CorruptionError:
        message = f"record {record.lsn}: damaged node table"
        raise CorruptionError(message, lsn=record.lsn) from None


class Seams:
    """What chunks are to the level above, by digest; recent ones remembered."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Seam] = OrderedDict()
        self._size_bytes = 0

    def learn(self, type_: int, digest: bytes, node: bytes, content_size: int) -> Seam:
        """Return the seam of a chunk or piece that was checked, and remember it."""
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
        """Return the seam of a chunk or piece, which is read if it is not remembered."""
        seam = self._known.get(ref.digest)
        if seam is None:
            node = read(*ref)
            return self.learn(ref.type, ref.digest, node.data, node.content_size)
        self._known.move_to_end(ref.digest)
        return seam


def check_content(type_: int, digest: bytes, node: bytes, content_size: int) -> None:
    """Check that a node is of a known type, has content, and is what its digest says (T3).

    Raises:
        CorruptionError: it is not.

    """
    if type_ not in _TYPES or not 0 < content_size <= len(node):
        message = f"a node of type {type_} with {content_size} bytes of content"
        raise CorruptionError(message)
    if node_digest(type_, node[:content_size]) != digest:
        message = "a node is not what its digest says"
        raise CorruptionError(message)
    if type_ == PIECE and (content_size != len(node) or content_size > BLOB_SIZE_BYTES_MIN):
        message = f"a piece of {content_size} bytes with {len(node) - content_size} bytes of locators"
        raise CorruptionError(message)


def check_refs(
    type_: int, node: bytes, content_size: int, lsn: int, *, identity: Identity, seams: Seams, read: Read
) -> list[Ref]:
    """Check the inside of a node (T4), and that each ref leads to what it names (T5); return the refs.

    Args:
        type_: of the node.
        node: content and locators.
        content_size: of the content.
        lsn: of its record: what locators with LSN 0 mean.
        identity: of the node at a place.
        seams: what chunks are to the level above.
        read: reads a node that was checked.

    Raises:
        CorruptionError: something of it does not hold.

    """
    refs = [Ref(*child) for child in check_node(type_, node, content_size, lsn)]
    for ref in refs:
        if identity(ref.lsn, ref.number) != bytes((ref.type,)) + ref.digest:
            message = f"it refers to node {ref.number} of record {ref.lsn}, which is not what it should be"
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
            message = f"what it says of chunk {ref.digest.hex()} is not so"
            raise CorruptionError(message)


def _check_spine(node: bytes, content_size: int, refs: Iterator[Ref], read: Read) -> None:
    """Check the open levels of a root: of its kind, one below the other, as much under each as it says."""
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
            message = f"its open level {level} is not what it says"
            raise CorruptionError(message)
    if below + head.tail_count != head.count:
        message = f"it counts {head.count} entries and has {below + head.tail_count}"
        raise CorruptionError(message)
