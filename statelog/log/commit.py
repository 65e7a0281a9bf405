"""Group commit: one transaction and one flush for the commits of several OS threads. DESIGN.md section 6.

No background thread commits. A caller passes a function, `work`, that writes. A caller that finds no commit under way
becomes the leader: it runs its own `work`, and the `work` of all waiting callers, in one transaction. Each caller gets
its own result. Under load, one flush serves all commits that arrived during the previous flush.

`commit_queue` chooses the leader. `commit_failures` handles failures.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from statelog.errors import UsageError
from statelog.format.guard_key import read_guard_key, unguarded_error
from statelog.log.batch import Batch, RememberedState, read_log_end
from statelog.log.commit_failures import ATTEMPTS, CommitFailures, is_failure
from statelog.log.commit_queue import CommitQueue, Request
from statelog.storage.faults import armed, point
from statelog.storage.file.failures import is_of_lmdb
from statelog.storage.file.locks import is_owned
from statelog.storage.write_transaction import Stage, WriteTransaction

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.storage.store_file import StoreFile
    from statelog.storage.write_transaction import StoreWriter

T = TypeVar("T")

_creating = threading.Lock()

_new = tuple.__new__
"""Constructs a named tuple without calling its `__new__`, which is a slower Python function."""


class Staging(NamedTuple):
    """Records that were staged over a read snapshot, with the LSNs that follow the end of its log.

    Attributes:
        batch: the batch with the staged records.
        snapshot_id: the number of the commit that was read.
        result: the result of `work`.
    """

    batch: Batch
    snapshot_id: int
    result: Any

    def is_next_in(self, transaction: WriteTransaction) -> bool:
        """Return True if nothing was committed since the read, and `transaction` has changed nothing."""
        is_next = not transaction.changes and transaction.number == self.snapshot_id + 1
        return is_next and self.batch.memory.end.lsn == transaction.last_lsn()


class Last(NamedTuple):
    """The store's state after LMDB's transaction `number`, as this process remembers it."""

    memory: RememberedState
    number: int


class Committer:
    """Commits to one store file for all OS threads of this process.

    Attributes:
        groups: the number of groups that were committed.
        commits: the number of requests in these groups. `commits / groups` is the mean size of a group.
        guard_key: the key of the store's fingerprints, or None if the store was never opened with a guard.
        last: what this process remembers of its last commit; None while a transaction changes it, or if unknown.
    """

    def __init__(self, writer: StoreWriter) -> None:
        self.groups = 0
        self.commits = 0
        self.last: Last | None = None
        self.guard_key: bytes | None = None
        self.queue = CommitQueue()
        self.writer = writer
        self._file = writer.file
        self._transaction: WriteTransaction | None = None
        self.failures = CommitFailures(writer, self.execute, self.execute_in_turn, self.flush)

    def submit(self, work: Callable[[WriteTransaction], T], *, is_flushed: bool = True) -> T:
        """Run `work` on a write transaction, and return its result once it is durable.

        Args:
            work: a function that writes. If it raises an error, it must do so before it writes. Only its own caller
                gets the error. See also `commit`.
            is_flushed: False leaves the flush to the next commit or the background flusher, whatever `durability` is.

        Raises:
            The errors of `commit`.
        """
        result: T = self.commit(Request(work, is_flushed=is_flushed))
        return result

    def commit(self, request: Request) -> Any:
        """Run the work of a new request, commit what it wrote, and return its result once it is durable.

        Another OS thread may run the work, in a group with other requests. The work runs again if the transaction fails
        for a reason outside the work.

        Raises:
            UsageError: the caller is the work of another request, or a signal handler or finalizer that has interrupted
                an OS thread which holds a lock of the store.
            ForkedError, ClosedError, ReadOnlyError, StoreLockedError: the store cannot be written in this state.
            StoreFullError: quota or disk is used up; nothing was written. Facts: max_size_bytes.
            StorageError: LMDB or the operating system reports an error; nothing was written.
            CommitOutcomeUnknownError: the commit failed, and it is unknown whether it was written.
        """
        file, queue = self._file, self.queue
        if os.getpid() != file.process_id:
            raise file.forked_error()
        is_inside = is_owned(queue.turn) or is_owned(file.write_lock) or is_owned(file.gate)
        if is_inside or queue.waiting or is_owned(self.writer.wal.flushing):
            self._refuse_nested()
        try:
            if not queue.turn.acquire(blocking=False):
                queue.wait(request)
            if not request.done:
                self._lead(request)
        except BaseException:
            queue.leave(request)
            raise
        if request.error is not None:
            error, request.error = request.error, None
            try:
                raise error
            finally:
                del error, request  # Break the reference cycle through the traceback.
        return request.result

    def _lead(self, request: Request) -> None:
        """Commit `request` and the waiting requests. The caller holds `turn`; this method releases it."""
        queue = self.queue
        try:
            group = queue.begin(request)
            with self._file.write_lock:
                self.execute_in_turn(group)
            self.flush(group)
            for each in group:
                each.done = True
            self.groups += 1
            self.commits += len(group)
            if armed:
                point("commit.before_delivery")
        finally:
            if not request.done:
                self.failures.doubt(queue.group)
            queue.end(request)
        if armed:
            point("commit.after_delivery")

    def execute(self, group: list[Request], attempts: int = ATTEMPTS) -> None:  # noqa: C901, PLR0912 - most branches are fault points
        """Run and commit the requests of `group` in one transaction, and settle each request.

        The caller holds `write_lock`.

        If an interrupt comes before the commit, nothing is written, and the requests stay unsettled.
        """
        writer, file = self.writer, self._file
        batches: list[Batch] = []
        self._transaction = transaction = WriteTransaction(writer)
        if transaction.is_flushed and not group[0].is_flushed:
            transaction.is_flushed = any(request.is_flushed for request in group)
        try:
            if armed:
                point("commit.before_begin")
            transaction.begin()
            if file.moved[0] and not writer.is_shared:
                file.check_fence()
            if armed:
                point("commit.after_begin")
            memory = self._run(transaction, group, batches)
            if transaction.changes:
                writer.disk_reserve.ensure(transaction)
            if armed:
                point("commit.before_lmdb_commit")
            interrupt = self.append_elsewhere(transaction) if writer.is_shared else None
            transaction.commit()
            if memory is not None:
                self.last = _new(Last, (memory, transaction.number if transaction.changes else transaction.number - 1))
            for batch in batches:
                batch.remember_nodes()
            if interrupt is not None:
                raise interrupt  # noqa: TRY301 - it is settled below like any other interrupt
            if armed:
                point("commit.after_lmdb_commit")
            for request in group:
                request.settled = True
        except BaseException as error:
            self.settle(transaction, group, error, attempts)
            if not is_failure(transaction, error):
                raise

    def _run(  # noqa: C901 - it keeps a commit on one screen
        self, transaction: WriteTransaction, group: list[Request], batches: list[Batch]
    ) -> RememberedState | None:
        """Run the work of each request, and write what it stages. Return the state to remember after the commit.

        Args:
            transaction: a transaction that has begun.
            group: the requests. If the work of a request raises before it writes, only that request fails.
            batches: a list to which the applied batches are appended.
        """
        last, memory = self.last, None
        if last is None or last.number != transaction.number - 1:
            # Read the key again, because another process or another opening may have written it.
            self.guard_key = read_guard_key(transaction)
        for request in group:
            changes = transaction.changes
            request.error = None
            try:
                if request.guard is None and self.guard_key is not None and request.cache is not None:
                    raise unguarded_error(self._file.path)  # noqa: TRY301 - only this caller gets it
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
                    transaction.work_error = error
                    raise  # LMDB cannot undo the writes of one request alone, so the whole transaction fails.
                request.error = error
            if armed:
                point("commit.between_works")
        return memory

    execute_in_turn = execute

    def append_elsewhere(self, transaction: WriteTransaction) -> BaseException | None:
        """Append the pending commit to a log that many hosts share. Only `SharedCommitter` overrides this method."""
        raise NotImplementedError

    def settle(self, transaction: WriteTransaction, group: list[Request], error: BaseException, attempts: int) -> None:
        """End a failed transaction, and settle the requests of `group` according to its outcome."""
        self.failures.settle(transaction, group, error, attempts)

    def flush(self, group: list[Request]) -> None:
        """Make the last transaction durable, and notify waiters. Other threads may write during the flush."""
        writer, file, transaction = self.writer, self._file, self._transaction
        if transaction is None or not transaction.changes or transaction.stage is not Stage.COMMITTED:
            return
        wake, records = writer.wake, len(transaction.appended)
        wake.note(records)
        is_flushed = writer.is_flushed_at_commit and any(each.is_flushed and each.error is None for each in group)
        try:
            if is_flushed:
                writer.wal.flush()
            elif not file.locks.file.is_kept():
                writer.wal.check_file()
        except BaseException as error:
            self.last = None
            with file.write_lock:
                self.failures.settle_by_looking(transaction, group, error)
            if not is_failure(transaction, error):
                raise
        self._transaction = None
        for call in transaction.calls:
            with contextlib.suppress(Exception):
                call(wake)
        lsn = transaction.first_lsn + records - 1
        if is_flushed or writer.is_shared or writer.wal.flushed_to() >= lsn:
            wake.notify(transaction.wakes, lsn)
        else:
            wake.defer(transaction.wakes, lsn)

    def _refuse_nested(self) -> None:
        """Raise UsageError if this OS thread is already committing, or was interrupted while it held a store lock."""
        file = self._file
        if file.is_writing() or self.queue.is_in_commit():
            message = "a commit cannot be made from within another commit"
            raise UsageError(message, path=str(file.path))
        self.writer.refuse_interrupter("a commit cannot be made")

    # --- what is remembered ---------------------------------------------------------------

    def _memory_in(self, transaction: WriteTransaction) -> RememberedState:
        """Return the remembered state as of `transaction`, including the commits of other processes."""
        last, self.last = self.last, None  # No OS thread may copy the state while it changes: see `memory_of`.
        return RememberedState(read_log_end(transaction)) if last is None else last.memory.caught_up(transaction)

    def memory_of(self, snapshot_id: int | None) -> RememberedState | None:
        """Return a copy of the state as of commit `snapshot_id`, or None unless it is this process's last commit."""
        last = self.last
        if last is None or last.number != snapshot_id:
            return None
        copied = last.memory.copy()
        return copied if self.last is last else None  # If another thread committed during the copy, discard the copy.


def committer_of(store_file: StoreFile) -> Committer:
    """Return the committer of an open store file. All stores of this process that have the file open share it."""
    with _creating:
        if store_file.committer is None:
            store_file.committer = Committer(store_file.writer)
        committer: Committer = store_file.committer
    return committer
