"""Headroom: blocks of the disk that a store holds beyond its last page, so that a full disk does not lock it in.

LMDB takes pages before it gives any back, so that in a file that cannot grow not even retention and deletion
work. Therefore a commit leaves the file longer than its last page (E5): by a reserve, which is left to
retention and deletion when the disk is full, and by a step, into which the next commits grow. Both are zeros, really
written, so that the disk has given the blocks away; and LMDB then writes over blocks that are there, and a
flush has neither length nor extents to record (12 KB written and flushed: 0.20 ms, at the end of a file 0.33).

When the disk refuses a step, LMDB's map is made to end before the reserve: then commits go on in the pages that are
free inside the file, are refused where there are none, and never take what retention needs.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import lmdb

from statelog.errors import StatelogError
from statelog.kernels import NO_LAST_PAGE, last_page
from statelog.limits import (
    HEADROOM_PAGES_MAX,
    HEADROOM_SHARE,
    QUOTA_RESERVE_BYTES_MIN,
    QUOTA_RESERVE_SHARE,
    REWRITTEN_SIZE_BYTES_MAX,
    STEP_PAGES_MAX,
)
from statelog.storage.file.checks import read_live_meta
from statelog.storage.file.disk import write_zeros
from statelog.storage.file.failures import DISK_FULL_ERRNOS, translate_os
from statelog.storage.file.reading import ReadTransaction
from statelog.storage.file.statistics import collect_statistics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from statelog.storage.file.opened import OpenFile
    from statelog.storage.file.writing import TableWriter

_COMMIT_PAGES = 12
_CHANGE_PAGES = 2
_PAGE_SIZE_BYTES = 4096
"""What a commit may take: the paths down three trees and the free list, and some pages for each change, but not many
in a small store; and what its records fill. A guess; where it is low, the reserve is smaller until the next commit."""

_HALVINGS_MAX = 8
_SMALL_STORE = 4
_STEPS = 16
_NO_LIMIT = 1 << 62
_META_PAGES = 2


class NoHeadroomError(Exception):
    """The disk is full, and a transaction would leave less than the reserve. It never reaches a caller."""


class Headroom:
    """Keeps the file of an environment longer than what is in it, and commits out of what is kept back.

    Whatever is written to the file here is written within a write transaction.
    """

    __slots__ = (
        "_copied_max",
        "_disk_size_bytes_max",
        "_end_max",
        "_environment",
        "_halvings",
        "_need",
        "_ripe_id",
        "_users",
    )

    def __init__(self, environment: OpenFile) -> None:
        self._environment = environment
        self._disk_size_bytes_max: int | None = None
        """Up to where commits may fill the file because the disk is full; None while it is not."""
        self._users = 0
        """How many use the reserve."""
        self._need = 0
        """Pages of the transaction looked at last."""
        self._end_max = 0
        """Up to which page commits may take pages before the file is looked at again: it only grows."""
        self._halvings = 0
        """How often the size of what is rewritten was halved, for want of pages."""
        self._ripe_id = -1
        self._copied_max = 0

    @property
    def commit_size_bytes_max(self) -> int:
        """Size up to which commits may fill the file: the quota without its reserve; on a full disk, the file's."""
        quota = self._environment.max_size_bytes
        kept_back = max(quota // QUOTA_RESERVE_SHARE, QUOTA_RESERVE_BYTES_MIN)
        allowed = quota - min(kept_back, quota // 4)
        return min(allowed, self._disk_size_bytes_max or allowed)

    @property
    def is_disk_full(self) -> bool:
        """Whether the disk refused to let the file grow, when it was last asked."""
        return self._disk_size_bytes_max is not None

    @property
    def rewrite_size_bytes_max(self) -> int:
        """Size of the records that one transaction may rewrite, the first of them not counted.

        It takes as many bytes as it rewrites, and those it frees are given out two transactions later: so in a
        store that is full, a transaction rewrites no more than a quarter of what is kept back.
        """
        page_size_bytes, end, _size = self._measure()
        room = self.commit_size_bytes_max - end * page_size_bytes
        kept_back = reserve_pages(end) * page_size_bytes
        return min(max(room, kept_back) // 4, REWRITTEN_SIZE_BYTES_MAX) >> self._halvings

    def halve(self) -> bool:
        """Have transactions rewrite half as much while the reserve is used; tell whether that makes a difference."""
        self._halvings += 1
        return self._halvings <= _HALVINGS_MAX

    @contextlib.contextmanager
    def reserve(self) -> Iterator[None]:
        """Let write transactions use the whole quota, and the whole file, for a while.

        Raises:
            UsageError: a transaction of this process stays open.

        """
        self._environment.set_map_size(self._environment.max_size_bytes)
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self._halvings = 0
            # What is in use already stays in use: then nothing grows, and what is freed serves commits.
            self._environment.set_map_size(self.commit_size_bytes_max)

    def look_again(self) -> None:
        """Look at the file with the next commit: it is another one, or opened again."""
        self._end_max = 0

    def provide(self, transaction: TableWriter) -> None:
        """See to it that the reserve is there after a transaction that is about to be committed.

        Raises:
            NoHeadroomError: the disk is full, and it would not be.
            StorageError: the system refuses to make the file longer. Facts: path.

        """
        if self._users or self._environment.is_forked:  # a child's commit is refused, and its file closed
            return
        copied = _COMMIT_PAGES + _CHANGE_PAGES * transaction.changes
        need = min(copied, self._copied_max) + transaction.size_bytes // _PAGE_SIZE_BYTES + 1
        handles = self._environment.handles
        address = handles.map_address
        last = last_page(address, handles.page_size_bytes, transaction.number - 1) if address else NO_LAST_PAGE
        if last == NO_LAST_PAGE:  # the map was not looked at since it was made
            last = handles.raw.info()["last_pgno"]
        end = last + 1
        if end + need <= self._end_max:
            return
        self._need = need
        if self.is_disk_full:
            self._check_free(transaction)
            return
        self._end_max = end + self._grow()
        if end + need > self._end_max:
            raise NoHeadroomError

    def adapt(self, error: BaseException, alone: AbstractContextManager[None]) -> bool:
        """After a transaction failed with `error`, tell whether it should be tried again, with another end of the map.

        The caller holds `write_lock`, and no transaction. Within `alone` nobody else writes: what is written behind the
        end of the file must not meet another's pages there.
        """
        environment = self._environment
        was_limited = self.is_disk_full
        if self._users or not (
            isinstance(error, NoHeadroomError) or (was_limited and isinstance(error, lmdb.MapFullError))
        ):
            return False
        try:
            with alone:
                is_full = self._grow() < self._need
                page_size_bytes, end, size = self._measure()
            if is_full and was_limited:
                return False
            self._disk_size_bytes_max = max(size - reserve_pages(end), end) * page_size_bytes if is_full else None
            environment.set_map_size(self.commit_size_bytes_max)
        except StatelogError:  # somebody reads or writes for long; the disk is full meanwhile
            return False
        return True

    def lend(self, size_bytes: int) -> bool:
        """Give blocks of the reserve back to a disk that is full; False if there are none. The caller is the writer."""
        page_size_bytes, end, size = self._measure()
        wanted = size - size_bytes // page_size_bytes
        if wanted < end:
            return False
        os.ftruncate(self._environment.locks.descriptor, wanted * page_size_bytes)
        self._end_max = 0
        return True

    def is_worth_ripening(self) -> bool:
        """Tell whether much was freed of late, or before, and is not yet, or never was, given out again."""
        if self._users or self._last_id() == self._ripe_id:
            return False
        statistics = collect_statistics(self._environment)
        return statistics.pages_free > 2 * reserve_pages(statistics.pages_used + statistics.pages_free)

    def note_ripe(self) -> None:
        """Note that everything free can be given out: nothing is gained by trying again before the next commit."""
        self._ripe_id = self._last_id()

    def is_refused_a_page(self, alone: AbstractContextManager[None]) -> bool:
        """Tell whether the disk is too full for one page more. The caller, and `alone`: as for `adapt`."""
        try:
            with alone:
                page_size_bytes, _end, size = self._measure()
                descriptor = self._environment.locks.descriptor
                write_zeros(descriptor, size * page_size_bytes, (size + 1) * page_size_bytes)
        except OSError as error:
            return error.errno in DISK_FULL_ERRNOS
        except StatelogError:
            return False
        return False

    def _last_id(self) -> int:
        with ReadTransaction(self._environment) as transaction:
            return transaction.id

    def _grow(self) -> int:
        """Make the file longer where it should be, and can be; return how many pages there are beyond the reserve."""
        environment = self._environment
        page_size_bytes, end, size = self._measure()
        reserve = reserve_pages(end)
        limit = environment.max_size_bytes // page_size_bytes
        if size < min(end + reserve + self._need, limit):
            wanted = min(end + reserve + max(self._need, min(end // _STEPS, STEP_PAGES_MAX)), limit)
            try:
                write_zeros(environment.locks.descriptor, size * page_size_bytes, wanted * page_size_bytes)
            except OSError as error:
                if error.errno not in DISK_FULL_ERRNOS:
                    raise translate_os(error, path=environment.path) from error
            _page_size_bytes, _end, size = self._measure()
        self._copied_max = end // _STEPS + 2
        return _NO_LIMIT if size >= limit else size - end - reserve

    def _measure(self) -> tuple[int, int, int]:
        """Return the size of a page in bytes, how many LMDB has ever taken, and how many the file has."""
        raw = self._environment.handles.raw
        page_size_bytes: int = raw.stat()["psize"]
        size_bytes = os.fstat(self._environment.locks.descriptor).st_size
        return page_size_bytes, raw.info()["last_pgno"] + 1, size_bytes // page_size_bytes

    def _check_free(self, transaction: TableWriter) -> None:
        """Check that a transaction leaves as many pages free, inside and behind, as the reserve has."""
        _page_size_bytes, end, size = self._measure()
        meta = read_live_meta(self._environment.locks.descriptor, self._environment.path)
        handles = self._environment.handles
        stats = [transaction.table_stat(table) for table in (handles.meta, handles.log, handles.index)]
        tables = sum(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] for stat in stats)
        used = _META_PAGES + meta.free.pages + meta.main.pages + tables
        if size - used < reserve_pages(end) + min(self._copied_max, _COMMIT_PAGES):
            raise NoHeadroomError


def reserve_pages(pages: int) -> int:
    """Return the size of the reserve of a file with so many pages."""
    return max(min(pages // _SMALL_STORE, HEADROOM_PAGES_MAX), pages // HEADROOM_SHARE)
