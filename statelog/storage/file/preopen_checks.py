"""Checks the raw file before LMDB maps it.

LMDB trusts its file. A truncated file causes a SIGBUS, and a wrong meta page causes an abort, not an exception. So this
module reads and checks the two meta pages. A file that lacks pages named by its meta pages is never mapped.

Layout of LMDB 0.9 on 64-bit machines, in native byte order: page header (16 bytes), magic u32, version u32,
address u64, map size u64, two database records of 48 bytes (free list, main), last page u64, transaction id u64.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from statelog.errors import CorruptionError, FormatError, NewerFormatError
from statelog.storage.file.disk import flush_file, write_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_MAGIC = 0xBEEFC0DE
_MAGIC_SWAPPED = 0xDEC0EFBE
_DATA_VERSION = 1
_META_FLAG = 0x08
_BRANCH, _LEAF = 0x01, 0x02
INTEGER_KEY_FLAG = 0x08
_NO_SUBDIR_FLAG = 0x4000
_BIG_DATA_FLAG = 0x01
NO_PAGE = 2**64 - 1
_PAGE_SIZES_BYTES = tuple(1 << bits for bits in range(9, 17))

_PAGE_HEADER = struct.Struct("=QHHHH")
_META_HEAD = struct.Struct("=IIQQ")
_DATABASE = struct.Struct("=IHHQQQQQ")
_META_TAIL = struct.Struct("=QQ")
_NODE = struct.Struct("=HHHH")
_PAGE_NUMBER = struct.Struct("=Q")
_META_SIZE_BYTES = _PAGE_HEADER.size + _META_HEAD.size + 2 * _DATABASE.size + _META_TAIL.size

_DEPTH_MAX = 32
"""The maximum depth of a tree in LMDB."""

_ATTEMPTS = 5
_ATTEMPT_PAUSE_S = 0.002


class DatabaseRecord(NamedTuple):
    """LMDB's description of one table or of the free list, stored in a meta page or in the main tree."""

    page_size_bytes: int
    flags: int
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    entries: int
    root: int

    @property
    def pages(self) -> int:
        """The number of all pages: branch, leaf and overflow pages."""
        return self.branch_pages + self.leaf_pages + self.overflow_pages


class Meta(NamedTuple):
    """One of the two meta pages."""

    slot: int
    page_size_bytes: int
    free: DatabaseRecord
    main: DatabaseRecord
    last_page: int
    transaction_id: int


