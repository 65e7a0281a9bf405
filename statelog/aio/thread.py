"""Threads of a store on the loop."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast, overload

from statelog.aio.bridge import Runner, stream
from statelog.aio.state import State, StateOf
from statelog.log.events import MAIN
from statelog.schema.typed import D, Fields, S, Untyped, W, Written
from statelog.store.mount import commit_mount, mountable, open_mount

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Mapping
    from contextlib import AbstractAsyncContextManager

    import statelog
    from statelog.store.branches import BranchInfo
    from statelog.store.checkpoint import Checkpoint
    from statelog.store.fences import Fence
    from statelog.store.mount import Mount
    from statelog.store.sizes import StateSize
    from statelog.store.targets import Target
    from statelog.store.views import MapView

    Progress = Callable[[int, int], None]

T = TypeVar("T")


class Thread(Written[S, W]):
    """See `statelog.Thread`. Opened on first use. `await thread` opens it at once, and raises its errors."""

    state = StateOf()
    """The channels of the head at the time of the `await`."""

    def __init__(
        self, runner: Runner, make: Callable[[], statelog.Thread[S, W]], thread_id: str, branch: str | None
    ) -> None:
        self._runner = runner
        self._make = make
        self._opened: statelog.Thread[S, W] | None = None
        self.id = thread_id
        self.branch = MAIN if branch is None else branch

    def __await__(self) -> Generator[Any, None, Thread[S, W]]:
        return self._open().__await__()

    async def _open(self) -> Thread[S, W]:
        await self._runner.run(self._thread)
        return self

    def _thread(self) -> statelog.Thread[S, W]:
        """Return the thread; called on the pool."""
        if self._opened is None:
            self._opened = self._make()
        return self._opened

    def _including_quarantined(self) -> Self:
        """Let reads of this object return values that a check has quarantined. Return the object."""
        make = self._make
        self._make = lambda: make()._including_quarantined()  # noqa: SLF001 - its twin
        return self

    async def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return await self._runner.run(lambda: getattr(self._thread(), name)(*args, **kwargs))

    def _state(self) -> State[Any]:
        return State(self._runner, lambda: self._thread()._read_state())  # noqa: SLF001 - `state`, past its types

    @overload
    def state_of(self, checkpoint: Checkpoint[Untyped]) -> State[dict[str, Any]]: ...
    @overload
    def state_of(self, checkpoint: Checkpoint[D]) -> State[D]: ...
    @overload
    def state_of(self, checkpoint: Checkpoint[Fields]) -> State[dict[str, Any]]: ...
    def state_of(self, checkpoint: Checkpoint[Any]) -> State[Any]:
        """The channels of a checkpoint."""
        return State(self._runner, lambda: cast("MapView", checkpoint.state))

    def stored_of(self, checkpoint: Checkpoint[Any]) -> State[dict[str, Any]]:
        """The channels of a checkpoint as they were written. See `statelog.Checkpoint.stored`."""
        return State(self._runner, lambda: checkpoint.stored)

    async def branch_of(self, checkpoint: Checkpoint) -> str:
        """Return the name of the branch a checkpoint was committed on."""
        return await self._runner.run(lambda: checkpoint.branch)

    async def parent_of(self, checkpoint: Checkpoint) -> Checkpoint[S] | None:
        """Return the checkpoint that one was made from; see `statelog.Checkpoint.parent`."""
        return await self._runner.run(lambda: checkpoint.parent)

    async def ancestor_of(self, checkpoint: Checkpoint, generations: int) -> Checkpoint[S] | None:
        """See `statelog.Checkpoint.ancestor`."""
        return await self._runner.run(checkpoint.ancestor, generations)

    async def common_ancestor_of(self, checkpoint: Checkpoint, other: Checkpoint) -> Checkpoint[S] | None:
        """See `statelog.Checkpoint.common_ancestor`."""
        return await self._runner.run(checkpoint.common_ancestor, other)

    async def head(self) -> Checkpoint[S] | None:
        """Return the branch's last checkpoint."""
        return await self._runner.run(lambda: self._thread().head)

    async def size(self) -> StateSize:
        """See `statelog.Thread.size`."""
        return await self._runner.run(lambda: self._thread().size())

    async def version(self) -> int:
        """Return the head's version, -1 before the first commit."""
        return await self._runner.run(lambda: self._thread().version)

    async def commit(
        self,
        *writes: W,
        metadata: Mapping[str, Any] | None = None,
        expected_version: int | Checkpoint | None = None,
        id: str | None = None,
        durable: bool | Literal["remote"] | None = None,
        fence: Fence | None = None,
    ) -> Checkpoint[S]:
        """See `statelog.Thread.commit`. A commit that has begun is not undone if the task is cancelled."""
        made: Checkpoint[S] = await self._call(
            "commit",
            *writes,
            metadata=metadata,
            expected_version=expected_version,
            id=id,
            durable=durable,
            fence=fence,
        )
        return made

    async def edit(
        self,
        change: Callable[[Any], T],
        *,
        metadata: Mapping[str, Any] | None = None,
        expected_version: int | Checkpoint | None = None,
        id: str | None = None,
        lazy: bool = False,
        fence: Fence | None = None,
    ) -> T:
        """See `statelog.Thread.edit`; `change` is called on a thread of the pool."""
        result: T = await self._call(
            "edit", change, metadata=metadata, expected_version=expected_version, id=id, lazy=lazy, fence=fence
        )
        return result

    async def rollback(
        self,
        target: Target,
        *,
        metadata: Mapping[str, Any] | None = None,
        expected_version: int | Checkpoint | None = None,
        fence: Fence | None = None,
    ) -> Checkpoint[S]:
        """See `statelog.Thread.rollback`."""
        made: Checkpoint[S] = await self._call(
            "rollback", target, metadata=metadata, expected_version=expected_version, fence=fence
        )
        return made

    async def fork(
        self,
        name: str,
        *,
        at: Target | None = None,
        update: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        fence: Fence | None = None,
    ) -> Thread[S, W]:
        """See `statelog.Thread.fork`."""
        forked = await self._call("fork", name, at=at, update=update, metadata=metadata, fence=fence)
        return Thread(self._runner, lambda: forked, self.id, name)

    async def checkout(self, branch: str) -> Thread[S, W]:
        """See `statelog.Thread.checkout`."""
        found = await self._call("checkout", branch)
        return Thread(self._runner, lambda: found, self.id, branch)

    async def at(self, target: Target) -> Checkpoint[S]:
        """See `statelog.Thread.at`."""
        found: Checkpoint[S] = await self._call("at", target)
        return found

    def history(self, limit: int | None = None, *, before: int | None = None) -> AsyncIterator[Checkpoint[S]]:
        """See `statelog.Thread.history`."""
        return stream(self._runner, lambda: self._thread().history(limit, before=before))

    async def branches(self) -> list[BranchInfo]:
        """See `statelog.Thread.branches`."""
        found: list[BranchInfo] = await self._call("branches")
        return found

    async def tag(self, name: str, target: Target | None = None) -> Checkpoint[S]:
        """See `statelog.Thread.tag`."""
        found: Checkpoint[S] = await self._call("tag", name, target)
        return found

    async def untag(self, name: str) -> None:
        """See `statelog.Thread.untag`."""
        await self._call("untag", name)

    async def tags(self) -> dict[str, Checkpoint[S]]:
        """See `statelog.Thread.tags`."""
        found: dict[str, Checkpoint[S]] = await self._call("tags")
        return found

    @overload
    def mount(
        self: Thread[Untyped, Any], *, metadata: Mapping[str, Any] | None = None, fence: Fence | None = None
    ) -> AbstractAsyncContextManager[Mount]: ...
    @overload
    def mount(  # type: ignore[overload-overlap] # the first that fits counts
        self: Thread[D, Any], *, metadata: Mapping[str, Any] | None = None, fence: Fence | None = None
    ) -> AbstractAsyncContextManager[D]: ...
    @overload
    def mount(
        self, *, metadata: Mapping[str, Any] | None = None, fence: Fence | None = None
    ) -> AbstractAsyncContextManager[Mount]: ...
    def mount(
        self, *, metadata: Mapping[str, Any] | None = None, fence: Fence | None = None
    ) -> AbstractAsyncContextManager[Any]:
        """Give the state, read whole before the block: it waits for no disk; see `statelog.Thread.mount`."""
        return self._mounted(metadata, fence)

    @asynccontextmanager
    async def _mounted(self, metadata: Mapping[str, Any] | None, fence: Fence | None) -> AsyncIterator[Mount]:
        thread = await self._runner.run(self._thread)
        state = await self._runner.run(_open_whole, thread)
        try:
            yield state
            await self._runner.run(commit_mount, mountable(thread, fence), state, metadata)
        finally:
            state.end()


def _open_whole(thread: statelog.Thread[Any, Any]) -> Mount:
    mount = open_mount(mountable(thread))
    for channel in mount:
        mount[channel]
    return mount
