"""The same surface for asyncio: nothing here blocks the event loop on disk.

Every call that may touch the file runs on a small pool of OS threads; commits of many tasks
at once share a flush, as those of threads do. What a checkpoint or a record tells of itself
is in memory; state is read with `await`.

    async with statelog.aio.open("agent.state") as store:
        thread = store.thread("ticket-42", schema=Research)
        cp = await thread.commit({"findings": ["a"]})
        findings = await thread.state["findings"]
        async for c in thread.history(limit=10): ...
        async with thread.mount() as state: ...
        async with store.transaction() as tx:
            await tx.thread("a").commit({...})
        async for record in store.log(after=cp.lsn): ...
"""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

import statelog
from statelog.errors import ClosedError
from statelog.format.cbor import encode
from statelog.mount import commit_mount, open_mount
from statelog.mutable import plain
from statelog.views import ListView, MapView

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
    from types import TracebackType

    from statelog.branches import BranchInfo
    from statelog.checkpoint import Checkpoint
    from statelog.diff import Change
    from statelog.log.reader import LogRecord
    from statelog.log.verify import VerifyReport
    from statelog.mount import Mount
    from statelog.statistics import StoreStatistics
    from statelog.store import ThreadInfo
    from statelog.targets import Target
    from statelog.transaction import Transaction as SyncTransaction

T = TypeVar("T")

WORKERS_MAX = 32
"""OS threads of one store: as many commits can wait for one flush."""

_PAGE = 64
_FOLLOW_SLICE_S = 0.5


class _Runner:
    """Runs calls on the pool."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(WORKERS_MAX, thread_name_prefix="statelog")
        self._is_closed = False
        # Waiting for news must not keep commits waiting for a thread.
        self._waiters = ThreadPoolExecutor(WORKERS_MAX, thread_name_prefix="statelog-wait")

    async def run(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Return what a call returns. A task that is cancelled does not undo a commit on its way."""
        if self._is_closed:
            message = "the store is closed"
            raise ClosedError(message)
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(function, *args, **kwargs))

    async def wait(self, function: Callable[..., T], /, *args: Any) -> T:
        """Return what a call returns that sleeps for long."""
        return await asyncio.get_running_loop().run_in_executor(self._waiters, function, *args)

    def close(self) -> None:
        """Let the threads end."""
        self._is_closed = True
        self._pool.shutdown(wait=False)
        self._waiters.shutdown(wait=False)


def _whole(value: Any) -> Any:
    return value.to_python() if isinstance(value, ListView | MapView) else value


class State:
    """A state to read with `await`: `await state["x"]`, `await state.get("x")`, `await state.to_python()`.

    Lists and dicts come whole and plain. For a part of a long list: `await state.items_of("x", -20, None)`.
    """

    def __init__(self, runner: _Runner, view: Callable[[], MapView]) -> None:
        self._runner = runner
        self._view = view

    def __getitem__(self, channel: str) -> Awaitable[Any]:
        return self._runner.run(lambda: _whole(self._view()[channel]))

    async def get(self, channel: str, default: Any = None) -> Any:
        """Return a channel's value, or the default."""
        return await self._runner.run(lambda: _whole(self._view().get(channel, default)))

    async def items_of(self, channel: str, start: int | None = None, stop: int | None = None) -> list[Any]:
        """Return a slice of a list channel, reading only what is in it."""
        return await self._runner.run(lambda: [_whole(item) for item in self._view()[channel][start:stop]])

    async def keys(self) -> list[str]:
        """Return the channels."""
        return await self._runner.run(lambda: list(self._view()))

    async def to_python(self) -> dict[str, Any]:
        """Return everything."""
        return await self._runner.run(lambda: self._view().to_python())

    def __await__(self) -> Generator[Any, None, dict[str, Any]]:
        return self.to_python().__await__()


