"""The engine of one open store: read views, and batches that commit. The higher packages use it."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from os import getpid
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from statelog.errors import ClosedError, StoreFullError, UsageError
from statelog.format.guard_key import read_guard_key, unguarded_error
from statelog.log.batch import Head
from statelog.log.commit import committer_of
from statelog.log.commit_queue import Request
from statelog.log.nodes import NodeCache, read_node, read_nodes
from statelog.log.shared_commit import SharedCommitter
from statelog.log.view import View
from statelog.storage.file.file_identity import purged_error
from statelog.storage.read_transaction import ReadTransaction
from statelog.storage.write_transaction import WriteTransaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from statelog.errors import FencedError
    from statelog.guard.hook import Redactor
    from statelog.log.batch import Batch
    from statelog.log.commit import Staging
    from statelog.log.shared_commit import SharedLog
    from statelog.log.transaction import IndexedLog
    from statelog.storage.store_file import StoreFile
    from statelog.tree.node import Node

T = TypeVar("T")


class Sweep(Protocol):
    """An adapter's function that cleans up a thread after retention may have removed versions."""

    def __call__(self, thread_id: str, /, *, at_once: bool) -> bool:
        """Clean up a thread. If `at_once` is False, do so only if the clean-up is worth a commit.

        Return True if something was committed.
        """


class ChannelLimits(Protocol):
    """Limits on the sizes of channels. Commits to threads call these methods."""

    def check(self, batch: Batch, thread_id: str, head: Head) -> None:
        """Check the sizes of a staged checkpoint. Raises SizeLimitError."""

    def warn(self, thread_id: str) -> None:
        """Emit the warnings about a thread's committed checkpoints."""


class Shipper(Protocol):
    """Ships a store's records to a remote copy. Commits call these methods."""

    def admit(self) -> None:
        """Check that a commit may begin. Raises RemoteLagError, FencedError."""

    def committed(self) -> None:
        """Register a commit. If commits must wait for shipping, wait for this one. Raises the errors of `wait`."""

    def wait(self, lsn: int) -> object:
        """Wait until all records up to an LSN are shipped. Raises FencedError, RemoteError."""

    def close(self) -> None:
        """Ship the remaining records, and stop. The store is closed afterwards, even if this raises."""


