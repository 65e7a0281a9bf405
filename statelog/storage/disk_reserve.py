"""The disk reserve: blocks after the last page of a file, so that retention works even if the disk is full.

LMDB takes new pages before it frees any. So in a file that cannot grow, neither retention nor deletion would work.
Therefore each commit keeps the file longer than its last used page (E5), by a reserve and a step. Retention and
deletion use the reserve if the disk is full. The next commits use the step. Zeros are written to both, so that the disk
allocates their blocks. Flushing 12 KB to allocated blocks takes 0.20 ms, because no metadata is written. Appending them
to the file takes 0.33 ms.

If the disk has no room for a step, LMDB's map is shrunk to end before the reserve. Then commits use the pages that are
free inside the file. A commit that finds no such page is refused, so commits never take the pages that retention needs.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Protocol

import lmdb

from statelog.errors import StatelogError
from statelog.limits import (
    DISK_RESERVE_PAGES_MAX,
    DISK_RESERVE_SHARE,
    QUOTA_RESERVE_BYTES_MIN,
    QUOTA_RESERVE_SHARE,
    REWRITTEN_SIZE_BYTES_MAX,
    STEP_PAGES_MAX,
)
from statelog.storage.file.disk import write_zeros
from statelog.storage.file.failures import DISK_FULL_ERRNOS, translate_os
from statelog.storage.file.preopen_checks import read_live_meta
from statelog.storage.read_transaction import ReadTransaction
from statelog.storage.statistics import collect_statistics, table_statistics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from statelog.storage.lmdb_file import LmdbFile

_COMMIT_PAGES = 12
_CHANGE_PAGES = 2
_PAGE_SIZE_BYTES = 4096
"""An estimate of the pages that a commit takes: `_COMMIT_PAGES` for the paths in three trees and the free list, plus
`_CHANGE_PAGES` for each change, plus its data. A commit to a small store takes fewer. If the estimate is too low, the
reserve is smaller until the next commit.
"""

_HALVINGS_MAX = 8
_SMALL_STORE = 4
_STEPS = 16
_NO_LIMIT = 1 << 62
_META_PAGES = 2


class UncommittedChanges(Protocol):
    """The members of a write transaction that the disk reserve uses."""

    changes: int
    size_bytes: int

    def table_stat(self, table: Any) -> dict[str, Any]:
        """Return LMDB's page counts of one table."""


class NoDiskReserveError(Exception):
    """The disk is full, and a transaction would leave less than the reserve. Callers never see this error."""


