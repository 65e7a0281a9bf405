"""Checks the content of one node, and lists the node's children."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog import kernels
from statelog.errors import CorruptionError
from statelog.format.record import DIGEST_SIZE_BYTES
from statelog.tree.node import (
    CHUNK,
    LEAF,
    PIECE,
    REF_BYTE_MIN,
    REF_LEAF,
    REF_SIZE_BYTES,
    ROOT,
    read_locators,
)
from statelog.tree.tree import STRIDE, STRINGS

if TYPE_CHECKING:
    from collections.abc import Iterator


def check_node(type_: int, data: bytes, content_size: int, lsn: int) -> Iterator[tuple[int, bytes, int, int]]:
    """Check a node whose digest is valid, and yield its children.

    Yields:
        (type, digest, LSN, number) of each child.

    Raises:
        CorruptionError: the content is malformed, or the number of locators differs from the number of children.
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


def _children(type_: int, data: bytes, content_size: int) -> Iterator[tuple[int, bytes]]:
    if type_ not in (ROOT, CHUNK):
        message = f"a node of type {type_} with locators"
        raise CorruptionError(message)
    kind = data[0]
    level = data[1] if type_ == CHUNK else 0
    if type_ == ROOT:
        head = kernels.root_read(data, content_size, 0)
        for _covered, digest, _lsn, _number in head.levels:
            if digest is not None:
                yield CHUNK, digest
        if kind in STRINGS:
            return
    table = kernels.entries_table(data, content_size, 0, is_root=type_ == ROOT, kind=kind)
    below = PIECE if level == 1 and kind in STRINGS else CHUNK
    for index in range(0, len(table), STRIDE):
        at, end = table[index + 1 : index + 3]
        if level:
            yield below, data[at : at + DIGEST_SIZE_BYTES]
        elif end - at == REF_SIZE_BYTES and data[at] >= REF_BYTE_MIN:
            yield LEAF if data[at : at + 1] == REF_LEAF else ROOT, data[at + 1 : end]
