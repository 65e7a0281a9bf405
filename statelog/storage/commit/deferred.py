"""Commits that are in the journal, and in LMDB a little later, many in one transaction.

Half of a small commit is LMDB's transaction: eight pages copied, numbered and written, of which the next commit writes
seven again. But once its record is in the journal, which every opening reads (section 8 of FORMAT.md), a commit is as
durable as its mode says. So while a process is alone with a store and nothing in it reads, its commits wait here,
and LMDB gets them together: before anything reads, writes otherwise, or opens the store, and soon in any case.

Invariants:
    D1  What waits is in the journal's present epoch, in order, and nothing else is behind it.
    D2  While something waits, this process holds the writer lock, and had the store open alone when it took that.
    D3  No transaction begins, no snapshot becomes the steady one and no pin is given back before LMDB has what waits.
    D4  What waits finds its pages in LMDB without a look at the disk, and leaves the reserve.
"""

from __future__ import annotations

import contextlib
import threading
from os import getpid
from threading import get_ident
from typing import TYPE_CHECKING, Any

import lmdb

from statelog.errors import StatelogError, StorageError, UsageError
from statelog.kernels import log_share
from statelog.kernels.marks import DeferredMarks
from statelog.limits import DEFERRED_GROUP_BYTES_MAX, DEFERRED_RECORDS_MAX, DEFERRED_SIZE_BYTES_MAX
from statelog.storage.commit.transaction import Stage
from statelog.storage.commit.waiting import DeferredTransaction, NotDeferrableError, Waiting
from statelog.storage.faults import armed, point
from statelog.storage.file.locks import call_if_free, is_owned
from statelog.storage.file.reading import encode_lsn

if TYPE_CHECKING:
    from statelog.storage.environment import Environment

_COMMITS_TO_PAY = 2
"""So many have to wait together before a reader comes for it to pay: LMDB's transaction then serves one commit."""

_COMMITS_APART = 8
"""Of commits that are made at once after it did not pay, or after one that could not wait."""

_ROWS_MAX = 24
"""Entries of the index that one transaction may put."""

_ROOM_ROWS = _ROWS_MAX + 16
_ROOM_SIZE_BYTES_MIN, _ROOM_SIZE_BYTES_MAX = 128 * 1024, 256 * 1024
_ROOM_SHARE = 4
"""What the file is made long enough for, where it is not: one transaction at the most, after common ones that fill this
share of it, at least so many bytes and at the most so many."""

_ROOM_A_COMMITTER_BYTES = 32 * 1024
"""And so much more for each OS thread that commits together with others."""

_GROUP_SHARE_MAX = 2 * DEFERRED_GROUP_BYTES_MAX + 4096
"""What the records of one transaction take of LMDB's pages: at the worst each a little more than half a page."""

_CHANGE_PAGES = 2
_PAGE_SIZE_BYTES = 4096
_COMMITTING, _COMMITTED = Stage.COMMITTING, Stage.COMMITTED


