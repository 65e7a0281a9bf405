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

import threading
from heapq import merge
from operator import itemgetter
from os import getpid
from threading import get_ident
from typing import TYPE_CHECKING, Any, NoReturn

import lmdb

from statelog.errors import StatelogError, StorageError, UsageError
from statelog.format.seal import seal, unseal
from statelog.limits import DEFERRED_GROUP_BYTES_MAX, DEFERRED_RECORDS_MAX, DEFERRED_SIZE_BYTES_MAX
from statelog.storage.faults import armed, point
from statelog.storage.locks import call_if_free
from statelog.storage.transactions import ReadTransaction, encode_lsn
from statelog.storage.writing import Stage, WriteTransaction

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from statelog.storage.environment import Environment

_COMMITS_TO_PAY = 4
"""So many have to wait together for it to pay: to begin and to end costs as much as some save."""

_COMMITS_APART = 8
"""Of commits that are made at once after it did not pay."""

_ROWS_MAX = 24
"""Entries of the index that one transaction may put."""

_ROOM_ROWS = _ROWS_MAX + 16
_ROOM_SIZE_BYTES = DEFERRED_GROUP_BYTES_MAX + 64 * 1024
"""What the file is made long enough for, where it is not: one transaction at the most, after some common ones."""

_ROOM_A_COMMITTER_BYTES = 32 * 1024
"""And so much more for each OS thread that commits together with others."""

_CHANGE_PAGES = 2
_PAGE_SIZE_BYTES = 4096
_COMMITTING, _COMMITTED = Stage.COMMITTING, Stage.COMMITTED


class NotDeferrableError(Exception):
    """A commit needs a transaction of LMDB's: nothing was done. It never reaches a caller."""


class _NotBegun:
    """Stands where LMDB's transaction would be."""

    def __getattr__(self, name: str) -> NoReturn:
        raise NotDeferrableError


_NOT_BEGUN = _NotBegun()


