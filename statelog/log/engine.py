"""One open store, for the packages above: read views, and batches that commit."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from os import getpid
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

from statelog.errors import ClosedError, StoreFullError, UsageError
from statelog.log.batch import Batch, Head, Memory, read_log_end
from statelog.log.nodes import NodeCache, read_node, read_nodes
from statelog.log.view import View
from statelog.storage.commit.shared import SharedCommitter
from statelog.storage.commit.transaction import Stage
from statelog.storage.file.reading import ReadTransaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from statelog.errors import FencedError
    from statelog.log.transaction import Transaction
    from statelog.storage.commit.shared import SharedLog
    from statelog.storage.commit.transaction import WriteTransaction
    from statelog.storage.environment import Environment
    from statelog.tree.node import Node

T = TypeVar("T")


class Sweep(Protocol):
    """An adapter's clean-up of a thread after retention may have removed versions."""

    def __call__(self, thread_id: str, /, *, at_once: bool) -> bool:
        """Clean up. Without `at_once`, only do so if it is worth a commit. Return True if something was committed."""


class Remote(Protocol):
    """Ships a store to another place. Commits call it."""

    def admit(self) -> None:
        """Return if a commit may begin. Raises RemoteLagError, FencedError."""

    def committed(self) -> None:
        """Take note of a commit. Wait until it is shipped if all commits must wait. Raises the errors of `wait`."""

    def wait(self, lsn: int) -> object:
        """Wait until all records up to an LSN are shipped. Raises FencedError, RemoteError."""

    def close(self) -> None:
        """Ship the remaining records, and stop. The store is closed afterwards, even if this raises."""


class _Last:
    """The last write transaction of this process, and the memory after it.

    The memory is valid in the same transaction and in the next one, if nobody else has changed anything. Others are
    other processes, and other engines of this process that share the transaction.
    """

    __slots__ = ("changes", "memory", "transaction")

    def __init__(self, memory: Memory, transaction: WriteTransaction) -> None:
        self.memory = memory
        self.transaction = transaction
        self.changes = transaction.changes

    def holds_in(self, transaction: WriteTransaction) -> bool:
        """Return True if the memory is valid in `transaction`: nobody has changed anything since.

        LMDB numbers transactions without gaps. A transaction that changes nothing uses no number.
        """
        last = self.transaction
        if self.changes != last.changes:
            return False
        if last is transaction:
            return True
        is_next = transaction.number == last.number + (1 if last.changes else 0)
        return is_next and not transaction.changes and last.stage is Stage.COMMITTED

    def is_kept(self, transaction: WriteTransaction) -> bool:
        """Return True if the changes of the last transaction are stored. Others may have changed the store since."""
        return self.transaction is transaction or self.transaction.stage is Stage.COMMITTED


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


