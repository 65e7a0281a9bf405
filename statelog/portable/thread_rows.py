"""The nodes, events and groups of a stream, as an import of threads keeps them."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.portable.thread_events import Exported

_PLACE = Struct(">B20sQII")
_EVENT = Struct(">20s20sQIII")

ELSEWHERE = 0xFFFFFFFF
"""The thread number of a node in a record of a thread outside the export."""


class NodePlace(NamedTuple):
    """A node of the stream: its identity, and its location in the store (LSN 0: not stored yet)."""

    type: int
    digest: bytes
    lsn: int
    number: int
    thread: int

    def encode(self) -> bytes:
        """Encode this object as a table row of fixed size."""
        return _PLACE.pack(*self)

    @classmethod
    def decode(cls, row: bytes) -> NodePlace:
        """Inverse of `encode`."""
        return cls(*_PLACE.unpack(row))


class EventRow(NamedTuple):
    """An event of the stream that is in the store: its source digest, its digest here and its location."""

    source_digest: bytes
    digest: bytes
    lsn: int
    thread: int
    branch: int
    version: int

    def encode(self) -> bytes:
        """Encode this object as a table row of fixed size."""
        return _EVENT.pack(*self)

    @classmethod
    def decode(cls, row: bytes) -> EventRow:
        """Inverse of `encode`."""
        return cls(*_EVENT.unpack(row))


PLACE_SIZE_BYTES = _PLACE.size
EVENT_SIZE_BYTES = _EVENT.size


class StagedNode(NamedTuple):
    """A checked node. Each locator has LSN 0 and the child's number in the stream."""

    number: int
    type: int
    digest: bytes
    data: bytes
    content_size: int
    children: list[int]


class EventGroup(NamedTuple):
    """An event with the nodes that precede it."""

    number: int
    event: Exported
    nodes: list[StagedNode]
    offset: int


class ImportLookups(NamedTuple):
    """Lookups in the results of earlier transactions of the import."""

    place: Callable[[int], NodePlace]
    event: Callable[[int], EventRow]
    thread: Callable[[int], int]
    """Returns the LSN of a thread of the stream, or 0 if the thread has no record yet."""