class DeferredTransaction(WriteTransaction):
    """Commits that are to wait: what waits counts as committed. It takes nothing away."""

    _raw = _NOT_BEGUN
    reader: ReadTransaction | None = None
    """A look at what does not wait, where one was needed."""
    stage = Stage.BEGUN
    waiting: _Waiting
    """What waited when it began; by now LMDB may have it."""

    def __init__(self, environment: Environment, deferred: Deferred) -> None:
        self._environment = environment  # and no call of super(), as there
        self._borrowed = []
        self.appended = []
        self.is_flushed = environment.is_flushed_at_commit
        self._deferred = deferred
        self.rows: dict[bytes, bytes] = {}
        """What it puts into the index: sealed, by key."""

    def _snapshot_id(self) -> int:
        return self._deferred.number

    def mapped(self) -> tuple[int, int, int]:
        """Return where LMDB's map lies, and which commit is read in it; see `ReadTransaction.mapped`."""
        environment = self._environment
        return environment.map_address, environment.handles.page_size_bytes, self._deferred.number

    def _last_of_lmdb(self) -> ReadTransaction:
        """Return a look at what does not wait."""
        reader = self.reader
        if reader is None:
            reader = ReadTransaction(self._environment)
            reader.begin_ungated()
            self.reader = reader  # not before: `abort` ends it
        return reader

    def get_log(self, lsn: int) -> memoryview | None:
        """Return a record: of this transaction, one that waits, or one of LMDB's."""
        if self.appended and lsn >= self.first_lsn:
            return _nth(self.appended, lsn - self.first_lsn)
        waiting = self.waiting
        if waiting.records and lsn >= waiting.first_lsn:
            return _nth(waiting.records, lsn - waiting.first_lsn)
        return self._last_of_lmdb().get_log(lsn)

    def get_index(self, key: bytes) -> bytes | None:
        """Return the payload under `key`; see `ReadTransaction.get_index`."""
        value = self.rows.get(key) or self.waiting.rows.get(key)
        return self._last_of_lmdb().get_index(key) if value is None else unseal(key, value)

    def scan_index(self, prefix: bytes, *, start: bytes = b"", reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys that begin with `prefix`, with their payloads; see `ReadTransaction.scan_index`."""
        rows = {**self.waiting.rows, **self.rows}
        keys = [
            key for key in rows if key.startswith(prefix) and (not start or (key <= start if reverse else key >= start))
        ]
        ours = ((key, unseal(key, rows[key])) for key in sorted(keys, reverse=reverse))
        lmdbs = self._last_of_lmdb().scan_index(prefix, start=start, reverse=reverse)
        last = None
        for key, payload in merge(ours, lmdbs, key=itemgetter(0), reverse=reverse):  # of equal keys, ours come first
            if key != last:
                yield key, payload
            last = key

    def put(self, lsn: int, records: Sequence[bytes], changes: Mapping[bytes, bytes | None]) -> None:
        """Append records, and put into the index; see `WriteTransaction.put`."""
        rows = {}
        for key, payload in changes.items():
            if payload is None:
                raise NotDeferrableError
            rows[key] = seal(key, payload)
        self._append(lsn, records)
        self.rows.update(rows)
        self.changes += len(rows)

    def put_checkpoint(self, lsn: int, log_key: bytes, record: bytes, rows: Mapping[bytes, bytes]) -> None:  # noqa: ARG002
        """Append a record, and put into the index what is sealed already."""
        if self.appended:
            self._append(lsn, (record,))
        else:  # nearly always
            self.first_lsn = lsn
            self.appended.append(record)
            self.changes += 1
            self.size_bytes = len(record)
        self.rows.update(rows)
        self.changes += len(rows)

    def _append(self, lsn: int, records: Sequence[bytes]) -> None:
        if not self.appended:
            self.first_lsn = lsn
        elif lsn != self.first_lsn + len(self.appended):
            raise NotDeferrableError
        self.appended += records
        self.changes += len(records)
        self.size_bytes += sum(map(len, records))

    def end_reading(self) -> None:
        """Let go of what does not wait."""
        reader, self.reader = self.reader, None
        if reader is not None:
            reader.__exit__(None, None, None)

    def abort(self) -> None:
        """Drop the changes, and let go of everything; harmless after the transaction has ended."""
        deferred, environment = self._deferred, self._environment
        if self.stage is not _COMMITTED:
            self.number = 0  # nothing follows it
        if deferred.transaction is self:
            deferred.transaction = None
        if not environment.is_forked:
            self.end_reading()
            if self in environment.active_transactions:
                environment.writer_thread = 0
                environment.active_transactions.discard(self)


def _nth(records: list[bytes], index: int) -> memoryview | None:
    return memoryview(records[index]) if index < len(records) else None


class _Waiting:
    """What waits for one transaction of LMDB's."""

    def __init__(self) -> None:
        self.first_lsn = 0
        self.records: list[bytes] = []
        """From `first_lsn` on, in order."""
        self.rows: dict[bytes, bytes] = {}
        """Of the index, by key, as the last transaction left them: sealed."""
        self.size_bytes = self.count = 0
        """Of the records; of transactions. Bounds: what is interrupted may count twice."""
        self.last: DeferredTransaction | None = None
        """None: nothing waits."""


class Deferred:
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
        self.waiting = _Waiting()
        self.number = 0
        self.commits = 0
        self._environment = environment
        self.transaction: DeferredTransaction | None = None
        self.journaled: DeferredTransaction | None = None
        """The one that is in the journal, and may not wait yet."""
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
            if self.is_on and len(self.waiting.records) >= self._records_max:
                self._make_room()
            environment.active_transactions.add(transaction)  # from here on the map stays where it is
            environment.writer_thread = get_ident()
            self.transaction = transaction
            if environment.is_shut or not (self._can_go_on() if self.is_on else self._turn_on()):
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
            finally:
                self.settling_thread = 0

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
        room = environment.headroom.room(self._end, _ROWS_MAX, DEFERRED_GROUP_BYTES_MAX)
        self._pages_max = min(steady.held.left(), room)
        records, size_bytes = steady.left()
        self._records_max = min(DEFERRED_RECORDS_MAX, records)
        self._size_bytes_max = min(DEFERRED_SIZE_BYTES_MAX, size_bytes)
        self._look_for_room()

    def _turn_on(self) -> bool:
        """Take the writer lock for longer than a commit, if nobody else has the store open (D2)."""
        environment = self._environment
        locks, steady = environment.locks, environment.steady
        if steady.is_due():  # the commit made at once begins with an advance
            return False
        self.apart = _COMMITS_APART
        if not (locks.supported and environment.keeper.is_at_work and steady.is_at_hand()):
            return False
        call_if_free(environment.gate, self._turn_on_alone)  # else it is being shut, and waits for this to end
        return self.is_on

    def _turn_on_alone(self) -> None:
        environment = self._environment
        locks, steady = environment.locks, environment.steady
        if environment.is_shut or not locks.try_writer():
            return
        try:
            if not locks.is_open_elsewhere() and steady.is_at_hand():
                info = environment.handles.raw.info()
                self.number, self._end = info["last_txnid"], info["last_pgno"] + 1
                size_bytes = _ROOM_SIZE_BYTES + _ROOM_A_COMMITTER_BYTES * (environment.committer.expected - 1)
                if environment.headroom.make_room(self._end, _ROOM_ROWS, size_bytes) >= 0:
                    self._measure()
                    self.apart = 0
                    environment.gated = True
                    self.is_on = True
        except lmdb.Error:
            return
        finally:
            if not self.is_on:
                locks.release_writer()

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
            waiting.size_bytes += transaction.size_bytes
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

    def settle(self) -> None:
        """Give LMDB what waits, and the writer lock back. Called by whoever begins a transaction (D3).

        While a commit is under way, the next may wait again: who only reads does not wait for its flush.

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
                    self._settle()
            finally:
                self.settling_thread = 0

    def settling_error(self) -> UsageError:
        """Return the error of what interrupts the thread that puts commits into LMDB."""
        message = "a store cannot be used by what interrupts it as it puts commits into LMDB"
        return UsageError(message, path=str(self._environment.path))

    def _settle(self) -> None:
        environment = self._environment
        if self.waiting.count < _COMMITS_TO_PAY:
            self.apart = _COMMITS_APART
        self._apply()
        if environment.is_shut:  # nobody can begin
            self._turn_off_if_idle()
            return
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
            try:
                number = self._put_all(waiting)
            except lmdb.MapFullError:  # not by D4; but if that was wrong, there is the reserve
                with environment.headroom.reserve():
                    number = self._put_all(waiting)
            self._end = environment.handles.raw.info()["last_pgno"] + 1
        except (lmdb.Error, StorageError) as error:
            raise environment.steady.break_off() from error
        environment.steady.held.count(len(waiting.rows) + waiting.size_bytes // _PAGE_SIZE_BYTES + 1)
        waiting.last.number = self.number = number
        self.waiting = _Waiting()
        self._measure()
        if armed:
            point("deferred.after_settling")

    def _put_all(self, waiting: _Waiting) -> int:
        """Put what waits, and commit; return the transaction's id."""
        handles = self._environment.handles
        raw = handles.begin(None, None, True, True)
        try:
            put, log, index = raw.put, handles.log, handles.index
            there = self._count_there(raw, waiting)
            for lsn, record in enumerate(waiting.records[there:], waiting.first_lsn + there):
                if not put(encode_lsn(lsn), record, True, True, True, log):
                    message = f"record {lsn} does not follow the log's last"
                    raise StorageError(message, lsn=lsn)
            for key, value in sorted(waiting.rows.items()):
                put(key, value, True, True, False, index)
            if armed:
                point("deferred.before_lmdb_commit")
            number: int = raw.id()
            raw.commit()
        finally:
            raw.abort()  # nothing, once it is committed
        return number

    def _count_there(self, raw: Any, waiting: _Waiting) -> int:
        """Return how many records LMDB has: an interrupt may have come when it had committed them."""
        log = self._environment.handles.log
        there = 0
        while there < len(waiting.records):
            found = raw.get(encode_lsn(waiting.first_lsn + there), None, log)
            if found is None or bytes(found) != waiting.records[there]:
                break
            there += 1
        return there
