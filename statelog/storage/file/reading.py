"""Transactions over the tables of a store: thin, fast, and nothing borrowed escapes.

A `memoryview` out of LMDB points into the mapped file and stays readable when its
transaction is over, by then showing whatever was written there since. So each one
lent is taken back (released) at the end of its transaction, and before the next
write in it: a late read raises `ValueError` instead of lying. Slices made of it
cannot be taken back; callers copy what they keep.
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
from statelog.format.seal import SEAL_SIZE_BYTES, unseal
from statelog.kernels import PAGE_FREE, check_leaf_at, find_page, lend_bytes, rows_read
from statelog.storage.file.freed import find_in_use
from statelog.storage.file.moved import MOVED
from statelog.storage.file.opened import NO_HANDLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from statelog.storage.file.opened import Handles, OpenFile

encode_lsn = Struct(">Q").pack

_BATCHES_LENT = 2

NO_PAGE = -1
"""In place of a page's number."""

_ENTRIES_MAX = 1 << 48
"""More than any file holds: a count that was damaged may say anything."""

_ROWS_FIRST = 4
"""Rows that a scan reads at first. Many scans want one row; those that go on read four times as many each time."""
_ROWS_MAX = 256


class _Ended:
    """Stands where LMDB's transaction was."""

    def __getattr__(self, name: str) -> NoReturn:
        message = "the read transaction has ended"
        raise StorageError(message)


_ENDED = _Ended()


