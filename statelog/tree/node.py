"""Nodes, their digests, and the workspace in which one commit creates new nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from statelog.errors import CorruptionError
from statelog.format.digests import blake2b
from statelog.format.record import DIGEST_SIZE_BYTES, NodeRow, varint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LEAF = 1
ROOT = 2
CHUNK = 3
PIECE = 4

REF_LEAF = b"\xfc"
REF_ROOT = b"\xfd"
REF_BYTE_MIN = 0xFC
"""The lowest first byte of a ref. No CBOR item of our profile begins with this byte or a higher one."""
REF_SIZE_BYTES = 1 + DIGEST_SIZE_BYTES

DEDUP_SIZE_BYTES_MIN = 4096
"""The minimum size of a leaf that is deduplicated by digest across the store.

Roots of strings are deduplicated at any size.
"""

_STRING_KINDS = (5, 6)


def is_shared_widely(type_: int, content_size: int, first_byte: int) -> bool:
    """Return True if the index stores the node's digest, for deduplication across the store.

    The index does not store roots of lists, because each append would add an index entry.
    """
    if type_ == LEAF:
        return content_size >= DEDUP_SIZE_BYTES_MIN
    return type_ == ROOT and first_byte in _STRING_KINDS


_STARTS = {
    LEAF: blake2b(digest_size=DIGEST_SIZE_BYTES, person=b"stlg-leaf-1"),
    ROOT: blake2b(digest_size=DIGEST_SIZE_BYTES, person=b"stlg-root-1"),
    CHUNK: blake2b(digest_size=DIGEST_SIZE_BYTES, person=b"stlg-chunk-1"),
    PIECE: blake2b(digest_size=DIGEST_SIZE_BYTES, person=b"stlg-piece-1"),
}


class Node(NamedTuple):
    """A node: its data (content ++ locators), and the LSN of its record (0 for the record being built)."""

    data: bytes
    content_size: int
    lsn: int

    @property
    def content(self) -> bytes:
        """The bytes that the digest covers."""
        return self.data[: self.content_size]


_OWN_LOCATORS = tuple(varint(0) + varint(number) for number in range(128))
"""The encoded locators of the first nodes of the record being built."""


class ValueSlot(NamedTuple):
    """A value inside a parent: its item or a ref, and the location of the node that the ref names."""

    data: bytes
    lsn: int = 0
    number: int = 0

    @property
    def is_ref(self) -> bool:
        """Return True if the value is stored in its own node."""
        return self.data[0] >= REF_BYTE_MIN

    @property
    def locators(self) -> bytes:
        """The slot's encoded locator, which is empty for an inline value."""
        data, lsn, number = self
        if data[0] < REF_BYTE_MIN:
            return b""
        if not lsn and number < len(_OWN_LOCATORS):
            return _OWN_LOCATORS[number]
        return varint(lsn) + varint(number)


def node_digest(type_: int, content: bytes | memoryview) -> bytes:
    """Return the identity of a node: BLAKE2b-160 (RFC 7693) with the node type as personalisation."""
    state = _STARTS[type_].copy()
    state.update(content)
    return state.digest()


