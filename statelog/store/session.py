"""What a thread works on: the session of a store, of a transaction over several threads, or of a snapshot.

It is the way in for the rooms of this library: adapters, the command line and the like go by `session_of`. What users
hold has it as its one private attribute, and no name of it among its own.
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


class Session(Protocol):
    """Reads and writes, at once (a store) or at the end (a transaction)."""

    owner: Engine
    """Of the store."""

    is_final: bool
    """Whether what a write makes stays as it is: in a transaction LSNs are provisional."""

    is_flushed_at_commit: bool
    """Whether what a write makes is on the disk when it returns, unless it was not to be."""

    def read(self) -> AbstractContextManager[View]:
        """Open a view for a short while."""

    def last_commit_id(self) -> int | None:
        """Return the number of the store's last commit, or None if reads also see uncommitted changes."""

    def workspace(self) -> Workspace:
        """Return a reader of nodes that lasts."""

    def write(self, work: Callable[[Batch], Head], *, is_flushed: bool = True) -> Outcome:
        """Run `work` and return what it made. Without `is_flushed` a later flush makes it durable."""

    def flush(self) -> None:
        """Make what was written durable, where it is not yet."""

    def make_durable(self, *, is_remote: bool) -> None:
        """Make what was written durable, where it is not yet; also outside of this machine."""

    def after_commit(self, head: Head) -> None:
        """Apply the thread's retention policy, if it has one. Called every `POLICY_STEP_VERSIONS`."""

    def act(self, work: Callable[[Batch], T]) -> T:
        """Run `work` that makes no checkpoint, and return its result."""


S_co = TypeVar("S_co", bound=Session, covariant=True)


class Holder(Protocol[S_co]):
    """A store, a transaction or a snapshot."""

    @property
    def _session(self) -> S_co: ...


def session_of(held: Holder[S_co]) -> S_co:
    """Return what is behind a store, a transaction or a snapshot that a user holds."""
    return held._session  # noqa: SLF001 - the one way in


class StoreSession:
    """Reads and writes of an open store, at once."""

    is_final = True

    def __init__(self, engine: Engine) -> None:
        self.engine = self.owner = engine
        self.read = engine.read
        self.last_commit_id = engine.last_commit_id
        self.kept: dict[str, Any] = {}
        """What is kept for as long as the store is open, by name."""
        self.is_flushed_at_commit: bool = engine.store_file.writer.is_flushed_at_commit

    def workspace(self) -> Workspace:
        """Return a reader of nodes that lasts."""
        return Workspace(self.engine.read_node, source_many=self.engine.read_nodes)

    def write(self, work: Callable[[Batch], Head], *, is_flushed: bool = True) -> Head:
        """Commit. Without `is_flushed` a later flush makes it durable."""
        if transactions_here():
            refuse_beside(self.engine, BY_TX)
        return self.engine.commit(work, is_flushed=is_flushed)

    def act(self, work: Callable[[Batch], T]) -> T:
        """Commit what makes no checkpoint, and return its result."""
        if transactions_here():
            refuse_beside(self.engine, BY_TX)
        return self.engine.commit(work)

    def flush(self) -> None:
        """Make durable what was committed and is not yet."""
        self.engine.flush()

    def make_durable(self, *, is_remote: bool) -> None:
        """Make durable what was committed and is not yet."""
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
            # No file descriptor is free to load the module. The commit is done, and a later one applies the policy.
            return
        apply_policy(self.engine, head.event.thread, head.event.version)

    def sweep_with(self, name: str, sweep: Sweep) -> None:
        """Have an adapter clean up after retention.

        Args:
            name: the adapter's; the last one of a name counts.
            sweep: see `log.engine.Sweep`.

        """
        self.engine.sweepers[name] = sweep

    def withdraw(self) -> None:
        """Close the store, and remove its file if there is nothing in it and nobody else has it open."""
        from statelog.storage.discarding import withdraw

        withdraw(self.engine.store_file.lmdb_file, self.engine.store_file.checkpointer)


class Provisional:
    """What a write in a transaction made, until its end."""

    __slots__ = ("head",)

    def __init__(self, head: Head) -> None:
        self.head = head
        """The checkpoint. Raises UsageError if the transaction came to nothing."""

    def settle(self, head: Head) -> None:
        """Make it final."""
        self.head = head

    def abandon(self) -> None:
        """Say that it came to nothing."""
        with contextlib.suppress(AttributeError):
            del self.head

    def __getattr__(self, name: str) -> NoReturn:
        """Say why there is no checkpoint (any more)."""
        if name != "head":
            raise AttributeError(name)
        raise abandoned_error()


Outcome: TypeAlias = Head | Provisional
"""What a write made: final in a store; provisional in a transaction."""


def abandoned_error() -> UsageError:
    """Return the error for what a transaction would have made."""
    message = "the transaction this belongs to was not committed"
    return UsageError(message)
