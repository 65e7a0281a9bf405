"""Sessions of a store, a transaction or a snapshot, through which threads read and write.

Other packages of this library, such as adapters and the command line, get a session by `session_of`. A public object
has its session as its only private attribute.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias, TypeVar

from statelog.errors import UsageError
from statelog.log.batch import Head
from statelog.store.beside import BY_TX, refuse_beside, transactions_here
from statelog.tree.node import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from statelog.log.batch import Batch
    from statelog.log.engine import Engine, Sweep
    from statelog.log.view import View

T = TypeVar("T")


class AnySession(Protocol):
    """The interface of all sessions.

    A store's session writes at once; a transaction's session writes at the end of the transaction.
    """

    owner: Engine
    """The engine of the store."""

    is_final: bool
    """Whether results of writes are final. In a transaction, LSNs are provisional."""

    is_flushed_at_commit: bool
    """Whether writes are on the disk when they return, unless `is_flushed` is False."""

    def read(self) -> AbstractContextManager[View]:
        """Open a view for a short time."""

    def last_commit_id(self) -> int | None:
        """Return the number of the store's last commit, or None if reads also see uncommitted changes."""

    def workspace(self) -> Workspace:
        """Return a reader of nodes that outlives views."""

    def workspace_in(self, view: View) -> Workspace:
        """Return a reader of nodes for use while `view` is open. Retention cannot remove the nodes meanwhile."""

    def write(self, work: Callable[[Batch], Head], *, is_flushed: bool = True) -> Outcome:
        """Run `work` and return its result. Without `is_flushed`, a later flush makes the result durable."""

    def flush(self) -> None:
        """Flush writes that are not yet durable."""

    def make_durable(self, *, is_remote: bool) -> None:
        """Flush writes that are not yet durable. If `is_remote`, also wait until they are shipped."""

    def after_commit(self, head: Head) -> None:
        """Apply the thread's retention policy, if any. Called every `POLICY_STEP_VERSIONS` versions."""

    def act(self, work: Callable[[Batch], T]) -> T:
        """Run `work`, which makes no checkpoint, and return its result."""


S_co = TypeVar("S_co", bound=AnySession, covariant=True)


class Holder(Protocol[S_co]):
    """A store, a transaction or a snapshot."""

    @property
    def _session(self) -> S_co: ...


def session_of(held: Holder[S_co]) -> S_co:
    """Return the session of a store, a transaction or a snapshot."""
    return held._session  # noqa: SLF001 - the only access


class StoreSession:
    """The session of an open store, which writes at once."""

    is_final = True

    def __init__(self, engine: Engine) -> None:
        self.engine = self.owner = engine
        self.read = engine.read
        self.last_commit_id = engine.last_commit_id
        self.kept: dict[str, Any] = {}
        """Objects that live as long as the store is open, keyed by name."""
        self.is_flushed_at_commit: bool = engine.store_file.writer.is_flushed_at_commit

    def workspace(self) -> Workspace:
        """Return a reader of nodes that outlives views."""
        return Workspace(self.engine.read_node, source_many=self.engine.read_nodes)

    def workspace_in(self, view: View) -> Workspace:
        """Return a reader of nodes for use while `view` is open."""
        return Workspace(self.engine.reader_in(view.transaction))

    def write(self, work: Callable[[Batch], Head], *, is_flushed: bool = True) -> Head:
        """Commit a checkpoint. Without `is_flushed`, a later flush makes the commit durable."""
        if transactions_here():
            refuse_beside(self.engine, BY_TX)
        return self.engine.commit(work, is_flushed=is_flushed)

    def act(self, work: Callable[[Batch], T]) -> T:
        """Commit `work`, which makes no checkpoint, and return its result."""
        if transactions_here():
            refuse_beside(self.engine, BY_TX)
        return self.engine.commit(work)

    def flush(self) -> None:
        """Flush commits that are not durable yet."""
        self.engine.flush()

    def make_durable(self, *, is_remote: bool) -> None:
        """Flush commits that are not durable yet. If `is_remote`, also wait until they are shipped."""
        if not self.is_flushed_at_commit:
            self.flush()
        if is_remote and self.engine.remote is not None:
            with self.engine.read() as view:
                last_lsn = view.transaction.last_lsn()
            self.engine.remote.wait(last_lsn)

    def after_commit(self, head: Head) -> None:
        """Apply the thread's retention policy."""
        try:
            from statelog.log.care.retention import apply_policy
        except OSError:
            # The module cannot be loaded if no file descriptor is free. Do not raise: the commit is done, and a later
            # commit applies the policy.
            return
        apply_policy(self.engine, head.event.thread, head.event.version)

    def sweep_with(self, name: str, sweep: Sweep) -> None:
        """Register an adapter's cleanup after retention.

        Args:
            name: the name of the adapter. A later registration replaces an earlier one.
            sweep: see `log.engine.Sweep`.
        """
        self.engine.sweepers[name] = sweep

    def withdraw(self) -> None:
        """Close the store. Remove its file if it is empty and no other process has it open."""
        from statelog.storage.withdrawal import withdraw

        withdraw(self.engine.store_file.lmdb_file, self.engine.store_file.checkpointer)


class Provisional:
    """The provisional result of a write in a transaction, until the transaction ends."""

    __slots__ = ("head",)

    def __init__(self, head: Head) -> None:
        self.head = head
        """The checkpoint. Access raises UsageError if the transaction was not committed."""

    def settle(self, head: Head) -> None:
        """Replace the provisional checkpoint with the final one."""
        self.head = head

    def abandon(self) -> None:
        """Mark the transaction as not committed."""
        with contextlib.suppress(AttributeError):
            del self.head

    def __getattr__(self, name: str) -> NoReturn:
        """Raise the error for a checkpoint of a transaction that was not committed."""
        if name != "head":
            raise AttributeError(name)
        raise abandoned_error()


Outcome: TypeAlias = Head | Provisional
"""The result of a write: final in a store, provisional in a transaction."""


def abandoned_error() -> UsageError:
    """Return the error for results of a transaction that was not committed."""
    message = "this result belongs to a transaction that was not committed"
    return UsageError(message)
