"""Transactions over several threads, which are committed as a whole or not at all.

Each operation is staged at once on the current state, so that its result or error appears in the code that calls it. No
lock is held between operations. If nothing else was committed since the first operation, the end of the transaction
commits the staged records. Otherwise the records were only a rehearsal, and the end runs the operations again on the
new state.
"""

from __future__ import annotations

import contextlib
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from statelog.deprecated import renamed_keyword
from statelog.errors import UsageError
from statelog.format.record import NO_DIGEST
from statelog.log.batch import Batch, Head, LogEnd, RememberedState, read_log_end
from statelog.log.care.retention import apply_policy
from statelog.log.commit import Staging
from statelog.log.nodes import NodeCache
from statelog.store.beside import AFTER_IT, opened_here, refuse_beside
from statelog.store.board import Board
from statelog.store.copies import copy_thread
from statelog.store.retain import erase_deleted, stage_deletion
from statelog.store.session import Provisional, StoreSession, abandoned_error
from statelog.store.thread import Thread
from statelog.store.threads import Threads
from statelog.store.writes import check_thread_id
from statelog.tree.node import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from statelog.board.rules import Rules
    from statelog.log.engine import Engine
    from statelog.log.transaction import IndexedLog as ReadableTransaction
    from statelog.log.view import View

T = TypeVar("T")

_PROVISIONAL_LSN = 1 << 62
"""The first LSN of records in a rehearsal. It is so high that no record is confused with a committed one."""


