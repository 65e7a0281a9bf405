"""How records fill LMDB's pages: the best order to write them in, and the number of pages of an ordered copy.

If a new node does not fit at the end of a page, LMDB puts it on a new page, and also moves the last node there. So
records written in ascending order leave space for one node in each page. If two records fit into a page, half of the
space is lost.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_PAGE_SIZE_BYTES: Final = 4096 - 16
_INLINE_SIZE_BYTES_MAX: Final = 2020
"""The estimated size up to which LMDB stores a record in its node. Longer records get pages of their own. The estimate
only affects the order.
"""

_NODE_SIZE_BYTES: Final = 18
"""The size of a node's head, key and pointer."""

_PAGE_HEAD_SIZE_BYTES: Final = 16
_NODE_HEAD_SIZE_BYTES: Final = 8
_POINTER_SIZE_BYTES: Final = 2
_LONG_REF_SIZE_BYTES: Final = 8
"""The size of the page number in a node whose value has pages of its own."""


def packing_order(records: Mapping[int, bytes]) -> list[int]:
    """Return the LSNs in the order that fills pages best.

    The order is ascending, except that the last record of each full page comes after all others.
    """
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


class PackedPages:
    """Counts the pages of a table whose entries are appended in the order of their keys, as compaction does.

    This fills all leaf pages. The number of branch pages is an estimate.
    """

    __slots__ = ("_entries", "_keys_size_bytes", "_leaves", "_long", "_page_size_bytes", "_room")

    def __init__(self, page_size_bytes: int) -> None:
        self._page_size_bytes = page_size_bytes
        self._entries = self._keys_size_bytes = self._leaves = self._long = self._room = 0

    def add(self, key_size_bytes: int, value_size_bytes: int) -> None:
        """Count an appended entry."""
        node_size_bytes = _NODE_HEAD_SIZE_BYTES + key_size_bytes + value_size_bytes
        whole_bytes = self._page_size_bytes - _PAGE_HEAD_SIZE_BYTES
        if node_size_bytes > whole_bytes // 2 // 2 * 2 - _POINTER_SIZE_BYTES:
            node_size_bytes = _NODE_HEAD_SIZE_BYTES + key_size_bytes + _LONG_REF_SIZE_BYTES
            self._long += -(-(_PAGE_HEAD_SIZE_BYTES + value_size_bytes) // self._page_size_bytes)
        node_size_bytes += node_size_bytes % 2 + _POINTER_SIZE_BYTES
        if node_size_bytes > self._room:
            self._leaves += 1
            self._room = whole_bytes
        self._room -= node_size_bytes
        self._entries += 1
        self._keys_size_bytes += key_size_bytes

    def count(self, entries: int) -> int:
        """Return the number of pages of a table of `entries` entries.

        The entries passed to `add` may be all these entries, or a sample.
        """
        if not self._entries:
            return 0
        scale = entries / self._entries
        node_size_bytes = _NODE_HEAD_SIZE_BYTES + _POINTER_SIZE_BYTES + self._keys_size_bytes / self._entries
        children_per_page = (self._page_size_bytes - _PAGE_HEAD_SIZE_BYTES) / node_size_bytes
        level = ceil(self._leaves * scale)
        pages = level + ceil(self._long * scale)
        while level > 1:
            level = ceil(level / children_per_page)
            pages += level
        return pages
