"""Threads, and transactions over several."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from statelog.aio.running import Runner, stream
from statelog.aio.state import State
from statelog.store.mount import commit_mount, open_mount

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Mapping

    import statelog
    from statelog.store.branches import BranchInfo
    from statelog.store.checkpoint import Checkpoint
    from statelog.store.mount import Mount
    from statelog.store.targets import Target
    from statelog.store.transaction import Transaction as SyncTransaction

    Progress = Callable[[int, int], None]

T = TypeVar("T")


class Thread:
    """See `statelog.Thread`. Opened at its first use; `await thread` opens it, with its errors, at once."""

    def __init__(self, runner: Runner, make: Callable[[], statelog.Thread], thread_id: str, branch: str) -> None:
        self._runner = runner
        self._make = make
        self._opened: statelog.Thread | None = None
        self.id = thread_id
        self.branch = branch

    def __await__(self) -> Generator[Any, None, Thread]:
        return self._open().__await__()

    async def _open(self) -> Thread:
        await self._runner.run(self._thread)
        return self

    def _thread(self) -> statelog.Thread:
        """Return the thread; called on the pool."""
        if self._opened is None:
            self._opened = self._make()
        return self._opened

    async def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return await self._runner.run(lambda: getattr(self._thread(), name)(*args, **kwargs))

    @property
    def state(self) -> State:
        """The head's channels, as they are when awaited."""
        return State(self._runner, lambda: self._thread().state)

    def state_of(self, checkpoint: Checkpoint) -> State:
        """The channels of a checkpoint."""
        return State(self._runner, lambda: checkpoint.state)

    async def branch_of(self, checkpoint: Checkpoint) -> str:
        """Return the name of the branch a checkpoint was committed on."""
        return await self._runner.run(lambda: checkpoint.branch)

    async def parent_of(self, checkpoint: Checkpoint) -> Checkpoint | None:
        """Return the checkpoint that one was made from; see `statelog.Checkpoint.parent`."""
        return await self._runner.run(lambda: checkpoint.parent)

    async def ancestor_of(self, checkpoint: Checkpoint, generations: int) -> Checkpoint | None:
        """See `statelog.Checkpoint.ancestor`."""
        return await self._runner.run(checkpoint.ancestor, generations)

    async def common_ancestor_of(self, checkpoint: Checkpoint, other: Checkpoint) -> Checkpoint | None:
        """See `statelog.Checkpoint.common_ancestor`."""
        return await self._runner.run(checkpoint.common_ancestor, other)

    async def head(self) -> Checkpoint | None:
        """Return the branch's last checkpoint."""
        return await self._runner.run(lambda: self._thread().head)

    async def version(self) -> int:
        """Return the head's version, -1 before the first commit."""
        return await self._runner.run(lambda: self._thread().version)

    async def commit(
        self,
        *writes: Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
        expected_version: int | None = None,
        id: str | None = None,
        durable: bool | None = None,
    ) -> Checkpoint:
        """See `statelog.Thread.commit`. Cancelling the task does not take back a commit on its way."""
        made: Checkpoint = await self._call(
            "commit", *writes, metadata=metadata, expected_version=expected_version, id=id, durable=durable
        )
        return made

    async def edit(
        self,
        change: Callable[[Mount], T],
        *,
        metadata: Mapping[str, Any] | None = None,
        expected_version: int | None = None,
        id: str | None = None,
        lazy: bool = False,
    ) -> T:
        """See `statelog.Thread.edit`; `change` is called on a thread of the pool."""
        result: T = await self._call(
            "edit", change, metadata=metadata, expected_version=expected_version, id=id, lazy=lazy
        )
        return result

    async def rollback(
        self, target: Target, *, metadata: Mapping[str, Any] | None = None, expected_version: int | None = None
    ) -> Checkpoint:
        """See `statelog.Thread.rollback`."""
        made: Checkpoint = await self._call("rollback", target, metadata=metadata, expected_version=expected_version)
        return made

    async def fork(
        self,
        name: str,
        *,
        at: Target | None = None,
        update: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Thread:
        """See `statelog.Thread.fork`."""
        forked = await self._call("fork", name, at=at, update=update, metadata=metadata)
        return Thread(self._runner, lambda: forked, self.id, name)

    async def checkout(self, branch: str) -> Thread:
        """See `statelog.Thread.checkout`."""
        found = await self._call("checkout", branch)
        return Thread(self._runner, lambda: found, self.id, branch)

    async def at(self, target: Target) -> Checkpoint:
        """See `statelog.Thread.at`."""
        found: Checkpoint = await self._call("at", target)
        return found

    def history(self, limit: int | None = None, *, before: int | None = None) -> AsyncIterator[Checkpoint]:
        """See `statelog.Thread.history`."""
        return stream(self._runner, lambda: self._thread().history(limit, before=before))

    async def branches(self) -> list[BranchInfo]:
        """See `statelog.Thread.branches`."""
        found: list[BranchInfo] = await self._call("branches")
        return found

    async def tag(self, name: str, target: Target | None = None) -> Checkpoint:
        """See `statelog.Thread.tag`."""
        found: Checkpoint = await self._call("tag", name, target)
        return found

    async def untag(self, name: str) -> None:
        """See `statelog.Thread.untag`."""
        await self._call("untag", name)

    async def tags(self) -> dict[str, Checkpoint]:
        """See `statelog.Thread.tags`."""
        found: dict[str, Checkpoint] = await self._call("tags")
        return found

    @asynccontextmanager
    async def mount(self, *, metadata: Mapping[str, Any] | None = None) -> AsyncIterator[Mount]:
        """Give the state, read whole before the block: it waits for no disk; see `statelog.Thread.mount`."""
        thread = await self._runner.run(self._thread)
        state = await self._runner.run(_open_whole, thread)
        yield state
        await self._runner.run(commit_mount, thread, state, metadata)


def _open_whole(thread: statelog.Thread) -> Mount:
    mount = open_mount(thread)
    for channel in mount:
        mount[channel]
    return mount


class Transaction:
    """See `statelog.store.transaction.Transaction`."""

    def __init__(self, runner: Runner, transaction: SyncTransaction) -> None:
        self._runner = runner
        self._transaction = transaction

    def thread(self, id: str, *, schema: object = None, branch: str = "main", reborn: bool = False) -> Thread:
        """Return a thread whose writes belong to this transaction."""
        make = partial(self._transaction.thread, id, schema=schema, branch=branch, reborn=reborn)
        return Thread(self._runner, make, id, branch)

    async def copy_thread(self, source: str, target: str) -> Thread:
        """See `statelog.store.transaction.Transaction.copy_thread`."""
        copied = await self._runner.run(self._transaction.copy_thread, source, target)
        return Thread(self._runner, lambda: copied, target, copied.branch)
