"""Read the pages of a store's file one by one, without LMDB, which crashes on a damaged file.

Every number is checked against the size of the page or the file before it is used. Each page is visited once. The
results are locations in the file that may contain an entry; the caller checks its checksum. `pread` beyond the end of a
file returns fewer bytes, where access to a mapping would kill the process.

The layout is LMDB 0.9's layout on 64-bit machines, in native byte order.
`storage/file/preopen_checks.py` describes it.
"""

from __future__ import annotations

import os
import struct
import sys
from typing import TYPE_CHECKING, NamedTuple

from statelog.portable.unflushed import NOTHING, Unflushed

if TYPE_CHECKING:
    from collections.abc import Iterator

BRANCH, LEAF, OVERFLOW, META = 0x01, 0x02, 0x04, 0x08
_MAGIC = 0xBEEFC0DE
_BIG_DATA, _SUB_DATABASE = 0x01, 0x02
_PAGE_SIZES_BYTES = tuple(1 << bits for bits in range(9, 17))
_PAGE_SIZE_BYTES_DEFAULT = 4096

_PAGE = struct.Struct("=QHHHH")
_META = struct.Struct("=IIQQ")
_DATABASE = struct.Struct("=IHHQQQQQ")
_TAIL = struct.Struct("=QQ")
_NODE = struct.Struct("=HHHH")
_NUMBER = struct.Struct("=Q")
_RECORDS_AT = 1 << 62
_RECORD_BITS = 32
PAGE_HEAD_SIZE_BYTES = _PAGE.size
_META_SIZE_BYTES = _PAGE.size + _META.size + 2 * _DATABASE.size + _TAIL.size


class LeafEntry(NamedTuple):
    """An entry on a leaf page: its key, and the location where its value should be."""

    key: bytes
    offset: int
    size: int
    is_database: bool
    overflow_page: int
    """First overflow page of the value, or 0 if the value is on the leaf page."""


class Database(NamedTuple):
    """A table: its number of entries and its root page, as the file's main table has them."""

    entries: int
    root: int


