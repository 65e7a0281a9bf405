"""Read transactions: a snapshot of the tables of a store. Borrowed values are valid until the transaction ends.

A `memoryview` from LMDB points into the mapped file. After the end of the transaction, the view would show later writes
to the page. So a transaction releases the lent views when it ends, and before it writes. A later read then raises
`ValueError`. Slices of a view cannot be released, so callers copy what they keep.
"""

from __future__ import annotations

from itertools import chain, islice
from os import getpid
from struct import Struct
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn, Self

import lmdb
from xxhash import xxh3_64_digest

from statelog.errors import CorruptionError, StorageError
from statelog.format.keys import after_prefix
from statelog.format.seal import RECORD_MAC_SIZE_BYTES, SEAL_SIZE_BYTES, unseal
from statelog.kernels import (
    NO_MAC_KEY,
    PAGE_FREE,
    address_of,
    check_leaf_at,
    find_page,
    lend_bytes,
    page_in_use,
    rows_read,
)
from statelog.storage.file.moved import SUCCEEDED
from statelog.storage.lmdb_file import NO_HANDLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from statelog.storage.lmdb_file import LmdbFile, LmdbHandles

encode_lsn = Struct(">Q").pack

_BATCHES_LENT = 2

NO_PAGE = -1
"""A page number that no page has."""

_ENTRIES_MAX = 1 << 48
"""More entries than any file can have. If LMDB reports more, the count is damaged."""

_ROWS_FIRST = 4
"""The number of rows in the first read of a scan, because many scans need only one row. Each further read takes four
times as many rows as the read before.
"""
_ROWS_MAX = 256


class _Ended:
    """A stand-in for LMDB's transaction after its end."""

    def __getattr__(self, name: str) -> NoReturn:
        message = "the read transaction has ended"
        raise StorageError(message)


_ENDED = _Ended()