class Engine:
    """Reads and writes one store file. Several OS threads may use an engine at once."""

    def __init__(self, store_file: StoreFile) -> None:
        self.store_file = store_file
        self.cache = NodeCache()
        self.committer = committer_of(store_file)
        self._view_of = partial(View, events={})
        self.is_closed = self._is_given_back = self._is_purged = False
        store_file.engines.add(self)
        self.collectors: dict[int, Any] = {}
        """The retention state of each thread, created by `care.retention`."""
        self.migrated: Any = None
        """A cache of the states that `store.migration` has migrated to a declared schema version."""
        self.entry_schemas: Any = None
        """The schemas that `Board.schema` has declared (`store.entry_versions.EntrySchemas`), or None."""
        self.sweepers: dict[str, Sweep] = {}
        """The clean-up functions of adapters, keyed by the adapter's name."""
        self.guard: Redactor | None = None
        """The redactor that keeps secrets out of the file, or None if the store was opened without a guard."""
        self.is_for_records = False
        """Whether the store was opened only to move records, which needs no guard."""
        self.limits: ChannelLimits | None = None
        """The limits on the sizes of channels, or None if the program has set none."""
        self.remote: Shipper | None = None
        self._taker = 0
        """The id of the OS thread that imports records of a shared log unchanged (`taking_in`), or 0."""

    def read(self) -> AbstractContextManager[View]:
        """Open a short read transaction. Do not run user code while it is open."""
        if self.is_closed:
            self._check_open()
        return cast("AbstractContextManager[View]", ReadTransaction(self.store_file.lmdb_file, self._view_of))

    def last_commit_id(self) -> int:
        """Return the number of the last commit of any process."""
        if self.is_closed:
            self._check_open()
        with ReadTransaction(self.store_file.lmdb_file) as transaction:
            return transaction.snapshot_id

    def read_node(self, type_: int, digest: bytes, lsn: int, number: int) -> Node:
        """Return a node from memory or through a new read transaction."""
        self._check_open()
        node = self.cache.get(digest, lsn, number)
        if node is not None:
            return node
        with self.store_file.read() as transaction:
            return read_node(transaction, self.cache, type_, digest, lsn, number)

    def read_nodes(self, refs: Sequence[tuple[int, bytes, int, int]]) -> list[Node]:
        """Return several nodes through one read transaction."""
        self._check_open()
        with self.store_file.read() as transaction:
            return read_nodes(transaction, self.cache, refs)

    def reader_in(self, transaction: IndexedLog) -> Callable[[int, bytes, int, int], Node]:
        """Return a function that reads nodes through an open transaction."""
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
            work: a function that only stages. It may run on another OS thread, in one group with other commits, and
                more than once. If it raises, nothing is written, and the caller gets the error.
            staged: the result of `work` over an earlier snapshot. It is committed unchanged if nobody has committed
                since; otherwise `work` runs.
            is_flushed: False leaves the flush to the next flushed commit, or to the background flusher.
            may_use_reserve: True to use the reserve of a full store, for commits that help to free space.
        """
        if self.is_closed:
            self._check_open()
        remote = self.remote
        if remote is None and not may_use_reserve:
            request = Request(work, self.cache, staged, is_flushed=is_flushed)
            if self.guard is not None:
                request.guard = self.guard
            result: T = self.committer.commit(request)
            return result
        if remote is not None:
            remote.admit()

        def make() -> Request:
            made = Request(work, self.cache, staged, is_flushed=is_flushed)
            made.guard = self.guard
            return made

        result = self._commit(make, may_use_reserve=may_use_reserve)
        if remote is not None:
            remote.committed()
        return result

    def head(self, view: View, thread: int, branch: int) -> Head | None:
        """Return the last checkpoint of a branch in a view of the store, or None if the branch has none.

        If this process made the last commit in the view, the head comes from memory.
        """
        committer = self.committer
        last = committer.last
        if last is not None and last.number == view.snapshot_id():
            head = last.memory.heads.get((thread, branch))
            # Use the head only if no other OS thread has committed and changed the remembered heads since.
            if head is not None and committer.last is last:
                return head
        found = view.head_checkpoint(thread, branch)
        return None if found is None else Head(*found)

    def flush(self) -> None:
        """Make all commits so far durable. Raises StorageError."""
        self._check_open()
        if getpid() != self.store_file.lmdb_file.process_id:
            raise self.store_file.lmdb_file.forked_error()
        self.store_file.flush_journal()

    def care(self, work: Callable[[WriteTransaction], T], *, may_use_reserve: bool = True) -> T:
        """Run `work`, which rewrites or imports records, on a write transaction, and commit it.

        The commit ends with a checkpoint of the WAL. The committer remembers no state after this commit.
        """

        def run(transaction: WriteTransaction) -> T:
            transaction.rewrites = True
            return work(transaction)

        self._check_open()
        self.check_alone()
        result: T = self._commit(partial(Request, run), may_use_reserve=may_use_reserve)
        return result

    @property
    def is_shared(self) -> bool:
        """Whether several hosts write to the log. No host may rewrite such a log."""
        return self.store_file.writer.is_shared

    def share(self, log: SharedLog) -> None:
        """Send all commits through a log that many hosts write. Call this before the first commit."""
        self.committer = self.store_file.committer = SharedCommitter(self.store_file.writer, log)

    @contextmanager
    def taking_in(self) -> Iterator[None]:
        """Let this thread write records of the shared log into the file unchanged, while no other thread writes."""
        with self.store_file.lmdb_file.write_lock:
            former, self._taker = self._taker, get_ident()
            try:
                yield
            finally:
                self._taker = former

    def check_alone(self) -> None:
        """Raise UsageError if many hosts share the log, because its records cannot be rewritten. Facts: path."""
        if self.is_shared:
            path = self.store_file.path
            message = (
                f"{path} is shared by many hosts: one host must have it alone to remove, rewrite or import records"
            )
            raise UsageError(message, path=str(path))

    @property
    def is_fenced(self) -> bool:
        """Whether the store accepts no more commits."""
        return self.store_file.lmdb_file.is_fenced

    def shut_off(self, error: FencedError) -> None:
        """Forbid all later commits; see `Store.shut_off`."""
        self._check_open()
        if getpid() != self.store_file.lmdb_file.process_id:
            raise self.store_file.lmdb_file.forked_error()
        self.store_file.fence_off(error)

    def check_guarded(self, transaction: WriteTransaction) -> None:
        """Raise GuardError before an import if the store was ever opened with a guard, and this engine has none.

        The check does not apply to a shared log, which has the records already.
        """
        is_exempt = self.guard is not None or self.is_for_records or self.is_shared
        if not is_exempt and read_guard_key(transaction) is not None:
            raise unguarded_error(self.store_file.path)

    def append(self, work: Callable[[WriteTransaction], T]) -> T:
        """Run `work`, which appends existing records with their index changes (L4), and commit it like `commit`."""
        self._check_open()
        if not isinstance(self.committer, SharedCommitter):
            return self.committer.submit(work)
        if self._taker != get_ident():
            self.check_alone()
        return self.committer.take_in(work)

    def _commit(self, request: Callable[[], Request], *, may_use_reserve: bool) -> Any:
        """Commit a request, using the reserve of the quota or of the file if necessary."""
        committer = self.committer
        try:
            return committer.commit(request())
        except StoreFullError:
            if not may_use_reserve:
                raise
        return committer.failures.with_reserve(
            lambda: committer.commit(request()), lambda: committer.submit(WriteTransaction.write_header_again)
        )

    def purged(self, lsn: int) -> None:
        """Drop cached records up to an LSN after a purge of this engine. End the other engines of this process."""
        for other in self.store_file.engines:
            if other is not self:
                other.is_closed = other._is_purged = True  # noqa: SLF001 - it is of the same class
        self.committer.last = None
        self.collectors.clear()
        self.cache.clear()
        self.cache.purged_lsn = lsn
        self._view_of = partial(View, events={})

    def _check_open(self) -> None:
        if self._is_purged and not self._is_given_back:
            raise purged_error(self.store_file.path)
        if self.is_closed:
            message = f"the store {self.store_file.path} is closed"
            raise ClosedError(message, path=str(self.store_file.path))

    def check_usable(self) -> None:
        """Raise ClosedError if the store is closed, and ForkedError in a child of the process that opened it."""
        self._check_open()
        if getpid() != self.store_file.lmdb_file.process_id:
            raise self.store_file.lmdb_file.forked_error()

    def close(self) -> None:
        """Release the store file. Other stores of this process may still use it."""
        self.is_closed = True
        self.cache.clear()
        # An earlier call that was refused or interrupted did not release the store file, so try again.
        if not self._is_given_back:
            self.store_file.close()
            self._is_given_back = True
