"""The nodes of a record, found in its node table (FORMAT.md 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from statelog._kernels import ffi, lib
from statelog.kernels.calling import OK, fail, from_buffer, new, reuse, take, unpack_numbers

if TYPE_CHECKING:
    from collections.abc import Callable

Lent = Any
"""A view that C reads from."""

_ROW_SIZE_MIN: Final = 29

VACUUMED: Final = (0, b"", 0, 0, 0)
"""What `record_node` and `record_nodes` say of a vacuumed node."""

_record_node: Callable[..., int] = lib.sl_record_node
_record_find: Callable[..., int] = lib.sl_record_find
_record_nodes: Callable[..., int] = lib.sl_record_nodes


def record_node(record: bytes | memoryview, number: int) -> tuple[int, bytes, int, int, int]:
    """Find a node of a record.

    Returns:
        (type, digest, content_at, content_size, total_size): the node is ``total_size`` bytes at
        ``content_at``. For a vacuumed node all are zero or empty.

    Raises:
        CorruptionError: no such node, or its place is none.
    """
    scratch = take()
    pointer = record if type(record) is bytes else from_buffer("uint8_t[]", record)
    status = _record_node(pointer, len(record), number, scratch.place)
    if status != OK:
        del pointer  # a traceback would keep the buffer lent out
        fail(status, "node table")
    node_type, digest_at, content_at, content_size, total_size = unpack_numbers(scratch.numbers, 5)
    reuse(scratch)
    if not node_type:
        return VACUUMED
    return node_type, bytes(record[digest_at : digest_at + 20]), content_at, content_size, total_size


def record_find(record: bytes | Lent, size: int, number: int, type_: int, digest: bytes) -> tuple[int, int, int] | None:
    """Find a node of a record that has a type and digest, and whose content has that digest.

    Args:
        record: the record; what `lend` gives for a view of one.
        size: of the record.
        number: of the node.
        type_: of the node.
        digest: of the node, 20 bytes.

    Returns:
        (content_at, content_size, total_size); None where that is not what the record holds there.
    """
    scratch = take()
    status = _record_find(record, size, number, type_, digest, scratch.place)
    place = None
    if status == OK:
        _type, _digest_at, content_at, content_size, total_size = unpack_numbers(scratch.numbers, 5)
        place = (content_at, content_size, total_size)
    reuse(scratch)
    return place


def lend(record: bytes | memoryview) -> bytes | Lent:
    """Return what `record_find` takes. A view stays lent out until that is let go."""
    return record if type(record) is bytes else from_buffer("uint8_t[]", record)


def record_nodes(record: bytes | memoryview) -> list[tuple[int, bytes, int, int, int]]:
    """Find all nodes of a record: as ``record_node``, for each; they and the table fill the record.

    Where nodes were vacuumed the envelope claims as many as it likes: each costs 8 bytes here.
    """
    whole = bytes(record)
    capacity = len(whole) // _ROW_SIZE_MIN + 1
    places = new("sl_node_place[]", capacity)
    counts = new("uint64_t[2]")
    status = _record_nodes(whole, len(whole), places, capacity, counts, counts + 1)
    if status != OK:
        fail(status, "node table")
    numbers = iter(unpack_numbers(ffi.cast("uint64_t *", places), 6 * counts[1]) if counts[1] else ())
    rows = [
        (node_type, whole[digest_at : digest_at + 20], content_at, content_size, total_size)
        for node_type, digest_at, content_at, content_size, total_size, _number in zip(*[numbers] * 6, strict=True)
    ]
    if counts[1] == counts[0]:
        return rows
    nodes = [VACUUMED] * counts[0]
    for row, place in zip(rows, places[0 : counts[1]], strict=True):
        nodes[place.number] = row
    return nodes
