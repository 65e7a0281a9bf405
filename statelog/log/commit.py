"""The commit: works of any number of OS threads, one transaction, one flush. DESIGN.md section 6.

Nobody commits in the background. A caller that finds nobody committing leads: it runs its own work and those of all
callers that wait, commits them in one transaction, flushes, and gives each caller its own result. So under load a flush
serves as many commits as came during the flush before.

`commit_queue` decides who leads. `commit_failures` has what follows a failure.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from statelog.errors import UsageError
from statelog.format.guard_key import read_guard_key, unguarded_error
from statelog.log.batch import Batch, Memory, read_log_end
from statelog.log.commit_failures import ATTEMPTS, CommitFailures, is_failure
from statelog.log.commit_queue import CommitQueue, Request
from statelog.storage.commit.transaction import Stage, WriteTransaction
from statelog.storage.faults import armed, point
from statelog.storage.file.failures import is_of_lmdb
from statelog.storage.file.locks import is_owned

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.storage.environment import Environment

T = TypeVar("T")

_creating = threading.Lock()

_new = tuple.__new__
"""Creates a named tuple without calling its `__new__` in Python."""


class Staging(NamedTuple):
    """Records that were staged over a short read, numbered as the next records of the log.

    Attributes:
        batch: the batch with the staged records.
        snapshot_id: the number of the commit that was read.
        result: the result of `work`.
    """

    batch: Batch
    snapshot_id: int
    result: Any

    def is_next_in(self, transaction: WriteTransaction) -> bool:
        """Return True if nothing was committed since, and `transaction` has changed nothing."""
        is_next = not transaction.changes and transaction.number == self.snapshot_id + 1
        return is_next and self.batch.memory.end.lsn == transaction.last_lsn()


class Last(NamedTuple):
    """What this process remembers of the store as LMDB's transaction `number` left it."""

    memory: Memory
    number: int


