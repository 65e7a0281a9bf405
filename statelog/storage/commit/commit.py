"""Group commit: many callers, one transaction, one flush. The only way to write.

Nobody commits in the background. Of those who want to commit at one time one is the
leader: it takes what the others have queued, runs all their works in one
transaction, commits, and gives each its own result. Whoever comes meanwhile
queues, and the first of them leads next. So under load a flush is shared by as
many as came during the one before; alone, a commit is its own leader.

What a commit must survive, and does: a work that fails (it fails alone), a full
map or disk, a commit of unknown outcome (the store is reopened and looked at), an
interrupt in any of the threads (no follower is lost, leadership is passed on).
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
from collections import deque
from threading import get_ident
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

import lmdb

from statelog.errors import CommitOutcomeUnknownError, StatelogError, StoreReplacedError, UsageError
from statelog.limits import GROUP_COMMITS_MAX
from statelog.storage.commit.requests import NONE, Request, wake_all
from statelog.storage.disk_reserve import NoDiskReserveError
from statelog.storage.faults import armed, point
from statelog.storage.file.failures import error_code, full_error, is_full, is_of_system
from statelog.storage.read_transaction import ReadTransaction
from statelog.storage.write_transaction import Stage, WriteTransaction

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.storage.write_transaction import StoreWriter

T = TypeVar("T")

_PATIENCE_FLUSHES = 1.5
_PATIENCE_S_MAX = 0.005
"""How long, after a group was delivered, its members are expected back: in multiples of a flush, and at most."""

_EMA_WEIGHT = 0.125

_TRANSACTIONS_TO_REUSE = 2
_MAP_ATTEMPTS = 4
"""How often a transaction is run again: pages were let go, LMDB's map got another end, what was freed is old enough."""

_FAILURES = (StatelogError, MemoryError, NoDiskReserveError)
"""Of a commit, besides the system's and LMDB's."""