class DiskReserve:
    """The disk reserve of one store. Its methods write to the file only within a write transaction."""

    def __init__(self, file: LmdbFile) -> None:
        self._file = file
        self._disk_size_bytes_max: int | None = None
        """The size up to which commits may fill the file if the disk is full; None if the disk is not full."""
        self._users = 0
        """The number of running `in_use` blocks."""
        self._need = 0
        """The estimated page count of the last transaction that did not fit below `_end_max`."""
        self._end_max = 0
        """The number of pages that commits may fill before the file's size is checked again."""
        self._halvings = 0
        """How often `halve` has halved the size of a rewrite."""
        self._reusable_id = -1
        self._copied_max = 0

    @property
    def commit_size_bytes_max(self) -> int:
        """The size up to which commits may fill the file: the quota without its reserve, or less on a full disk."""
        quota = self._file.max_size_bytes
        kept_back = max(quota // QUOTA_RESERVE_SHARE, QUOTA_RESERVE_BYTES_MIN)
        allowed = quota - min(kept_back, quota // 4)
        return min(allowed, self._disk_size_bytes_max or allowed)

    @property
    def is_disk_full(self) -> bool:
        """Whether the disk refused to let the file grow at the last attempt."""
        return self._disk_size_bytes_max is not None

    @property
    def rewrite_size_bytes_max(self) -> int:
        """The size of the records that one transaction may rewrite. Only the last record may exceed this size.

        A rewrite takes as many bytes as it frees, and LMDB reuses the freed pages only two transactions later. So in a
        full store, a transaction rewrites at most a quarter of the reserve.
        """
        page_size_bytes, end, _size = self._measure()
        room = self.commit_size_bytes_max - end * page_size_bytes
        kept_back = reserve_pages(end) * page_size_bytes
        return min(max(room, kept_back) // 4, REWRITTEN_SIZE_BYTES_MAX) >> self._halvings

    def halve(self) -> bool:
        """Halve `rewrite_size_bytes_max` after a rewrite found no free page. Return False after too many halvings."""
        self._halvings += 1
        return self._halvings <= _HALVINGS_MAX

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Let write transactions use the whole quota and the whole file while the `with` block runs.

        Raises:
            UsageError: a transaction of this process did not end in time.
        """
        self._file.set_map_size(self._file.max_size_bytes)
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self._halvings = 0
            # Restore the limit. If pages beyond it are in use, LMDB's map ends after the last one. Then the file does
            # not grow, and commits reuse freed pages.
            self._file.set_map_size(self.commit_size_bytes_max)

    def look_again(self) -> None:
        """Let the next commit check the size of the file again, because the file was reopened or replaced."""
        self._end_max = 0

    def ensure(self, transaction: UncommittedChanges) -> None:
        """Extend the file, if necessary, so that it still has the reserve after `transaction` commits.

        Raises:
            NoDiskReserveError: the disk is full, and the commit would use the reserve.
            StorageError: the operating system reports an error when the file is extended. Facts: path.
        """
        if self._users or self._file.is_forked:  # A forked child cannot commit, so it must not extend the file.
            return
        copied = _COMMIT_PAGES + _CHANGE_PAGES * transaction.changes
        need = min(copied, self._copied_max) + transaction.size_bytes // _PAGE_SIZE_BYTES + 1
        end = self._file.handles.raw.info()["last_pgno"] + 1
        if end + need <= self._end_max:
            return
        self._need = need
        if self.is_disk_full:
            self._check_free(transaction)
            return
        self._end_max = end + self._grow()
        if end + need > self._end_max:
            raise NoDiskReserveError

    def shrink_map(self, error: BaseException, alone: AbstractContextManager[None]) -> bool:
        """Move the end of LMDB's map after a transaction failed with `error`. Return True if a retry may succeed.

        On a full disk, the map ends before the reserve. When the disk has space again, the map grows. The caller holds
        `write_lock`, and has no transaction open.

        Args:
            error: the error of the transaction.
            alone: a lock that keeps other processes from writing, because this method may append zeros to the file.
        """
        file = self._file
        was_limited = self.is_disk_full
        if self._users or not (
            isinstance(error, NoDiskReserveError) or (was_limited and isinstance(error, lmdb.MapFullError))
        ):
            return False
        try:
            with alone:
                is_full = self._grow() < self._need
                page_size_bytes, end, size = self._measure()
            if is_full and was_limited:
                return False
            self._disk_size_bytes_max = max(size - reserve_pages(end), end) * page_size_bytes if is_full else None
            file.set_map_size(self.commit_size_bytes_max)
        except StatelogError:  # A long transaction is open, so the map stays as it is.
            return False
        return True

    def has_freed_pages(self) -> bool:
        """Return True if the file has many freed pages that LMDB may not have reused yet."""
        if self._users or self._last_id() == self._reusable_id:
            return False
        statistics = collect_statistics(self._file)
        return statistics.pages_free > 2 * reserve_pages(statistics.pages_used + statistics.pages_free)

    def note_all_reusable(self) -> None:
        """Record that LMDB can reuse all freed pages, so that no retry is made before the next commit."""
        self._reusable_id = self._last_id()

    def is_refused_a_page(self, alone: AbstractContextManager[None]) -> bool:
        """Return True if the disk has no room for one more page. `alone` and the locks held are as in `shrink_map`."""
        try:
            with alone:
                page_size_bytes, _end, size = self._measure()
                descriptor = self._file.locks.descriptor
                write_zeros(descriptor, size * page_size_bytes, (size + 1) * page_size_bytes)
        except OSError as error:
            return error.errno in DISK_FULL_ERRNOS
        except StatelogError:
            return False
        return False

    def _last_id(self) -> int:
        with ReadTransaction(self._file) as transaction:
            return transaction.id

    def _grow(self) -> int:
        """Extend the file if it is too short and the disk allows it. Return the number of pages beyond the reserve."""
        file = self._file
        page_size_bytes, end, size = self._measure()
        reserve = reserve_pages(end)
        limit = file.max_size_bytes // page_size_bytes
        if size < min(end + reserve + self._need, limit):
            wanted = min(end + reserve + max(self._need, min(end // _STEPS, STEP_PAGES_MAX)), limit)
            try:
                write_zeros(file.locks.descriptor, size * page_size_bytes, wanted * page_size_bytes)
            except OSError as error:
                if error.errno not in DISK_FULL_ERRNOS:
                    raise translate_os(error, path=file.path) from error
            _page_size_bytes, _end, size = self._measure()
        self._copied_max = end // _STEPS + 2
        return _NO_LIMIT if size >= limit else size - end - reserve

    def _measure(self) -> tuple[int, int, int]:
        """Return the page size in bytes, the number of pages up to LMDB's last page, and the file's page count."""
        raw = self._file.handles.raw
        page_size_bytes: int = raw.stat()["psize"]
        size_bytes = os.fstat(self._file.locks.descriptor).st_size
        return page_size_bytes, raw.info()["last_pgno"] + 1, size_bytes // page_size_bytes

    def _check_free(self, transaction: UncommittedChanges) -> None:
        """Raise NoDiskReserveError if the transaction would leave fewer free pages in the file than the reserve has."""
        _page_size_bytes, end, size = self._measure()
        meta = read_live_meta(self._file.locks.descriptor, self._file.path)
        tables = self._file.handles.tables.values()
        pages = sum(table_statistics(transaction.table_stat(table)).pages for table in tables)
        used = _META_PAGES + meta.free.pages + meta.main.pages + pages
        if size - used < reserve_pages(end) + min(self._copied_max, _COMMIT_PAGES):
            raise NoDiskReserveError


def reserve_pages(pages: int) -> int:
    """Return the number of pages that the reserve has in a file with `pages` used pages."""
    return max(min(pages // _SMALL_STORE, DISK_RESERVE_PAGES_MAX), pages // DISK_RESERVE_SHARE)
