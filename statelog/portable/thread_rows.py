"""The rows in which an import of threads stores facts about the nodes and events of the stream."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.portable.thread_events import Exported

_PLACE = Struct(">B20sQII")
_EVENT = Struct(">20s20sQIII")

ELSEWHERE = 0xFFFFFFFF
"""The thread number of a widely shared node that the store already had, in whichever thread."""


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
    """An imported event: its digest in the source store, its digest in this store, and its location."""

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
    """Functions that look up what earlier transactions of the import have stored, by number in the stream."""

    place: Callable[[int], NodePlace]
    event: Callable[[int], EventRow]
    thread: Callable[[int], int]
    """Returns the LSN of a thread of the stream, or 0 if the thread has no record yet."""
