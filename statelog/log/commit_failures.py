"""Handles failed commits: nothing acknowledged is lost, and every caller gets its own result.

- The work of a request raises an error. If it had already written, each request of the group is committed alone, so
  that only this request fails.
- The map or the disk is full. LMDB may find pages after a checkpoint, in a smaller map, or after two empty commits.
- The outcome is unknown. LMDB's environment is reopened, and the log is read.
- An interrupt came. If it came before the commit, nothing is written; otherwise the log is read as above.
"""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING, TypeVar

from statelog.errors import CommitOutcomeUnknownError, StatelogError, StoreFullError, StoreReplacedError
from statelog.log.commit_queue import Request
from statelog.storage.disk_reserve import NoDiskReserveError
from statelog.storage.file.failures import error_code, full_error, is_full, is_map_full, is_of_lmdb, is_of_system
from statelog.storage.read_transaction import ReadTransaction
from statelog.storage.write_transaction import Stage, WriteTransaction

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.storage.write_transaction import StoreWriter

T = TypeVar("T")

ATTEMPTS = 4
"""The maximum number of retries of a transaction that finds no free page. There are three ways to find a page."""

_TRANSACTIONS_TO_REUSE = 2
_FAILURES = (StatelogError, MemoryError, NoDiskReserveError)
"""The exceptions that are failures of a commit, apart from the errors of LMDB and the operating system."""


def is_failure(transaction: WriteTransaction, error: BaseException) -> bool:
    """Return True for a failure, False for an interrupt.

    The exception type is not enough, because a signal handler and the work of a request may raise the same types.
    """
    return error is transaction.work_error or isinstance(error, _FAILURES) or is_of_system(error)


