"""The pages of a store's file, read one by one without LMDB, which trusts its file and dies of a damaged one.

Nothing read here is believed: every number is checked against the page or the file before it is
followed, a page is visited once, and what comes out are places in the file where an entry of a table
may stand. Whether it does, its checksum tells. `pread` beyond the end of a file returns less;
unlike a mapping it kills nobody.

Layout of LMDB 0.9 on 64-bit machines, in native byte order: `storage/file/preopen_checks.py` has it.
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


class Entry(NamedTuple):
    """An entry on a leaf page: its key, and where in the file its value may stand."""

    key: bytes
    offset: int
    size: int
    is_database: bool
    overflow_page: int
    """First page of a value that has pages of its own; 0 for one on the leaf."""


class Database(NamedTuple):
    """A table as the tree above it describes it."""

    entries: int
    root: int


class PageFile:
    """A file of LMDB's, open for reading page by page.

    Attributes:
        page_size_bytes: as a meta page says, or the commonest.
        page_count: whole or begun pages in the file.

    """

    def __init__(self, descriptor: int, unflushed: Unflushed = NOTHING) -> None:
        """Begin with the meta pages, or with that of the durable snapshot if the store was not closed."""
        self._descriptor = descriptor
        self._records = list(unflushed.records.values())
        self.journaled = [
            (lsn, _RECORDS_AT + (number << _RECORD_BITS), len(record))
            for number, (lsn, record) in enumerate(unflushed.records.items())
        ]
        """LSN, offset and size of records in the journal, which are read as if they lay beyond the end of the file."""
        self.size_bytes = os.fstat(descriptor).st_size
        self.page_size_bytes = _PAGE_SIZE_BYTES_DEFAULT
        self._has_both_metas = False
        self.is_whole = unflushed.is_whole
        """Whether the newest meta page, and the journal, lead to all there is."""
        own = self._read_metas(b"")
        self._mains = own
        if unflushed.meta:
            self._mains = self._read_metas(unflushed.meta)
            if not self.is_whole:
                self._mains = [*self._mains, *own]
        self.page_count = -(-self.size_bytes // self.page_size_bytes)

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the file, fewer at its end."""
        if offset >= _RECORDS_AT:
            number, start = divmod(offset - _RECORDS_AT, 1 << _RECORD_BITS)
            return self._records[number][start : start + size] if number < len(self._records) else b""
        if not 0 <= offset <= self.size_bytes:
            return b""
        try:
            return os.pread(self._descriptor, min(size, self.size_bytes - offset), offset)
        except OSError:  # a sector that cannot be read is as good as one that is wrong
            return b""

    def tables(self, name: bytes) -> Iterator[tuple[bool, Database]]:
        """Yield (whether this is how the last commit left it, a named table) for each meta page, the newest first."""
        for index, main in enumerate(self._mains):
            for entry in self.entries(main):
                if entry.key == name and entry.is_database and entry.size == _DATABASE.size:
                    data = self.read(entry.offset, entry.size)
                    if len(data) == _DATABASE.size:
                        *_rest, entries, root = _DATABASE.unpack(data)
                        yield index == 0 and self._has_both_metas, Database(entries, root)

    def entries(self, root: int) -> Iterator[Entry]:
        """Yield the entries of a tree, as far as it can be walked."""
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

    def leaf_entries(self, number: int, page: bytes) -> Iterator[Entry]:
        """Yield the entries of a leaf page that lie within it."""
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
                    yield Entry(key, offset, size, is_database=False, overflow_page=first)
            elif data_at + size <= len(page):
                is_database = bool(flags & _SUB_DATABASE)
                yield Entry(key, start + data_at, size, is_database=is_database, overflow_page=0)

    def _children(self, page: bytes) -> Iterator[int]:
        for low, high, flags, _key_size, _at in _nodes(page):
            yield low | high << 16 | flags << 32

    def _read_metas(self, durable: bytes) -> list[int]:
        """Return the roots of the main tables, that of the newest meta page first.

        Of a store that was not closed, the durable snapshot's alone: the others may lead anywhere.
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
    """Return the flags of a page, 0 for what is none."""
    return _PAGE.unpack_from(page)[2] if len(page) >= _PAGE.size else 0


def _nodes(page: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield low and high word, flags, key size, and where the key begins, of each node that lies within a page."""
    lower = _PAGE.unpack_from(page)[3]
    for slot in range(_PAGE.size, min(lower, len(page)) - 1, 2):
        at = int.from_bytes(page[slot : slot + 2], sys.byteorder)
        if _PAGE.size <= at <= len(page) - _NODE.size:
            low, high, flags, key_size = _NODE.unpack_from(page, at)
            if at + _NODE.size + key_size <= len(page):
                yield low, high, flags, key_size, at + _NODE.size
