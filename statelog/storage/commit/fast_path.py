"""A commit alone, right behind one that waits: the way that nearly all commits take, in few calls.

Half of what such a commit took was calls: a request, a leader, a transaction, each for itself. Here the transaction of
the commit before is gone on with.

Invariant D5: what is done here is what `Committer.submit` and `Deferred` would do, with the same locks and marks. Where
anything is not as the last commit left it, nothing is done, and they are asked. Invariant D6: plain writes that need no
flush take one call, `kernels.commit_alone`, which nobody sees half-done; where that does nothing, this is asked. That
one goes on with the last transaction that LMDB got, too, where none waits.
"""

from __future__ import annotations

import os
import time
from os import getpid
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from statelog.limits import DEFERRED_GROUP_BYTES_MAX
from statelog.storage.commit.requests import Request
from statelog.storage.commit.transaction import Stage
from statelog.storage.commit.waiting import DeferredTransaction, NotDeferrableError
from statelog.storage.faults import armed, point
from statelog.storage.file.failures import translate_os
from statelog.storage.journal.journal import journal_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.storage.commit.commit import Committer
    from statelog.storage.commit.transaction import WriteTransaction
    from statelog.storage.environment import Environment

Made = tuple[Any, int, bytes, bytes, bytes, bytes, Any, Any, dict[bytes, bytes] | None]
"""What comes of it; LSN, its key, record; key and sealed value of an index entry; two that are for the caller; and more
such entries, if there are any."""


class Last(Protocol):
    """A caller's last transaction, and what it remembers of it.

    Attributes:
        transaction: that one.
        changes: how much it had changed when the caller was done with it.
        memory: for the next `make`.
    """

    transaction: WriteTransaction
    changes: int
    memory: Any


class Caller(Protocol):
    """Who commits.

    Attributes:
        last: None while that may not be remembered; changed by who holds `Environment.write_lock`.
        cache: of what it has read.
    """

    last: Any
    cache: Any