def check_file(descriptor: int, path: Path) -> Meta:
    """Return the live meta page of a file that is safe to map.

    While another process commits, the bytes may be a mixture of two states. So damage is reported only if several
    attempts in a row find it.

    Raises:
        FormatError: the file is not an LMDB file, or its version or machine type differs. Facts: path.
        CorruptionError: the meta pages or the size of the file are impossible. Facts: path.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return _check_file_once(descriptor, path)
        except CorruptionError:
            if attempt == _ATTEMPTS - 1:
                raise
        time.sleep(_ATTEMPT_PAUSE_S)
    raise AssertionError


def read_live_meta(descriptor: int, path: Path) -> Meta:
    """Return the meta page of the last commit. `check_file` must have checked the file."""
    return max(_read_metas(descriptor, path), key=lambda meta: meta.transaction_id)


def read_live_meta_bytes(descriptor: int) -> bytes:
    """Return the encoded meta page of the last commit. `check_file` must have checked the file."""
    first = os.pread(descriptor, _META_SIZE_BYTES, 0)
    second = os.pread(descriptor, _META_SIZE_BYTES, _page_size_bytes(first))
    return max(first, second, key=_transaction_id)


def restore_meta(descriptor: int, meta: bytes) -> tuple[bytes, bytes]:
    """Write a meta page into both slots, and flush it. This restores the file to the commit that the meta page names.

    Returns:
        The previous bytes of both slots, for `put_metas_back`.

    Raises:
        OSError: the operating system reports an error.
    """
    size_bytes = _page_size_bytes(meta)
    before = tuple(os.pread(descriptor, _META_SIZE_BYTES, slot * size_bytes) for slot in (0, 1))
    _write_metas(descriptor, size_bytes, [_PAGE_NUMBER.pack(slot) + meta[_PAGE_NUMBER.size :] for slot in (0, 1)])
    return before[0], before[1]


def put_metas_back(descriptor: int, meta: bytes, before: tuple[bytes, bytes]) -> None:
    """Undo `restore_meta`, if nothing was committed since. Raises OSError."""
    if read_live_meta_bytes(descriptor)[_PAGE_NUMBER.size :] == meta[_PAGE_NUMBER.size :]:
        _write_metas(descriptor, _page_size_bytes(meta), before)


def _write_metas(descriptor: int, page_size_bytes: int, metas: Sequence[bytes]) -> None:
    for slot, meta in enumerate(metas):
        write_all(descriptor, meta, slot * page_size_bytes)
    flush_file(descriptor)


def _page_size_bytes(meta: bytes) -> int:
    size: int = _DATABASE.unpack_from(meta, _PAGE_HEADER.size + _META_HEAD.size)[0]
    return size


def _transaction_id(meta: bytes) -> int:
    number: int = _META_TAIL.unpack_from(meta, _META_SIZE_BYTES - _META_TAIL.size)[1]
    return number


def read_meta_of(descriptor: int, path: Path, transaction_id: int) -> Meta | None:
    """Return the meta page of commit `transaction_id`, or None if later commits have overwritten it."""
    for meta in _read_metas(descriptor, path):
        if meta.transaction_id == transaction_id:
            return meta
    return None


class FirstPages(NamedTuple):
    """The meta pages of a file at one commit, and its free pages.

    Attributes:
        data: both meta pages, equal except for their page numbers, each padded with zeros to a whole page.
        page_size_bytes: the size of a page.
        last_page: the number of the last page.
        free: the numbers of the free pages.
    """

    data: bytes
    page_size_bytes: int
    last_page: int
    free: set[int]


def read_first_pages(descriptor: int, path: Path, transaction_id: int) -> FirstPages | None:
    """Return the first pages as of commit `transaction_id`, or None if its meta page was overwritten.

    A read transaction must pin the snapshot of that commit.

    Raises:
        CorruptionError: the free list is damaged. Facts: path.
    """
    meta = read_meta_of(descriptor, path, transaction_id)
    if meta is None:
        return None
    size = meta.page_size_bytes
    data = os.pread(descriptor, _META_SIZE_BYTES, meta.slot * size)
    if _transaction_id(data) != transaction_id:
        return None
    pages = [(_PAGE_NUMBER.pack(slot) + data[_PAGE_NUMBER.size :]).ljust(size, b"\0") for slot in (0, 1)]
    free = _read_free_list(descriptor, path, meta, os.fstat(descriptor).st_size // size)
    return FirstPages(b"".join(pages), size, meta.last_page, free)


def _check_file_once(descriptor: int, path: Path) -> Meta:
    metas = _read_metas(descriptor, path)
    live = max(metas, key=lambda meta: meta.transaction_id)
    for meta in metas:
        _check_meta(meta, path)
    _check_numbers(live, path)
    size_bytes = os.fstat(descriptor).st_size
    page_size_bytes = live.page_size_bytes
    if (live.last_page + 1) * page_size_bytes > size_bytes:
        _check_missing_pages(descriptor, path, live, size_bytes // page_size_bytes)
    for record in (live.free, live.main):
        _check_root(descriptor, path, live, record)
    _check_transaction_ids(descriptor, path, live, metas[1 - live.slot])
    return live


def _check_transaction_ids(descriptor: int, path: Path, live: Meta, stale: Meta) -> None:
    """Check that the live meta page belongs to the last commit (E1).

    One flipped bit in a transaction id can make the older meta page the live one, so that a commit is lost. But every
    commit frees pages, and lists them under its own id. So the greatest key in the free list of a meta page is the id
    of the commit that wrote the meta page. The only exception is compaction, which renumbers both meta pages of a new
    file by the same difference.

    The stale meta page may belong to any earlier commit, and its free list may be overwritten. If its free list belongs
    to a commit after the live one, that commit was lost by a flipped bit, or it failed: if LMDB cannot write a meta
    page, it restores only the id and the last page number of the previous meta page.
    """
    first, second = sorted((live.transaction_id, stale.transaction_id))
    facts = f"its meta pages belong to transactions {first} and {second}"
    # LMDB writes transaction n into slot n & 1. If both slots have the same id, they were written together, and their
    # contents must be equal.
    is_misplaced = first != second and live.transaction_id & 1 != live.slot
    is_ambiguous = first == second and (live.main, live.last_page) != (stale.main, stale.last_page)
    if is_misplaced or is_ambiguous or (live.main.root == NO_PAGE and stale.main.root != NO_PAGE):
        raise _damaged(path, facts)
    live_key = _last_free_key(descriptor, path, live)
    stale_key = None
    with contextlib.suppress(CorruptionError):
        stale_key = _last_free_key(descriptor, path, stale)
    if live_key is None:  # No page was ever freed, so the file must be new.
        if stale_key is not None or second - first > 1:
            raise _damaged(path, facts)
    elif live_key != live.transaction_id:
        shift = live.transaction_id - live_key
        if first + 1 < second or (stale_key is not None and stale.transaction_id - stale_key != shift):
            raise _damaged(path, f"{facts}, but the last commit was {live_key}")
    if stale_key is not None and stale_key == live.transaction_id + 1:
        was_refused = stale.transaction_id == live.transaction_id - 1 and stale.last_page <= live.last_page
        if not was_refused:
            raise _damaged(path, f"{facts}, but the last commit was {stale_key}")


def _last_free_key(descriptor: int, path: Path, meta: Meta) -> int | None:
    """Return the greatest key of the free list, or None if the list is empty."""
    number = meta.free.root
    if number == NO_PAGE:
        return None
    for _ in range(_DEPTH_MAX):
        page = _read_page(descriptor, path, meta, number)
        nodes = list(_nodes(page, path))
        if not nodes:
            break
        low, high, flags, data_at = nodes[-1]
        if not _PAGE_HEADER.unpack_from(page)[2] & _BRANCH:
            key: int = _PAGE_NUMBER.unpack_from(page, min(data_at, len(page)) - _PAGE_NUMBER.size)[0]
            return key
        number = low | high << 16 | flags << 32
    raise _damaged(path, "its free list is damaged")


def _read_metas(descriptor: int, path: Path) -> tuple[Meta, Meta]:
    start = os.pread(descriptor, _META_SIZE_BYTES, 0)
    if len(start) < _META_SIZE_BYTES or _magic(start) != _MAGIC:
        _refuse_foreign(descriptor, path, start)
    page_size_bytes = _page_size_bytes(start)
    if page_size_bytes not in _PAGE_SIZES_BYTES:
        raise _damaged(path, f"its page size is given as {page_size_bytes}")
    both = os.pread(descriptor, page_size_bytes + _META_SIZE_BYTES, 0)
    if len(both) < page_size_bytes + _META_SIZE_BYTES:
        raise _damaged(path, "it ends within its meta pages")
    return _parse_meta(both, 0, 0, path), _parse_meta(both, page_size_bytes, 1, path)


def _refuse_foreign(descriptor: int, path: Path, start: bytes) -> None:
    """Raise CorruptionError if the file is a store with a damaged first page, or FormatError if it never was one."""
    facts = {"path": str(path)}
    if not start:
        message = f"{path} is an empty file, not a store"
        raise FormatError(message, **facts)
    if len(start) >= _META_SIZE_BYTES and _magic(start) == _MAGIC_SWAPPED:
        message = f"{path} was written on a machine with a different byte order"
        raise FormatError(message, **facts)
    for page_size_bytes in _PAGE_SIZES_BYTES:
        second = os.pread(descriptor, _META_SIZE_BYTES, page_size_bytes)
        if len(second) == _META_SIZE_BYTES and _magic(second) == _MAGIC:
            raise _damaged(path, "its first page is not a meta page")
    if len(start) >= _PAGE_HEADER.size + 4 and _magic(start) == _MAGIC:
        raise _damaged(path, f"only {len(start)} bytes are left of it")
    message = f"{path} is not a statelog store"
    raise FormatError(message, **facts)


def _magic(page: bytes) -> int:
    magic: int = struct.unpack_from("=I", page, _PAGE_HEADER.size)[0]
    return magic


def _parse_meta(pages: bytes, at: int, slot: int, path: Path) -> Meta:
    number, _, flags, _, _ = _PAGE_HEADER.unpack_from(pages, at)
    at += _PAGE_HEADER.size
    magic, version, address, _ = _META_HEAD.unpack_from(pages, at)
    at += _META_HEAD.size
    if number != slot or flags & ~0x10 != _META_FLAG or magic != _MAGIC or address != 0:
        raise _damaged(path, f"page {slot} is not a meta page")
    if version != _DATA_VERSION:
        message = f"{path} has LMDB data version {version}; this release reads version {_DATA_VERSION}"
        kind = NewerFormatError if version > _DATA_VERSION else FormatError
        raise kind(message, path=str(path), needed=version, supported=_DATA_VERSION)
    free = decode_database(pages, at)
    main = decode_database(pages, at + _DATABASE.size)
    last_page, transaction_id = _META_TAIL.unpack_from(pages, at + 2 * _DATABASE.size)
    return Meta(slot, free.page_size_bytes, free, main, last_page, transaction_id)


def decode_database(data: bytes, at: int = 0) -> DatabaseRecord:
    """Decode the record of a table, as stored in a meta page or in the main tree."""
    return DatabaseRecord(*_DATABASE.unpack_from(data, at))


def _check_meta(meta: Meta, path: Path) -> None:
    if meta.page_size_bytes not in _PAGE_SIZES_BYTES:
        raise _damaged(path, f"meta page {meta.slot} gives the page size as {meta.page_size_bytes}")
    if meta.free.flags & ~_NO_SUBDIR_FLAG != INTEGER_KEY_FLAG or meta.main.flags != 0:
        raise _damaged(path, f"meta page {meta.slot} has database flags {meta.free.flags}, {meta.main.flags}")


def _check_numbers(live: Meta, path: Path) -> None:
    """Check the page numbers in the live meta page. A failed write may have left a mixture in the other meta page."""
    roots = [record.root for record in (live.free, live.main) if record.root != NO_PAGE]
    if live.last_page < 1 or any(not 1 < root <= live.last_page for root in roots):
        raise _damaged(path, f"meta page {live.slot} has root pages {roots} and last page {live.last_page}")


def _check_root(descriptor: int, path: Path, meta: Meta, record: DatabaseRecord) -> None:
    if record.root == NO_PAGE:
        return
    page = _read_page(descriptor, path, meta, record.root)
    if _PAGE_HEADER.unpack_from(page)[2] & (_BRANCH | _LEAF) == 0:
        raise _damaged(path, f"page {record.root} should be a root page, but is not")


def _check_missing_pages(descriptor: int, path: Path, meta: Meta, pages_present: int) -> None:
    """Raise CorruptionError if a page past the end of the file is not on the free list.

    If a transaction takes a page and drops it again, LMDB never writes the page. So a valid file may end before its
    last page if the missing pages are free.
    """
    free = _read_free_list(descriptor, path, meta, pages_present)
    for number in range(pages_present, meta.last_page + 1):
        if number not in free:
            raise _damaged(path, f"it ends at page {pages_present} of {meta.last_page + 1}")


def _read_free_list(descriptor: int, path: Path, meta: Meta, pages_present: int) -> set[int]:
    """Return the numbers of all free pages, which are in the leaves of the free list's tree."""
    free: set[int] = set()
    todo = [] if meta.free.root == NO_PAGE else [meta.free.root]
    for _ in range(pages_present):
        if not todo:
            return free
        page = _read_page(descriptor, path, meta, todo.pop())
        is_branch = _PAGE_HEADER.unpack_from(page)[2] & _BRANCH
        for low, high, flags, data_at in _nodes(page, path):
            if is_branch:
                todo.append(low | high << 16 | flags << 32)
                continue
            size_bytes = low | high << 16
            data = page[data_at : data_at + size_bytes]
            if flags & _BIG_DATA_FLAG:
                data = _read_overflow(descriptor, meta, page[data_at : data_at + _PAGE_NUMBER.size], size_bytes)
            if len(data) != size_bytes or size_bytes % _PAGE_NUMBER.size or not data:
                raise _damaged(path, "an entry of its free list is damaged")
            count, *numbers = struct.unpack(f"={size_bytes // _PAGE_NUMBER.size}Q", data)
            free.update(numbers[:count])
    raise _damaged(path, "its free list has a cycle")


