"""All the nodes of a record checked in one call (FORMAT.md 3, 4)."""

from __future__ import annotations

from secrets import randbits
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from statelog._kernels import ffi, lib
from statelog.kernels.calling import OK, from_buffer, new, unpack_numbers

if TYPE_CHECKING:
    from collections.abc import Callable


class ForeignRef(NamedTuple):
    """A ref to a node of an earlier record that was not seen lately; `parent` is the number of the node that refers."""

    parent: int
    type: int
    digest: bytes
    lsn: int
    node: int


class RecordFacts(NamedTuple):
    """What `RecordVerifier` found of a record that is sound in itself.

    Attributes:
        node_count: of nodes that are there.
        shared_count: of those, how many are found by digest over the whole store.
        chain_digest: the record's; zeros where it was redacted.
        refs: to be looked up.

    """

    node_count: int
    shared_count: int
    chain_digest: bytes
    refs: list[ForeignRef]


_SEEN_COUNT: Final = 1 << 18
"""Slots of 8 bytes, few enough to stay in the cache: nodes seen lately need not be looked up."""

_REFS_MAX: Final = 1 << 16
_SIZE_BYTES_MAX: Final = 1 << 24
_ROW_SIZE_MIN: Final = 29
_FACTS: Final = Struct("=QQQ20s4x")
_record_verify: Callable[..., int] = lib.sl_record_verify
_seen_node: Callable[..., int] = lib.sl_seen_node


class RecordVerifier:
    """Checks the nodes of records, one record after the other, in order of LSNs; not for use by two threads at once."""

    __slots__ = ("_facts", "_facts_bytes", "_places", "_places_capacity", "_refs", "_seen", "_slots")

    def __init__(self) -> None:
        self._slots = new("uint64_t[]", _SEEN_COUNT)
        self._seen = new("sl_seen_nodes *")
        self._seen.slots = self._slots
        self._seen.count = _SEEN_COUNT
        self._seen.seed = randbits(64)
        self._refs = new("sl_node_ref[]", _REFS_MAX)
        self._facts = new("sl_record_facts *")
        self._facts_bytes = ffi.buffer(self._facts)
        self._places_capacity = 1024
        self._places = new("sl_node_place[]", self._places_capacity)

    def check(self, record: memoryview) -> RecordFacts | None:
        """Check all nodes of a record whose checksum holds: digests, shape, and refs to nodes of the same record.

        Args:
            record: the record.

        Returns:
            None if something does not hold, or the record is larger than this looks at: then check it node by node.

        """
        if len(record) // _ROW_SIZE_MIN > self._places_capacity:
            if len(record) > _SIZE_BYTES_MAX:
                return None
            self._places_capacity = len(record) // _ROW_SIZE_MIN
            self._places = new("sl_node_place[]", self._places_capacity)
        pointer = from_buffer("uint8_t[]", record)
        status = _record_verify(
            pointer, len(record), self._seen, self._places, self._places_capacity, self._refs, _REFS_MAX, self._facts
        )
        ffi.release(pointer)
        if status != OK:
            return None
        found, shared_count, ref_count, chain_digest = _FACTS.unpack(self._facts_bytes)
        refs = []
        if ref_count:
            numbers = iter(unpack_numbers(ffi.cast("uint64_t *", self._refs), 5 * ref_count))
            for parent, type_, digest_at, lsn, node in zip(*[numbers] * 5, strict=True):
                refs.append(ForeignRef(parent, type_, bytes(record[digest_at : digest_at + 20]), lsn, node))
        return RecordFacts(found, shared_count, chain_digest, refs)

    def has_seen(self, type_: int, digest: bytes, lsn: int, node: int) -> bool:
        """Tell whether a node, or a ref to it, was seen lately."""
        found: bool = _seen_node(self._seen, type_, digest, lsn, node) == OK
        return found
