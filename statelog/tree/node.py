"""Nodes, their digests, and the workspace in which one commit makes new ones."""

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
"""No CBOR item of the profile begins with this byte or a higher one."""
REF_SIZE_BYTES = 1 + DIGEST_SIZE_BYTES

DEDUP_SIZE_BYTES_MIN = 4096
"""Leaves of this size and up, and cut strings, are found again by digest over the whole store."""

_STRING_KINDS = (5, 6)


def is_shared_widely(type_: int, content_size: int, first_byte: int) -> bool:
    """Whether a node's digest is indexed. Lists are not: each append would make an entry."""
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
    """A node read: content ++ locators, and the record it lies in (0: the one being made)."""

    data: bytes
    content_size: int
    lsn: int

    @property
    def content(self) -> bytes:
        """The bytes its digest is of."""
        return self.data[: self.content_size]


_OWN_LOCATORS = tuple(varint(0) + varint(number) for number in range(128))
"""Locators of the first nodes of the record being made."""


class Slot(NamedTuple):
    """A value inside a parent: its item or a ref, and where the ref leads."""

    data: bytes
    lsn: int = 0
    number: int = 0

    @property
    def is_ref(self) -> bool:
        """Whether the value is a node of its own."""
        return self.data[0] >= REF_BYTE_MIN

    @property
    def locators(self) -> bytes:
        """Locator bytes of the slot: none when inline."""
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
    """Nodes of the log, read through `source`, and new ones on their way to a record.

    A node equal to one that is known here is not made again: `add` returns where the
    known one lies. LSN 0 names the record being made, its node numbers the order of `add`.
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
        """Whether one of `rows` is to be found again over the whole store."""
        self.has_garbage = False
        """Whether some of `rows` may not be reachable from what will be stored."""

    def read(self, type_: int, digest: bytes, lsn: int, number: int) -> Node:
        """Return a node, its digest verified by the source."""
        if lsn:
            return self._source(type_, digest, lsn, number)
        if number >= len(self.rows) or self.rows[number].digest != digest:
            message = f"node {number} of the record being made is not the one referred to"
            raise CorruptionError(message, node=number)
        row = self.rows[number]
        return Node(row.data, row.content_size, 0)

    def read_many(self, refs: Sequence[tuple[int, bytes, int, int]]) -> list[Node]:
        """Return several nodes, given as (type, digest, LSN, number), in one go where the source can."""
        if self._source_many is not None and len(refs) > 1 and all(ref[2] for ref in refs):
            return self._source_many(refs)
        return [self.read(*ref) for ref in refs]

    def know(self, digest: bytes, lsn: int, number: int) -> None:
        """Let `add` find an existing node again. Digests of types differ by personalisation."""
        self._known[digest] = (lsn, number)

    def add(self, type_: int, data: bytes, content_size: int) -> tuple[bytes, int, int]:
        """Return (digest, LSN, number) of a node with this content, new or known."""
        state = _STARTS[type_].copy()  # node_digest, without the call: this is in every commit three times
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
                # Children of its own record were made for nothing.
                own = b"\x00" in data[content_size:]
                self.has_garbage = own and any(not lsn for lsn, _number in read_locators(data, content_size))
            return digest, known[0], known[1]
        self.has_shared = self.has_shared or is_shared
        number = len(self.rows)
        self.rows.append(NodeRow(type_, digest, data, content_size))
        self._known[digest] = (0, number)
        return digest, 0, number

    def collect(self, slot: Slot) -> Slot:
        """Drop rows that `slot` does not reach and renumber the rest; return the slot renumbered."""
        self.has_garbage = False
        if not slot.is_ref or slot.lsn:
            self.rows = []
            return slot
        order: dict[int, int] = {}
        children = [_own_children(row) for row in self.rows]
        pending = [slot.number]
        while pending:  # children come before parents in rows: numbers only fall
            number = pending.pop()
            if number not in order:
                order[number] = 0
                pending.extend(children[number])
        kept = sorted(order)
        renumbered = {old: new for new, old in enumerate(kept)}
        self.rows = [_renumber(self.rows[old], renumbered) if children[old] else self.rows[old] for old in kept]
        return Slot(slot.data, 0, renumbered[slot.number])


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return (number, offset behind it) of unsigned LEB128."""
    number = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            message = f"a number is cut off at byte {at}"
            raise CorruptionError(message)
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def read_locators(data: bytes, content_size: int) -> list[tuple[int, int]]:
    """Return all (LSN, number) of a node, LSN 0 as it stands."""
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
