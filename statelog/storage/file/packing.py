"""In which order records are put into LMDB so that they fill its pages.

Of a page that runs over at its end LMDB leaves all nodes but the last where they are, and puts that one into the
next page, with the new one. So what comes in ascending order leaves in each page room for one node: of records of
which two fit a page, half the pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_PAGE_SIZE_BYTES: Final = 4096 - 16
_INLINE_SIZE_BYTES_MAX: Final = 2020
"""Longer records have pages of their own, and a node leads to these. About so: it decides nothing but the order."""

_NODE_SIZE_BYTES: Final = 18
"""Of a node's head, key and pointer."""


def packing_order(records: Mapping[int, bytes]) -> list[int]:
    """Return the LSNs in the order in which to put them: ascending but for one a page, which come at the end."""
    first: list[int] = []
    last: list[int] = []
    room = 0
    for lsn in sorted(records):
        size_bytes = len(records[lsn])
        node_size_bytes = _NODE_SIZE_BYTES + (8 if size_bytes > _INLINE_SIZE_BYTES_MAX else size_bytes + size_bytes % 2)
        if node_size_bytes > room:
            if len(first) > 1:
                last.append(first.pop())
            room = _PAGE_SIZE_BYTES
        room -= node_size_bytes
        first.append(lsn)
    return first + last
