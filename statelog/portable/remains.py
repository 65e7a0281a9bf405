"""Read the index of a damaged file for facts about lost records: names and versions."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from statelog import kernels
from statelog.errors import StatelogError
from statelog.format import keys
from statelog.format.seal import unseal
from statelog.log.view import BranchRow, ThreadRow, decode_branch, decode_thread
from statelog.portable.pages import LEAF, LeafEntry, PageFile, page_kind
from statelog.storage.file.creation import INDEX_TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from statelog.format.mac import StoreMac

_THREAD = struct.Struct(">cQ")
_BRANCH = struct.Struct(">cQI")
_PAGE = struct.Struct(">cQII")
_DEBT = struct.Struct(">cQQ")
_VALUE_SIZE_BYTES_MAX = 64 * 1024 * 1024


@dataclass(slots=True)
class Remains:
    """Index rows with a valid checksum.

    Attributes:
        threads: threads, keyed by LSN.
        branches: branches, keyed by thread and number.
        versions: thread, branch and version of each lost version, keyed by the LSN of its record.
        loans: the thread of each lost copy reference, and the thread whose nodes it uses, keyed by the LSN of the
            reference.
    """

    threads: dict[int, ThreadRow] = field(default_factory=dict)
    branches: dict[tuple[int, int], BranchRow] = field(default_factory=dict)
    versions: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    loans: dict[int, tuple[int, int]] = field(default_factory=dict)


def read_remains(
    pages: PageFile, mac: StoreMac | None, lost: Collection[int], progress: Callable[[int, int], None] | None
) -> Remains:
    """Return the index rows about lost records. Rows in the index tree are preferred to rows on other pages."""
    remains = Remains()
    opened = unseal if mac is None else mac.unseal
    for entry in _entries(pages, progress):
        if entry.is_database or not 0 < entry.size <= _VALUE_SIZE_BYTES_MAX:
            continue
        kind = entry.key[:1]
        size = {b"T": _THREAD.size, b"B": _BRANCH.size, b"v": _PAGE.size, b"L": _DEBT.size}.get(kind)
        if size == len(entry.key):
            try:
                payload = opened(entry.key, pages.read(entry.offset, entry.size))
                _take(remains, entry.key, payload, lost)
            except (StatelogError, ValueError, TypeError, struct.error):
                continue
    return remains


def _entries(pages: PageFile, progress: Callable[[int, int], None] | None) -> Iterator[LeafEntry]:
    for _is_newest, table in pages.tables(INDEX_TABLE):
        yield from pages.entries(table.root)
    for number in range(pages.page_count):
        page = pages.read(number * pages.page_size_bytes, pages.page_size_bytes)
        if page_kind(page) & LEAF:
            yield from pages.leaf_entries(number, page)
        if progress is not None and number % 4096 == 0:
            progress(number, pages.page_count)


def _take(remains: Remains, key: bytes, payload: bytes, lost: Collection[int]) -> None:
    """Add a row, unless a row with this key was found earlier."""
    if key[:1] == b"T":
        lsn = _THREAD.unpack(key)[1]
        row = decode_thread(lsn, payload)
        if isinstance(row.id, str) and isinstance(row.specs, dict):
            remains.threads.setdefault(lsn, row)
    elif key[:1] == b"B":
        _kind, thread, number = _BRANCH.unpack(key)
        branch = decode_branch(number, payload)
        if isinstance(branch.name, str) and isinstance(branch.base_version, int) and isinstance(branch.lsn, int):
            remains.branches.setdefault((thread, number), branch)
    elif key[:1] == b"L":
        lsn = keys.decode_lsn(payload)
        if lsn in lost:
            _kind, thread, lender = _DEBT.unpack(key)
            remains.loans.setdefault(lsn, (thread, lender))
    else:
        _kind, thread, number, _page = _PAGE.unpack(key)
        first, last = kernels.page_range(payload)
        for version in range(first, last + 1):
            entry = kernels.page_read(payload, version)
            if entry.lsn in lost:
                remains.versions.setdefault(entry.lsn, (thread, number, version))