class ReadTransaction:
    """A consistent snapshot of the store, for use in one `with` statement.

    A transaction must be short, because while it is open, LMDB reuses no page that is freed after it began.
    """

    __slots__ = ("_borrowed", "_file", "_handles", "_index", "_leaf", "_log", "_raw", "_view_of", "snapshot_id")

    _raw: Any  # An lmdb.Transaction; None before it has begun.
    _leaf: int  # The number of the leaf page of the index that was checked last.
    snapshot_id: int
    """The number of the commit whose pages are read. If 0, pages are not checked against the free list."""
    _may_own_pages = False

    def __init__(self, file: LmdbFile, view_of: Callable[[ReadTransaction], Any] | None = None) -> None:
        """Prepare a transaction.

        `view_of` is called with this transaction, and returns the value for `with ... as`. By default, that value is
        the transaction.
        """
        self._file = file
        self._view_of = view_of
        self._raw = None
        self._leaf = NO_PAGE
        self._borrowed: list[memoryview] = []

    def __enter__(self) -> Self:
        """Begin the transaction.

        Raises:
            ForkedError: this process was forked since the store was opened.
            ClosedError: the store is closed.
            StoreReplacedError: the store's file was removed or replaced. The check is made every 20 ms. Facts: path.
            LimitError: more transactions read at once than the reader table has slots.
            StoreLockedError: another process was stopped while it took a slot. Facts: path, timeout_s.
        """
        file = self._file
        if getpid() != file.process_id:
            raise file.forked_error()
        active = file.active_transactions
        try:
            if file.moved[0] in SUCCEEDED:
                file.follow()
            active.add(self)
            if file.is_shut:
                active.discard(self)
                file.pass_gate(self)
            identity = file.locks.file
            now_s = monotonic()
            if now_s >= identity.look_at_s and not identity.look_again(now_s):
                active.discard(self)
                file.follow()
                while not file.locks.file.is_kept():
                    if not (file.has_moved or file.is_purged):
                        file.locks.file.check()
                    file.follow()  # Another compaction has replaced the file since.
                file.pass_gate(self)
            handles = file.handles
            if handles.reader_lock[0]:
                handles.await_reader_lock()
            self._raw = raw = handles.begin(None, None, False, True)
        except lmdb.Error as error:
            active.discard(self)
            self._raw = raw = file.begin_again(self, error, self._begin_raw)
            handles = file.handles
        except BaseException:
            active.discard(self)
            raise
        self._handles = handles
        self._log = handles.log
        self._index = handles.index
        self.snapshot_id = raw.id()
        view_of = self._view_of
        return self if view_of is None else view_of(self)

    def _begin_raw(self) -> lmdb.Transaction:
        return self._file.handles.begin_read(buffers=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """End the snapshot, and release the lent views."""
        try:
            if self._borrowed:
                self._take_back()
        finally:
            # In a forked child, the slot in the reader table belongs to the parent, so do not free it.
            if not self._file.is_forked:
                raw, self._raw = self._raw, _ENDED  # LMDB's binding frees the slot when the last reference goes away.
                raw.abort()
                self._file.active_transactions.discard(self)
            self._handles = NO_HANDLES  # Drop the handles, so that this object does not keep a compacted file open.
        if kind is not None and isinstance(error, lmdb.Error):
            raise self._file.translate(error) from error

    def abort(self) -> None:
        """End the transaction before its `with` block ends. A second call does nothing."""
        try:
            self._take_back()
        finally:
            if not self._file.is_forked:
                raw, self._raw = self._raw, _ENDED
                if raw is not None and raw is not _ENDED:
                    raw.abort()
                self._file.active_transactions.discard(self)
            self._handles = NO_HANDLES

    @property
    def handles(self) -> LmdbHandles:
        """The handles of the file that this transaction reads: the old file if it began before a compaction."""
        return self._handles

    @property
    def id(self) -> int:
        """LMDB's number of the last commit in the snapshot, or of a write transaction itself."""
        number: int = self._raw.id()
        return number

    def get_log(self, lsn: int) -> memoryview | None:
        """Return a view of the record at `lsn`, or None. The view is valid until the transaction ends or writes.

        Raises:
            ForgeryError: the store has a key, and the MAC of the record does not match. Facts: lsn.
        """
        view: memoryview | None = self._raw.get(encode_lsn(lsn), None, self._log)
        if view is not None:
            mac = self._handles.mac
            if mac is not None:
                mac.check_record(lsn, view)
                view = view[:-RECORD_MAC_SIZE_BYTES]
            self._borrowed.append(view)
        return view

    def lend_log(self, lsn: int) -> memoryview | None:
        """Return a record as `get_log` does, but without a check of its MAC.

        Use this method to read nodes, whose integrity is checked in a different way: the digest of a node is in its
        parent, and the digest of a root is in the body of a record whose MAC was checked.
        """
        view: memoryview | None = self._raw.get(encode_lsn(lsn), None, self._log)
        if view is not None:
            if self._handles.mac is not None:
                view = view[:-RECORD_MAC_SIZE_BYTES]
            self._borrowed.append(view)
        return view

    def check_log(self, lsn: int) -> None:
        """Check the MAC of a record that `log_batches` has lent. Raises ForgeryError. Facts: lsn."""
        mac = self._handles.mac
        if mac is not None:
            mac.check_record(lsn, self._raw.get(encode_lsn(lsn), None, self._log))

    def give_back(self, record: memoryview) -> None:
        """Release a record that `get_log` returned, so that a reader of the whole log holds one record at a time."""
        record.release()
        if self._borrowed and self._borrowed[-1] is record:
            self._borrowed.pop()

    def get_index(self, key: bytes) -> bytes | None:
        """Return the payload under `key`, or None.

        Raises:
            CorruptionError: the seal does not match, or damage may hide the key (E6). Facts: key.
        """
        value = self._raw.get(key, None, self._index)
        if value is None:
            cursor = self._raw.cursor(self._index)
            if self._seek(cursor, key):
                self._check_neighbour(cursor, key + b"\0", is_below=False)
            return None
        handles, snapshot_id, may_be_own = self._handles, self.snapshot_id, self._may_own_pages
        address, size = handles.map_address, handles.page_size_bytes
        if (
            not address
            or find_page(lend_bytes(value), size, address, snapshot_id, may_be_own, handles.seen) == PAGE_FREE
        ):
            _find_in_use(handles, value, key, snapshot_id, may_be_own=may_be_own)
        if handles.mac is not None:
            return handles.mac.unseal(key, value)
        sealed = bytes(value)
        payload = sealed[:-SEAL_SIZE_BYTES]
        if sealed[-SEAL_SIZE_BYTES:] != xxh3_64_digest(key + payload):
            unseal(key, value)
        return payload

    def get_meta(self, key: bytes) -> bytes | None:
        """Return the payload under a key of the table `meta`, or None. Raises CorruptionError. Facts: key."""
        value: bytes | None = self._raw.get(key, None, self.handles.meta)
        return None if value is None else self._unseal(key, value)

    def _unseal(self, key: bytes, value: Any) -> bytes:
        mac = self._handles.mac
        return unseal(key, value) if mac is None else mac.unseal(key, value)

    def metas(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys of the table `meta` with their sealed values."""
        for key, value in self._raw.cursor(self.handles.meta):
            yield bytes(key), bytes(value)

    def join_logs(self, keys: Sequence[bytes]) -> tuple[bytes, tuple[int, ...]] | None:
        """Return the joined bytes of the records with the given keys, and the records' sizes.

        Return None if any record is missing.

        Raises:
            ForgeryError: the errors of `get_log`.
        """
        get, log, mac = self._raw.get, self._log, self._handles.mac
        records = [get(key, None, log) for key in keys]
        if None in records:
            return None
        if mac is not None:
            records = list(map(mac.open_record, map(int.from_bytes, keys), map(bytes, records)))
        return b"".join(records), tuple(map(len, records))

    def last_lsn(self) -> int:
        """Return the LSN of the last record, or 0 if the log is empty.

        Raises:
            CorruptionError: the number of records differs from this LSN. Facts: lsn.
        """
        last = self._last_key()
        # L1: LSNs are dense from 1. If the last key were damaged, the next record would be appended at the wrong LSN.
        if last != self._raw.stat(self._log)["entries"]:
            message = f"the log ends at LSN {last}, but has {self._raw.stat(self._log)['entries']} records"
            raise CorruptionError(message, lsn=last)
        return last

    def _last_key(self) -> int:
        cursor = self._raw.cursor(self._log)
        key = bytes(cursor.key()) if cursor.last() else b""
        if len(key) not in (0, 8):
            message = f"the last record has a key of {len(key)} bytes"
            raise CorruptionError(message, key=key)
        return int.from_bytes(key)

    def log_count(self) -> int:
        """Return LMDB's count of the records."""
        count: int = self._raw.stat(self._log)["entries"]
        return count

    def log_batches(self, size_bytes: int) -> Iterator[list[tuple[int, memoryview]]]:
        """Yield all records as (LSN, record), in lists of `size_bytes` or a little more. `check_log` checks their MACs.

        A list is valid until two more lists are requested. At most one record more than LMDB counts is yielded, so that
        the scan ends even if damage has linked pages in a ring.
        """
        cursor = self._raw.cursor(self._log)
        cut = None if self._handles.mac is None else -RECORD_MAC_SIZE_BYTES
        pairs: Any = cursor.iternext(keys=True, values=True)
        lent: list[list[tuple[int, memoryview]]] = [[]]
        size = 0
        for key, record in islice(pairs, min(self._raw.stat(self._log)["entries"] + 1, _ENTRIES_MAX)):
            if len(key) != 8:
                message = f"a record has a key of {len(key)} bytes"
                raise CorruptionError(message, key=bytes(key))
            if cut is not None:
                record = record[:cut]
            lent[-1].append((int.from_bytes(key), record))
            size += len(record)
            if size >= size_bytes:
                yield lent[-1]
                lent.append([])
                size = 0
                for _lsn, old in lent.pop(0) if len(lent) > _BATCHES_LENT else ():
                    old.release()
        yield lent[-1]

    def scan_index(self, prefix: bytes, *, start: bytes = b"", reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys that begin with `prefix`, in order, with their payloads.

        Args:
            prefix: the prefix of every yielded key.
            start: the whole key at which the scan begins. The scan includes it if it exists.
            reverse: scan downwards from the greatest key, or from `start`, which may be above all yielded keys.

        Raises:
            CorruptionError: a seal does not match, or damage may hide keys (E6). Facts: key.
        """
        return chain.from_iterable(self.scan_batches(prefix, start=start, reverse=reverse))

    def scan_batches(
        self, prefix: bytes, *, start: bytes = b"", reverse: bool = False, count: int = _ROWS_FIRST
    ) -> Iterator[list[tuple[bytes, bytes]]]:
        """Yield the pairs of `scan_index` in lists: up to `count` pairs in the first list, and more in later ones."""
        cursor = self._raw.cursor(self._index)
        if reverse:
            bound = after_prefix(prefix)
            if start and (not bound or start < bound):
                bound = start + b"\0"
            if bound and cursor.set_range(bound):
                self._check_neighbour(cursor, bound, is_below=False)
                found = cursor.prev()
            else:
                found = cursor.last()
        else:
            bound = max(prefix, start)
            found = self._seek(cursor, bound) if bound else cursor.first()
        while found:
            lent = cursor.key()
            key = bytes(lent)
            if bound and (key < bound) != reverse:
                self._check_leaf(lent)
                raise _out_of_order(key)
            rows = None if self._may_own_pages else self._read_rows(lent, prefix, count, reverse=reverse)
            # Read the rows one by one in two cases: a writer may change later rows during the scan, and the error for a
            # damaged row must name its key.
            if rows is None:
                self._check_leaf(lent)
                payload = self._unseal(key, cursor.value())
                rows = ([(key, payload)], False) if key.startswith(prefix) else ([], True)
            pairs, is_end = rows
            if pairs:
                yield pairs
            if is_end:
                return
            last = pairs[-1][0]
            if last != key and not (cursor.set_range(last) and cursor.key() == last):
                raise _out_of_order(last)  # A damaged branch page misleads the search for this key.
            bound = last if reverse else last + b"\0"
            found = cursor.prev() if reverse else cursor.next()
            count = min(4 * count, _ROWS_MAX)

    def _read_rows(
        self, lent: Any, prefix: bytes, count_max: int, *, reverse: bool
    ) -> tuple[list[tuple[bytes, bytes]], bool] | None:
        """Return the rows from the key `lent` to the end of its page, and whether no later page has the prefix.

        Return None if a row is damaged, or cannot be checked here. The caller then reads the rows one by one.
        """
        handles = self._handles
        if not handles.map_address:
            self._check_leaf(lent)  # This also finds the address of the map.
        return rows_read(
            lent,
            handles.page_size_bytes,
            handles.map_address,
            self.snapshot_id,
            handles.seen,
            NO_MAC_KEY if handles.mac is None else handles.mac.row_key,
            prefix,
            count_max,
            downwards=reverse,
        )

    def _seek(self, cursor: lmdb.Cursor, bound: bytes) -> bool:
        """Move to the first key at or after `bound`. Return False if there is none.

        If a key is damaged, LMDB's search misses it and finds a neighbour (E6). So this method checks the seal, the
        order and the page of the next lower key. The caller checks the key that was found.
        """
        found = cursor.set_range(bound)
        if cursor.prev() if found else cursor.last():
            self._check_neighbour(cursor, bound, is_below=True)
            if found:
                cursor.next()
        elif found:
            cursor.first()
        elif self._raw.stat(self._index)["entries"]:
            message = "the index has entries, but none can be found"
            raise CorruptionError(message, key=bound)
        return found

    def _check_neighbour(self, cursor: lmdb.Cursor, bound: bytes, *, is_below: bool) -> None:
        lent = cursor.key()
        key = bytes(lent)
        if (key < bound) != is_below:
            raise _out_of_order(key)
        if self._may_own_pages or self._read_rows(lent, b"", 1, reverse=False) is None:
            self._check_leaf(lent)
            self._unseal(key, cursor.value())

    def _check_leaf(self, lent: Any) -> None:
        """Check the whole page that contains a key of the index.

        LMDB's page headers have no checksum. A flipped bit in the number of nodes hides the nodes at the end of the
        page, and neither a look-up nor a scan would meet damage. So this checks that the nodes fill the page, that the
        page has its own number, and that its keys ascend (E2).
        """
        number = _find_in_use(self._handles, lent, bytes(lent), self.snapshot_id, may_be_own=self._may_own_pages)
        if number >= 0 and number != self._leaf:
            fault = check_leaf_at(lent, self._handles.page_size_bytes, number)
            if fault:
                message = f"a page of the index: {fault}"
                raise CorruptionError(message, key=bytes(lent))
            self._leaf = number

    def index_keys(self) -> list[bytes]:
        """Return all keys of the index without checking their values."""
        cursor = self._raw.cursor(self._index)
        keys = cursor.iternext(keys=True, values=False)
        return [bytes(key) for key in islice(keys, min(self._raw.stat(self._index)["entries"] + 1, _ENTRIES_MAX))]

    def index_sizes(self, entries_max: int) -> Iterator[tuple[int, int]]:
        """Yield (key size, value size) of the first index entries, in order, without checking the entries."""
        pairs: Any = self._raw.cursor(self._index).iternext(keys=True, values=True)
        return ((len(key), len(value)) for key, value in islice(pairs, entries_max))

    def last_index(self, prefix: bytes) -> tuple[bytes, bytes] | None:
        """Return the greatest key that begins with `prefix`, and its payload, or None."""
        last = next(self.scan_batches(prefix, reverse=True, count=1), None)
        return None if last is None else last[0]

    def table_stat(self, table: Any) -> dict[str, Any]:
        """Return LMDB's page counts of one table in this snapshot."""
        counts: dict[str, Any] = self._raw.stat(table)
        return counts

    def _take_back(self) -> None:
        """Release the lent views. This fails if C code still uses a view, which would be a bug in statelog."""
        borrowed, self._borrowed = self._borrowed, []
        for view in borrowed:
            view.release()


def _find_in_use(handles: LmdbHandles, lent: memoryview, key: bytes, snapshot_id: int, *, may_be_own: bool) -> int:
    """Return the number of the index page that contains `lent`, or a negative number if a write transaction may own it.

    A damaged page number in a branch page may lead to an older copy of a page, with valid seals. LMDB has freed that
    copy, so the free list reveals it (E3).

    Raises:
        CorruptionError: the page is free. Facts: key.
    """
    if not handles.map_address:
        handles.find_map(address_of(lent))
    page_size_bytes = handles.page_size_bytes
    number = page_in_use(lent, page_size_bytes, handles.map_address, snapshot_id, handles.seen, may_be_own=may_be_own)
    if number == PAGE_FREE:
        freed = (address_of(lent) - handles.map_address) // page_size_bytes
        message = f"the index leads to page {freed}, which is free"
        raise CorruptionError(message, key=key)
    return number


def _out_of_order(key: bytes) -> CorruptionError:
    message = f"the index is out of order at key {key!r}"
    return CorruptionError(message, key=key)
