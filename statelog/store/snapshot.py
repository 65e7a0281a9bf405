"""Snapshots: read-only views of a store at one moment."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from statelog.errors import UsageError
from statelog.log.nodes import read_nodes
from statelog.store.board import Board
from statelog.store.thread import Thread
from statelog.store.threads import Threads
from statelog.tree.node import Node, Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from statelog.board.rules import Rules
    from statelog.log.batch import Batch, Head
    from statelog.log.engine import Engine
    from statelog.log.view import View

T = TypeVar("T")


class SnapshotSession:
    """The session of a snapshot: one view, without writes."""

    is_final = is_flushed_at_commit = True

    def __init__(self, engine: Engine, view: View) -> None:
        self._engine = self.owner = engine
        self._view: View | None = view
        self._read_node = engine.reader_in(view.transaction)

    def end(self) -> None:
        """End the snapshot. Later reads raise UsageError."""
        self._view = None

    def _opened(self) -> View:
        if self._view is None:
            message = "the snapshot has ended: use its values in the `with` block, or copy them with to_python()"
            raise UsageError(message)
        return self._view

    @contextmanager
    def read(self) -> Iterator[View]:
        """Return the view of the snapshot."""
        yield self._opened()

    def last_commit_id(self) -> int | None:
        """Return the number of the last commit that the snapshot contains."""
        return self._opened().snapshot_id()

    def workspace(self) -> Workspace:
        """Return a reader of nodes."""
        return Workspace(self._node, source_many=self._nodes)

    def workspace_in(self, view: View) -> Workspace:  # noqa: ARG002 - there is only one view
        """Return a reader of nodes."""
        return self.workspace()

    def _node(self, type_: int, digest: bytes, lsn: int, number: int) -> Node:
        self._opened()
        return self._read_node(type_, digest, lsn, number)

    def _nodes(self, refs: Sequence[tuple[int, bytes, int, int]]) -> list[Node]:
        return read_nodes(self._opened().transaction, self._engine.cache, refs)

    def write(
        self,
        work: Callable[[Batch], Head],
        *,
        is_flushed: bool = True,  # noqa: ARG002 - never used
    ) -> Head:
        """Raise ReadOnlyError or UsageError, because a snapshot is read-only."""
        return self.act(work)

    def act(self, work: Callable[[Batch], T]) -> T:
        """Raise ReadOnlyError or UsageError, because a snapshot is read-only."""
        del work
        raise _for_reading()

    def flush(self) -> None:
        """Do nothing, because a snapshot has no commits."""

    def make_durable(self, *, is_remote: bool) -> None:
        """Do nothing, because a snapshot has no commits."""

    def after_commit(self, head: Head) -> None:
        """Do nothing, because a snapshot has no commits."""


class Snapshot(Threads):
    """All threads at one moment. Later commits and retention do not change it.

    A snapshot belongs to its `with` block and to the OS thread of the block. Lazy values that are first read after the
    block raise UsageError.
    """

    def __init__(self, session: SnapshotSession) -> None:
        self._session = session

    def _thread(self, id: str, schema: object, branch: str | None, *, recreate: bool) -> Thread:
        if recreate:
            raise _for_reading()
        return Thread(self._session, id, schema, branch)

    def board(
        self, *, agent: str | None = None, rules: Rules | None = None, include_quarantined: bool = False
    ) -> Board:
        """Return the board at this moment; see `Store.board`."""
        return Board(self._session, agent, rules, include_quarantined=include_quarantined)

    @property
    def last_lsn(self) -> int:
        """The LSN of the last record, 0 for an empty log."""
        with self._session.read() as view:
            return view.transaction.last_lsn()


def _for_reading() -> UsageError:
    message = "a snapshot is read-only: commit to a thread of the store"
    return UsageError(message)


@contextmanager
def snapshot(engine: Engine) -> Iterator[Snapshot]:
    """Open a snapshot for a `with` block; see `Store.snapshot`."""
    with engine.store_file.reader_slots.snapshot(), engine.read() as view:
        opened = SnapshotSession(engine, view)
        try:
            yield Snapshot(opened)
        finally:
            opened.end()
