"""Check the inside of one node, and name its children."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog import kernels
from statelog.errors import CorruptionError
from statelog.tree.node import (
    CHUNK,
    LEAF,
    PIECE,
    REF_BYTE_MIN,
    REF_LEAF,
    REF_ROOT,
    REF_SIZE_BYTES,
    ROOT,
    read_locators,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


def check_node(
    type_: int, data: bytes, content_size: int, lsn: int
) -> Iterator[tuple[int | None, bytes, int, int]]:
    """Check a node whose digest holds, and yield its children.

    Yields:
        (type or None if it follows from elsewhere, digest, LSN, number) of each child.

    Raises:
        CorruptionError: the content is malformed, or the locators are not one per child.

    """
    if type_ == PIECE or (type_ == LEAF and content_size == len(data)):
        if type_ == LEAF:
            kernels.cbor_check(data)
        return
    digests = list(_children(type_, data, content_size))
    locators = read_locators(data, content_size)
    if len(digests) != len(locators):
        message = f"{len(digests)} children, {len(locators)} locators"
        raise CorruptionError(message)
    for (child_type, digest), (child_lsn, number) in zip(digests, locators, strict=True):
        yield child_type, digest, child_lsn or lsn, number


def _children(type_: int, data: bytes, content_size: int) -> Iterator[tuple[int | None, bytes]]:
    if type_ not in (ROOT, CHUNK):
        message = f"a node of type {type_} with locators"
        raise CorruptionError(message)
    if type_ == CHUNK:
        # A chunk does not tell its tree's kind: its refs stand before the locators, counted from them.
        yield from ((None, digest) for digest in _digests_of_chunk(data, content_size))
        return
    head = kernels.root_read(data, content_size, 0)
    for _covered, digest, _lsn, _number in head.levels:
        if digest is not None:
            yield CHUNK, digest
    if head.kind in (kernels.KIND_STR, kernels.KIND_BYTES):
        return
    table = kernels.entries_table(data, content_size, 0, is_root=True, kind=head.kind)
    for index in range(0, len(table), 6):
        slot = data[table[index + 1] : table[index + 2]]
        if len(slot) == REF_SIZE_BYTES and slot[0] >= REF_BYTE_MIN:
            yield LEAF if slot[:1] == REF_LEAF else ROOT, slot[1:]
