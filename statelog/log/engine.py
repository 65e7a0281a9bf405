"""One open store as the rooms above see it: read views, and batches that commit."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from os import getpid
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from statelog.errors import ClosedError, StoreFullError
from statelog.format.record import record_thread
from statelog.kernels import commit_alone, commit_flushed
from statelog.kernels.marks import LastMarks
from statelog.log.batch import Batch, Head, Memory, read_log_end
from statelog.log.care.replay import Replay
from statelog.log.direct import DirectCommit, DirectRollback
from statelog.log.following import follow_others
from statelog.log.names import channel_keys
from statelog.log.nodes import NodeCache, read_node, read_nodes
from statelog.log.view import View
from statelog.storage.commit.requests import Request
from statelog.storage.commit.waiting import NotDeferrableError
from statelog.storage.environment import Environment
from statelog.storage.faults import armed
from statelog.storage.file.locks import call_if_free

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from statelog.log.care.retention import Collector
    from statelog.log.direct import Made
    from statelog.log.events import Digested
    from statelog.log.transaction import Transaction
    from statelog.storage.commit.transaction import WriteTransaction
    from statelog.tree.node import Node

T = TypeVar("T")

_FLUSHES_MAX = 4
"""For so many a commit without a flush of its own waits: others may begin one before it is there."""

_LOOKED_AT_MAX = 256
"""Behind a record: more are not looked at for whose they are."""

_new_request = Request.__new__
"""Without a call of Python's: what each begins with stands in the class."""


class Direct(Protocol):
    """A checkpoint that needs no batch."""

    def make(self, transaction: WriteTransaction, memory: Memory, cache: NodeCache) -> Made | None:
        """Make it, and remember it; None, and nothing was done, where it must be made in a batch."""


class _Last(LastMarks):
    """The last write transaction of this process, and what is remembered of it.

    It holds inside the same transaction, and in the next, as long as nobody else has changed anything: neither another
    process, nor in that same transaction another engine on the file. Else it may be brought up to date (`following`).
    """

    __slots__ = ()

    def __init__(self, memory: Memory, transaction: WriteTransaction) -> None:
        self.memory = memory
        self.transaction = transaction
        self.changes = transaction.changes

    def holds_in(self, transaction: WriteTransaction) -> bool:
        """Whether nothing can have happened since."""
        last = self.transaction
        return self.changes == last.changes and (last is transaction or transaction.follows(last))