async def _stream(runner: _Runner, make: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
    """Draw from an iterator in pages, on the pool."""
    iterator: Iterator[T] | None = None

    def page() -> list[T]:
        nonlocal iterator
        iterator = make() if iterator is None else iterator
        found = []
        for item in iterator:
            found.append(item)
            if len(found) == _PAGE:
                break
        return found

    while items := await runner.run(page):
        for item in items:
            yield item


class Thread:
    """See `statelog.Thread`. Opened at its first use; `await thread` opens it, with its errors, at once."""

    def __init__(self, runner: _Runner, make: Callable[[], statelog.Thread], thread_id: str, branch: str) -> None:
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

    async def head(self) -> Checkpoint | None:
        """Return the branch's last checkpoint."""
        return await self._runner.run(lambda: self._thread().head)

    async def commit(
        self,
        *writes: Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
        expected_version: int | None = None,
        id: str | None = None,
    ) -> Checkpoint:
        """See `statelog.Thread.commit`. Cancelling the task does not take back a commit on its way."""
        made: Checkpoint = await self._call(
            "commit", *writes, metadata=metadata, expected_version=expected_version, id=id
        )
        return made

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
        return _stream(self._runner, lambda: self._thread().history(limit, before=before))

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
    async def mount(self, *, metadata: Mapping[str, Any] | None = None) -> AsyncIterator[dict[str, Any]]:
        """Give the state as a plain dict, read whole before; see `statelog.Thread.mount`.

        Reading lazily would read disk on the loop, so all of it is read at the beginning; what
        is written at the end is only what changed.
        """
        mount, state = await self._runner.run(self._open_mount)
        yield state
        await self._runner.run(self._close_mount, mount, state, metadata)

    def _open_mount(self) -> tuple[Mount, dict[str, Any]]:
        mount = open_mount(self._thread())
        return mount, {channel: plain(mount[channel]) for channel in mount}

    def _close_mount(self, mount: Mount, state: dict[str, Any], metadata: Mapping[str, Any] | None) -> None:
        for channel in list(mount):
            if channel not in state:
                del mount[channel]
        for channel, value in state.items():
            # Of a large value only what is new is written: its nodes are found again by digest.
            if channel not in mount or encode(value, path=channel) != encode(plain(mount[channel])):
                mount[channel] = value
        commit_mount(self._thread(), mount, metadata)


class Transaction:
    """See `statelog.transaction.Transaction`."""

    def __init__(self, runner: _Runner, transaction: SyncTransaction) -> None:
        self._runner = runner
        self._transaction = transaction

    def thread(self, id: str, *, schema: object = None, branch: str = "main") -> Thread:
        """Return a thread whose writes belong to this transaction."""
        make = partial(self._transaction.thread, id, schema=schema, branch=branch)
        return Thread(self._runner, make, id, branch)


class Store:
    """See `statelog.Store`."""

    def __init__(self, runner: _Runner, store: statelog.Store) -> None:
        self._runner = runner
        self._store = store

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def sync(self) -> statelog.Store:
        """The store itself, for use outside the loop."""
        return self._store

    async def close(self) -> None:
        """Close the file."""
        await self._runner.run(self._store.close)
        self._runner.close()

    def thread(self, id: str, *, schema: object = None, branch: str = "main") -> Thread:
        """See `statelog.Store.thread`."""
        make = partial(self._store.thread, id, schema=schema, branch=branch)
        return Thread(self._runner, make, id, branch)

    def threads(self) -> AsyncIterator[ThreadInfo]:
        """See `statelog.Store.threads`."""
        return _stream(self._runner, self._store.threads)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """See `statelog.Store.transaction`."""
        context = self._store.transaction()
        opened = await self._runner.run(context.__enter__)
        try:
            yield Transaction(self._runner, opened)
        except BaseException as error:
            # Nothing is read or written here: the transaction is only marked as abandoned.
            with contextlib.suppress(type(error)):
                context.__exit__(type(error), error, error.__traceback__)
            raise
        await self._runner.run(context.__exit__, None, None, None)

    async def log(
        self, after: int = 0, *, follow: bool = False, timeout_s: float | None = None
    ) -> AsyncIterator[LogRecord]:
        """See `statelog.Store.log`."""
        loop = asyncio.get_running_loop()
        heard_at_s = loop.time()
        while True:
            async for record in _stream(self._runner, partial(self._store.log, after)):
                yield record
                after = record.lsn
                heard_at_s = loop.time()
            left_s = _FOLLOW_SLICE_S if timeout_s is None else heard_at_s + timeout_s - loop.time()
            if not follow or left_s <= 0:
                return
            await self._runner.wait(self._store.wait, after, min(left_s, _FOLLOW_SLICE_S))

    async def statistics(self) -> StoreStatistics:
        """See `statelog.Store.statistics`."""
        return await self._runner.run(self._store.statistics)

    async def verify(self, *, deep: bool = True) -> VerifyReport:
        """See `statelog.Store.verify`."""
        return await self._runner.run(self._store.verify, deep=deep)

    async def rebuild_index(self) -> int:
        """See `statelog.Store.rebuild_index`."""
        return await self._runner.run(self._store.rebuild_index)


async def diff(a: Checkpoint | None, b: Checkpoint | None) -> tuple[Change, ...]:
    """Return what changed between two checkpoints; see `statelog.diff`."""
    return await asyncio.to_thread(lambda: statelog.diff(a, b).changes)


class _Opening:
    """A store about to be open: `await` it, or use it in `async with`."""

    def __init__(self, path: str | os.PathLike[str], options: dict[str, Any]) -> None:
        self._path = path
        self._options = options
        self._store: Store | None = None

    async def _open(self) -> Store:
        runner = _Runner()
        try:
            self._store = Store(runner, await runner.run(statelog.open, self._path, **self._options))
        except BaseException:
            runner.close()
            raise
        return self._store

    def __await__(self) -> Generator[Any, None, Store]:
        return self._open().__await__()

    async def __aenter__(self) -> Store:
        return await self._open()

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        assert self._store is not None
        await self._store.close()


def open(path: str | os.PathLike[str], **options: Any) -> _Opening:
    """Open a store: `async with aio.open(path) as store`, or `store = await aio.open(path)`.

    Args and errors are those of `statelog.open`.
    """
    return _Opening(path, options)