class ReadTransaction:
    """A consistent snapshot of the store, for use in one `with` statement.

    Short by contract: while it lives, LMDB reuses no page freed since it began.
    """

    __slots__ = ("_borrowed", "_environment", "_handles", "_index", "_leaf", "_log", "_raw", "_view_of", "snapshot_id")

    _raw: Any  # lmdb.Transaction, None before it began
    _leaf: int  # number of the leaf page of the index that was looked at last
    snapshot_id: int
    """The commit whose pages are read; 0 if none of its pages may be called free."""
    _may_own_pages = False

    def __init__(self, environment: OpenFile, view_of: Callable[[ReadTransaction], Any] | None = None) -> None:
        """Read a file.

        Args:
            environment: the file.
            view_of: makes what `with` gives, from this transaction, which it gives if this is left out.

        """
        self._environment = environment
        self._view_of = view_of
        self._raw = None
        self._leaf = NO_PAGE
        self._borrowed: list[memoryview] = []

    def __enter__(self) -> Self:
        """Begin.

        Raises:
            ForkedError: this process was forked since the store was opened.
            ClosedError: the store is closed.
            StoreReplacedError: its file was removed or replaced, some 20 ms ago at least. Facts: path.
            LimitError: more transactions read at once than the store has slots for.
            StoreLockedError: another process was stopped while it took a slot. Facts: path, timeout_s.
        """
        environment = self._environment
        if getpid() != environment.process_id:
            raise environment.forked_error()
        active = environment.active_transactions
        try:
            if environment.moved[0] == MOVED:
                environment.follow()
            active.add(self)
            if environment.is_shut:
                active.discard(self)
                environment.pass_gate(self)
            file = environment.locks.file
            now_s = monotonic()
            if now_s >= file.look_at_s and not file.look_again(now_s):
                active.discard(self)
                environment.follow()
                while environment.has_moved:  # A second compaction has replaced the file meanwhile.
                    environment.follow()
                environment.locks.file.check()
                environment.pass_gate(self)
            handles = environment.handles
            if handles.reader_lock[0]:
                handles.await_reader_lock()
            self._raw = raw = handles.begin(None, None, False, True)
        except lmdb.Error as error:
            active.discard(self)
            self._raw = raw = environment.begin_again(self, error)
            handles = environment.handles
        except BaseException:
            active.discard(self)
            raise
        self._handles = handles
        self._log = handles.log
        self._index = handles.index
        self.snapshot_id = raw.id()
        view_of = self._view_of
        return self if view_of is None else view_of(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """End the snapshot and take back what was borrowed from it."""
        try:
            if self._borrowed:
                self._take_back()
        finally:
            if not self._environment.is_forked:  # else the slot in the reader table is the parent's
                raw, self._raw = self._raw, _ENDED  # LMDB's binding frees the slot with the last reference only
                raw.abort()
                self._environment.active_transactions.discard(self)
            self._handles = NO_HANDLES  # who keeps this one does not keep a file that was compacted
        if kind is not None and isinstance(error, lmdb.Error):
            raise self._environment.translate(error) from error

    def abort(self) -> None:
        """End where nobody else does; harmless when repeated."""
        try:
            self._take_back()
        finally:
            if not self._environment.is_forked:
                raw, self._raw = self._raw, _ENDED
                if raw is not None and raw is not _ENDED:
                    raw.abort()
                self._environment.active_transactions.discard(self)
            self._handles = NO_HANDLES

    @property
    def handles(self) -> Handles:
        """What is read; of the file before a compaction, if it has begun before."""
        return self._handles

    @property
    def id(self) -> int:
        """The id of the last commit this snapshot contains; of a write, its own."""
        number: int = self._raw.id()
        return number

    def get_log(self, lsn: int) -> memoryview | None:
        """Return the record with that LSN, borrowed until the transaction ends or writes."""
        view: memoryview | None = self._raw.get(encode_lsn(lsn), None, self._log)
        if view is not None:
            self._borrowed.append(view)
        return view

    def give_back(self, record: memoryview) -> None:
        """Take back a record at once that was lent by `get_log`: who reads a whole log holds one at a time."""
        record.release()
        if self._borrowed and self._borrowed[-1] is record:
            self._borrowed.pop()

    def get_index(self, key: bytes) -> bytes | None:
        """Return the payload under `key`.

        Raises:
            CorruptionError: its seal does not hold, or it is not found where damage may hide it (E6). Facts: key.
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
            find_in_use(handles, value, key, snapshot_id, may_be_own=may_be_own)
        sealed = bytes(value)
        payload = sealed[:-SEAL_SIZE_BYTES]
        if sealed[-SEAL_SIZE_BYTES:] != xxh3_64_digest(key + payload):
            unseal(key, value)
        return payload

    def get_meta(self, key: bytes) -> bytes | None:
        """Return a fact about the store, sealed, or None."""
        value: bytes | None = self._raw.get(key, None, self.handles.meta)
        return None if value is None else bytes(value)

    def join_logs(self, keys: Sequence[bytes]) -> tuple[bytes, tuple[int, ...]] | None:
        """Return copies of some records by their keys, one after another, and their sizes; None if one is missing."""
        get, log = self._raw.get, self._log
        if len(keys) == 1:
            record = get(keys[0], None, log)
            return None if record is None else (bytes(record), (len(record),))
        records = [get(key, None, log) for key in keys]
        return None if None in records else (b"".join(records), tuple(map(len, records)))

    def last_lsn(self) -> int:
        """Return the LSN of the last record, 0 in an empty log.

        Raises:
            CorruptionError: the log has not as many records. Facts: lsn.
        """
        last = self._last_key()
        # L1: dense from 1. A damaged key must not be believed: the next record would go behind it.
        if last != self._raw.stat(self._log)["entries"]:
            message = f"the log ends at LSN {last}, but has {self._raw.stat(self._log)['entries']} records"
            raise CorruptionError(message, lsn=last)
        return last

    def _last_key(self) -> int:
        cursor = self._raw.cursor(self._log)
        key = bytes(cursor.key()) if cursor.last() else b""
        if len(key) not in (0, 8):
            message = f"the last record lies under a key of {len(key)} bytes"
            raise CorruptionError(message, key=key)
        return int.from_bytes(key)

    def log_count(self) -> int:
        """Return how many records LMDB counts."""
        count: int = self._raw.stat(self._log)["entries"]
        return count

    def log_batches(self, size_bytes: int) -> Iterator[list[tuple[int, memoryview]]]:
        """Yield all that is in the log as (LSN, record), in lists of `size_bytes` or a little more.

        A list is lent until the next but one is asked for. As many records as LMDB counts at the most: damage may
        chain pages in a ring.
        """
        cursor = self._raw.cursor(self._log)
        pairs: Any = cursor.iternext(keys=True, values=True)
        lent: list[list[tuple[int, memoryview]]] = [[]]
        size = 0
        for key, record in islice(pairs, min(self._raw.stat(self._log)["entries"] + 1, _ENTRIES_MAX)):
            if len(key) != 8:
                message = f"a record lies under a key of {len(key)} bytes"
                raise CorruptionError(message, key=bytes(key))
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
        """Yield keys that begin with `prefix`, in order, with their payloads.

        Args:
            prefix: of every key yielded.
            start: a whole key (it need not exist) at which to begin, included.
            reverse: from the greatest key, or from `start`, down.

        Raises:
            CorruptionError: a seal does not hold, or damage may hide some (E6). Facts: key.
        """
        return chain.from_iterable(self.scan_batches(prefix, start=start, reverse=reverse))

    def scan_batches(
        self, prefix: bytes, *, start: bytes = b"", reverse: bool = False, count: int = _ROWS_FIRST
    ) -> Iterator[list[tuple[bytes, bytes]]]:
        """Yield what `scan_index` does in lists: at most `count` pairs in the first one, more in the later ones."""
        cursor = self._raw.cursor(self._index)
        if reverse:
            bound = start + b"\0" if start else after_prefix(prefix)
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
            if rows is None:  # a writer may change what is ahead, and damage is named row by row
                self._check_leaf(lent)
                payload = unseal(key, cursor.value())
                rows = ([(key, payload)], False) if key.startswith(prefix) else ([], True)
            pairs, is_end = rows
            if pairs:
                yield pairs
            if is_end:
                return
            last = pairs[-1][0]
            if last != key and not (cursor.set_range(last) and cursor.key() == last):
                raise _out_of_order(last)  # a page above leads elsewhere
            bound = last if reverse else last + b"\0"
            found = cursor.prev() if reverse else cursor.next()
            count = min(4 * count, _ROWS_MAX)

    def _read_rows(
        self, lent: Any, prefix: bytes, count_max: int, *, reverse: bool
    ) -> tuple[list[tuple[bytes, bytes]], bool] | None:
        """Return rows of the page that a key lies in, and whether the prefix ends there.

        None if something is wrong with them, or cannot be told: then the rows are to be read one by one.
        """
        handles = self._handles
        if not handles.map_address:
            self._check_leaf(lent)  # looks where the map is
        return rows_read(
            lent,
            handles.page_size_bytes,
            handles.map_address,
            self.snapshot_id,
            handles.seen,
            prefix,
            count_max,
            downwards=reverse,
        )

    def _seek(self, cursor: lmdb.Cursor, bound: bytes) -> bool:
        """Move to the least key that is `bound` or above it, and tell if there is one.

        Whatever key was damaged, LMDB's search for it ends beside it (E6): so the neighbour below is looked at,
        whether its seal holds, whether it is below, and whether its page is whole. The caller looks at the other.
        """
        found = cursor.set_range(bound)
        if cursor.prev() if found else cursor.last():
            self._check_neighbour(cursor, bound, is_below=True)
            if found:
                cursor.next()
        elif found:
            cursor.first()
        elif self._raw.stat(self._index)["entries"]:
            message = "the index has entries, and none can be found"
            raise CorruptionError(message, key=bound)
        return found

    def _check_neighbour(self, cursor: lmdb.Cursor, bound: bytes, *, is_below: bool) -> None:
        lent = cursor.key()
        key = bytes(lent)
        if (key < bound) != is_below:
            raise _out_of_order(key)
        if self._may_own_pages or self._read_rows(lent, b"", 1, reverse=False) is None:
            self._check_leaf(lent)
            unseal(key, cursor.value())

    def _check_leaf(self, lent: Any) -> None:
        """Look at the whole page that a key of the index lies in.

        LMDB's page heads have no checksum: a bit less in the count of a page's nodes hides those at its end, and no
        look-up that misses them, no scan that ends there, meets anything damaged. But a page whose nodes do not
        fill it, that bears another's number, or whose keys do not ascend, was damaged (E2).
        """
        number = find_in_use(self._handles, lent, bytes(lent), self.snapshot_id, may_be_own=self._may_own_pages)
        if number >= 0 and number != self._leaf:
            fault = check_leaf_at(lent, self._handles.page_size_bytes, number)
            if fault:
                message = f"a page of the index: {fault}"
                raise CorruptionError(message, key=bytes(lent))
            self._leaf = number

    def index_keys(self) -> list[bytes]:
        """Return all keys of the index, whatever their values."""
        cursor = self._raw.cursor(self._index)
        keys = cursor.iternext(keys=True, values=False)
        return [bytes(key) for key in islice(keys, min(self._raw.stat(self._index)["entries"] + 1, _ENTRIES_MAX))]

    def index_sizes(self, entries_max: int) -> Iterator[tuple[int, int]]:
        """Yield the sizes of the index's first keys and values, in order; nothing is checked."""
        pairs: Any = self._raw.cursor(self._index).iternext(keys=True, values=True)
        return ((len(key), len(value)) for key, value in islice(pairs, entries_max))

    def last_index(self, prefix: bytes) -> tuple[bytes, bytes] | None:
        """Return the greatest key that begins with `prefix`, and its payload."""
        last = next(self.scan_batches(prefix, reverse=True, count=1), None)
        return None if last is None else last[0]

    def table_stat(self, table: Any) -> dict[str, Any]:
        """Return LMDB's page counts of one table, as of this snapshot."""
        counts: dict[str, Any] = self._raw.stat(table)
        return counts

    def _take_back(self) -> None:
        """Release what was lent; a view still exported (to C) cannot be, and is our own bug."""
        borrowed, self._borrowed = self._borrowed, []
        for view in borrowed:
            view.release()


def _out_of_order(key: bytes) -> CorruptionError:
    message = f"the index is out of order at key {key!r}"
    return CorruptionError(message, key=key)
