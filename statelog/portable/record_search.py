"""Find the records in a damaged file, and choose one of several candidates for an LSN.

A record is valid if its checksum matches its LSN. The log's tree leads to most records. Other records are searched for
on every page. Pages also contain old copies of records that were redacted or vacuumed since, and records of
transactions that never committed. So:

- A record in the tree is preferred to one outside it.
- The log's table and the write-ahead log show the last committed LSN. No record above it was ever committed.
- A record outside the tree must fit the chain of its neighbours.
- Of several candidates that fit, the one with the fewest contents is the newest, because records only lose contents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from statelog import kernels
from statelog.errors import CorruptionError, ForgeryError, HeaderLostError, StatelogError
from statelog.format.anchor import decode_anchor
from statelog.format.header import HEADER_KEY, check_key, decode_header
from statelog.format.record import (
    ENVELOPE_SIZE_BYTES,
    FLAG_CHAINED,
    FLAG_CONTINUES,
    FLAG_REDACTED,
    FLAG_VACUUMED,
    FLAGS_AT,
    RECORD_SIZE_BYTES_MIN,
    TYPE_AT,
    TYPE_MASK,
    Record,
    decode_record,
    record_chain_digest,
    record_lsn,
)
from statelog.format.record import FORMAT_VERSION as RECORD_FORMAT
from statelog.format.seal import RECORD_MAC_SIZE_BYTES
from statelog.limits import RECORD_SIZE_BYTES_MAX
from statelog.log.chain import read_chained
from statelog.log.kinds.table import KINDS
from statelog.portable.bodies import read_event
from statelog.portable.nodes import read_rows
from statelog.portable.pages import LEAF, PAGE_HEAD_SIZE_BYTES, PageFile, page_kind
from statelog.storage.file.creation import LOG_TABLE, META_TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from statelog.format.mac import StoreKey, StoreMac
    from statelog.portable.pages import LeafEntry

    Progress = Callable[[int, int], None]

IN_TREE = 0
IN_OLD_TREE = 1
ASTRAY = 2

_VERSION_AT = 8
_LSN_SIZE_BYTES = 8
_FLAGS = FLAG_CONTINUES | FLAG_VACUUMED | FLAG_REDACTED | FLAG_CHAINED
_ORPHAN_SIZE_BYTES = 64 * 1024
_ORPHAN_GROWTH = 8
"""If a record's size is unknown, each read is this many times longer than the last, until the record is complete."""
_PROGRESS_PAGES = 4096

_LSNS_SHARE = 4
_LSNS_SPARE = 65_536
"""The number of LSNs to accept above the bound that the file's size sets, because the file may have been truncated.

LSNs have no gaps, so the size of an intact file bounds them. A higher LSN is forged, and would fill the new store with
stand-in records.
"""


class FoundRecord(NamedTuple):
    """A record with a valid checksum. `trust` shows how it was found: in the tree, in an older tree, or astray.

    Of several candidates for an LSN, the smallest tuple is preferred.
    """

    trust: int
    weight: int
    """2 for a whole record, 1 if its event was removed, 0 if its nodes were also removed."""
    size: int
    offset: int


