"""The store on the event loop, and `open`."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

import statelog
from statelog.aio.board import Board
from statelog.aio.bridge import Runner, in_thread, run, stream
from statelog.aio.generated import StoreCalls
from statelog.aio.thread import Thread
from statelog.aio.threads import Threads
from statelog.aio.transaction import Transaction
from statelog.aio.waits import FOREVER_S, holds, until
from statelog.deprecated import OldStoreNames, renamed_keyword
from statelog.errors import not_hiding
from statelog.store.arguments import check_lsn, check_timeout
from statelog.store.beside import opened_here
from statelog.store.session import session_of
from statelog.store.waiter_thread import Condition

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Callable, Generator
    from types import TracebackType

    from statelog.board.rules import Rules
    from statelog.log.reader import LogRecord
    from statelog.store.checkpoint import Checkpoint
    from statelog.store.diff import Change
    from statelog.store.snapshot import Snapshot


T = TypeVar("T")


class Store(StoreCalls, Threads, OldStoreNames):
    """A store with the methods of `statelog.Store`, which are awaited."""

    def __init__(self, runner: Runner, store: statelog.Store) -> None:
        self._runner = runner
        self._store = store

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        with not_hiding(error):
            await self.close()

    @property
    def sync(self) -> statelog.Store:
        """The synchronous store, for code outside the event loop."""
        return self._store

    async def close(self) -> None:
        """Close the file. The file is closed even if the task is cancelled."""
        await asyncio.shield(asyncio.wrap_future(self._runner.close(self._store.close)))

    def _thread(self, id: str, schema: object, branch: str | None, *, recreate: bool) -> Thread:
        make = partial(self._store.thread, id, schema=schema, branch=branch, recreate=recreate)
        return Thread(self._runner, make, id, branch)

    def board(
        self, *, agent: str | None = None, rules: Rules | None = None, include_quarantined: bool = False
    ) -> Board:
        """Return the board: entries by key, shared by all processes that use the store. See `statelog.Store.board`."""
        return Board(self._runner, self._store.board(agent=agent, rules=rules, include_quarantined=include_quarantined))

    @renamed_keyword("reborn", "recreate")
    async def copy_thread(self, source: str, target: str, *, recreate: bool = False) -> Thread:
        """Create a copy of a thread with all its branches and versions. See `statelog.Store.copy_thread`."""
        copied = await self._runner.run(self._store.copy_thread, source, target, recreate=recreate)
        return Thread(self._runner, lambda: copied, target, copied.branch)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Begin a transaction. Its commits happen together at the end of the block, or not at all.

        See `statelog.Store.transaction`.
        """
        context = self._store.transaction()
        opened = await self._runner.run(context.__enter__)
        try:
            with opened_here(session_of(opened)):
                yield Transaction(self._runner, opened)
        except BaseException as error:
            # Nothing is read or written here: the transaction is only marked as abandoned.
            with contextlib.suppress(type(error)):
                context.__exit__(type(error), error, error.__traceback__)
            raise
        await self._runner.run(context.__exit__, None, None, None)

    async def snapshot(self, read: Callable[[Snapshot], T]) -> T:
        """Call `read` on the pool with a snapshot, and return its result. See `statelog.Store.snapshot`.

        The result must contain all data that the caller needs, because the snapshot cannot be read later.
        """

        def run() -> T:
            with self._store.snapshot() as snapshot:
                return read(snapshot)

        return await self._runner.run(run)

    async def log(
        self, after: int = 0, *, follow: bool = False, timeout_s: float | None = None
    ) -> AsyncIterator[LogRecord]:
        """Yield the records of the event log, in order. See `statelog.Store.log`."""
        loop = asyncio.get_running_loop()
        heard_at_s = loop.time()
        while True:
            async for record in stream(
                self._runner, partial(self._store.log, after, follow=follow, timeout_s=0 if follow else None)
            ):
                yield record
                after = record.lsn
                heard_at_s = loop.time()
            left_s = FOREVER_S if timeout_s is None else heard_at_s + timeout_s - loop.time()
            if not follow or left_s <= 0:
                return
            await self.wait(after, left_s)

    async def wait(self, after: int, timeout_s: float) -> bool:
        """Wait until a record after `after` is on the disk. Return False after a timeout. See `statelog.Store.wait`."""
        check_lsn(after)
        check_timeout(timeout_s)
        session = session_of(self._store)
        condition = Condition(holds(lambda: session.engine.store_file.flushed_lsn() > after), is_any=True)
        return await until(self._runner, session, condition, timeout_s)

    @property
    def remote(self) -> Remote:
        """The object that ships this store to its fleet. Raises UsageError without a fleet.

        See `statelog.Store.remote`.
        """
        return Remote(self._runner, self._store.remote)


class Remote:
    """Ships a store to its fleet, with methods of `statelog.fleet.owner.Owner`, which are awaited."""

    def __init__(self, runner: Runner, owner: Any) -> None:
        self._runner = runner
        self._owner = owner

    async def wait(self, lsn: int | None = None, timeout_s: float | None = None) -> bool:
        """Wait until the storage has all records up to an LSN. See `statelog.fleet.owner.Owner.wait`."""
        found: bool = await in_thread(partial(self._owner.wait, lsn, timeout_s))
        return found

    async def status(self) -> Any:
        """Return how much of the log is shipped. See `statelog.fleet.owner.Owner.status`."""
        return await self._runner.run(self._owner.status)

    async def base(self) -> None:
        """Ship a base image of the store now, and wait until it is shipped. See `statelog.fleet.owner.Owner.base`."""
        await self._runner.run(self._owner.base)


async def diff(a: Checkpoint | None, b: Checkpoint | None) -> tuple[Change, ...]:
    """Return what changed between two checkpoints; see `statelog.diff`."""
    return await run(lambda: statelog.diff(a, b).changes)


class Opening:
    """A store that is being opened. Use it with `await` or `async with`.

    Args:
        name: the name of the store in messages.
        make: opens the store, on an OS thread of the pool.
    """

    def __init__(self, name: str, make: Callable[[], statelog.Store]) -> None:
        self._name = name
        self._make = make
        self._store: Store | None = None

    def __getattr__(self, name: str) -> NoReturn:
        message = f"the store is not open yet, so it has no {name!r}: use `async with aio.open(...) as store:`"
        raise AttributeError(message, name=name, obj=self)

    async def _open(self) -> Store:
        runner = Runner(self._name)
        opening = runner.submit(self._make)
        try:
            opened = await asyncio.wrap_future(opening)
            runner.path = str(opened.path)
            self._store = Store(runner, opened)
        except BaseException:
            # If the task was cancelled, the store may still be opened, so close it then.
            runner.close(lambda: opening.result().close())
            raise
        return self._store

    def __await__(self) -> Generator[Any, None, Store]:
        return self._open().__await__()

    async def __aenter__(self) -> Store:
        return await self._open()

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        assert self._store is not None
        with not_hiding(error):
            await self._store.close()


def open(path: str | os.PathLike[str], **options: Any) -> Opening:
    """Open a store: `async with aio.open(path) as store`, or `store = await aio.open(path)`.

    It takes the arguments and raises the errors of `statelog.open`.
    """
    return Opening(str(path), partial(statelog.open, path, **options))
