"""The purpose of each byte of a store file, from LMDB's pages as `storage.pages` reads them.

It explains why a flip does no harm. The layout is that of LMDB 0.9 on 64-bit machines
(`lmdb.h`, `mdb.c`: MDB_page, MDB_node, MDB_meta, MDB_db).
"""

from __future__ import annotations

import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from statelog.kernels import NODE_LONG, NODE_TABLE
from statelog.storage.file.preopen_checks import read_live_meta
from statelog.storage.page_walk import PageWalk, TreePage

if TYPE_CHECKING:
    from statelog.kernels import PageNode
    from statelog.storage.page_walk import LongValue

PAGE_SIZE_BYTES = 4096

_PAGE = struct.Struct("=QHHHH")
_META_FIELDS = (
    ("magic", 4),
    ("version", 4),
    ("address", 8),
    ("map size", 8),
    ("free list", 48),
    ("main", 48),
    ("last page", 8),
    ("transaction id", 8),
)
_DATABASE_FIELDS = (
    ("page size", 4),
    ("flags", 2),
    ("depth", 2),
    ("count of pages", 24),
    ("count of entries", 8),
    ("root", 8),
)


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a byte: the kind of page, and the part of it."""

    page: str
    part: str

    def __str__(self) -> str:
        """Return both."""
        return f"{self.page}: {self.part}"


_FREE = Place("free page", "all")


class PageMap:
    """The use of every byte of a sound store file.

    Args:
        data: the file.
    """

    def __init__(self, data: bytes) -> None:
        assert len(data) % PAGE_SIZE_BYTES == 0, "a store file is made of pages"
        self._data = data
        self._kinds: dict[Place, int] = {}
        self._places: list[Place] = []
        self._map = bytearray(len(data))  # by byte: its number in _places
        self._mark(_FREE, 0, len(data))
        with tempfile.TemporaryFile() as file:
            file.write(data)
            file.flush()
            meta = read_live_meta(file.fileno(), Path())
        self._mark_meta(1 - meta.slot, "stale meta page")
        self._mark_meta(meta.slot, "live meta page")
        walk = PageWalk(data, meta, lists_all=True)
        for each in walk.run():
            if isinstance(each, TreePage):
                self._mark_tree_page(each)
            else:
                self._mark_long_value(each)
        assert not walk.problems
        self.tables = list(walk.trees)[2:]

    def place(self, offset: int) -> Place:
        """Return the place of a byte."""
        return self._places[self._map[offset]]

    def offsets(self) -> dict[Place, list[int]]:
        """Return all bytes by place."""
        found: dict[Place, list[int]] = {}
        for offset, number in enumerate(self._map):
            found.setdefault(self._places[number], []).append(offset)
        return found

    def _mark(self, place: Place, start: int, end: int) -> None:
        if place not in self._kinds:
            self._kinds[place] = len(self._places)
            self._places.append(place)
        self._map[start:end] = bytes([self._kinds[place]]) * (end - start)

    def _mark_meta(self, slot: int, name: str) -> None:
        at = slot * PAGE_SIZE_BYTES
        self._mark(Place(name, "unused rest"), at, at + PAGE_SIZE_BYTES)
        self._mark_header(name, at)
        self._mark(Place(name, "bounds"), at + 12, at + 16)
        at += _PAGE.size
        for field, size in _META_FIELDS:
            if size == 48:
                self._mark_database(name, field, at)
            else:
                self._mark(Place(name, field), at, at + size)
            at += size

    def _mark_database(self, page: str, name: str, at: int) -> None:
        for field, size in _DATABASE_FIELDS:
            self._mark(Place(page, f"{name}: {field}"), at, at + size)
            at += size

    def _mark_header(self, name: str, at: int) -> None:
        self._mark(Place(name, "page number"), at, at + 8)
        self._mark(Place(name, "padding"), at + 8, at + 10)
        self._mark(Place(name, "page flags"), at + 10, at + 12)

    def _mark_tree_page(self, page: TreePage) -> None:
        at = page.number * PAGE_SIZE_BYTES
        _number, _padding, _flags, lower, upper = _PAGE.unpack_from(self._data, at)
        name = f"{page.tree}, {'branch' if page.is_branch else 'leaf'} page"
        self._mark_header(name, at)
        self._mark(Place(name, "bounds"), at + 12, at + 16)
        self._mark(Place(name, "node pointers"), at + 16, at + lower)
        self._mark(Place(name, "unused gap"), at + lower, at + upper)
        self._mark(Place(name, "padding of nodes"), at + upper, at + PAGE_SIZE_BYTES)
        for index, node in enumerate(page.nodes):
            if page.is_branch:
                self._mark_branch_node(name, at, node, is_first=index == 0)
            else:
                self._mark_leaf_node(name, at, node)

    def _mark_branch_node(self, name: str, at: int, node: PageNode, *, is_first: bool) -> None:
        key_at = at + node.key_at
        self._mark(Place(name, "child's page number"), key_at - 8, key_at - 2)
        self._mark(Place(name, "size of a key"), key_at - 2, key_at)
        part = "key before the first child" if is_first else "key"
        self._mark(Place(name, part), key_at, key_at + node.key_size)

    def _mark_leaf_node(self, name: str, at: int, node: PageNode) -> None:
        key_at, start = at + node.key_at, at + node.data_at
        self._mark(Place(name, "size of a value"), key_at - 8, key_at - 4)
        self._mark(Place(name, "node flags"), key_at - 4, key_at - 2)
        self._mark(Place(name, "size of a key"), key_at - 2, key_at)
        self._mark(Place(name, "key"), key_at, start)
        if node.flags == NODE_TABLE:
            self._mark_database(name, self._data[key_at:start].decode(), start)
        elif node.flags == NODE_LONG:
            self._mark(Place(name, "page number of a long value"), start, start + 8)
        else:
            self._mark(Place(name, "value"), start, start + node.value)

    def _mark_long_value(self, value: LongValue) -> None:
        name = f"{value.tree}, long value"
        at = value.number * PAGE_SIZE_BYTES
        self._mark(Place(name, "unused tail"), at, at + value.pages * PAGE_SIZE_BYTES)
        self._mark_header(name, at)
        self._mark(Place(name, "count of pages"), at + 12, at + 16)
        self._mark(Place(name, "value"), at + 16, at + 16 + value.size_bytes)