class FastPath:
    """The way past the committer of an environment."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._committer = environment.committer
        self._committer.entries |= {FastPath.commit.__code__, FastPath.settle.__code__}
        self.parts = (
            self._committer, environment.deferred, environment, environment.keeper, environment.steady,
            environment.wake, time, environment.write_lock, environment.deferred.lock,
            self._committer.mutex, self._committer.queue, self._committer.inside, environment.active_transactions, self,
        )  # fmt: skip
        """What `kernels.commit_alone` and `commit_flushed` look at, but for the names of channels."""

    def commit(  # noqa: C901 - one frame
        self, caller: Caller, make: Callable[[WriteTransaction, Any, Any], Made | None], *, is_flushed: bool
    ) -> Made | None:
        """Commit what `make` makes, and return it; None if `Committer.submit` must: then nothing was done.

        Args:
            caller: whose last commit it goes on from.
            make: called with the transaction, and the caller's memory, which it may change, and cache. It returns
                None, having done nothing, or raises, where it cannot.
            is_flushed: as of `Committer.submit`.

        Raises:
            StorageError, CommitOutcomeUnknownError: as `Committer.submit`.
        """
        environment, committer = self._environment, self._committer
        last, transaction = caller.last, environment.deferred.waiting.last
        thread, now_s = get_ident(), monotonic()
        if (
            last is None
            or transaction is None
            or (now_s >= environment.locks.look_at_s and environment.locks.is_awaited_still())
            or getpid() != environment.process_id
            or thread in (environment.writer_thread, environment.deferred.settling_thread)
            or thread in committer.inside
        ):
            return None
        request = _new_request(Request)
        try:
            committer.inside.add(thread)
            with committer.mutex:
                if committer.leader is None and committer.expected == 1:
                    committer.leader = request
            if committer.leader is not request:
                return None
            try:
                with environment.write_lock:
                    try:
                        made = self._extend(transaction, caller, last, make, is_flushed=is_flushed)
                    except BaseException:
                        self._end(transaction)  # once more: an interrupt may come as it ends
                        raise
                if made is not None:
                    committer.count()
                    if now_s >= environment.wake.look_at_s:
                        environment.wake.notify()
                    if armed:
                        point("commit.before_delivery")
            finally:
                with committer.mutex:
                    if not committer.queue:
                        committer.leader = None
                if committer.leader is request:
                    committer.pass_on(request, [request])
        except BaseException:
            committer.leave(request)
            raise
        finally:
            committer.inside.discard(thread)
        return made

    def _extend(  # noqa: C901 - one frame
        self,
        transaction: DeferredTransaction,
        caller: Caller,
        last: Last,
        make: Callable[[WriteTransaction, Any, Any], Made | None],
        *,
        is_flushed: bool,
    ) -> Made | None:
        """Go on with a transaction that waits. Holds under `write_lock`."""
        environment = self._environment
        deferred, keeper = environment.deferred, environment.keeper
        is_in_journal = False
        is_flushed = is_flushed and environment.is_flushed_at_commit
        try:
            deferred.transaction = transaction  # from here on it stays on
            environment.active_transactions.add(transaction)
            environment.writer_thread = get_ident()
            if (
                environment.is_shut
                or deferred.waiting.last is not transaction
                or caller.last is not last
                or last.transaction is not transaction
                or last.changes != transaction.changes
                or not transaction.number
                or not deferred.has_room
                or deferred.apart
                or not keeper.is_at_work
                or not (is_flushed or keeper.flushes)
                or environment.steady.is_broken
            ):
                return None
            transaction.waiting = deferred.waiting
            caller.last = None  # until all of it is in
            made = make(transaction, last.memory, caller.cache)
            if made is None:
                caller.last = last
                return None
            lsn, record = made[1], made[3]
            size_bytes = len(record)
            if environment.is_forked or size_bytes > DEFERRED_GROUP_BYTES_MAX:
                return None
            rows = {made[4]: made[5], **made[8]} if made[8] else {made[4]: made[5]}
            transaction.changes += 1 + len(rows)
            transaction.first_lsn, transaction.size_bytes = lsn, size_bytes
            transaction.appended, transaction.rows = [record], rows
            transaction.is_flushed = is_flushed
            if armed:
                point("deferred.before_journal")
            is_in_journal = True  # perhaps
            if not environment.steady.append(lsn, transaction.appended, is_flushed=is_flushed):
                return None
            deferred.journaled = transaction
            deferred.take_over()
            last.changes = transaction.changes
            caller.last = last
            if armed:
                point("deferred.after_journal")
        except NotDeferrableError:  # raised by a look-up: nothing was done
            caller.last = last
            return None
        except BaseException as error:
            self._end(transaction)
            if is_in_journal:
                self._settle(transaction, error)
            elif isinstance(error, Exception):
                return None  # the committer will meet it, too
            else:
                raise
        finally:
            self._end(transaction)
        return made

    def settle(
        self,
        committer: Committer,  # noqa: ARG002 - by which `Committer.submit` knows its own frames
        transaction: DeferredTransaction,
        failure: BaseException | int,
    ) -> None:
        """Find out what became of the commit that `kernels.commit_flushed` has failed with; return if it is in.

        Args:
            committer: the environment's.
            transaction: its own.
            failure: what came in between, or the error's number of the flush.

        Raises:
            StorageError, CommitOutcomeUnknownError: as `Committer.submit`.
        """
        if isinstance(failure, int):
            error = OSError(failure, os.strerror(failure))
            failure = translate_os(error, path=journal_path(self._environment.path))
        self._end(transaction)
        self._settle(transaction, failure)

    def _end(self, transaction: DeferredTransaction) -> None:
        """Take the marks away; harmless when repeated."""
        environment = self._environment
        if environment.is_forked:
            return
        if transaction.reader is not None:
            transaction.end_reading()
        environment.deferred.transaction = None
        environment.writer_thread = 0
        environment.active_transactions.discard(transaction)

    def _settle(self, transaction: DeferredTransaction, failure: BaseException) -> None:
        """Find out what became of a commit that failed, and raise what that calls for; return if it is in."""
        environment = self._environment
        failed, request = DeferredTransaction(environment, environment.deferred), _new_request(Request)
        failed.stage = Stage.COMMITTING
        failed.first_lsn, failed.appended = transaction.first_lsn, transaction.appended
        try:
            self._committer.after_failure(failed, [request], failure, 0)
            if not (request.settled and isinstance(failure, Exception)):
                raise failure
            if request.error is not None:
                raise request.error
        finally:
            del failure, request  # no cycle through the traceback


_new_request = Request.__new__
"""Without a call of Python's: what each begins with stands in the class."""