class Deferred(DeferredMarks):
    """The commits of an environment that wait. All but `settle` is for who holds the write lock.

    Attributes:
        is_on: whether commits may wait, and the writer lock is held for it.
        waiting: those that do.
        number: id of LMDB's last transaction, while it is on.
        transaction: the one that is under way.
        commits: how many transactions have waited, ever.
    """

    def __init__(self, environment: Environment) -> None:
        self.is_on = False
        self.waiting = Waiting()
        self.number = 0
        self.commits = 0
        self._environment = environment
        self.transaction: DeferredTransaction | None = None
        self.journaled: DeferredTransaction | None = None
        """The one that is in the journal, and may not wait yet."""
        self.applied: DeferredTransaction | None = None
        """The last one that LMDB got."""
        self._end = 0
        """Pages that LMDB has taken."""
        self._records_max = self._size_bytes_max = self._pages_max = 0
        """So much may wait."""
        self.has_room = False
        """Whether one more may."""
        self.apart = 0
        """How many commits are still to be made at once."""
        self.lock = threading.RLock()
        """Held by who changes what waits, never during a flush; taken after the environment's `gate`."""
        self.settling_thread = 0
        """Identity of the thread that puts what waits into LMDB."""

    def begin(self, *, is_flushed: bool) -> DeferredTransaction | None:
        """Begin a commit that is to wait; None if it cannot: it is made at once then."""
        if self.settling_thread and self.settling_thread == get_ident():
            return None  # to be refused
        if self.apart:
            self.apart -= 1
            return None
        environment = self._environment
        if getpid() != environment.process_id:
            return None
        transaction = DeferredTransaction(environment, self)
        try:
            if self.is_on and not self.has_room:
                self._make_room()
            environment.active_transactions.add(transaction)  # from here on the map stays where it is
            environment.writer_thread = get_ident()
            self.transaction = transaction
            if environment.is_shut or not (
                self._can_go_on() if self.is_on else self._turn_on(is_flushed=transaction.is_flushed and is_flushed)
            ):
                transaction.abort()
                return None
            with self.lock:
                transaction.waiting = waiting = self.waiting
                transaction.number = 1 + (self.number if waiting.last is None else waiting.last.number)
            if not is_flushed:
                transaction.is_flushed = False
        except BaseException as error:
            transaction.abort()
            if not self.is_on and not environment.is_forked:
                environment.locks.release_writer()  # an interrupt may come as it is taken
            if isinstance(error, StatelogError):  # the commit made at once meets it, too
                return None
            raise
        return transaction

    def _make_room(self) -> None:
        """Give LMDB what waits, and go on."""
        with self._environment.gate, self.lock:
            try:
                self.settling_thread = get_ident()
                self._apply()
                self._lengthen()
            finally:
                self.settling_thread = 0

    def _lengthen(self) -> bool:
        """Have the file long enough for what is to wait (D4), and note how much may; False if it cannot be."""
        environment = self._environment
        ahead = min(max(self._end * _PAGE_SIZE_BYTES // _ROOM_SHARE, _ROOM_SIZE_BYTES_MIN), _ROOM_SIZE_BYTES_MAX)
        of_others = _ROOM_A_COMMITTER_BYTES * (environment.committer.expected - 1)
        size_bytes = _GROUP_SHARE_MAX + ahead + of_others
        has_room = environment.headroom.make_room(self._end, _ROOM_ROWS, size_bytes) >= 0
        self._measure()
        return has_room

    def _can_go_on(self) -> bool:
        """Tell whether one more may wait."""
        environment = self._environment
        return self.has_room and not environment.steady.is_broken and not environment.locks.is_awaited()

    def _look_for_room(self) -> None:
        waiting, size_bytes = self.waiting, self.waiting.size_bytes
        self.has_room = (
            size_bytes <= self._size_bytes_max
            and _CHANGE_PAGES * len(waiting.rows) + size_bytes // _PAGE_SIZE_BYTES <= self._pages_max
            and len(waiting.records) < self._records_max
        )

    def _measure(self) -> None:
        """Note how much may wait before an advance is due, or the file has to be longer (D4)."""
        environment = self._environment
        steady = environment.steady
        room = environment.headroom.room(self._end, _ROWS_MAX, _GROUP_SHARE_MAX)
        self._pages_max = room if steady.held.left() >= 0 else -1  # else not to the last page: many commits hold few
        records, size_bytes = steady.left()
        self._records_max = min(DEFERRED_RECORDS_MAX, records)
        self._size_bytes_max = min(DEFERRED_SIZE_BYTES_MAX, size_bytes)
        self._look_for_room()

    def _turn_on(self, *, is_flushed: bool) -> bool:
        """Take the writer lock for longer than a commit, if nobody else has the store open (D2)."""
        environment = self._environment
        locks, steady = environment.locks, environment.steady
        if steady.is_due():  # the commit made at once begins with an advance
            return False
        self.apart = _COMMITS_APART
        if not (locks.supported and steady.is_at_hand() and environment.keeper.looks_after(is_flushed=is_flushed)):
            return False
        call_if_free(environment.gate, self._turn_on_alone)  # else it is being shut, and waits for this to end
        return self.is_on

    def _turn_on_alone(self) -> None:
        environment = self._environment
        locks, steady = environment.locks, environment.steady
        if environment.is_shut or not locks.try_writer():
            return
        try:
            if not locks.is_open_elsewhere() and steady.is_at_hand() and steady.have_pin():
                info = environment.handles.raw.info()
                self.number, self._end = info["last_txnid"], info["last_pgno"] + 1
                if self._lengthen():
                    self.apart = 0
                    environment.gated = True
                    steady.is_unsteady = True  # which the kernels do not say
                    self.is_on = True
        except lmdb.Error:
            return
        finally:
            if not self.is_on:
                locks.release_writer()

    def take_up(self, *, is_flushed: bool) -> bool:
        """Have commits wait again, behind the last one that LMDB got, or gets now; tell whether there is room for one.

        The caller holds nothing, and sees to it that nothing in this thread commits meanwhile.
        """
        environment = self._environment
        environment.wake.look()
        with environment.write_lock:
            try:
                if self.transaction is None and not environment.is_shut:
                    if self.is_on and not self.has_room:
                        self._make_room()
                    elif not (self.is_on or self.apart):
                        self._turn_on(is_flushed=is_flushed)
            except BaseException as error:
                if not self.is_on:
                    environment.locks.release_writer()  # an interrupt may come as it is taken
                if isinstance(error, StatelogError):  # the commit made at once meets it, too
                    return False
                raise
        return self.is_on and self.has_room

    def commit(self, transaction: DeferredTransaction) -> None:
        """Put the commit into the journal, durably if it says so, and let it wait. On failure, `abort` follows.

        Raises:
            NotDeferrableError: the journal has no place for it; nothing was done.
            StorageError: the journal refuses.
        """
        environment = self._environment
        if environment.is_forked:  # a work that forked goes on in the child, too
            raise environment.forked_error()
        if not transaction.changes:  # all that was to be done was refused
            transaction.abort()
            return
        if not self.is_on or not (
            environment.steady.follows(transaction.first_lsn)
            and 0 < transaction.size_bytes <= DEFERRED_GROUP_BYTES_MAX
            and len(transaction.rows) <= _ROWS_MAX
        ):
            raise NotDeferrableError
        transaction.stage = _COMMITTING
        if not environment.steady.journal(transaction):
            transaction.stage = Stage.BEGUN
            raise NotDeferrableError
        self.journaled = transaction
        self.take_over()
        if armed:
            point("deferred.after_journal")
        callbacks, transaction.callbacks = transaction.callbacks, ()
        for callback in callbacks:
            callback()
        transaction.abort()

    def take_over(self) -> None:
        """Let wait what is in the journal. It may be interrupted, and is then done again from the beginning."""
        with self.lock:
            transaction, waiting = self.journaled, self.waiting
            if transaction is None:
                return
            if waiting.last is None:
                waiting.first_lsn = transaction.first_lsn
            elif waiting.last is not transaction:
                waiting.last.number = 0  # of two, only the later one may be followed
            waiting.records[transaction.first_lsn - waiting.first_lsn :] = transaction.appended
            waiting.rows.update(transaction.rows)
            waiting.count += 1
            waiting.size_bytes += sum(map(log_share, map(len, transaction.appended)))
            waiting.last = transaction
            self._look_for_room()
            steady = self._environment.steady
            steady.at, steady.lsn = steady.end, waiting.first_lsn + len(waiting.records) - 1
            if transaction.is_flushed:
                steady.flushed = steady.lsn
            transaction.stage = _COMMITTED
            self.commits += 1
            self.journaled = None

    def give_up(self, transaction: DeferredTransaction) -> None:
        """Drop a commit that has to be made at once."""
        transaction.abort()
        self.apart = _COMMITS_APART

    def settle(self, *, goes_on: bool = False, is_idle: bool = False) -> None:
        """Give LMDB what waits, and the writer lock back. Called by whoever begins a transaction (D3).

        While a commit is under way, the next may wait again: who only reads does not wait for its flush. With
        `goes_on`, for who only reads, the next may wait in any case: the writer lock is kept until nobody commits. With
        `is_idle` the file is made long enough for what comes next, which then need not.

        Raises:
            StorageError: LMDB refuses. What waits is in the journal: the store is to be closed, and opened again.
            UsageError: called by what has interrupted it.
        """
        with self._environment.gate, self.lock:
            if self.settling_thread:  # it is this one, by a signal handler or a finalizer: LMDB cannot have it twice
                raise self.settling_error()
            try:
                self.settling_thread = get_ident()
                if self.is_on:
                    self._settle(goes_on=goes_on, is_idle=is_idle)
            finally:
                self.settling_thread = 0

    def check_reader(self) -> None:
        """Refuse what has interrupted this thread where it holds `lock`: who has the gate waits for that."""
        if is_owned(self.lock) and not is_owned(self._environment.gate):
            raise self.settling_error()

    def settling_error(self) -> UsageError:
        """Return the error of what interrupts the thread that puts commits into LMDB."""
        message = "a store cannot be used by what interrupts it as it puts commits into LMDB"
        return UsageError(message, path=str(self._environment.path))

    def _settle(self, *, goes_on: bool, is_idle: bool) -> None:
        environment = self._environment
        if goes_on and self.waiting.last is not None and self.waiting.count < _COMMITS_TO_PAY:
            self.apart = _COMMITS_APART
        self._apply()
        if environment.is_shut:  # nobody can begin
            self._turn_off_if_idle()
            return
        if goes_on and not environment.locks.is_awaited():
            return
        if is_idle and not environment.locks.is_awaited():
            with contextlib.suppress(StatelogError, lmdb.Error):  # who commits next meets it, too
                self._lengthen()
        call_if_free(environment.write_lock, self._turn_off_if_idle)

    def _turn_off_if_idle(self) -> None:
        if self.transaction is None:
            self._turn_off()

    def _turn_off(self) -> None:
        environment = self._environment
        self.is_on = False  # first: nothing waits without the lock, wherever an interrupt comes
        environment.gated = environment.is_shut
        if not environment.closed and not environment.is_forked:
            environment.locks.release_writer()

    def _apply(self) -> None:
        """Commit what waits to LMDB, in one transaction. Holds under `gate` and `_lock`."""
        self.take_over()  # what an interrupt came upon
        waiting, environment = self.waiting, self._environment
        if waiting.last is None:
            return
        try:
            number = self._put_all(waiting)
            self._end = environment.handles.raw.info()["last_pgno"] + 1
        except (lmdb.Error, StorageError) as error:
            raise environment.steady.break_off() from error
        size_bytes = sum(map(len, waiting.records))
        environment.steady.held.count(len(waiting.rows) + size_bytes // _PAGE_SIZE_BYTES + 1)
        waiting.last.number = self.number = number
        self.applied = waiting.last
        self.waiting = Waiting()
        self._measure()
        if armed:
            point("deferred.after_settling")

    def _put_all(self, waiting: Waiting) -> int:
        """Put what waits, and commit; return the transaction's id."""
        handles = self._environment.handles
        raw = handles.begin(None, None, True, True)
        try:
            there = self._count_there(raw, waiting)
            first_lsn = waiting.first_lsn + there
            appended = waiting.records[there:]
            keys = map(encode_lsn, range(first_lsn, first_lsn + len(appended)))
            records = zip(keys, appended, strict=True)  # no list of them: one pair after another, in the same memory
            _consumed, put = raw.cursor(handles.log).putmulti(records, append=True)
            if put < len(appended):
                message = f"record {first_lsn + put} does not follow the log's last"
                raise StorageError(message, lsn=first_lsn + put)
            raw.cursor(handles.index).putmulti(sorted(waiting.rows.items()))
            if armed:
                point("deferred.before_lmdb_commit")
            number: int = raw.id()
            raw.commit()
        finally:
            raw.abort()  # nothing, once it is committed
        return number

    def _count_there(self, raw: Any, waiting: Waiting) -> int:
        """Return how many records LMDB has: an interrupt may have come when it had committed them."""
        log = self._environment.handles.log
        there = 0
        while there < len(waiting.records):
            found = raw.get(encode_lsn(waiting.first_lsn + there), None, log)
            if found is None or bytes(found) != waiting.records[there]:
                break
            there += 1
        return there
