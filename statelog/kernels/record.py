"""Kernels that locate the parts of a record, and its nodes through its node table (FORMAT.md 3)."""

from __future__ import annotations

from struct import Struct, pack
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from statelog._kernels import ffi, lib
from statelog.kernels.calls import NUMBERS, OK, fail, from_buffer, new, reuse, take, unpack_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Lent = Any
"""A view of memory that C can read."""

_PLACE: Final = Struct("=5Q20s4x")

VACUUMED: Final = (0, b"", 0, 0, 0)
"""The result of `record_node` and `record_nodes` for a vacuumed node."""

_record_open: Callable[..., int] = lib.sl_record_open
_record_node: Callable[..., int] = lib.sl_record_node
_record_find: Callable[..., int] = lib.sl_record_find
_record_nodes: Callable[..., int] = lib.sl_record_nodes


_new = tuple.__new__
"""A constructor of named tuples that skips their `__new__`, which is Python code."""


class RecordParts(NamedTuple):
    """The locations of the parts of a record.

    Attributes:
        body_at: offset of the body.
        body_size: size of the body.
        node_count: the number of the last remaining node plus 1; this counts the vacuumed nodes before it.
        row_count: number of remaining nodes.
        size: size of the record.
    """

    body_at: int
    body_size: int
    node_count: int
    row_count: int
    size: int


def record_open(record: bytes | memoryview) -> RecordParts:
    """Find the parts of the record at the beginning of `record`. Other bytes may follow it.

    Raises:
        CorruptionError: the sizes in its envelope and node table exceed the data.
    """
    scratch = take()
    pointer = record if type(record) is bytes else from_buffer("uint8_t[]", record)
    status = _record_open(pointer, len(record), scratch.parts)
    if status != OK:
        del pointer  # A traceback would otherwise keep the buffer exported.
        fail(status, "node table")
    parts = _new(RecordParts, unpack_numbers(scratch.numbers, 5))
    reuse(scratch)
    return parts


def record_node(record: bytes | memoryview, number: int) -> tuple[int, bytes, int, int, int]:
    """Find a node of a record.

    Returns:
        (type, digest, content_at, content_size, total_size). The node is ``total_size`` bytes at ``content_at``. The
        digest is taken from the node table, or else computed from the content. For a vacuumed node, all values are zero
        or empty.

    Raises:
        CorruptionError: the node does not exist, or its location is invalid.
    """
    scratch = take()
    pointer = record if type(record) is bytes else from_buffer("uint8_t[]", record)
    status = _record_node(pointer, len(record), number, scratch.place)
    if status != OK:
        del pointer  # A traceback would otherwise keep the buffer exported.
        fail(status, "node table")
    (place,) = _PLACE.iter_unpack(ffi.buffer(scratch.place))
    reuse(scratch)
    node_type, content_at, content_size, total_size, _number, digest = place
    return (node_type, digest, content_at, content_size, total_size) if node_type else VACUUMED


def record_find(
    record: bytes | Lent, size: int, type_: int, digests: Sequence[bytes], numbers: Sequence[int]
) -> list[tuple[int, int, int]]:
    """Find nodes of a record by type and digest, and check their content against the digest.

    Args:
        record: the record, or the result of `lend` for a view of it.
        size: size of the record.
        type_: type of the nodes.
        digests: digests of the nodes, 20 bytes each.
        numbers: node numbers, in the order of `digests`.

    Returns:
        (content_at, content_size, total_size) of each node, up to the first node that does not match the record.
    """
    count = len(numbers)
    scratch = take()
    places = scratch.numbers if 3 * count <= NUMBERS else new("uint64_t[]", 3 * count)
    _record_find(record, size, type_, pack(f">{count}Q", *numbers), b"".join(digests), count, places, scratch.count)
    found = iter(unpack_numbers(places, 3 * scratch.count[0]))
    reuse(scratch)
    return list(zip(found, found, found, strict=True))


def lend(record: bytes | memoryview) -> bytes | Lent:
    """Return a view as an argument of `record_find`. The view stays exported while the result exists."""
    return record if type(record) is bytes else from_buffer("uint8_t[]", record)


def record_rows(record: bytes | memoryview) -> dict[int, tuple[int, bytes, int, int, int]]:
    """Find the remaining nodes of a record, by ascending number. The values are as for ``record_node``.

    Raises:
        CorruptionError: the nodes and the table do not fill the record.
    """
    whole = bytes(record)
    capacity = record_open(whole).row_count
    places = new("sl_node_place[]", capacity)
    counts = new("uint64_t[2]")
    status = _record_nodes(whole, len(whole), places, capacity, counts, counts + 1)
    if status != OK:
        fail(status, "node table")
    return {
        number: (node_type, digest, content_at, content_size, total_size)
        for node_type, content_at, content_size, total_size, number, digest in _PLACE.iter_unpack(ffi.buffer(places))
    }


def record_nodes(record: bytes | memoryview) -> list[tuple[int, bytes, int, int, int]]:
    """Return the nodes of a record, in order of number. A vacuumed node is `VACUUMED`. See ``record_rows``.

    A short record may claim any number of vacuumed nodes. Each takes 8 bytes of the list.
    """
    rows = record_rows(record)
    count = next(reversed(rows), -1) + 1
    if len(rows) == count:
        return list(rows.values())
    nodes = [VACUUMED] * count
    for number, row in rows.items():
        nodes[number] = row
    return nodes