def _nodes(page: bytes, path: Path) -> Iterator[tuple[int, int, int, int]]:
    """Yield, for each node of a page, its low and high words, its flags, and the offset of its data."""
    lower = _PAGE_HEADER.unpack_from(page)[3]
    for slot in range(_PAGE_HEADER.size, min(lower, len(page)) - 1, 2):
        at = int.from_bytes(page[slot : slot + 2], sys.byteorder)
        if at + _NODE.size > len(page):
            raise _damaged(path, "a page of its free list is damaged")
        low, high, flags, key_size_bytes = _NODE.unpack_from(page, at)
        yield low, high, flags, at + _NODE.size + key_size_bytes


def _read_overflow(descriptor: int, meta: Meta, number: bytes, size_bytes: int) -> bytes:
    """Return the data of a long value. If the page number or the size is impossible, return fewer bytes or none."""
    if len(number) != _PAGE_NUMBER.size or size_bytes > (meta.last_page + 2) * _PAGE_NUMBER.size:
        return b""
    first = _PAGE_NUMBER.unpack(number)[0]
    if first > meta.last_page:
        return b""
    return os.pread(descriptor, size_bytes, first * meta.page_size_bytes + _PAGE_HEADER.size)


def _read_page(descriptor: int, path: Path, meta: Meta, number: int) -> bytes:
    page = b""
    if number <= meta.last_page:
        page = os.pread(descriptor, meta.page_size_bytes, number * meta.page_size_bytes)
    if len(page) < meta.page_size_bytes or _PAGE_HEADER.unpack_from(page)[0] != number:
        raise _damaged(path, f"page {number} is missing, or has a different page number")
    return page


def _damaged(path: Path, what: str) -> CorruptionError:
    return CorruptionError(f"{path} is damaged: {what}", path=str(path))