class Engine:
    """Reads and writes of one environment. Safe to use from several OS threads."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.cache = NodeCache()
        self._committer = environment.committer
        self._committer.entries |= {Engine._learn_policy.__code__, Engine._take_up.__code__}
        self._fast_path = environment.fast_path
        self._parts = (*environment.fast_path.parts, channel_keys, self.cache)
        self._is_flushed = environment.is_flushed_at_commit
        self.last: _Last | None = None
        """For `_run` and the fast path alone."""
        self._large: dict[tuple[int, int], Digested] = {}
        self.is_closed = False
        self.collectors: dict[int, Collector] = {}
        """Retention at work in this process, by thread."""

    @classmethod
    def open(cls, path: str | os.PathLike[str], **options: Any) -> Engine:
        """Open a file; options and errors are those of `Environment.open`."""
        return cls(Environment.open(path, replay=Replay(), **options))

    @contextmanager
    def read(self) -> Iterator[View]:
        """Open a short read transaction. Never hold it across user code."""
        self._check_open()
        with self.environment.read() as transaction:
            yield View(transaction, self._large)

    def read_node(self, type_: int, digest: bytes, lsn: int, number: int) -> Node:
        """Return a node, from memory or through a read transaction of its own."""
        self._check_open()
        node = self.cache.get(digest, lsn, number)
        if node is not None:
            return node
        with self.environment.read() as transaction:
            return read_node(transaction, self.cache, type_, digest, lsn, number)

    def read_nodes(self, refs: Sequence[tuple[int, bytes, int, int]]) -> list[Node]:
        """Return several nodes through one read transaction."""
        self._check_open()
        with self.environment.read() as transaction:
            return read_nodes(transaction, self.cache, refs)

    def reader_in(self, transaction: Transaction) -> Callable[[int, bytes, int, int], Node]:
        """Return a reader of nodes through a transaction that is open already."""

        def read(type_: int, digest: bytes, lsn: int, number: int) -> Node:
            return read_node(transaction, self.cache, type_, digest, lsn, number)

        return read

    def write(self, work: Callable[[Batch], T], *, may_use_reserve: bool = False) -> T:
        """Run `work` on a batch, commit what it staged, and return its result once it is durable.

        With `may_use_reserve` also in a store that is full, for what helps it out of that.

        `work` may run on another OS thread, and more than once; all it does to the world is
        to stage. What it raises, the caller gets, and nothing is written.
        """
        if self.is_closed:
            self._check_open()
        run = partial(self._run, work, None)
        return self._submit_with_reserve(run) if may_use_reserve else self._committer.submit(run, may_wait=True)

    def commit(self, work: Callable[[Batch], Head], *, is_flushed: bool = True, direct: Direct | None = None) -> Head:
        """Commit a checkpoint as `write` does, and return it.

        Without `is_flushed` it is durable with the next commit that is, or as soon as with `interval`. With `direct`,
        which does the same without a batch where it can, `work` runs only where it cannot.
        """
        if self.is_closed:
            self._check_open()
        return self._committer.submit(partial(self._run, work, direct), is_flushed=is_flushed, may_wait=True)

    def try_commit(self, direct: Direct, *, is_flushed: bool = True) -> Head | None:
        """Commit at once what `commit` does in turn; None, and nothing was done, if somebody is in the way.

        Who waits for no flush waits for another's, behind which it may be done.
        """
        if self.is_closed:
            self._check_open()
        made: Made | Head | None = None
        if isinstance(direct, (DirectCommit, DirectRollback)) and not armed:
            is_flushed_here = is_flushed and self._is_flushed
            made = self._try_kernel(direct, is_flushed=is_flushed_here)
            for _ in range(0 if is_flushed_here else _FLUSHES_MAX):
                if made is not None or self._committer.leader is None or not self._may_wait():
                    break
                with self.environment.write_lock:
                    pass
                made = self._try_kernel(direct, is_flushed=False)
            if made is None and self._take_up(is_flushed=is_flushed_here):
                made = self._try_kernel(direct, is_flushed=is_flushed_here)
        if isinstance(made, Head):
            return made
        if made is None:
            made = self._fast_path.commit(self, direct.make, is_flushed=is_flushed)
            if made is None:
                return None
        rows, data = made[6], made[7]
        if rows is not None and data is not None:
            self.cache.put_nodes(made[1], rows, data)
        return made[0]

    def _try_kernel(self, direct: DirectCommit | DirectRollback, *, is_flushed: bool) -> Made | Head | None:
        made: Made | Head | None
        if is_flushed:
            made = commit_flushed(self._parts, self, direct, _new_request(Request))
        else:
            made = commit_alone(self._parts, self, direct)
        return made

    def _take_up(self, *, is_flushed: bool) -> bool:
        """Have one more commit wait, behind what LMDB has got or gets; False if somebody is in the way."""
        committer, caller, deferred = self._committer, get_ident(), self.environment.deferred
        last = self.last
        if last is None or last.transaction is not (deferred.waiting.last or deferred.applied):
            return False
        if committer.leader is not None or not self._may_wait():
            return False
        if deferred.is_on and deferred.has_room:
            wake = self.environment.wake
            return monotonic() >= wake.look_at_s and wake.look()  # perhaps nothing else was in the way
        try:
            committer.inside.add(caller)  # what interrupts it must not commit: who takes up holds the lock
            return deferred.take_up(is_flushed=is_flushed)
        finally:
            committer.inside.discard(caller)

    def _may_wait(self) -> bool:
        """Tell whether this thread may wait for who commits; in a forked child that is nobody."""
        return getpid() == self.environment.process_id and not self._committer.is_interrupted()

    def is_last(self, lsn: int) -> bool:
        """Tell whether a record is the log's last: from memory, where nobody else can have committed."""
        self._check_open()
        last = self.last
        if last is not None and getpid() == self.environment.process_id:
            end = last.memory.end
            if self._is_newest(last):
                return bool(end.lsn == lsn)
        with self.read() as view:
            return view.transaction.last_lsn() == lsn

    def _is_newest(self, last: _Last) -> bool:
        """Tell whether nobody has committed behind what is remembered, if that takes a look at memory alone."""
        deferred, newest = self.environment.deferred, last.transaction
        if last.changes != newest.changes:
            return False
        if newest is deferred.waiting.last:
            return True
        # The looks come last, and again: another OS thread may commit meanwhile.
        is_kept = deferred.is_on and deferred.applied is newest
        is_last = deferred.number == last.transaction.number if is_kept else newest.is_lmdbs_last()
        return is_last and deferred.waiting.last is None and last.transaction is newest

    def records_of(self, thread: int, lsn: int) -> tuple[int, list[int]] | None:
        """Return the log's last LSN, and those of a thread's records behind `lsn`.

        None if there are too many behind it to look at, or one does not tell whose it is.
        """
        with self.read() as view:
            last, found = view.transaction.last_lsn(), []
            if last - lsn > _LOOKED_AT_MAX:
                return None
            for at in range(lsn + 1, last + 1):
                record = view.transaction.get_log(at)
                of = None if record is None else record_thread(record, at)
                if of is None:
                    return None
                if of == thread:
                    found.append(at)
        return last, found

    def is_unruled(self, thread: int) -> bool:
        """Tell whether a thread is known to have no retention policy, as of this process's last commit."""
        last = self.last
        return last is not None and thread in last.memory.unruled

    def learn_policy(self, thread: int) -> None:
        """Remember that a thread has no retention policy, if so; not while somebody commits."""
        call_if_free(self.environment.write_lock, partial(self._learn_policy, thread))

    def _learn_policy(self, thread: int) -> None:
        committer, caller = self._committer, get_ident()
        try:
            committer.inside.add(caller)  # what interrupts it must not commit: who leads may wait for the lock
            with self.read() as view:
                is_unruled = view.is_alive(thread) and not view.thread(thread).policy
            if is_unruled and self.last is not None:
                self.last.memory.unruled.add(thread)
        finally:
            committer.inside.discard(caller)

    def flush(self) -> None:
        """Make everything committed so far durable. Raises StorageError."""
        self._check_open()
        if getpid() != self.environment.process_id:
            raise self.environment.forked_error()
        self.environment.flush_journal()

    def write_raw(self, work: Callable[[WriteTransaction], T], *, may_use_reserve: bool = True) -> T:
        """Run `work` on a write transaction and commit it: for the care of the store, or records made elsewhere."""
        self._check_open()

        def run(transaction: WriteTransaction) -> T:
            self.last = None
            transaction.is_steady = True
            return work(transaction)

        return self._submit_with_reserve(run) if may_use_reserve else self._committer.submit(run)

    def _submit_with_reserve(self, run: Callable[[WriteTransaction], T]) -> T:
        """Commit; in a full store, from the reserve of its quota or of its file."""
        try:
            return self._committer.submit(run)
        except StoreFullError:
            headroom = self.environment.headroom
            with headroom.reserve():
                while True:
                    try:
                        result = self._committer.submit(run)
                    except StoreFullError:
                        if not headroom.halve():
                            raise
                        self._committer.ripen()
                    else:
                        self._committer.ripen()
                        return result

    def _run(self, work: Callable[[Batch], T], direct: Direct | None, transaction: WriteTransaction) -> T:
        last = self.last
        if last is None or not last.holds_in(transaction):
            last = self._behind_others(last, transaction)
        memory = last.memory
        if direct is not None:
            self.last = None  # until all of it is in
            try:
                made = direct.make(transaction, memory, self.cache)
            except NotDeferrableError:  # raised by a look-up: nothing was done
                self.last = last
                raise
            if made is None:
                self.last = last
            else:
                head: Any = self._put(made, last, transaction)
                return head  # type: ignore[no-any-return]  # which is what `work` would return
        batch = Batch(transaction, self.cache, memory)
        result = work(batch)
        self.last = None
        batch.apply(transaction)
        memory.take_over(batch)
        last.transaction, last.changes = transaction, transaction.changes
        self.last = last
        transaction.callbacks += (batch.remember_nodes,)
        return result

    def _behind_others(self, last: _Last | None, transaction: WriteTransaction) -> _Last:
        """Return what is remembered as others have left it, in this transaction."""
        self.last = None  # until it is up to date
        try:
            is_known = (
                last is not None
                and last.changes == last.transaction.changes
                and follow_others(last.memory, last.transaction, transaction)
            )
        except NotDeferrableError:  # raised by a look-up: nothing was done
            self.last = last
            raise
        memory = last.memory if is_known and last is not None else Memory(read_log_end(transaction))
        last = _Last(memory, transaction)
        self.last = last if is_known else None
        return last

    def _put(self, made: Made, last: _Last, transaction: WriteTransaction) -> Head:
        head, lsn, key, record, page_key, page, rows, data, entries = made
        if rows is not None and data is not None:
            transaction.callbacks += (partial(self.cache.put_nodes, lsn, rows, data),)
        transaction.put_checkpoint(lsn, key, record, {page_key: page, **entries} if entries else {page_key: page})
        last.transaction, last.changes = transaction, transaction.changes
        self.last = last
        return head

    def _check_open(self) -> None:
        if self.is_closed:
            message = f"the store {self.environment.path} is closed"
            raise ClosedError(message, path=str(self.environment.path))

    def close(self) -> None:
        """Give the environment back; other stores of this process may still hold it."""
        self.is_closed = True
        self.cache.clear()
        self.last = None
        self.environment.close()
