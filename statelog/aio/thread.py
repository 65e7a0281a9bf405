"""Threads of a store on the event loop."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, cast, overload

from statelog.aio.generated import ThreadCalls
from statelog.aio.state import State, StateOf
from statelog.log.events import MAIN
from statelog.schema.typed import D, Fields, S, Untyped, W
from statelog.store.mount import commit_mount, mountable, open_mount

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Mapping
    from contextlib import AbstractAsyncContextManager

    import statelog
    from statelog.aio.bridge import Runner
    from statelog.store.checkpoint import Checkpoint
    from statelog.store.fences import Fence
    from statelog.store.mount import Mount
    from statelog.store.targets import Target
    from statelog.store.views import MapView


class Thread(ThreadCalls[S, W]):
    """A thread, like `statelog.Thread`. It is opened on first use.

    `await thread` opens it now, and raises its errors.
    """

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
        """Make reads of this object return values that a check has quarantined. Return the object."""
        make = self._make
        self._make = lambda: make()._including_quarantined()  # noqa: SLF001 - the synchronous thread has this method for its twin
        return self

    def _state(self) -> State[Any]:
        return State(self._runner, lambda: self._thread()._read_state())  # noqa: SLF001 - this is `state` without its types

    @overload
    def state_of(self, checkpoint: Checkpoint[Untyped]) -> State[dict[str, Any]]: ...
    @overload
    def state_of(self, checkpoint: Checkpoint[D]) -> State[D]: ...
    @overload
    def state_of(self, checkpoint: Checkpoint[Fields]) -> State[dict[str, Any]]: ...
    def state_of(self, checkpoint: Checkpoint[Any]) -> State[Any]:
        """Return the channels of a checkpoint."""
        return State(self._runner, lambda: cast("MapView", checkpoint.state))

    def stored_of(self, checkpoint: Checkpoint[Any]) -> State[dict[str, Any]]:
        """Return the channels of a checkpoint as they were written. See `statelog.Checkpoint.stored`."""
        return State(self._runner, lambda: checkpoint.stored)

    async def branch_of(self, checkpoint: Checkpoint) -> str:
        """Return the name of the branch a checkpoint was committed on."""
        return await self._runner.run(lambda: checkpoint.branch)

    async def parent_of(self, checkpoint: Checkpoint) -> Checkpoint[S] | None:
        """Return the parent of a checkpoint, from which it was made. See `statelog.Checkpoint.parent`."""
        return await self._runner.run(lambda: checkpoint.parent)

    async def ancestor_of(self, checkpoint: Checkpoint, generations: int) -> Checkpoint[S] | None:
        """Return the ancestor `generations` parents back, or None if there are fewer.

        See `statelog.Checkpoint.ancestor`.
        """
        return await self._runner.run(checkpoint.ancestor, generations)

    async def common_ancestor_of(self, checkpoint: Checkpoint, other: Checkpoint) -> Checkpoint[S] | None:
        """Return the last common ancestor of two checkpoints, which may be one of them.

        See `statelog.Checkpoint.common_ancestor`.
        """
        return await self._runner.run(checkpoint.common_ancestor, other)

    async def fork(
        self,
        name: str,
        *,
        at: Target | None = None,
        update: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        fence: Fence | None = None,
    ) -> Thread[S, W]:
        """Create a branch that shares everything up to a version, and return it. See `statelog.Thread.fork`."""
        forked = await self._runner.run(
            lambda: self._thread().fork(name, at=at, update=update, metadata=metadata, fence=fence)
        )
        return Thread(self._runner, lambda: forked, self.id, name)

    async def checkout(self, branch: str) -> Thread[S, W]:
        """Return this thread on another branch. See `statelog.Thread.checkout`."""
        found = await self._runner.run(lambda: self._thread().checkout(branch))
        return Thread(self._runner, lambda: found, self.id, branch)

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
        """Yield the state, which is read whole before the block begins. See `statelog.Thread.mount`."""
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
