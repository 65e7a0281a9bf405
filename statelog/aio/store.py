"""The store, and `open`."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, TypeVar

import statelog
from statelog.aio.board import Board
from statelog.aio.bridge import Runner, in_thread, run, stream
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
    from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
    from datetime import datetime, timedelta
    from pathlib import Path
    from types import TracebackType

    from statelog.board.rules import Rules
    from statelog.errors import FencedError
    from statelog.format.mac import Key
    from statelog.guard.policy import Guard
    from statelog.guard.search import SecretFound
    from statelog.log.care.compact import CompactionReport
    from statelog.log.care.purge import PurgeReport
    from statelog.log.care.vacuum import RetentionReport
    from statelog.log.care.verify import VerifyReport
    from statelog.log.reader import LogRecord
    from statelog.portable.frames import Source
    from statelog.portable.frames import Target as Sink
    from statelog.portable.reports import ExportReport, ImageReport, ImportReport
    from statelog.schema.versions import Versioned
    from statelog.search.hits import Hits
    from statelog.store.checkpoint import Checkpoint
    from statelog.store.diff import Change
    from statelog.store.migrations import MigrationReport
    from statelog.store.quarantine import QuarantinedPlace
    from statelog.store.snapshot import Snapshot
    from statelog.store.statistics import StoreStatistics
    from statelog.store.thread_info import ThreadInfo

    Progress = Callable[[int, int], None]

T = TypeVar("T")


class Store(Threads, OldStoreNames):
    """See `statelog.Store`."""

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
        """The store itself, for use outside the loop."""
        return self._store

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._store.path

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._store.closed

    @property
    def read_only(self) -> bool:
        """Whether it was opened for reading only."""
        return self._store.read_only

    @property
    def durability(self) -> str:
        """`commit` or `interval`."""
        return self._store.durability

    async def close(self) -> None:
        """Close the file. Cancelling the task does not keep it open."""
        await asyncio.shield(asyncio.wrap_future(self._runner.close(self._store.close)))

    def _thread(self, id: str, schema: object, branch: str | None, *, recreate: bool) -> Thread:
        make = partial(self._store.thread, id, schema=schema, branch=branch, recreate=recreate)
        return Thread(self._runner, make, id, branch)

    def threads(self) -> AsyncIterator[ThreadInfo]:
        """See `statelog.Store.threads`."""
        return stream(self._runner, self._store.threads)

    async def thread_ids(self, *, containing: str = "") -> list[str]:
        """See `statelog.Store.thread_ids`."""
        return await self._runner.run(self._store.thread_ids, containing=containing)

    def board(
        self, *, agent: str | None = None, rules: Rules | None = None, include_quarantined: bool = False
    ) -> Board:
        """See `statelog.Store.board`."""
        return Board(self._runner, self._store.board(agent=agent, rules=rules, include_quarantined=include_quarantined))

    async def quarantined(self) -> list[QuarantinedPlace]:
        """See `statelog.Store.quarantined`."""
        return await self._runner.run(self._store.quarantined)

    async def release(self, place: QuarantinedPlace) -> None:
        """See `statelog.Store.release`."""
        await self._runner.run(self._store.release, place)

    @renamed_keyword("reborn", "recreate")
    async def copy_thread(self, source: str, target: str, *, recreate: bool = False) -> Thread:
        """See `statelog.Store.copy_thread`."""
        copied = await self._runner.run(self._store.copy_thread, source, target, recreate=recreate)
        return Thread(self._runner, lambda: copied, target, copied.branch)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """See `statelog.Store.transaction`."""
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

        The result must have all that is needed, because the snapshot cannot be read later.
        """

        def run() -> T:
            with self._store.snapshot() as snapshot:
                return read(snapshot)

        return await self._runner.run(run)

    async def log(
        self, after: int = 0, *, follow: bool = False, timeout_s: float | None = None
    ) -> AsyncIterator[LogRecord]:
        """See `statelog.Store.log`."""
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

    async def flush(self) -> None:
        """See `statelog.Store.flush`."""
        await self._runner.run(self._store.flush)

    async def wait(self, after: int, timeout_s: float) -> bool:
        """See `statelog.Store.wait`."""
        check_lsn(after)
        check_timeout(timeout_s)
        session = session_of(self._store)
        condition = Condition(holds(lambda: session.engine.store_file.flushed_lsn() > after), is_any=True)
        return await until(self._runner, session, condition, timeout_s)

    async def last_lsn(self) -> int:
        """Return the LSN of the last record, 0 for an empty log."""
        return await self._runner.run(lambda: self._store.last_lsn)

    async def search(
        self,
        query: str,
        *,
        threads: str | None = None,
        where: str | None = None,
        role: str | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        branch: str | None = None,
        at: int | datetime | None = None,
        history: bool = False,
        match: Literal["all", "any"] = "all",
        limit: int = 10,
    ) -> Hits:
        """See `statelog.Store.search`."""
        return await self._runner.run(
            self._store.search,
            query,
            threads=threads,
            where=where,
            role=role,
            since=since,
            until=until,
            branch=branch,
            at=at,
            history=history,
            match=match,
            limit=limit,
        )

    async def configure_search(
        self,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        tokenizer: Literal["unicode61", "trigram"] = "unicode61",
    ) -> None:
        """See `statelog.Store.configure_search`."""
        await self._runner.run(self._store.configure_search, include=include, exclude=exclude, tokenizer=tokenizer)

    # What follows takes its time on a thread of the pool, and `progress` is called there.

    async def prune(
        self,
        *,
        keep_last: int | None = None,
        max_age: timedelta | float | None = None,
        threads: str = "*",
        keep_tags: bool = True,
        pinned: Iterable[Checkpoint] = (),
    ) -> RetentionReport:
        """See `statelog.Store.prune`."""
        return await self._runner.run(
            self._store.prune,
            keep_last=keep_last,
            max_age=max_age,
            threads=threads,
            keep_tags=keep_tags,
            pinned=pinned,
        )

    async def set_retention(
        self,
        *,
        keep_last: int | None = None,
        max_age: timedelta | float | None = None,
        threads: str = "*",
        keep_tags: bool = True,
    ) -> RetentionReport:
        """See `statelog.Store.set_retention`."""
        return await self._runner.run(
            self._store.set_retention, keep_last=keep_last, max_age=max_age, threads=threads, keep_tags=keep_tags
        )

    def limit(
        self,
        *,
        size_bytes_max: int | None = None,
        items_max: int | None = None,
        channel: str | None = None,
        threads: str = "*",
        warns: bool = False,
    ) -> None:
        """See `statelog.Store.limit`."""
        self._store.limit(
            size_bytes_max=size_bytes_max, items_max=items_max, channel=channel, threads=threads, warns=warns
        )

    async def expire(self, checkpoints: Iterable[Checkpoint]) -> RetentionReport:
        """See `statelog.Store.expire`."""
        return await self._runner.run(self._store.expire, checkpoints)

    async def delete_thread(self, id: str) -> RetentionReport:
        """See `statelog.Store.delete_thread`."""
        return await self._runner.run(self._store.delete_thread, id)

    async def statistics(self, *, progress: Progress | None = None) -> StoreStatistics:
        """See `statelog.Store.statistics`."""
        return await self._runner.run(self._store.statistics, progress=progress)

    async def verify(
        self, *, deep: bool = True, expect: bytes | None = None, progress: Progress | None = None
    ) -> VerifyReport:
        """See `statelog.Store.verify`."""
        return await self._runner.run(self._store.verify, deep=deep, expect=expect, progress=progress)

    async def anchor(self) -> bytes:
        """See `statelog.Store.anchor`."""
        return await self._runner.run(self._store.anchor)

    async def rebuild_index(self, progress: Progress | None = None) -> int:
        """See `statelog.Store.rebuild_index`."""
        return await self._runner.run(self._store.rebuild_index, progress)

    async def rekey(self, key: Key, *, progress: Progress | None = None) -> CompactionReport:
        """See `statelog.Store.rekey`."""
        return await self._runner.run(self._store.rekey, key, progress=progress)

    async def compact(self, *, progress: Progress | None = None) -> CompactionReport:
        """See `statelog.Store.compact`."""
        return await self._runner.run(self._store.compact, progress=progress)

    async def find_secrets(
        self, *, guard: Guard | None = None, threads: Iterable[str] | None = None
    ) -> list[SecretFound]:
        """See `statelog.Store.find_secrets`."""
        return await self._runner.run(self._store.find_secrets, guard=guard, threads=threads)

    async def purge(
        self, found: Iterable[SecretFound], *, guard: Guard | None = None, progress: Progress | None = None
    ) -> PurgeReport:
        """See `statelog.Store.purge`."""
        return await self._runner.run(self._store.purge, found, guard=guard, progress=progress)

    async def migrate(
        self,
        schema: Versioned[Any, Any],
        *,
        threads: str = "*",
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> MigrationReport:
        """See `statelog.Store.migrate`."""
        return await self._runner.run(self._store.migrate, schema, threads=threads, dry_run=dry_run, progress=progress)

    async def export(
        self,
        target: Sink,
        *,
        threads: Iterable[str] | None = None,
        since: int = 0,
        progress: Progress | None = None,
    ) -> ExportReport:
        """See `statelog.Store.export`; the target is written to on a thread of the pool."""
        return await self._runner.run(self._store.export, target, threads=threads, since=since, progress=progress)

    async def import_(
        self, source: Source, *, upto: int | None = None, progress: Progress | None = None
    ) -> ImportReport:
        """See `statelog.Store.import_`; the source is read on a thread of the pool."""
        return await self._runner.run(self._store.import_, source, upto=upto, progress=progress)

    async def image(self, target: str | os.PathLike[str] | Sink) -> ImageReport:
        """See `statelog.Store.image`; the target is written to on a thread of the pool."""
        return await self._runner.run(self._store.image, target)

    @property
    def fenced(self) -> bool:
        """See `statelog.Store.fenced`."""
        return self._store.fenced

    @property
    def remote(self) -> Remote:
        """See `statelog.Store.remote`."""
        return Remote(self._runner, self._store.remote)

    async def shut_off(self, error: FencedError) -> None:
        """See `statelog.Store.shut_off`."""
        await self._runner.run(self._store.shut_off, error)


class Remote:
    """What ships a store; see `statelog.fleet.owner.Owner`."""

    def __init__(self, runner: Runner, owner: Any) -> None:
        self._runner = runner
        self._owner = owner

    async def wait(self, lsn: int | None = None, timeout_s: float | None = None) -> bool:
        """See `statelog.fleet.owner.Owner.wait`."""
        found: bool = await in_thread(partial(self._owner.wait, lsn, timeout_s))
        return found

    async def status(self) -> Any:
        """See `statelog.fleet.owner.Owner.status`."""
        return await self._runner.run(self._owner.status)

    async def base(self) -> None:
        """See `statelog.fleet.owner.Owner.base`."""
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
        message = f"the store is not open yet, and has no {name!r}: async with aio.open(...) as store: ..."
        raise AttributeError(message, name=name, obj=self)

    async def _open(self) -> Store:
        runner = Runner(self._name)
        opening = runner.submit(self._make)
        try:
            opened = await asyncio.wrap_future(opening)
            runner.path = str(opened.path)
            self._store = Store(runner, opened)
        except BaseException:
            # If the task was cancelled, the store may be open now or soon.
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

    Args and errors are those of `statelog.open`.
    """
    return Opening(str(path), partial(statelog.open, path, **options))