class Committer:
    """Commits of all OS threads of this process to one store file.

    Attributes:
        groups: the number of transactions that were committed or tried.
        commits: the number of works that were run in them. `commits / groups` is the mean size of a group.
        guard_key: the key of the store's fingerprints, or None if the store was never opened with a guard.
        last: None while a transaction changes it, and while nothing is known.
    """

    def __init__(self, file: Environment) -> None:
        self.groups = 0
        self.commits = 0
        self.last: Last | None = None
        self.guard_key: bytes | None = None
        self.queue = CommitQueue()
        self.file = file
        self._transaction: WriteTransaction | None = None
        self.failures = CommitFailures(file, self.execute, self.execute_in_turn, self.flush)

    def submit(self, work: Callable[[WriteTransaction], T], *, is_flushed: bool = True) -> T:
        """Run `work` on a write transaction, and return its result once it is durable.

        Args:
            work: must raise before it writes. What it raises reaches its own caller alone. See also `commit`.
            is_flushed: False leaves the flush to the next commit or the background flusher, whatever `durability` is.

        Raises:
            The errors of `commit`.
        """
        result: T = self.commit(Request(work, is_flushed=is_flushed))
        return result

    def commit(self, request: Request) -> Any:
        """Run the work of a new request, commit what it wrote, and return its result once it is durable.

        Another OS thread may run the work, beside the works of others, and again if the transaction fails for another
        reason.

        Raises:
            UsageError: this is called from within a work, or by a signal handler or a finalizer that has interrupted
                the store where it holds a lock.
            ForkedError, ClosedError, ReadOnlyError, StoreLockedError: as named.
            StoreFullError: quota or disk is used up; nothing was written. Facts: max_size_bytes.
            StorageError: LMDB or the operating system refused; nothing was written.
            CommitOutcomeUnknownError: it failed, and whether it was written cannot be told.
        """
        file, queue = self.file, self.queue
        if os.getpid() != file.process_id:
            raise file.forked_error()
        if queue.waiting or is_owned(queue.turn, file.write_lock, file.gate, file.wal.flushing):
            self._refuse_nested()
        try:
            if not queue.turn.acquire(blocking=False):
                queue.wait(request)
            if not request.settled:
                self._lead(request)
        except BaseException:
            queue.leave(request)
            raise
        if request.error is not None:
            error, request.error = request.error, None
            try:
                raise error
            finally:
                del error, request  # no cycle through the traceback
        return request.result

    def _lead(self, request: Request) -> None:
        """Commit the works of `request` and of those that wait. The caller has the turn, and loses it."""
        file, queue = self.file, self.queue
        try:
            group = queue.begin(request)
            with file.write_lock:
                try:
                    self.execute_in_turn(group)
                except BaseException:
                    file.locks.release_writer()  # again: an interrupt may have come before
                    raise
            self.flush(group)
            self.groups += 1
            self.commits += len(group)
            if armed:
                point("commit.before_delivery")
        finally:
            queue.end(request)
        if armed:
            point("commit.after_delivery")

    def execute(self, group: list[Request], attempts: int = ATTEMPTS) -> None:  # noqa: C901, PLR0912 - most are fault points
        """Run and commit the works of `group` in one transaction, and settle each. The caller holds `write_lock`.

        An interrupt leaves them unsettled, and nothing written, unless it came after the commit.
        """
        file = self.file
        batches: list[Batch] = []
        self._transaction = transaction = WriteTransaction(file)
        if transaction.is_flushed and not group[0].is_flushed:
            transaction.is_flushed = any(request.is_flushed for request in group)
        try:
            if armed:
                point("commit.before_begin")
            transaction.begin()
            if file.moved[0] and not file.is_shared:
                file.check_fence()
            if armed:
                point("commit.after_begin")
            memory = self._run(transaction, group, batches)
            if transaction.changes:
                file.disk_reserve.ensure(transaction)
            if armed:
                point("commit.before_lmdb_commit")
            interrupt = self.append_elsewhere(transaction) if file.is_shared else None
            transaction.commit()
            if memory is not None:
                self.last = _new(Last, (memory, transaction.number if transaction.changes else transaction.number - 1))
            for batch in batches:
                batch.remember_nodes()
            if interrupt is not None:
                raise interrupt  # noqa: TRY301 - settled below, like one that comes by itself
            if armed:
                point("commit.after_lmdb_commit")
            for request in group:
                request.settled = True
        except BaseException as error:
            self.settle(transaction, group, error, attempts)
            if not is_failure(transaction, error):
                raise

    def _run(  # noqa: C901 - a commit on one screen
        self, transaction: WriteTransaction, group: list[Request], batches: list[Batch]
    ) -> Memory | None:
        """Run works, and put what they stage into the transaction. Return what is then known of the store.

        Args:
            transaction: has begun.
            group: a work that raises before it writes fails alone: its request has the error.
            batches: gets the batches that were applied.
        """
        last, memory = self.last, None
        if last is None or last.number != transaction.number - 1:
            self.guard_key = read_guard_key(transaction)  # Another process, or an opening, may have written it.
        for request in group:
            changes = transaction.changes
            request.error = None
            try:
                if request.guard is None and self.guard_key is not None and request.cache is not None:
                    raise unguarded_error(self.file.path)  # noqa: TRY301 - this caller's alone
                if request.cache is None:
                    self.last = last = memory = None
                    request.result = request.work(transaction)
                else:
                    staged = request.staged
                    if staged is not None and staged.is_next_in(transaction):
                        batch, memory, request.result = staged.batch, staged.batch.memory, staged.result
                    else:
                        if memory is None:
                            is_next = last is not None and last.number == transaction.number - 1
                            memory = last.memory if is_next else self._memory_in(transaction)  # type: ignore[union-attr]
                        batch = Batch(transaction, request.cache, memory)
                        if request.guard is not None:
                            batch.guard = request.guard
                        request.result = request.work(batch)
                    self.last = None
                    batch.apply(transaction)
                    memory.take_over(batch)
                    batches.append(batch)
            except Exception as error:
                if transaction.changes != changes or is_of_lmdb(error):
                    raise  # Its writes cannot be told from those of others: the transaction is lost.
                request.error = error
            if armed:
                point("commit.between_works")
        return memory

    execute_in_turn = execute

    def append_elsewhere(self, transaction: WriteTransaction) -> BaseException | None:
        """Append what is about to be committed to the log that many hosts share: see `shared_commit`."""
        raise NotImplementedError

    def settle(self, transaction: WriteTransaction, group: list[Request], error: BaseException, attempts: int) -> None:
        """End a failed transaction, and settle `group` by what became of it."""
        self.failures.settle(transaction, group, error, attempts)

    def flush(self, group: list[Request]) -> None:
        """Make durable what the last transaction has committed, and notify waiters. Others may write meanwhile."""
        file, transaction = self.file, self._transaction
        if transaction is None or not transaction.changes or transaction.stage is not Stage.COMMITTED:
            return
        wake, records = file.wake, len(transaction.appended)
        wake.note(records)
        is_flushed = file.is_flushed_at_commit and any(each.is_flushed and each.error is None for each in group)
        try:
            if is_flushed:
                file.wal.flush()
            elif not file.locks.file.is_kept():
                file.wal.check_file()
        except BaseException as error:
            with file.write_lock:
                self.failures.settle_by_looking(transaction, group, error)
            if not is_failure(transaction, error):
                raise
        transaction.appended.clear()  # `self._transaction` need not keep the records.
        for call in transaction.calls:
            with contextlib.suppress(Exception):
                call(wake)
        lsn = transaction.first_lsn + records - 1
        if is_flushed or file.is_shared or file.wal.flushed_to() >= lsn:
            wake.notify(transaction.wakes, lsn)
        else:
            wake.defer(transaction.wakes, lsn)

    def _refuse_nested(self) -> None:
        """Raise UsageError if this OS thread commits already, or has interrupted the store where it holds a lock."""
        file = self.file
        if file.is_writing() or self.queue.is_in_commit():
            message = "a commit cannot be made from within another commit"
            raise UsageError(message, path=str(file.path))
        file.refuse_interrupter("a commit cannot be made")

    # --- what is remembered ---------------------------------------------------------------

    def _memory_in(self, transaction: WriteTransaction) -> Memory:
        """Return what is known of the store if others have changed it since the last commit, or in this transaction."""
        last, self.last = self.last, None  # No OS thread may copy it while it changes: see `memory_of`.
        return Memory(read_log_end(transaction)) if last is None else last.memory.caught_up(transaction)

    def memory_of(self, snapshot_id: int | None) -> Memory | None:
        """Return a copy of what is remembered of a commit, or None if it is not the last one of this process."""
        last = self.last
        if last is None or last.number != snapshot_id:
            return None
        copied = last.memory.copy()
        return copied if self.last is last else None  # else somebody has committed meanwhile


def committer_of(file: Environment) -> Committer:
    """Return the committer of an open store file. All stores of this process that have the file open share it."""
    with _creating:
        if file.committer is None:
            file.committer = Committer(file)
        committer: Committer = file.committer
    return committer
