"""Snapshots: the store as it is at one moment, for reading."""

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
    """What threads of a snapshot read: one view, and never a write."""

    is_final = is_flushed_at_commit = True

    def __init__(self, engine: Engine, view: View) -> None:
        self._engine = self.owner = engine
        self._view: View | None = view
        self._read_node = engine.reader_in(view.transaction)

    def end(self) -> None:
        """Read no more."""
        self._view = None

    def _opened(self) -> View:
        if self._view is None:
            message = "the snapshot has ended: use what is read in its `with` block, or copy it with to_python()"
            raise UsageError(message)
        return self._view

    @contextmanager
    def read(self) -> Iterator[View]:
        """Give the one view."""
        yield self._opened()

    def last_commit_id(self) -> int | None:
        """Return the number of the last commit that the snapshot contains."""
        return self._opened().snapshot_id()

    def workspace(self) -> Workspace:
        """Return a reader of nodes."""
        return Workspace(self._node, source_many=self._nodes)

    def _node(self, type_: int, digest: bytes, lsn: int, number: int) -> Node:
        self._opened()
        return self._read_node(type_, digest, lsn, number)

    def _nodes(self, refs: Sequence[tuple[int, bytes, int, int]]) -> list[Node]:
        return read_nodes(self._opened().transaction, self._engine.cache, refs)

    def write(
        self,
        work: Callable[[Batch], Head],
        *,
        is_flushed: bool = True,  # noqa: ARG002 - never is
    ) -> Head:
        """Refuse."""
        return self.act(work)

    def act(self, work: Callable[[Batch], T]) -> T:
        """Refuse."""
        del work
        raise _for_reading()

    def flush(self) -> None:
        """Nothing is committed here."""

    def make_durable(self, *, is_remote: bool) -> None:
        """Nothing is committed here."""

    def after_commit(self, head: Head) -> None:
        """Nothing is committed here."""


class Snapshot(Threads):
    """All threads as they are at one moment; what others commit, or let expire, does not show.

    Belongs to the `with` block that opened it, and to its OS thread: what was read lazily and not used until its end
    raises UsageError afterwards.
    """

    def __init__(self, session: SnapshotSession) -> None:
        self._session = session

    def _thread(self, id: str, schema: object, branch: str | None, *, reborn: bool) -> Thread:
        if reborn:
            raise _for_reading()
        return Thread(self._session, id, schema, branch)

    def board(
        self, *, agent: str | None = None, rules: Rules | None = None, include_quarantined: bool = False
    ) -> Board:
        """Return the board as it is at this moment; see `Store.board`."""
        return Board(self._session, agent, rules, include_quarantined=include_quarantined)

    @property
    def last_lsn(self) -> int:
        """The LSN of the last record, 0 for an empty log."""
        with self._session.read() as view:
            return view.transaction.last_lsn()


def _for_reading() -> UsageError:
    message = "a snapshot is for reading: commit to a thread of the store"
    return UsageError(message)


@contextmanager
def snapshot(engine: Engine) -> Iterator[Snapshot]:
    """Run a `with` block on one moment of the store; see `Store.snapshot`."""
    with engine.store_file.reader_slots.snapshot(), engine.read() as view:
        opened = SnapshotSession(engine, view)
        try:
            yield Snapshot(opened)
        finally:
            opened.end()