class Committer:
    """Commits for all threads of this process on one store file.

    Attributes:
        groups: transactions committed or tried.
        commits: works run in them; `commits / groups` is the mean group size.
    """

    def __init__(self, writer: StoreWriter) -> None:
        self.groups = 0
        self.commits = 0
        self._writer = writer
        self.mutex = threading.Lock()
        self.inside: set[int] = set()
        """Threads in `submit`. What they run there (works, finalizers, signal handlers) would wait for themselves."""
        self.leader: Request | None = None
        self._group: list[Request] = NONE
        """Whose works the leader runs, itself first."""
        self.queue: deque[Request] = deque()
        self._assembled = threading.Lock()
        self._assembled.acquire()
        self._awaited = 0
        """Queue length at which the leader wants to be woken; 0 when it does not wait."""
        self.expected = 1
        self._delivered_at_s = 0.0
        self._last: WriteTransaction | None = None
        self._flush_s = 0.0
        """How long groups of several take, of late."""

    def submit(self, work: Callable[[WriteTransaction], T], *, is_flushed: bool = True) -> T:
        """Run `work` in a write transaction, and return its result once that is durable.

        Args:
            work: may be run by another thread, beside the works of others, and again if the
                transaction fails for someone else's reason. It must raise before it writes;
                what it raises reaches its own caller alone.
            is_flushed: False leaves the flush to the next commit or the background flusher, whatever `durability` is.

        Raises:
            UsageError: called from within a work, or by what has interrupted the store where it holds a lock.
            ForkedError, ClosedError, ReadOnlyError, StoreLockedError: as named.
            StoreFullError: quota or disk is used up; nothing was written. Facts: max_size_bytes.
            StorageError: LMDB or the system refused; nothing was written.
            CommitOutcomeUnknownError: it failed, and whether it was written cannot be told.
        """
        writer, file = self._writer, self._writer.file
        if os.getpid() != file.process_id:
            raise file.forked_error()
        thread = get_ident()
        if file.writer_thread == thread or (thread in self.inside and self._is_within()):
            message = "a commit cannot be made from within another commit"
            raise UsageError(message, path=str(file.path))
        writer.refuse_interrupter("a commit cannot be made")
        request = Request(work, is_flushed=is_flushed)
        try:
            self.inside.add(thread)
            with self.mutex:
                if self.leader is None:
                    self.leader = request
                else:
                    self._enqueue(request)
            if self.leader is not request:
                request.gate.acquire()  # type: ignore[union-attr]  # set by _enqueue
            if self.leader is request:
                self._lead(request)
        except BaseException:
            self.leave(request)
            raise
        finally:
            self.inside.discard(thread)
        if request.error is not None:
            error, request.error = request.error, None
            try:
                raise error
            finally:
                del error, request  # no cycle through the traceback
        result: T = request.result
        return result

    def _is_within(self) -> bool:
        """Tell whether `submit` was called from within itself: its mark stays where an interrupt comes as it ends."""
        frame = sys._getframe(1).f_back  # noqa: SLF001 - the documented way to the callers
        while frame is not None and not (frame.f_code is Committer.submit.__code__ and frame.f_locals["self"] is self):
            frame = frame.f_back
        return frame is not None

    # --- leaders and followers --------------------------------------------------

    def _enqueue(self, request: Request) -> None:
        gate = threading.Lock()
        gate.acquire()
        request.gate = gate
        self.queue.append(request)
        if len(self.queue) == self._awaited:
            self._awaited = 0
            self._assembled.release()

    def _lead(self, request: Request) -> None:
        """Run one group, deliver, and pass leadership on."""
        self._group = group = [request]
        try:
            if self.queue or self.expected > 1:
                self._assemble(group)
            started_s = perf_counter()
            with self._writer.file.write_lock:
                try:
                    self._execute_in_turn(group)
                except BaseException:
                    self._writer.file.locks.release_writer()  # again: an interrupt may have come before
                    raise
            self._flush(group)
            if len(group) > 1:
                weight = _EMA_WEIGHT if self._flush_s else 1.0
                self._flush_s += weight * (perf_counter() - started_s - self._flush_s)
            self.groups += 1
            self.commits += len(group)
            if armed:
                point("commit.before_delivery")
        finally:
            self.pass_on(request, group)

    def _flush(self, group: list[Request]) -> None:
        """Make durable what a group has committed, while the next may write already; and tell who waits for it."""
        writer, file, transaction = self._writer, self._writer.file, self._last
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
            with file.write_lock:
                self._settle_by_looking(transaction, group, error)
            if not is_failure(transaction, error):
                raise
        transaction.appended.clear()  # who remembers the transaction need not keep its records
        for call in transaction.calls:
            with contextlib.suppress(Exception):
                call(wake)
        lsn = transaction.first_lsn + records - 1
        if is_flushed or writer.is_shared or writer.wal.flushed_to() >= lsn:
            wake.notify(transaction.wakes, lsn)
        else:
            wake.defer(transaction.wakes, lsn)

    def _assemble(self, group: list[Request]) -> None:
        """Gather the queue into `group`.

        The members of the last group are on their way back, each needing the
        interpreter for an instant; starting without them would make two half groups
        of them for ever. They are given until a flush's time after they were
        released: one who is not back by then is doing something else.
        """
        missing = min(self.expected, GROUP_COMMITS_MAX) - 1 - len(self.queue)
        if missing > 0:
            patience_s = min(_PATIENCE_FLUSHES * self._flush_s, _PATIENCE_S_MAX)
            left_s = self._delivered_at_s + patience_s - perf_counter()
            if left_s > 0:
                self._await_queue(len(self.queue) + missing, left_s)
        with self.mutex:
            if self.queue and self.queue[0] is group[0]:  # who passed on was interrupted before taking it out
                self.queue.popleft()
            while self.queue and len(group) < GROUP_COMMITS_MAX:
                group.append(self.queue[0])  # first into the one, then out of the other: an interrupt loses nobody
                self.queue.popleft()

    def _await_queue(self, length: int, timeout_s: float) -> None:
        self._assembled.acquire(blocking=False)  # a release that came after an earlier time-out
        with self.mutex:
            if len(self.queue) >= length:
                return
            self._awaited = length
        self._assembled.acquire(timeout=timeout_s)
        self._awaited = 0

    def pass_on(self, request: Request, group: list[Request]) -> None:
        """Make the next in the queue the leader, and wake it and those of `group` who are settled.

        Written to be run again by `leave` after an interrupt at any line.
        """
        queue = self.queue
        with self.mutex:
            if len(group) > 1 or queue:
                unsettled = [member for member in group[1:] if not member.settled]
                if unsettled:
                    queue.extendleft(member for member in reversed(unsettled) if member not in queue)
                flushed = sum(each.is_flushed for each in (*group, *queue)) - sum(each.is_flushed for each in unsettled)
                self.expected = max(flushed, 1)
                request.to_wake = [member.gate for member in group[1:] if member.settled]
                self._delivered_at_s = perf_counter()
                if queue:
                    request.to_wake.append(queue[0].gate)
                    self.leader = queue[0]
                    queue.popleft()
                else:
                    self.leader = None
            else:
                self.expected = 1
                self.leader = None
            self._group = NONE
        if request.to_wake:
            wake_all(request.to_wake)
        if armed:
            point("commit.after_delivery")

    def leave(self, request: Request) -> None:
        """Take an interrupted request out, wherever it is, so that its work no longer runs."""
        while True:
            with self.mutex:
                is_leader = self.leader is request
                if request in self.queue:
                    self.queue.remove(request)
                    request.settled = not is_leader
                in_hands = not is_leader and not request.settled and request in self._group
            if is_leader:
                self.pass_on(request, self._group or [request])
                return
            wake_all(request.to_wake)
            if not in_hands:
                return
            request.gate.acquire()  # type: ignore[union-attr]  # released when it is settled, or leads

    # --- one transaction ----------------------------------------------------------

    def _execute_in_turn(self, group: list[Request]) -> None:
        self._execute(group)

    def _check_fence(self) -> None:
        self._writer.file.check_fence()

    def _commit(self, transaction: WriteTransaction) -> None:
        transaction.commit()

    def _execute(self, group: list[Request], attempts: int = _MAP_ATTEMPTS) -> None:  # noqa: C901, PLR0912 - one frame
        """Run and commit the works of `group` in one transaction, and settle every one. Holds under `write_lock`.

        An interrupt leaves them unsettled, and nothing written, unless it came after the commit.
        """
        self._last = transaction = WriteTransaction(self._writer)
        if transaction.is_flushed and not group[0].is_flushed:
            transaction.is_flushed = any(request.is_flushed for request in group)
        try:
            if armed:
                point("commit.before_begin")
            transaction.begin()
            if self._writer.file.moved[0]:
                self._check_fence()
            if armed:
                point("commit.after_begin")
            for request in group:
                changes = transaction.changes
                request.error = None
                try:
                    request.result = request.work(transaction)
                except Exception as error:
                    if transaction.changes != changes or isinstance(error, lmdb.Error):
                        raise  # its writes cannot be told from the others': the transaction is lost
                    request.error = error
                if armed:
                    point("commit.between_works")
            if transaction.changes:
                self._writer.disk_reserve.ensure(transaction)
            if armed:
                point("commit.before_lmdb_commit")
            self._commit(transaction)
            if armed:
                point("commit.after_lmdb_commit")
            for request in group:  # as above
                request.settled = True
        except BaseException as error:
            self.after_failure(transaction, group, error, attempts)
            if not is_failure(transaction, error):
                raise

    def after_failure(
        self, transaction: WriteTransaction, group: list[Request], error: BaseException, attempts: int
    ) -> None:
        """End a failed transaction, and settle `group` by what became of it."""
        transaction.abort()
        if transaction.may_be_committed and not isinstance(error, lmdb.MapFullError):
            self._settle_by_looking(transaction, group, error)
            return
        if attempts and self._find_pages(error, _MAP_ATTEMPTS - attempts):
            self._execute(group, attempts - 1)
            return
        if transaction.may_be_committed:  # no page for the free list: but the journal may have it
            self._settle_by_looking(transaction, group, error)
        elif not is_failure(transaction, error):
            return
        elif transaction.stage is Stage.NEW or len(group) == 1:
            for request in group:
                request.error = self._refusal(error)
                request.settled = True
        else:
            for request in group:
                self._execute_in_turn([request])
                self._flush([request])  # the leader flushes for the last one alone

    def _find_pages(self, error: BaseException, tried: int) -> bool:
        """After a transaction found no page, tell whether there may be some now: each time by another way first."""
        ways = (self._release_pages_by_checkpoint, self._shrink_map, self._try_to_reuse_freed_pages)
        first = tried % len(ways)
        return any(way(error) for way in (*ways[first:], *ways[:first]))

    def _release_pages_by_checkpoint(self, error: BaseException) -> bool:
        """After a transaction found no free page, return True if a checkpoint has released pages."""
        writer = self._writer
        is_short = isinstance(error, lmdb.MapFullError | NoDiskReserveError)
        if not (is_short and writer.checkpointer.needs_checkpoint):
            return False
        with contextlib.suppress(StatelogError):
            writer.checkpoint()
            return True
        return False

    def _shrink_map(self, error: BaseException) -> bool:
        return self._writer.disk_reserve.shrink_map(error, self._writer.alone())

    def reuse_freed_pages(self) -> None:
        """Let the next transaction use the pages that the last one freed: see `_try_to_reuse_freed_pages`."""
        with contextlib.suppress(StatelogError):
            for _ in range(_TRANSACTIONS_TO_REUSE):
                self.submit(WriteTransaction.write_header_again)

    def _try_to_reuse_freed_pages(self, error: BaseException) -> bool:
        """After a transaction found no free page, let LMDB reuse freed pages. Return True if that succeeded.

        LMDB reuses the pages that a transaction frees in the second transaction after it. If no other pages are free,
        both transactions would be refused for ever.
        """
        writer = self._writer
        if not (isinstance(error, lmdb.MapFullError) and writer.disk_reserve.has_freed_pages()):
            return False
        with contextlib.suppress(StatelogError), writer.disk_reserve.in_use():
            requests = [Request(WriteTransaction.write_header_again) for _ in range(_TRANSACTIONS_TO_REUSE)]
            for request in requests:
                self._execute([request], 0)
            writer.disk_reserve.note_all_reusable()
            return all(request.error is None for request in requests)
        return False

    def _settle_by_looking(self, transaction: WriteTransaction, group: list[Request], error: BaseException) -> None:
        """Settle `group` after a commit that neither succeeded nor surely failed."""
        is_lost = isinstance(error, StoreReplacedError)  # whatever is in the former file, nobody will find it
        outcome = False if is_lost else self._look(transaction, reopen=is_failure(transaction, error))
        if outcome is False and not is_failure(transaction, error):
            return
        for request in group:
            if request.error is not None:  # it has refused itself, and wrote nothing
                pass
            elif outcome is False:
                request.error = self._refusal(error)
            elif outcome is None:
                path = self._writer.file.path
                message = f"{path}: a commit failed, and whether it was written cannot be told: {error}"
                request.error = CommitOutcomeUnknownError(message, path=str(path))
                request.error.__cause__ = error
            request.settled = True

    def _look(self, transaction: WriteTransaction, *, reopen: bool) -> bool | None:
        """Tell whether `transaction` is in the store, durably; None if that cannot be told.

        Whatever is found is flushed before it is told. A write of the meta page that failed may have
        reached the disk all the same, and LMDB then writes over it without a flush: a refused
        commit would come back after a power cut, and the next one would reuse its pages.
        """
        file = self._writer.file
        try:
            if reopen:
                file.reopen()
            self._writer.checkpoint()
            return self._is_in_store(transaction)
        except (StatelogError, lmdb.Error):
            return None

    def _is_in_store(self, transaction: WriteTransaction) -> bool | None:
        with ReadTransaction(self._writer.file) as snapshot:
            if not transaction.appended:
                return False if snapshot.id < transaction.number else None
            found = snapshot.get_log(transaction.first_lsn + len(transaction.appended) - 1)
            return found is not None and found == transaction.appended[-1]

    def _refusal(self, error: BaseException) -> BaseException:
        """Return what one caller of a transaction that was not written gets to see."""
        writer, file = self._writer, self._writer.file
        if self._is_full(error):
            disk_full = writer.disk_reserve.is_disk_full or not isinstance(error, lmdb.MapFullError)
            refusal: StatelogError = full_error(path=file.path, max_size_bytes=file.max_size_bytes, disk_full=disk_full)
        elif isinstance(error, lmdb.Error):
            refusal = file.translate(error)
        elif isinstance(error, StatelogError):
            refusal = type(error)(error.message, **error.facts)  # each thread raises its own
            refusal.__cause__ = error.__cause__
            return refusal
        else:
            return error
        refusal.__cause__ = error
        return refusal

    def _is_full(self, error: BaseException) -> bool:
        """Tell whether there was no room. LMDB calls a write of which the disk took a part an input/output error."""
        if is_full(error) or isinstance(error, NoDiskReserveError):
            return True
        is_short = isinstance(error, lmdb.Error) and error_code(error) == errno.EIO
        return is_short and self._writer.disk_reserve.is_refused_a_page(self._writer.alone())


def is_failure(transaction: WriteTransaction, error: BaseException) -> bool:
    """Tell a failure from an interrupt, which a signal handler raises anywhere. Works may raise what they like."""
    if not transaction.may_be_committed:
        return isinstance(error, Exception)
    return isinstance(error, _FAILURES) or is_of_system(error)