class Engine:
    """Reads and writes of one environment. Safe to use from several OS threads."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.cache = NodeCache()
        self._committer = environment.committer
        self.last: _Last | None = None
        """The memory of the last commit. Only `commit` and `care` change it."""
        self._view_of = partial(View, events={})
        self.is_closed = self._is_given_back = False
        self.collectors: dict[int, Any] = {}
        """The state of retention for each thread, which `care.retention` creates."""
        self.sweepers: dict[str, Sweep] = {}
        """The clean-up functions of adapters, by the adapter's name."""
        self.remote: Remote | None = None
        self._taker = 0
        """The id of the OS thread that appends records of a shared log unchanged; 0 for none."""

    def read(self) -> AbstractContextManager[View]:
        """Open a short read transaction. Never hold it across user code."""
        if self.is_closed:
            self._check_open()
        return cast("AbstractContextManager[View]", ReadTransaction(self.environment, self._view_of))

    def last_commit_id(self) -> int:
        """Return the number of the last commit of any process."""
        if self.is_closed:
            self._check_open()
        with ReadTransaction(self.environment) as transaction:
            return transaction.snapshot_id

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
        return partial(read_node, transaction, self.cache)

    def commit(
        self,
        work: Callable[[Batch], T],
        *,
        staged: Staging | None = None,
        is_flushed: bool = True,
        may_use_reserve: bool = False,
    ) -> T:
        """Run `work` on a batch, commit what it staged, and return its result once it is durable. DESIGN.md section 6.

        Args:
            work: a function that only stages. It may run on another OS thread, in one group with other works, and more
                than once. If it raises, nothing is written, and the caller gets the error.
            staged: the result of `work` over an earlier snapshot. It is committed as it is if nobody has committed
                since; otherwise `work` runs.
            is_flushed: False leaves the flush to the next flushed commit, or to the interval.
            may_use_reserve: True to use the reserve of a full store, for commits that help to free space.
        """

        def run(transaction: WriteTransaction) -> T:
            result: T
            if staged is not None and staged.is_next_in(transaction):
                batch, memory, result = staged.batch, staged.batch.memory, staged.result
            else:
                last = self.last
                if last is not None and last.holds_in(transaction):
                    memory = last.memory
                else:
                    memory = self._memory_in(transaction)  # another process has committed
                batch = Batch(transaction, self.cache, memory)
                result = work(batch)  # if it raises, nothing is written
            self.last = None
            batch.apply(transaction)
            memory.take_over(batch)
            self.last = _Last(memory, transaction)
            transaction.callbacks += (batch.remember_nodes,)
            return result

        if self.is_closed:
            self._check_open()
        remote = self.remote
        if remote is None:
            if may_use_reserve:
                return self._submit(run, is_flushed=is_flushed, may_use_reserve=True)
            return self._committer.submit(run, is_flushed=is_flushed)
        remote.admit()
        result = self._submit(run, is_flushed=is_flushed, may_use_reserve=may_use_reserve)
        remote.committed()
        return result

    def memory_of(self, snapshot_id: int | None) -> Memory | None:
        """Return a copy of what is remembered of a commit of the store; None if it is not this process's last one."""
        last = self.last
        if last is None or not last.transaction.is_commit(snapshot_id) or last.changes != last.transaction.changes:
            return None
        transaction, copied = last.transaction, last.memory.copy()
        is_whole = self.last is last and last.transaction is transaction  # nobody has committed meanwhile
        return copied if is_whole else None

    def head(self, view: View, thread: int, branch: int) -> Head | None:
        """Return the last checkpoint of a branch in a view of the store, or None if the branch has none.

        It is remembered if this process made the last commit that the view contains.
        """
        last = self.last
        if last is not None and last.transaction.is_commit(view.snapshot_id()):
            head = last.memory.heads.get((thread, branch)) if last.changes == last.transaction.changes else None
            if head is not None and self.last is last:  # nobody has changed the memory meanwhile
                return head
        found = view.head_checkpoint(thread, branch)
        return None if found is None else Head(*found)

    def flush(self) -> None:
        """Make everything committed so far durable. Raises StorageError."""
        self._check_open()
        if getpid() != self.environment.process_id:
            raise self.environment.forked_error()
        self.environment.flush_journal()

    def care(self, work: Callable[[WriteTransaction], T], *, may_use_reserve: bool = True) -> T:
        """Run `work` on a write transaction and commit it: what rewrites records, or takes them from elsewhere.

        It ends in an advance, and nothing is remembered of it.
        """

        def run(transaction: WriteTransaction) -> T:
            self.last = None
            transaction.is_steady = True
            return work(transaction)

        self._check_open()
        self.check_alone()
        return self._submit(run, may_use_reserve=may_use_reserve)

    @property
    def is_shared(self) -> bool:
        """Whether many hosts write the log, so that nobody rewrites it."""
        return self.environment.is_shared

    def share(self, log: SharedLog) -> None:
        """Have all commits go by a log that many hosts write. Nobody commits as yet."""
        self._committer = self.environment.committer = SharedCommitter(self.environment, log)

    @contextmanager
    def taking_in(self) -> Iterator[None]:
        """Let records be put into the file as they are, which the shared log has; nobody else writes meanwhile."""
        with self.environment.write_lock:
            former, self._taker = self._taker, get_ident()
            try:
                yield
            finally:
                self._taker = former

    def check_alone(self) -> None:
        """Refuse to rewrite what many hosts share. Raises UsageError. Facts: path."""
        if self.is_shared:
            path = self.environment.path
            message = f"{path} is shared by many hosts: have it alone to let records go, to rewrite them, or to import"
            raise UsageError(message, path=str(path))

    @property
    def is_fenced(self) -> bool:
        """Whether nobody may commit any more."""
        return self.environment.is_fenced

    def fence(self, error: FencedError) -> None:
        """Let nobody commit any more; see `Store.fence`."""
        self._check_open()
        if getpid() != self.environment.process_id:
            raise self.environment.forked_error()
        self.environment.fence_off(error)

    def append(self, work: Callable[[WriteTransaction], T]) -> T:
        """Run `work`, which appends records as they are, with what follows from them (L4): committed as by `commit`."""

        def run(transaction: WriteTransaction) -> T:
            self.last = None
            return work(transaction)

        self._check_open()
        if not isinstance(self._committer, SharedCommitter):
            return self._submit(run)
        if self._taker != get_ident():
            self.check_alone()
        return self._committer.take_in(run)

    def _submit(
        self, run: Callable[[WriteTransaction], T], *, is_flushed: bool = True, may_use_reserve: bool = False
    ) -> T:
        """Commit; where that is allowed in a full store, from the reserve of its quota or of its file."""
        try:
            return self._committer.submit(run, is_flushed=is_flushed)
        except StoreFullError:
            if not may_use_reserve:
                raise
        disk_reserve = self.environment.disk_reserve
        with disk_reserve.in_use():
            while True:
                try:
                    result = self._committer.submit(run, is_flushed=is_flushed)
                except StoreFullError:
                    if not disk_reserve.halve():
                        raise
                    self._committer.reuse_freed_pages()
                else:
                    self._committer.reuse_freed_pages()
                    return result

    def _memory_in(self, transaction: WriteTransaction) -> Memory:
        """Return a memory for a transaction, if others have committed since the last commit of this process."""
        last = self.last
        if last is None or not last.is_kept(transaction):
            return Memory(read_log_end(transaction))
        self.last = None  # No thread may copy it while it changes: see `memory_of`.
        memory = last.memory.caught_up(transaction)
        self.last = _Last(memory, transaction)
        return memory

    def _check_open(self) -> None:
        if self.is_closed:
            message = f"the store {self.environment.path} is closed"
            raise ClosedError(message, path=str(self.environment.path))

    def check_usable(self) -> None:
        """Raise ClosedError if the store is closed, and ForkedError in a child of the process that opened it."""
        self._check_open()
        if getpid() != self.environment.process_id:
            raise self.environment.forked_error()

    def close(self) -> None:
        """Give the environment back; other stores of this process may still hold it."""
        self.is_closed = True
        self.cache.clear()
        self.last = None
        if not self._is_given_back:  # else it was not, by a close that was refused or interrupted
            self.environment.close()
            self._is_given_back = True
