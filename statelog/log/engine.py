"""One open store as the rooms above see it: read views, and batches that commit."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from os import getpid
from typing import TYPE_CHECKING, Any, TypeVar

from statelog.errors import ClosedError, StoreFullError
from statelog.log.batch import Batch, Head, Memory, find_log_end
from statelog.log.care.replay import Replay
from statelog.log.nodes import NodeCache, read_node, read_nodes
from statelog.log.view import View
from statelog.storage.commit.transaction import COMMITTED
from statelog.storage.environment import Environment

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from statelog.log.care.retention import Collector
    from statelog.log.events import Digested
    from statelog.log.transaction import Transaction
    from statelog.storage.commit.transaction import WriteTransaction
    from statelog.tree.node import Node

T = TypeVar("T")


class _Last:
    """The last write transaction of this process, and what is remembered of it.

    It holds inside the same transaction, and in the next, as long as nobody else has changed anything: neither another
    process, nor in that same transaction another engine on the file.
    """

    __slots__ = ("changes", "memory", "transaction")

    def __init__(self, memory: Memory, transaction: WriteTransaction) -> None:
        self.memory = memory
        self.transaction = transaction
        self.changes = transaction.changes

    def holds_in(self, transaction: WriteTransaction) -> bool:
        """Whether nothing can have happened since."""
        last = self.transaction
        return self.changes == last.changes and (last is transaction or transaction.follows(last))

    def is_kept(self, transaction: WriteTransaction) -> bool:
        """Whether what it has made is there, or may have been changed since."""
        return self.transaction is transaction or self.transaction.stage is COMMITTED


class Engine:
    """Reads and writes of one environment. Safe to use from several OS threads."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.cache = NodeCache()
        self._committer = environment.committer
        self.last: _Last | None = None
        """For `_run` alone."""
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
        run = partial(self._run, work)
        return self._submit_with_reserve(run) if may_use_reserve else self._committer.submit(run)

    def commit(self, work: Callable[[Batch], Head], *, is_flushed: bool = True) -> Head:
        """Commit a checkpoint as `write` does, and return it.

        Without `is_flushed` it is durable with the next commit that is, or as soon as with `interval`.
        """
        if self.is_closed:
            self._check_open()
        return self._committer.submit(partial(self._run, work), is_flushed=is_flushed)

    def memory_of(self, snapshot_id: int | None) -> Memory | None:
        """Return a copy of what is remembered of a commit of the store; None if it is not this process's last one."""
        last = self.last
        if last is None or not last.transaction.is_commit(snapshot_id) or last.changes != last.transaction.changes:
            return None
        transaction, copied = last.transaction, last.memory.copy()
        is_whole = self.last is last and last.transaction is transaction  # nobody has committed meanwhile
        return copied if is_whole else None

    def write_staged(self, staged: Batch | None, snapshot_id: int | None, work: Callable[[Batch], T]) -> T | None:
        """Commit what a batch has staged already; if others have committed since, run `work` instead, as `write` does.

        Args:
            staged: over a short read, and numbered as the next records of the log.
            snapshot_id: the commit that was read; None if `work` is to run in any case.
            work: stages the same.

        Returns:
            The result of `work`, None where it was not run.

        """
        self._check_open()

        def run(transaction: WriteTransaction) -> T | None:
            is_next = snapshot_id is not None and not transaction.changes and transaction.number == snapshot_id + 1
            if staged is None or not is_next or staged.memory.end.lsn != transaction.last_lsn():
                return self._run(work, transaction)
            self.last = None
            staged.apply(transaction)
            staged.memory.take_over(staged)
            self.last = _Last(staged.memory, transaction)
            transaction.callbacks += (staged.remember_nodes,)
            return None

        return self._committer.submit(run)

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

    def _run(self, work: Callable[[Batch], T], transaction: WriteTransaction) -> T:
        last = self.last
        if last is None or not last.is_kept(transaction):
            last = _Last(Memory(find_log_end(transaction)), transaction)
        elif not last.holds_in(transaction):
            last = _Last(last.memory.after_others(find_log_end(transaction)), transaction)
        memory = last.memory
        batch = Batch(transaction, self.cache, memory)
        result = work(batch)
        self.last = None
        batch.apply(transaction)
        memory.take_over(batch)
        last.transaction, last.changes = transaction, transaction.changes
        self.last = last
        transaction.callbacks += (batch.remember_nodes,)
        return result

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