class _Snapshot:
    """The snapshot of the store that an operation reads. No snapshot is open between operations."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._open: ReadableTransaction | None = None
        self._id: int | None = None

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold a snapshot of the store during the `with` block. A nested block uses the same snapshot."""
        if self._open is not None:
            yield
            return
        with self._engine.read() as view:
            self._open, self._id = view.transaction, view.snapshot_id()
            try:
                yield
            finally:
                self._open = None

    def _transaction(self) -> ReadableTransaction:
        assert self._open is not None
        return self._open

    @property
    def id(self) -> int | None:
        """The number of the store's last commit in the snapshot."""
        return self._id

    def get_index(self, key: bytes) -> bytes | None:
        return self._transaction().get_index(key)

    def get_log(self, lsn: int) -> memoryview | None:
        return self._transaction().get_log(lsn)

    def lend_log(self, lsn: int) -> memoryview | None:
        return self._transaction().lend_log(lsn)

    def last_lsn(self) -> int:
        return self._transaction().last_lsn()

    def last_index(self, prefix: bytes) -> tuple[bytes, bytes] | None:
        return self._transaction().last_index(prefix)

    def scan_index(self, prefix: bytes, *, start: bytes = b"", reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        return self._transaction().scan_index(prefix, start=start, reverse=reverse)


class _Sequel:
    """A function to call with the result of an operation after the commit."""

    __slots__ = ("_follow", "_result")

    def __init__(self, result: Any, follow: Callable[[Any], object]) -> None:
        self._result = result
        self._follow = follow

    def settle(self, result: Any) -> None:
        """Store the final result of the operation."""
        self._result = result

    def abandon(self) -> None:
        """Do nothing, because the function is not called without a commit."""

    def follow(self) -> None:
        """Call the function with the result."""
        self._follow(self._result)


class TransactionSession:
    """The session of a transaction. Its reads see the operations that were staged so far."""

    is_final = is_flushed_at_commit = False

    def __init__(self, engine: Engine) -> None:
        self._engine = self.owner = engine
        self._operations: list[tuple[Callable[[Batch], Any], Provisional | _Sequel | None]] = []
        self.is_open = True
        self._is_abandoned = False
        self._snapshot = _Snapshot(engine)
        self._staged: Batch | None = None
        self._staged_over: int | None = None
        """The number of the commit on which the records are staged; None if they are only a rehearsal."""
        self._former: Batch | None = None
        """The batch that was discarded after another process committed or an operation failed. Results of its
        operations still read their nodes from it.
        """
        self._is_durable = self._is_remote = False

    def check_open(self) -> None:
        """Raise UsageError if the transaction has ended."""
        if not self.is_open:
            message = "the transaction has ended"
            raise UsageError(message)

    @contextmanager
    def read(self) -> Iterator[View]:
        """Open a view of the state in the transaction. After the end, open a view of the store."""
        self._check_kept()
        if self.is_open:
            with self._staging() as batch:
                yield batch.view
        else:
            with self._engine.read() as view:
                yield view

    def last_commit_id(self) -> int | None:
        """Return None, because staged changes have no commit number."""
        return None

    def workspace(self) -> Workspace:
        """Return a reader of nodes, including staged ones."""
        return Workspace(self._read_node)

    def workspace_in(self, view: View) -> Workspace:
        """Return a reader of nodes for use while `view` is open."""
        # While the transaction is open, a read within `read` uses the snapshot of `view`.
        return self.workspace() if self.is_open else StoreSession(self._engine).workspace_in(view)

    def _read_node(self, type_: int, digest: bytes, lsn: int, number: int) -> Any:
        self._check_kept()
        if self.is_open:
            with self._staging() as batch:
                found = None if self._former is None else self._former.staged_node(digest, lsn, number)
                return found or batch.read_node(type_, digest, lsn, number)
        return self._engine.read_node(type_, digest, lsn, number)

    def write(
        self,
        work: Callable[[Batch], Head],
        *,
        is_flushed: bool = True,  # noqa: ARG002 - the end is
    ) -> Provisional:
        """Stage a checkpoint. The end of the transaction commits it."""
        self.check_open()
        with self._staging() as batch:
            outcome = Provisional(work(batch))
        self._operations.append((work, outcome))
        return outcome

    def after_commit(self, head: Head) -> None:
        """Do nothing, because the end of the transaction applies policies."""

    def flush(self) -> None:
        """Request a flush at the end of the transaction."""
        self._is_durable = True

    def make_durable(self, *, is_remote: bool) -> None:
        """Request a flush at the end. If `is_remote`, the end also waits until the commit is shipped."""
        self._is_durable = True
        self._is_remote = self._is_remote or is_remote

    def act(self, work: Callable[[Batch], T]) -> T:
        """Stage `work`. The end of the transaction commits it."""
        self.check_open()
        with self._staging() as batch:
            result = work(batch)
        self._operations.append((work, None))
        return result

    def act_and_follow(self, work: Callable[[Batch], T], follow: Callable[[T], object]) -> T:
        """Stage `work`. After the commit, call `follow` with its final result. A failure of `follow` is ignored."""
        self.check_open()
        with self._staging() as batch:
            result = work(batch)
        self._operations.append((work, _Sequel(result, follow)))
        return result

    @contextmanager
    def _staging(self) -> Iterator[Batch]:
        """Yield the batch with all staged operations, over a snapshot of the store."""
        with self._snapshot.hold():
            if self._staged is not None and self._staged_over not in {None, self._snapshot.id}:
                self._former, self._staged = self._staged, None
            if self._staged is None:
                self._staged = self._begin()
            staged = self._staged
            count = len(staged.staged)
            try:
                yield staged
            except BaseException:
                # The operation has failed after staging a record, so discard the batch.
                if len(staged.staged) != count:
                    self._former, self._staged = staged, None
                raise

    def _begin(self) -> Batch:
        """Return a batch with all operations so far.

        It is a rehearsal if another process has committed since the first operation, or an operation has failed after
        staging.
        """
        if self._former is None:
            self._staged_over = self._snapshot.id
            memory = self._engine.committer.memory_of(self._staged_over) or RememberedState(
                read_log_end(self._snapshot)
            )
            staged = Batch(self._snapshot, self._engine.cache, memory)
            staged.guard = self._engine.guard
            return staged
        self._staged_over = None
        batch = Batch(self._snapshot, NodeCache(), RememberedState(LogEnd(_PROVISIONAL_LSN, NO_DIGEST, 0)))
        batch.guard = self._engine.guard
        for operation, outcome in self._operations:
            result = operation(batch)
            if outcome is not None:
                outcome.settle(result)
        return batch

    # --- the end ------------------------------------------------------------------

    def finish(self) -> None:
        """Commit all operations at once."""
        self.is_open = False
        if not self._operations:
            return

        def work(batch: Batch) -> list[Any]:
            return [operation(batch) for operation, _outcome in self._operations]

        staged = None
        if self._staged is not None and self._staged_over is not None:
            staged = Staging(self._staged, self._staged_over, None)
        makes_room = any(isinstance(outcome, _Sequel) for _operation, outcome in self._operations)
        results = self._engine.commit(work, staged=staged, may_use_reserve=makes_room)
        if self._is_durable:
            StoreSession(self._engine).make_durable(is_remote=self._is_remote)
        for (_operation, outcome), result in zip(self._operations, results or (), strict=results is not None):
            if outcome is not None:
                outcome.settle(result)
        # Everything is committed, so ignore later failures.
        for _operation, outcome in self._operations:
            with contextlib.suppress(Exception):
                if isinstance(outcome, _Sequel):
                    outcome.follow()
                elif outcome is not None:
                    apply_policy(self._engine, outcome.head.event.thread, outcome.head.event.version)

    def abandon(self) -> None:
        """Discard all operations."""
        self.is_open = False
        self._is_abandoned = True
        for _operation, outcome in self._operations:
            if outcome is not None:
                outcome.abandon()

    def _check_kept(self) -> None:
        if self._is_abandoned:
            raise abandoned_error()


class Transaction(Threads):
    """A transaction. Its operations are committed together at the end of the `with` block.

    Until then, new checkpoints have provisional LSNs, times and ids.
    """

    def __init__(self, session: TransactionSession) -> None:
        self._session = session

    def _thread(self, id: str, schema: object, branch: str | None, *, recreate: bool) -> Thread:
        self._session.check_open()
        return Thread(self._session, id, schema, branch, recreate=recreate)

    def board(
        self, *, agent: str | None = None, rules: Rules | None = None, include_quarantined: bool = False
    ) -> Board:
        """Return the board. Writes to it are committed at the end, and their versions are provisional until then.

        See `Store.board`.
        """
        self._session.check_open()
        return Board(self._session, agent, rules, include_quarantined=include_quarantined)

    @renamed_keyword("reborn", "recreate")
    def copy_thread(self, source: str, target: str, *, recreate: bool = False) -> Thread:
        """Copy a thread, which this transaction may have created or changed. See `Store.copy_thread`."""
        return copy_thread(self._session, source, target, recreate=recreate)

    def delete_thread(self, id: str) -> None:
        """Delete a thread when the transaction commits. The transaction may have changed the thread.

        See `Store.delete_thread`. The same transaction may re-create the thread (`thread(id, recreate=True)`).

        Raises:
            ThreadNotFoundError: the thread does not exist. ThreadDeletedError: it is already deleted.
        """
        check_thread_id(id)
        engine = self._session.owner
        self._session.act_and_follow(partial(stage_deletion, thread_id=id), partial(erase_deleted, engine))


@contextmanager
def transaction(engine: Engine) -> Iterator[Transaction]:
    """Run a `with` block as one transaction."""
    refuse_beside(engine, AFTER_IT)
    opened = TransactionSession(engine)
    try:
        with opened_here(opened):
            yield Transaction(opened)
    except BaseException:
        opened.abandon()
        raise
    try:
        opened.finish()
    except BaseException:
        opened.abandon()
        raise
