"""What each byte of a store file is for: LMDB's pages, read without LMDB.

So a flip that does no harm can be explained by where it fell. The layout is that of LMDB 0.9 on 64-bit machines with
little-endian byte order (`lmdb.h`, `mdb.c`: MDB_page, MDB_node, MDB_meta, MDB_db).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

PAGE_SIZE_BYTES = 4096

_PAGE = struct.Struct("<QHHHH")
_NODE = struct.Struct("<HHHH")
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
_DATABASE = struct.Struct("<IHHQQQQQ")
_BRANCH, _LEAF, _OVERFLOW = 1, 2, 4
_BIG_DATA, _SUB_DATA = 1, 2
_NO_PAGE = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where a byte stands: in a page of what, and in which part of it."""

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
        live = max((0, 1), key=self._transaction_id)
        self._mark_meta(1 - live, "stale meta page")
        self._mark_meta(live, "live meta page")
        at = live * PAGE_SIZE_BYTES + 16 + 24
        self.tables: dict[str, int] = {}
        self._walk("free list", self._root(at))
        self._walk("main", self._root(at + 48))
        for name, root in list(self.tables.items()):
            self._walk(name, root)

    def place(self, offset: int) -> Place:
        """Return where a byte stands."""
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

    def _transaction_id(self, slot: int) -> int:
        at = slot * PAGE_SIZE_BYTES + 16 + 24 + 96 + 8
        return int.from_bytes(self._data[at : at + 8], "little")

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

    def _root(self, at: int) -> int:
        root: int = _DATABASE.unpack_from(self._data, at)[-1]
        return root

    def _mark_header(self, name: str, at: int) -> None:
        self._mark(Place(name, "page number"), at, at + 8)
        self._mark(Place(name, "padding"), at + 8, at + 10)
        self._mark(Place(name, "page flags"), at + 10, at + 12)

    def _walk(self, table: str, root: int) -> None:
        todo = [] if root == _NO_PAGE else [root]
        while todo:
            number = todo.pop()
            at = number * PAGE_SIZE_BYTES
            _number, _padding, flags, lower, upper = _PAGE.unpack_from(self._data, at)
            assert _number == number
            name = f"{table}, {'branch' if flags & _BRANCH else 'leaf'} page"
            self._mark_header(name, at)
            self._mark(Place(name, "bounds"), at + 12, at + 16)
            self._mark(Place(name, "node pointers"), at + 16, at + lower)
            self._mark(Place(name, "unused gap"), at + lower, at + upper)
            self._mark(Place(name, "padding of nodes"), at + upper, at + PAGE_SIZE_BYTES)
            for first, slot in enumerate(range(at + 16, at + lower, 2)):
                node = at + int.from_bytes(self._data[slot : slot + 2], "little")
                if flags & _BRANCH:
                    todo.append(self._mark_branch_node(name, node, is_first=first == 0))
                else:
                    self._mark_leaf_node(table, name, node)

    def _mark_branch_node(self, name: str, at: int, *, is_first: bool) -> int:
        low, high, flags, key_size = _NODE.unpack_from(self._data, at)
        self._mark(Place(name, "child's page number"), at, at + 6)
        self._mark(Place(name, "size of a key"), at + 6, at + 8)
        part = "key before the first child" if is_first else "key"
        self._mark(Place(name, part), at + 8, at + 8 + key_size)
        child: int = low | high << 16 | flags << 32
        return child

    def _mark_leaf_node(self, table: str, name: str, at: int) -> None:
        low, high, flags, key_size = _NODE.unpack_from(self._data, at)
        size = low | high << 16
        key = self._data[at + 8 : at + 8 + key_size]
        start = at + 8 + key_size
        self._mark(Place(name, "size of a value"), at, at + 4)
        self._mark(Place(name, "node flags"), at + 4, at + 6)
        self._mark(Place(name, "size of a key"), at + 6, at + 8)
        self._mark(Place(name, "key"), at + 8, start)
        if flags & _SUB_DATA:
            self._mark_database(name, key.decode(), start)
            self.tables[key.decode()] = self._root(start)
        elif flags & _BIG_DATA:
            self._mark(Place(name, "page number of a long value"), start, start + 8)
            self._mark_overflow(table, int.from_bytes(self._data[start : start + 8], "little"), size)
        else:
            self._mark(Place(name, "value"), start, start + size)

    def _mark_overflow(self, table: str, number: int, size: int) -> None:
        name = f"{table}, long value"
        at = number * PAGE_SIZE_BYTES
        pages = int.from_bytes(self._data[at + 12 : at + 16], "little")
        self._mark(Place(name, "unused tail"), at, at + pages * PAGE_SIZE_BYTES)
        self._mark_header(name, at)
        self._mark(Place(name, "count of pages"), at + 12, at + 16)
        self._mark(Place(name, "value"), at + 16, at + 16 + size)
