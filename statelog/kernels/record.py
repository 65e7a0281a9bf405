"""The nodes of a record, found in its node table (FORMAT.md 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from statelog._kernels import ffi, lib
from statelog.kernels.calling import OK, fail, from_buffer, new, reuse, take, unpack_numbers

if TYPE_CHECKING:
    from collections.abc import Callable

Lent = Any
"""A view that C reads from."""

_RECORD_ENVELOPE_SIZE: Final = 56
_RECORD_NODES_MAX: Final = 1 << 22

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
    """Find all nodes of a record: as ``record_node``, for each; they and the table fill the record."""
    whole = bytes(record)
    # What the envelope claims, up to what the kernel takes: a count beyond it is refused there.
    capacity = min(int.from_bytes(whole[52:_RECORD_ENVELOPE_SIZE]), _RECORD_NODES_MAX)
    places = new("sl_node_place[]", max(capacity, 1))
    count = new("uint64_t *")
    status = _record_nodes(whole, len(whole), places, capacity, count)
    if status != OK:
        fail(status, "node table")
    numbers = iter(unpack_numbers(ffi.cast("uint64_t *", places), 5 * count[0]) if count[0] else ())
    return [
        (node_type, whole[digest_at : digest_at + 20], content_at, content_size, total_size) if node_type else VACUUMED
        for node_type, digest_at, content_at, content_size, total_size in zip(*[numbers] * 5, strict=True)
    ]