class PageFile:
    """Reads an LMDB file page by page.

    Attributes:
        page_size_bytes: page size according to a meta page, or else the most common size.
        page_count: number of pages in the file, including a partial one.
    """

    def __init__(self, descriptor: int, unflushed: Unflushed = NOTHING) -> None:
        """Read the meta pages. If the store was not closed, prefer the meta page of its durable snapshot."""
        self._descriptor = descriptor
        self._records = list(unflushed.records.values())
        self.journaled = [
            (lsn, _RECORDS_AT + (number << _RECORD_BITS), len(record))
            for number, (lsn, record) in enumerate(unflushed.records.items())
        ]
        """LSN, offset and size of records in the write-ahead log. Their offsets are beyond the end of the file."""
        self.size_bytes = os.fstat(descriptor).st_size
        self.page_size_bytes = _PAGE_SIZE_BYTES_DEFAULT
        self._has_both_metas = False
        self.is_whole = unflushed.is_whole
        """Whether the newest meta page and the write-ahead log lead to all records."""
        own = self._read_metas(b"")
        self._mains = own
        if unflushed.meta:
            self._mains = self._read_metas(unflushed.meta)
            if not self.is_whole:
                self._mains = [*self._mains, *own]
        self.page_count = -(-self.size_bytes // self.page_size_bytes)

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes of the file, or fewer at its end."""
        if offset >= _RECORDS_AT:
            number, start = divmod(offset - _RECORDS_AT, 1 << _RECORD_BITS)
            return self._records[number][start : start + size] if number < len(self._records) else b""
        if not 0 <= offset <= self.size_bytes:
            return b""
        try:
            return os.pread(self._descriptor, min(size, self.size_bytes - offset), offset)
        except OSError:  # An unreadable sector is treated like a damaged one.
            return b""

    def tables(self, name: bytes) -> Iterator[tuple[bool, Database]]:
        """Yield (whether it is of the last commit, the table `name`) for each meta page, newest first."""
        for index, main in enumerate(self._mains):
            for entry in self.entries(main):
                if entry.key == name and entry.is_database and entry.size == _DATABASE.size:
                    data = self.read(entry.offset, entry.size)
                    if len(data) == _DATABASE.size:
                        *_rest, entries, root = _DATABASE.unpack(data)
                        yield index == 0 and self._has_both_metas, Database(entries, root)

    def entries(self, root: int) -> Iterator[LeafEntry]:
        """Yield the entries of a tree, as far as its pages are valid."""
        visited = bytearray(self.page_count // 8 + 1)
        pending = [root]
        while pending:
            number = pending.pop()
            if number >= self.page_count or visited[number >> 3] & 1 << (number & 7):
                continue
            visited[number >> 3] |= 1 << (number & 7)
            page = self.read(number * self.page_size_bytes, self.page_size_bytes)
            kind = page_kind(page)
            if kind & BRANCH:
                pending += reversed(list(self._children(page)))
            elif kind & LEAF:
                yield from self.leaf_entries(number, page)

    def leaf_entries(self, number: int, page: bytes) -> Iterator[LeafEntry]:
        """Yield the entries of a leaf page that are within the page."""
        start = number * self.page_size_bytes
        for low, high, flags, key_size, at in _nodes(page):
            data_at = at + key_size
            size = low | high << 16
            key = page[at:data_at]
            if flags & _BIG_DATA:
                place = page[data_at : data_at + _NUMBER.size]
                first = _NUMBER.unpack(place)[0] if len(place) == _NUMBER.size else 0
                if 1 < first < self.page_count:
                    offset = first * self.page_size_bytes + PAGE_HEAD_SIZE_BYTES
                    yield LeafEntry(key, offset, size, is_database=False, overflow_page=first)
            elif data_at + size <= len(page):
                is_database = bool(flags & _SUB_DATABASE)
                yield LeafEntry(key, start + data_at, size, is_database=is_database, overflow_page=0)

    def _children(self, page: bytes) -> Iterator[int]:
        for low, high, flags, _key_size, _at in _nodes(page):
            yield low | high << 16 | flags << 32

    def _read_metas(self, durable: bytes) -> list[int]:
        """Return the roots of the main tables, starting with the root in the newest meta page.

        If `durable`, the meta page of the durable snapshot, is not empty, return only the root that it has.
        """
        metas: list[tuple[int, int]] = []
        for at in (0, *_PAGE_SIZES_BYTES):
            page = durable or self.read(at, _META_SIZE_BYTES)
            if len(page) < _META_SIZE_BYTES or _META.unpack_from(page, _PAGE.size)[0] != _MAGIC:
                continue
            free = _DATABASE.unpack_from(page, _PAGE.size + _META.size)
            main = _DATABASE.unpack_from(page, _PAGE.size + _META.size + _DATABASE.size)
            transaction_id = _TAIL.unpack_from(page, _PAGE.size + _META.size + 2 * _DATABASE.size)[1]
            if free[0] in _PAGE_SIZES_BYTES and at in (0, free[0]):
                self.page_size_bytes = free[0]
                metas.append((transaction_id, main[-1]))
        self._has_both_metas = len(metas) == 2
        return [root for _transaction_id, root in sorted(metas, reverse=True)]


def page_kind(page: bytes) -> int:
    """Return the flags of a page, or 0 if it is not a page."""
    return _PAGE.unpack_from(page)[2] if len(page) >= _PAGE.size else 0


def _nodes(page: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield (low word, high word, flags, key size, key offset) of each node that is within the page."""
    lower = _PAGE.unpack_from(page)[3]
    for slot in range(_PAGE.size, min(lower, len(page)) - 1, 2):
        at = int.from_bytes(page[slot : slot + 2], sys.byteorder)
        if _PAGE.size <= at <= len(page) - _NODE.size:
            low, high, flags, key_size = _NODE.unpack_from(page, at)
            if at + _NODE.size + key_size <= len(page):
                yield low, high, flags, key_size, at + _NODE.size