class Workspace:
    """The nodes that a commit reads through `source`, and the new nodes of its record.

    `add` never creates a node twice: for a known node, it returns the existing location. LSN 0 stands for the record
    being built, whose nodes are numbered in the order in which `add` creates them.
    """

    __slots__ = ("_find_large", "_known", "_source", "_source_many", "has_garbage", "has_shared", "rows")

    def __init__(
        self,
        source: Callable[[int, bytes, int, int], Node],
        find_large: Callable[[bytes], tuple[int, int] | None] | None = None,
        source_many: Callable[[Sequence[tuple[int, bytes, int, int]]], list[Node]] | None = None,
    ) -> None:
        self._source = source
        self._source_many = source_many
        self._find_large = find_large
        self._known: dict[bytes, tuple[int, int]] = {}
        self.rows: list[NodeRow] = []
        self.has_shared = False
        """Whether a node in `rows` is deduplicated across the store."""
        self.has_garbage = False
        """Whether `rows` may have nodes that the stored value does not reach."""

    def read(self, type_: int, digest: bytes, lsn: int, number: int) -> Node:
        """Return a node. The source verifies its digest."""
        if lsn:
            return self._source(type_, digest, lsn, number)
        if number >= len(self.rows) or self.rows[number].digest != digest:
            message = f"node {number} of the record being made does not have the digest of the reference"
            raise CorruptionError(message, node=number)
        row = self.rows[number]
        return Node(row.data, row.content_size, 0)

    def read_many(self, refs: Sequence[tuple[int, bytes, int, int]]) -> list[Node]:
        """Return several nodes, given as (type, digest, LSN, number), with one call of the source if possible."""
        if self._source_many is not None and len(refs) > 1 and all(ref[2] for ref in refs):
            return self._source_many(refs)
        return [self.read(*ref) for ref in refs]

    def know(self, digest: bytes, lsn: int, number: int) -> None:
        """Register an existing node, so that `add` reuses it.

        The type is not needed, because equal contents of different types have different digests.
        """
        self._known[digest] = (lsn, number)

    def add(self, type_: int, data: bytes, content_size: int) -> tuple[bytes, int, int]:
        """Return the (digest, LSN, number) of a node with this content. Create the node unless it is known."""
        state = _STARTS[type_].copy()  # This inlines node_digest, because each commit runs this line three times.
        state.update(data if content_size == len(data) else data[:content_size])
        digest = state.digest()
        known = self._known.get(digest)
        is_shared = (content_size >= DEDUP_SIZE_BYTES_MIN or type_ == ROOT) and is_shared_widely(
            type_, content_size, data[0]
        )
        if known is None and is_shared and self._find_large is not None:
            known = self._find_large(digest)
        if known is not None:
            if content_size < len(data) and not self.has_garbage:
                # The node already exists, so any children that the record being built has for it are garbage.
                own = b"\x00" in data[content_size:]
                self.has_garbage = own and any(not lsn for lsn, _number in read_locators(data, content_size))
            return digest, known[0], known[1]
        self.has_shared = self.has_shared or is_shared
        number = len(self.rows)
        self.rows.append(NodeRow(type_, digest, data, content_size))
        self._known[digest] = (0, number)
        return digest, 0, number

    def collect(self, slot: ValueSlot) -> ValueSlot:
        """Drop rows that `slot` does not reach, renumber the rest, and return the renumbered slot."""
        self.has_garbage = False
        if not slot.is_ref or slot.lsn:
            self.rows = []
            return slot
        order: dict[int, int] = {}
        children = [_own_children(row) for row in self.rows]
        pending = [slot.number]
        while pending:  # This loop ends, because children precede their parents in `rows`, so the numbers only fall.
            number = pending.pop()
            if number not in order:
                order[number] = 0
                pending.extend(children[number])
        kept = sorted(order)
        renumbered = {old: new for new, old in enumerate(kept)}
        self.rows = [_renumber(self.rows[old], renumbered) if children[old] else self.rows[old] for old in kept]
        return ValueSlot(slot.data, 0, renumbered[slot.number])


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Decode an unsigned LEB128 number. Return the number and the offset of the next byte."""
    number = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            message = f"the varint at byte {at} is cut off"
            raise CorruptionError(message)
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def read_locators(data: bytes, content_size: int) -> list[tuple[int, int]]:
    """Return the (LSN, number) of every locator. LSN 0 is returned unchanged."""
    found = []
    at = content_size
    while at < len(data):
        lsn, at = read_varint(data, at)
        number, at = read_varint(data, at)
        found.append((lsn, number))
    return found


def _own_children(row: NodeRow) -> list[int]:
    if len(row.data) == row.content_size:
        return []
    return [number for lsn, number in read_locators(row.data, row.content_size) if lsn == 0]


def _renumber(row: NodeRow, numbers: dict[int, int]) -> NodeRow:
    locators = b"".join(
        varint(lsn) + varint(number if lsn else numbers[number])
        for lsn, number in read_locators(row.data, row.content_size)
    )
    return row._replace(data=row.data[: row.content_size] + locators)