class RecordFinder:
    """Finds the records of a file.

    Attributes:
        committed_last: the last committed LSN, or None if the file does not show it.
        mac: computes the MACs of the records; None if the store has no key.
    """

    def __init__(self, pages: PageFile, mac: StoreMac | None = None) -> None:
        self.mac = mac
        self.committed_last: int | None = None
        self._pages = pages
        self._has_header = False
        self._mac_size_bytes = 0 if mac is None else RECORD_MAC_SIZE_BYTES
        self._found: dict[int, tuple[FoundRecord, ...]] = {}
        self._lsn_max = _LSNS_SPARE + _LSNS_SHARE * pages.size_bytes // RECORD_SIZE_BYTES_MIN
        self._covered = bytearray(pages.page_count // 8 + 1)
        """A bitmap of the overflow pages that found records fill. What looks like a record there is part of a value."""

    def find(self, progress: Progress | None = None) -> None:
        """Search the trees and the write-ahead log. If records are missing, search every page.

        Raises:
            NewerFormatError: the header shows a newer format, which this release cannot read.
                Facts: needed, supported.
        """
        for _is_newest, table in self._pages.tables(META_TABLE):
            self._has_header |= any(_read_header(self._pages, entry) for entry in self._pages.entries(table.root))
        if self._find_in_trees():
            return
        for number, page in self._astray(progress):
            if page_kind(page) & LEAF:
                self._take_entries(self._pages.leaf_entries(number, page), ASTRAY)
        if not self._is_complete():
            for number, page in self._astray(progress):
                self._take_orphan(number, page)

    def _find_in_trees(self) -> bool:
        """Read the write-ahead log and the trees. Return True if every record was found.

        If the write-ahead log is incomplete, the store's own meta pages may lead to the missing
        records.
        """
        pages = self._pages
        for lsn, offset, size in pages.journaled:
            self._take(lsn, offset, size - self._mac_size_bytes, IN_TREE)
        journaled_last = max(self._found, default=0)
        for is_newest, table in pages.tables(LOG_TABLE):
            is_counted = is_newest or not pages.is_whole
            if is_counted and table.entries * RECORD_SIZE_BYTES_MIN <= pages.size_bytes:
                self.committed_last = max(self.committed_last or 0, table.entries, journaled_last)
            self._take_entries(pages.entries(table.root), IN_TREE if is_newest else IN_OLD_TREE)
            if is_newest and pages.is_whole and self._is_complete():
                return True
        return not pages.is_whole and self._is_complete()

    def choose(self) -> tuple[dict[int, FoundRecord], int]:
        """Return the chosen record of each LSN, and the last LSN of the log. LSNs without a record are lost."""
        in_trees = [lsn for lsn, found in self._found.items() if any(each.trust == IN_TREE for each in found)]
        if self.committed_last is None:
            last = max(self._found, default=0)
        else:
            last = max(self.committed_last, max(in_trees, default=0))
        chosen: dict[int, FoundRecord] = {}
        for lsn in sorted(self._found):
            candidates = sorted(self._found[lsn]) if lsn <= last else []
            fitting = next((each for each in candidates if self._fits(each, lsn, chosen)), None)
            if fitting is not None:
                chosen[lsn] = fitting
        return chosen, last

    def read(self, found: FoundRecord) -> bytes:
        """Return the bytes of a record."""
        return self._pages.read(found.offset, found.size)

    # --- one record -----------------------------------------------------------------

    def _take_entries(self, entries: Iterator[LeafEntry], trust: int) -> None:
        for entry in entries:
            key, offset, size, is_database, overflow_page = entry
            if not self._has_header:
                _read_header(self._pages, entry)  # This raises NewerFormatError for a newer format.
            if len(key) == _LSN_SIZE_BYTES and not is_database:
                is_record = self._take(int.from_bytes(key), offset, size - self._mac_size_bytes, trust)
                if is_record and overflow_page:
                    self._cover(overflow_page, size)

    def _take(self, lsn: int, offset: int, size: int, trust: int) -> bool:
        """Add a record to the candidates if it is valid. Return True in that case."""
        if not RECORD_SIZE_BYTES_MIN <= size <= RECORD_SIZE_BYTES_MAX or not 0 < lsn <= self._lsn_max:
            return False
        # A vacuumed record may be shorter than an envelope, so do not read beyond its end.
        head = self._pages.read(offset, min(size, ENVELOPE_SIZE_BYTES))
        if len(head) < RECORD_SIZE_BYTES_MIN:
            return False
        if not head[FLAGS_AT] & FLAG_VACUUMED and record_lsn(head) != lsn:
            return False
        data = self._pages.read(offset, size)
        try:
            if self.mac is not None:
                self.mac.check_record(lsn, self._pages.read(offset, size + self._mac_size_bytes))
            record = decode_record(data, lsn)
            read_event(record)
            read_rows(data, record)
        except StatelogError:
            return False
        found = FoundRecord(trust, _weight(record), size, offset)
        held = self._found.get(lsn, ())
        if not any(each[1:3] == found[1:3] and self.read(each) == data for each in held):
            self._found[lsn] = (*held, found)
        return True

    def _take_orphan(self, number: int, page: bytes) -> None:
        """If the page begins a record to which no tree leads, add this record to the candidates."""
        offset = number * self._pages.page_size_bytes + PAGE_HEAD_SIZE_BYTES
        head = page[PAGE_HEAD_SIZE_BYTES : PAGE_HEAD_SIZE_BYTES + ENVELOPE_SIZE_BYTES]
        if len(head) < ENVELOPE_SIZE_BYTES or head[_VERSION_AT] != RECORD_FORMAT:
            return
        if head[TYPE_AT] & TYPE_MASK not in KINDS or head[FLAGS_AT - 1] or head[FLAGS_AT] & ~_FLAGS:
            return
        data = self._read_orphan(offset)
        if self._take(record_lsn(data), offset, len(data), ASTRAY):
            self._cover(number, len(data))

    def _read_orphan(self, offset: int) -> bytes:
        """Return the bytes of the record at `offset`, or only its envelope if its size cannot be determined."""
        size = _ORPHAN_SIZE_BYTES
        while True:
            data = self._pages.read(offset, size)
            try:
                return data[: kernels.record_open(data).size]
            except CorruptionError:
                if len(data) < size or size > RECORD_SIZE_BYTES_MAX:
                    return data[:ENVELOPE_SIZE_BYTES]
            size *= _ORPHAN_GROWTH

    def _cover(self, first_page: int, size: int) -> None:
        page_count = -(-(PAGE_HEAD_SIZE_BYTES + size) // self._pages.page_size_bytes)
        for number in range(first_page, min(first_page + page_count, self._pages.page_count)):
            self._covered[number >> 3] |= 1 << (number & 7)

    # --- all records ------------------------------------------------------------------

    def _is_complete(self) -> bool:
        return self.committed_last is not None and len(self._found) >= self.committed_last

    def _astray(self, progress: Progress | None) -> Iterator[tuple[int, bytes]]:
        """Yield the number and bytes of every page, except overflow pages of found records."""
        count, size = self._pages.page_count, self._pages.page_size_bytes
        for number in range(count):
            if progress is not None and number % _PROGRESS_PAGES == 0:
                progress(number, count)
            if not self._covered[number >> 3] & 1 << (number & 7):
                yield number, self._pages.read(number * size, size)

    def _fits(self, found: FoundRecord, lsn: int, chosen: dict[int, FoundRecord]) -> bool:
        """Return True if a record fits its LSN, given the records chosen for earlier LSNs."""
        if found.trust == IN_TREE:
            return True
        before = self._chain_before(lsn, chosen)
        record = decode_record(self.read(found), lsn)
        if before and record.previous_chain not in (b"", before):
            return False
        previous = record.previous_chain or before
        return not previous or self._leads_on(found, lsn, previous)

    def _chain_before(self, lsn: int, chosen: dict[int, FoundRecord]) -> bytes:
        """Return the chain digest before an LSN, or empty bytes if the chosen records do not determine it."""

        def get_log(at: int) -> bytes | None:
            each = chosen.get(at)
            return None if each is None else self.read(each)

        chained = read_chained(get_log, lsn - 1) if lsn > 1 else None
        return b"" if chained is None else chained[1]

    def _leads_on(self, found: FoundRecord, lsn: int, previous: bytes) -> bool:
        """Compute the chain from a record up to the next record in the tree that stores a chain digest.

        Return False if the two chain digests differ. Return True if no such record follows.
        """
        behind = [found]
        while behind:
            data = self.read(behind[0])
            previous = record_chain_digest(data, decode_record(data, lsn), previous)
            lsn += 1
            behind = [each for each in self._found.get(lsn, ()) if each.trust == IN_TREE]
            said = [chain for each in behind if (chain := decode_record(self.read(each), lsn).previous_chain)]
            if said:
                return previous in said
        return True


def find_mac(pages: PageFile, key: StoreKey | None, anchor: bytes | None) -> StoreMac | None:
    """Find the object that computes the MACs of the store. Return None if the store has no key.

    The header shows whether the store has a key. If no header is left in the trees, this searches every page. If no
    page has a header, an anchor of the store gives the id of the store, on which the MACs depend.

    Raises:
        StoreKeyError: the key is missing, or is not the store's key.
        HeaderLostError: a key is given, but there is no header and no anchor.
        NewerFormatError: as for `RecordFinder.find`.
    """
    for header in _headers(pages):
        try:
            return check_key(header, key)
        except ForgeryError:
            continue  # This header is an old copy, or it was tampered with.
    if key is None:
        return None
    if anchor is None:
        message = (
            "the header is lost, and with it the store's id, which the MACs depend on: pass any anchor of the store"
        )
        raise HeaderLostError(message)
    return key.for_store(decode_anchor(anchor).store_id)


def _headers(pages: PageFile) -> Iterator[dict[str, Any]]:
    """Yield the headers with a valid checksum, first from the trees, then from all other pages."""
    for _is_newest, table in pages.tables(META_TABLE):
        yield from filter(None, (_read_header(pages, entry) for entry in pages.entries(table.root)))
    for number in range(pages.page_count):
        page = pages.read(number * pages.page_size_bytes, pages.page_size_bytes)
        if page_kind(page) & LEAF:
            yield from filter(None, (_read_header(pages, entry) for entry in pages.leaf_entries(number, page)))


def _read_header(pages: PageFile, entry: LeafEntry) -> dict[str, Any] | None:
    """Return the header in an entry, or None. Raises NewerFormatError."""
    if entry.key != HEADER_KEY or entry.is_database or entry.overflow_page:
        return None
    try:
        return decode_header(pages.read(entry.offset, entry.size))
    except CorruptionError:
        return None


def _weight(record: Record) -> int:
    if not record.flags & FLAG_REDACTED:
        return 2
    return 0 if record.flags & FLAG_VACUUMED else 1
