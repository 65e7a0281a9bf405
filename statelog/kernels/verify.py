"""The kernel that checks all nodes of a record in one call (FORMAT.md 3, 4)."""

from __future__ import annotations

from secrets import randbits
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from statelog._kernels import ffi, lib
from statelog.kernels.calls import OK, fail, from_buffer, new

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class ForeignRef(NamedTuple):
    """A ref to a node of an earlier record that is not in the cache. `parent` is the number of the referring node."""

    parent: int
    type: int
    digest: bytes
    lsn: int
    node: int


class RecordFacts(NamedTuple):
    """The facts about a record whose own content is valid.

    Attributes:
        node_count: number of nodes that were not vacuumed.
        shared_count: number of these nodes that are deduplicated across the store.
        chain_digest: chain digest of the record; zeros if it is redacted.
        refs: refs that the caller must look up.
    """

    node_count: int
    shared_count: int
    chain_digest: bytes
    refs: list[ForeignRef]


_SEEN_COUNT: Final = 1 << 20
"""The number of cache slots, of 8 bytes each. With a million nodes, most seen nodes are still in the cache."""

_REFS_MAX: Final = 1 << 16
_SIZE_BYTES_MAX: Final = 1 << 24
_ROW_SIZE_MIN: Final = 29
_FACTS: Final = Struct("=QQQ20s4xQ")
_records_verify: Callable[..., int] = lib.sl_records_verify
_seen_node: Callable[..., int] = lib.sl_seen_node


class RecordVerifier:
    """Verifies the nodes of records, in LSN order.

    Only one thread at a time may call `check`. Another thread may call `has_seen` at the same time.
    """

    __slots__ = ("_places", "_places_capacity", "_refs", "_seen", "_slots")

    def __init__(self) -> None:
        self._slots = new("uint64_t[]", _SEEN_COUNT)
        self._seen = new("sl_seen_nodes *")
        self._seen.slots = self._slots
        self._seen.count = _SEEN_COUNT
        self._seen.seed = randbits(64)
        self._refs = new("sl_node_ref[]", _REFS_MAX)
        self._places_capacity = 1024
        self._places = new("sl_node_place[]", self._places_capacity)

    def check(self, records: Sequence[tuple[int, memoryview]]) -> list[RecordFacts | None]:
        """Check all nodes of records: digests, shape, and refs to nodes of the same record. The GIL is released.

        Args:
            records: the records with their LSNs, ascending.

        Returns:
            The facts of each record. None if a check failed or the record is too large. The caller then checks the
            record node by node.
        """
        lsns = [lsn for lsn, _data in records]
        views = [data for _lsn, data in records]
        capacity = min(max(map(len, views), default=0), _SIZE_BYTES_MAX) // _ROW_SIZE_MIN
        if capacity > self._places_capacity:
            self._places_capacity = capacity
            self._places = new("sl_node_place[]", capacity)
        pointers = [from_buffer("uint8_t[]", record) for record in views]
        facts = new("sl_record_facts[]", len(records))
        status = _records_verify(
            new("uint8_t *[]", pointers),
            new("uint64_t[]", list(map(len, views))),
            new("uint64_t[]", lsns),
            len(records),
            self._seen,
            self._places,
            self._places_capacity,
            self._refs,
            _REFS_MAX,
            facts,
        )
        for pointer in pointers:
            ffi.release(pointer)
        if status != OK:
            fail(status, "record")
        found: list[RecordFacts | None] = []
        at = 0
        for record, numbers in zip(views, _FACTS.iter_unpack(ffi.buffer(facts)), strict=True):
            node_count, shared_count, ref_count, chain_digest, is_refused = numbers
            refs = self._foreign(record, at, ref_count) if ref_count else []
            at += ref_count
            found.append(None if is_refused else RecordFacts(node_count, shared_count, chain_digest, refs))
        return found

    def _foreign(self, record: memoryview, start: int, count: int) -> list[ForeignRef]:
        refs = self._refs[start : start + count]
        return [
            ForeignRef(ref.parent, ref.type, bytes(record[ref.digest_at : ref.digest_at + 20]), ref.lsn, ref.node)
            for ref in refs
        ]

    def has_seen(self, type_: int, digest: bytes, lsn: int, node: int) -> bool:
        """Return True if the cache has the node or a ref to it."""
        found: bool = _seen_node(self._seen, type_, digest, lsn, node) == OK
        return found