class CommitFailures:
    """Ends failed transactions, and settles their requests.

    Args:
        writer: the parts of the store file that a commit uses.
        execute: runs and commits a group again: see `Committer.execute`.
        execute_alone: runs and commits a group of one.
        flush: flushes the last commit.
    """

    def __init__(
        self,
        writer: StoreWriter,
        execute: Callable[[list[Request], int], None],
        execute_alone: Callable[[list[Request]], None],
        flush: Callable[[list[Request]], None],
    ) -> None:
        self._writer = writer
        self._file = writer.file
        self._execute = execute
        self._execute_alone = execute_alone
        self._flush = flush

    def settle(self, transaction: WriteTransaction, group: list[Request], error: BaseException, attempts: int) -> None:
        """End a failed transaction, and settle `group` according to the outcome.

        After an interrupt, leave the group unsettled.
        """
        transaction.abort()
        if transaction.may_be_committed and not is_map_full(error):
            self.settle_by_looking(transaction, group, error)
        elif attempts and self._find_pages(error, ATTEMPTS - attempts):
            self._execute(group, attempts - 1)
        # LMDB found no page for its free list. But the WAL may already have the records, so look.
        elif transaction.may_be_committed:
            self.settle_by_looking(transaction, group, error)
        elif not is_failure(transaction, error):
            pass
        elif transaction.stage is Stage.NEW or len(group) == 1:
            for request in group:
                request.error = self.refusal(error)
                request.settled = True
        else:
            for request in group:
                self._execute_alone([request])
                self._flush([request])

    # --- full stores ----------------------------------------------------------------------

    def _find_pages(self, error: BaseException, tried: int) -> bool:
        """Try to find free pages after a transaction found none. Return True if there may be some.

        After each failed attempt, try a different way first.
        """
        ways = (self._release_pages_by_checkpoint, self._shrink_map, self._try_to_reuse_freed_pages)
        first = tried % len(ways)
        return any(way(error) for way in (*ways[first:], *ways[:first]))

    def _release_pages_by_checkpoint(self, error: BaseException) -> bool:
        is_short = is_map_full(error) or isinstance(error, NoDiskReserveError)
        if not (is_short and self._writer.checkpointer.needs_checkpoint):
            return False
        with contextlib.suppress(StatelogError):
            self._writer.checkpoint()
            return True
        return False

    def _shrink_map(self, error: BaseException) -> bool:
        return self._writer.disk_reserve.shrink_map(error, self._writer.alone())

    def _try_to_reuse_freed_pages(self, error: BaseException) -> bool:
        """Let LMDB reuse freed pages, and return True if that succeeded.

        LMDB reuses the pages that a transaction frees only in the second transaction after it. If no other pages are
        free, a store without this method would refuse both transactions forever.
        """
        disk_reserve = self._writer.disk_reserve
        if not (is_map_full(error) and disk_reserve.has_freed_pages()):
            return False
        with contextlib.suppress(StatelogError), disk_reserve.in_use():
            requests = [Request(WriteTransaction.write_header_again) for _ in range(_TRANSACTIONS_TO_REUSE)]
            for request in requests:
                self._execute([request], 0)
            disk_reserve.note_all_reusable()
            return all(request.error is None for request in requests)
        return False

    def with_reserve(self, commit: Callable[[], T], write_nothing: Callable[[], object]) -> T:
        """Commit work that helps to free space. It may use the reserve of the quota and of the file.

        Args:
            commit: a function that commits.
            write_nothing: a function that makes an empty commit. After two of them, LMDB can reuse the pages that
                `commit` freed.

        Raises:
            StoreFullError: the reserve is also used up.
        """
        disk_reserve = self._writer.disk_reserve
        with disk_reserve.in_use():
            while True:
                try:
                    return commit()
                except StoreFullError:
                    if not disk_reserve.halve():
                        raise
                finally:
                    with contextlib.suppress(StatelogError):
                        for _ in range(_TRANSACTIONS_TO_REUSE):
                            write_nothing()

    # --- unknown outcomes -----------------------------------------------------------------

    def settle_by_looking(self, transaction: WriteTransaction, group: list[Request], error: BaseException) -> None:
        """Settle `group` after a commit with an unknown outcome, by reading the store."""
        # If the file was replaced, no process will ever read it again, so the commit is lost.
        is_lost = isinstance(error, StoreReplacedError)
        outcome = False if is_lost else self.look(transaction, reopen=is_failure(transaction, error))
        if outcome is False and not is_failure(transaction, error):
            return
        for request in group:
            if request.error is not None:  # The work of this request raised an error and wrote nothing.
                pass
            elif outcome is False:
                request.error = self.refusal(error)
            elif outcome is None:
                path = self._file.path
                message = f"{path}: a commit failed, and it is not known whether it was written: {error}"
                request.error = CommitOutcomeUnknownError(message, path=str(path))
                request.error.__cause__ = error
            request.settled = request.done = True

    def doubt(self, group: list[Request]) -> None:
        """Report to the callers of a group that their commits may be unflushed, because the leader was interrupted."""
        for request in group:
            if request.settled and not request.done and request.error is None:
                if not (request.is_flushed and self._writer.is_flushed_at_commit):
                    continue
                path = self._file.path
                message = f"{path}: a commit was written, but its flush was interrupted: whether it lasts is unknown"
                request.error = CommitOutcomeUnknownError(message, path=str(path))

    def look(self, transaction: WriteTransaction, *, reopen: bool) -> bool | None:
        """Return True if `transaction` is durably in the store, False if it is not, or None if this is unknown.

        The file is flushed first. A failed write of the meta page may still have reached the disk,
        and LMDB then overwrites it without a flush. After a power failure, the refused commit would
        come back, and the next commit would reuse its pages.
        """
        try:
            if reopen:
                self._file.reopen()
            self._writer.checkpoint()
            with ReadTransaction(self._file) as snapshot:
                if not transaction.appended:
                    return False if snapshot.id < transaction.number else None
                found = snapshot.get_log(transaction.first_lsn + len(transaction.appended) - 1)
                return found is not None and found == transaction.appended[-1]
        except Exception as error:
            if not (isinstance(error, StatelogError) or is_of_lmdb(error)):
                raise
            return None

    # --- what a caller is told ------------------------------------------------------------

    def refusal(self, error: BaseException) -> BaseException:
        """Return the exception for one caller of a transaction that was not written.

        Each OS thread gets its own exception object.
        """
        file = self._file
        if self._is_full(error):
            disk_full = self._writer.disk_reserve.is_disk_full or not is_map_full(error)
            refusal: StatelogError = full_error(path=file.path, max_size_bytes=file.max_size_bytes, disk_full=disk_full)
        elif is_of_lmdb(error):
            refusal = file.translate(error)  # type: ignore[arg-type]  # It is an error of LMDB.
        elif isinstance(error, StatelogError):
            refusal = type(error)(error.message, **error.facts)
            refusal.__cause__ = error.__cause__
            return refusal
        else:
            return error
        refusal.__cause__ = error
        return refusal

    def _is_full(self, error: BaseException) -> bool:
        """Return True if the map or the disk was full. LMDB reports a partial write on a full disk as EIO."""
        if is_full(error) or isinstance(error, NoDiskReserveError):
            return True
        is_short = is_of_lmdb(error) and error_code(error) == errno.EIO
        return is_short and self._writer.disk_reserve.is_refused_a_page(self._writer.alone())
