"""Methods of the classes of `statelog.aio` that only make a synchronous call on the pool.

`python .ci/aio.py` generates this file from the synchronous API. Do not edit it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from statelog.aio.bridge import run, stream
from statelog.memory.messages import estimate_tokens
from statelog.schema.typed import S, W, Written

if TYPE_CHECKING:
    import builtins
    import os
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from datetime import date, datetime, timedelta
    from pathlib import Path

    from statelog.aio.bridge import Runner
    from statelog.errors import FencedError
    from statelog.fleet.fleet import Fleet, Problem, StoreStatus, Stranded
    from statelog.format.mac import Key
    from statelog.guard.policy import Guard
    from statelog.guard.search import SecretFound
    from statelog.log.care.compact import CompactionReport
    from statelog.log.care.purge import PurgeReport
    from statelog.log.care.vacuum import RetentionReport
    from statelog.log.care.verify import VerifyReport
    from statelog.memory.memory import Memory
    from statelog.memory.sessions import Message, Session
    from statelog.memory.timeline import Fact
    from statelog.portable.frames import ExportSource, ExportTarget
    from statelog.portable.reports import ExportReport, ImageReport, ImportReport
    from statelog.reducers import Reducer
    from statelog.schema.versions import Versioned
    from statelog.search.hits import Hits
    from statelog.store.board import Board
    from statelog.store.branches import BranchInfo
    from statelog.store.checkpoint import Checkpoint
    from statelog.store.claims import Claim, LeaseInfo
    from statelog.store.entries import Entry
    from statelog.store.fences import Fence
    from statelog.store.migrations import MigrationReport
    from statelog.store.quarantine import QuarantinedPlace
    from statelog.store.sizes import StateSize
    from statelog.store.statistics import StoreStatistics
    from statelog.store.store import Store
    from statelog.store.targets import Target
    from statelog.store.thread import T, Thread
    from statelog.store.thread_info import ThreadInfo
    from statelog.store.transaction import Transaction


class StoreCalls:
    """Methods of `statelog.aio.store.Store` that call the methods of `statelog.Store`."""

    _runner: Runner
    _store: Store

    @property
    def path(self) -> Path:
        """The path of the file. See `statelog.Store.path`."""
        return self._store.path

    @property
    def closed(self) -> bool:
        """Whether `close` was called. See `statelog.Store.closed`."""
        return self._store.closed

    @property
    def read_only(self) -> bool:
        """Whether the store was opened read-only. See `statelog.Store.read_only`."""
        return self._store.read_only

    @property
    def durability(self) -> str:
        """`commit` or `interval`. See `statelog.Store.durability`."""
        return self._store.durability

    @property
    def fenced(self) -> bool:
        """Whether any process has called `shut_off`. If so, no process can commit. See `statelog.Store.fenced`."""
        return self._store.fenced

    def threads(self) -> AsyncIterator[ThreadInfo]:
        """Yield all threads in order of creation, except the thread with the records of the board.

        See `statelog.Store.threads`.
        """
        return stream(self._runner, self._store.threads)

    async def thread_ids(self, *, containing: str = "") -> list[str]:
        """Return the ids of all threads in order of creation. This reads less data per thread than `threads`.

        See `statelog.Store.thread_ids`.
        """
        return await self._runner.run(self._store.thread_ids, containing=containing)

    async def quarantined(self) -> list[QuarantinedPlace]:
        """Return the places of quarantined values in the heads of all branches and in the entries of the board.

        See `statelog.Store.quarantined`.
        """
        return await self._runner.run(self._store.quarantined)

    async def release(self, place: QuarantinedPlace) -> None:
        """Store a quarantined value as an ordinary value, in a new version. No check is called.

        See `statelog.Store.release`.
        """
        await self._runner.run(self._store.release, place)

    async def last_lsn(self) -> int:
        """Return the LSN of the last record, 0 for an empty log. See `statelog.Store.last_lsn`."""
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
        """Return the texts of threads, entries, LangGraph items and runs that match a query, best first.

        See `statelog.Store.search`.
        """
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
        """Configure what the search index contains. The store saves the configuration, and all processes follow it.

        See `statelog.Store.configure_search`.
        """
        await self._runner.run(self._store.configure_search, include=include, exclude=exclude, tokenizer=tokenizer)

    async def prune(
        self,
        *,
        keep_last: int | None = None,
        max_age: timedelta | float | None = None,
        threads: str = "*",
        keep_tags: bool = True,
        pinned: Iterable[Checkpoint] = (),
    ) -> RetentionReport:
        """Remove old versions now, and the values that only they use. See `statelog.Store.prune`."""
        return await self._runner.run(
            self._store.prune, keep_last=keep_last, max_age=max_age, threads=threads, keep_tags=keep_tags, pinned=pinned
        )

    async def set_retention(
        self,
        *,
        keep_last: int | None = None,
        max_age: timedelta | float | None = None,
        threads: str = "*",
        keep_tags: bool = True,
    ) -> RetentionReport:
        """Store a policy that removes old versions of matching threads, present and future. Apply it once now.

        See `statelog.Store.set_retention`.
        """
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
        """Limit the size of a channel, or of the whole state, in commits to matching threads through this object.

        See `statelog.Store.limit`.
        """
        self._store.limit(
            size_bytes_max=size_bytes_max, items_max=items_max, channel=channel, threads=threads, warns=warns
        )

    async def expire(self, checkpoints: Iterable[Checkpoint]) -> RetentionReport:
        """Remove these versions, and the values that only they use. See `statelog.Store.expire`."""
        return await self._runner.run(self._store.expire, checkpoints)

    async def delete_thread(self, id: str) -> RetentionReport:
        """Delete a thread permanently, with its versions, names and values. See `statelog.Store.delete_thread`."""
        return await self._runner.run(self._store.delete_thread, id)

    async def flush(self) -> None:
        """Wait until all commits so far are on the disk, as a barrier in `interval` mode.

        See `statelog.Store.flush`.
        """
        await self._runner.run(self._store.flush)

    async def statistics(self, *, progress: Callable[[int, int], None] | None = None) -> StoreStatistics:
        """Return sizes, counts, free pages and readers.

        See `statelog.Store.statistics`. `progress` is called on a thread of the pool.
        """
        return await self._runner.run(self._store.statistics, progress=progress)

    async def verify(
        self, *, deep: bool = True, expect: bytes | None = None, progress: Callable[[int, int], None] | None = None
    ) -> VerifyReport:
        """Check every invariant of the file and report violations.

        See `statelog.Store.verify`. `progress` is called on a thread of the pool.
        """
        return await self._runner.run(self._store.verify, deep=deep, expect=expect, progress=progress)

    async def anchor(self) -> bytes:
        """Return an anchor: 53 bytes that name the history of the store up to its last record.

        See `statelog.Store.anchor`.
        """
        return await self._runner.run(self._store.anchor)

    async def migrate(
        self,
        schema: Versioned[Any, Any],
        *,
        threads: str = "*",
        dry_run: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> MigrationReport:
        """Migrate the heads of all branches of some threads to the declared version of a schema.

        See `statelog.Store.migrate`. `progress` is called on a thread of the pool.
        """
        return await self._runner.run(self._store.migrate, schema, threads=threads, dry_run=dry_run, progress=progress)

    async def compact(self, *, progress: Callable[[int, int], None] | None = None) -> CompactionReport:
        """Rewrite the store in key order and without free pages, to a new file that replaces the old one.

        See `statelog.Store.compact`. `progress` is called on a thread of the pool.
        """
        return await self._runner.run(self._store.compact, progress=progress)

    async def rekey(self, key: Key, *, progress: Callable[[int, int], None] | None = None) -> CompactionReport:
        """Change the key of the store, or give it its first key.

        See `statelog.Store.rekey`. `progress` is called on a thread of the pool.
        """
        return await self._runner.run(self._store.rekey, key, progress=progress)

    async def find_secrets(
        self, *, guard: Guard | None = None, threads: Iterable[str] | None = None
    ) -> list[SecretFound]:
        """Return the secrets in all versions of the store, including values that were replaced later.

        See `statelog.Store.find_secrets`.
        """
        return await self._runner.run(self._store.find_secrets, guard=guard, threads=threads)

    async def purge(
        self,
        found: Iterable[SecretFound],
        *,
        guard: Guard | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> PurgeReport:
        """Remove secrets from all versions. The store is copied to a new file, which replaces the old one.

        See `statelog.Store.purge`. `progress` is called on a thread of the pool.
        """
        return await self._runner.run(self._store.purge, found, guard=guard, progress=progress)

    async def export(
        self,
        target: ExportTarget,
        *,
        threads: Iterable[str] | None = None,
        since: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> ExportReport:
        """Write the store, or some of its threads, as a stream that any machine can import.

        See `statelog.Store.export`. `progress` is called on a thread of the pool. The target is also written there.
        """
        return await self._runner.run(self._store.export, target, threads=threads, since=since, progress=progress)

    async def import_(
        self, source: ExportSource, *, upto: int | None = None, progress: Callable[[int, int], None] | None = None
    ) -> ImportReport:
        """Import an export. Every digest is checked first, and existing data is skipped.

        See `statelog.Store.import_`. `progress` is called on a thread of the pool. The source is also read there.
        """
        return await self._runner.run(self._store.import_, source, upto=upto, progress=progress)

    async def image(self, target: str | os.PathLike[str] | ExportTarget) -> ImageReport:
        """Write a copy of the file at one moment, page by page, with zeros for free pages. It opens as a closed store.

        See `statelog.Store.image`. The target is written to on a thread of the pool.
        """
        return await self._runner.run(self._store.image, target)

    async def shut_off(self, error: FencedError) -> None:
        """Forbid all later commits in every process. Reads still work. A copy made by `image` accepts commits.

        See `statelog.Store.shut_off`.
        """
        await self._runner.run(self._store.shut_off, error)

    async def rebuild_index(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Rebuild the index from the log in one transaction. Return the number of records read.

        See `statelog.Store.rebuild_index`.
        """
        return await self._runner.run(self._store.rebuild_index, progress)


class TransactionCalls:
    """Methods of `statelog.aio.transaction.Transaction` that call the methods of `statelog.Transaction`."""

    _runner: Runner
    _transaction: Transaction

    async def delete_thread(self, id: str) -> None:
        """Delete a thread when the transaction commits. The transaction may have changed the thread.

        See `statelog.Transaction.delete_thread`.
        """
        await self._runner.run(self._transaction.delete_thread, id)


class ThreadCalls(Written[S, W]):
    """Methods of `statelog.aio.thread.Thread` that call the methods of `statelog.Thread`."""

    _runner: Runner
    if TYPE_CHECKING:

        def _thread(self) -> Thread[S, W]: ...

    async def head(self) -> Checkpoint[S] | None:
        """Return the last checkpoint of the branch, or None before the first commit. See `statelog.Thread.head`."""
        return await self._runner.run(lambda: self._thread().head)

    async def version(self) -> int:
        """Return the head's version, -1 before the first commit. See `statelog.Thread.version`."""
        return await self._runner.run(lambda: self._thread().version)

    async def size(self) -> StateSize:
        """Return the size of the head's state and of each channel: bytes, shared bytes, and items.

        See `statelog.Thread.size`.
        """
        return await self._runner.run(lambda: self._thread().size())

    async def commit(
        self,
        *writes: W,
        metadata: Mapping[str, Any] | None = None,
        expected_version: int | Checkpoint | None = None,
        id: str | None = None,
        durable: bool | Literal["remote"] | None = None,
        fence: Fence | None = None,
    ) -> Checkpoint[S]:
        """Merge writes into the head's channels and commit the result as the new head.

        See `statelog.Thread.commit`. A commit that has begun is not undone if the task is cancelled.
        """
        return await self._runner.run(
            lambda: self._thread().commit(
                *writes, metadata=metadata, expected_version=expected_version, id=id, durable=durable, fence=fence
            )
        )

    async def rollback(
        self,
        target: Target,
        *,
        metadata: Mapping[str, Any] | None = None,
        expected_version: int | Checkpoint | None = None,
        fence: Fence | None = None,
    ) -> Checkpoint[S]:
        """Append a checkpoint with the state of an earlier one. See `statelog.Thread.rollback`."""
        return await self._runner.run(
            lambda: self._thread().rollback(target, metadata=metadata, expected_version=expected_version, fence=fence)
        )

    async def at(self, target: Target) -> Checkpoint[S]:
        """Return a checkpoint of this branch. See `statelog.Thread.at`."""
        return await self._runner.run(lambda: self._thread().at(target))

    def history(self, limit: int | None = None, *, before: int | None = None) -> AsyncIterator[Checkpoint[S]]:
        """Yield the branch's checkpoints, newest first, back to version 0. See `statelog.Thread.history`."""
        return stream(self._runner, lambda: self._thread().history(limit, before=before))

    async def branches(self) -> list[BranchInfo]:
        """Return the thread's branches in order of creation. See `statelog.Thread.branches`."""
        return await self._runner.run(lambda: self._thread().branches())

    async def tag(self, name: str, target: Target | None = None) -> Checkpoint[S]:
        """Tag a checkpoint, by default the head. If the tag is already in use, move it to this checkpoint.

        See `statelog.Thread.tag`.
        """
        return await self._runner.run(lambda: self._thread().tag(name, target))

    async def untag(self, name: str) -> None:
        """Remove a tag. Raises CheckpointNotFoundError if the tag does not exist. See `statelog.Thread.untag`."""
        await self._runner.run(lambda: self._thread().untag(name))

    async def tags(self) -> dict[str, Checkpoint[S]]:
        """Return the thread's tags and their checkpoints. See `statelog.Thread.tags`."""
        return await self._runner.run(lambda: self._thread().tags())

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
        """Call `change` inside the commit, with the state as in a mount.

        See `statelog.Thread.edit`. `change` is called on a thread of the pool.
        """
        return await self._runner.run(
            lambda: self._thread().edit(
                change, metadata=metadata, expected_version=expected_version, id=id, lazy=lazy, fence=fence
            )
        )


class BoardCalls:
    """Methods of `statelog.aio.board.Board` that call the methods of `statelog.Board`."""

    _runner: Runner
    _board: Board

    async def set(
        self,
        key: str,
        value: Any,
        *,
        expected_version: int | None = None,
        ttl_s: float | None = None,
        priority: int = 0,
        delay_s: float | None = None,
        fence: Fence | None = None,
    ) -> Entry:
        """Set or create an entry. A claim of the entry stays. See `statelog.Board.set`."""
        return await self._runner.run(
            self._board.set,
            key,
            value,
            expected_version=expected_version,
            ttl_s=ttl_s,
            priority=priority,
            delay_s=delay_s,
            fence=fence,
        )

    async def create(
        self,
        key: str,
        value: Any,
        *,
        ttl_s: float | None = None,
        priority: int = 0,
        delay_s: float | None = None,
        fence: Fence | None = None,
    ) -> Entry:
        """Create an entry. Raises AlreadyExistsError if the entry exists, and the errors of `set`.

        See `statelog.Board.create`.
        """
        return await self._runner.run(
            self._board.create, key, value, ttl_s=ttl_s, priority=priority, delay_s=delay_s, fence=fence
        )

    async def cas(
        self,
        key: str,
        value: Any,
        *,
        expected_version: int,
        ttl_s: float | None = None,
        priority: int = 0,
        delay_s: float | None = None,
        fence: Fence | None = None,
    ) -> Entry:
        """Set an entry if it is at `expected_version`, as `set` does. Version 0 means that no entry may exist.

        See `statelog.Board.cas`.
        """
        return await self._runner.run(
            self._board.cas,
            key,
            value,
            expected_version=expected_version,
            ttl_s=ttl_s,
            priority=priority,
            delay_s=delay_s,
            fence=fence,
        )

    async def update(
        self, key: str, reducer: Reducer | Callable[[Any, Any], Any], value: Any, *, fence: Fence | None = None
    ) -> Entry:
        """Merge a value into an entry within the commit. `update(key, reducers.add, 1)` needs no retry.

        See `statelog.Board.update`.
        """
        return await self._runner.run(self._board.update, key, reducer, value, fence=fence)

    async def delete(self, key: str, *, expected_version: int | None = None, fence: Fence | None = None) -> bool:
        """Delete an entry. Return True if the entry existed. See `statelog.Board.delete`."""
        return await self._runner.run(self._board.delete, key, expected_version=expected_version, fence=fence)

    async def rollback(self, prefix: str, *, to: int, fence: Fence | None = None) -> builtins.list[str]:
        """Restore all entries below a prefix to their state right after an LSN. Return the changed keys.

        See `statelog.Board.rollback`.
        """
        return await self._runner.run(self._board.rollback, prefix, to=to, fence=fence)

    async def sweep(self) -> int:
        """Record the expiry of all expired entries. Return their number. Reads and writes do not need a sweep.

        See `statelog.Board.sweep`.
        """
        return await self._runner.run(self._board.sweep)

    async def prune(
        self, pattern: str = "**", *, keep_last: int | None = None, max_age: timedelta | float | None = None
    ) -> RetentionReport:
        """Remove old records of entries now. The current version of each entry stays. See `statelog.Board.prune`."""
        return await self._runner.run(self._board.prune, pattern, keep_last=keep_last, max_age=max_age)

    async def set_retention(
        self, pattern: str = "**", *, keep_last: int | None = None, max_age: timedelta | float | None = None
    ) -> RetentionReport:
        """Store a policy that removes old records of matching entries from now on. Apply it once now.

        See `statelog.Board.set_retention`.
        """
        return await self._runner.run(self._board.set_retention, pattern, keep_last=keep_last, max_age=max_age)

    async def erase(self, pattern: str) -> builtins.list[str]:
        """Delete all entries that match a pattern, and remove all their records. Return the keys.

        See `statelog.Board.erase`.
        """
        return await self._runner.run(self._board.erase, pattern)

    async def schema(self, pattern: str, schema: Versioned[Any, Any]) -> None:
        """Declare a versioned schema for the entries whose keys match a pattern. See `statelog.Board.schema`."""
        await self._runner.run(self._board.schema, pattern, schema)

    async def migrate(
        self, pattern: str = "**", *, dry_run: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> MigrationReport:
        """Convert the values of matching entries to the declared version of their schema, and store them.

        See `statelog.Board.migrate`. `progress` is called on a thread of the pool.
        """
        return await self._runner.run(self._board.migrate, pattern, dry_run=dry_run, progress=progress)

    async def leases(self) -> builtins.list[LeaseInfo]:
        """Return the leases that were not released, sorted by name, including those past their deadlines.

        See `statelog.Board.leases`.
        """
        return await self._runner.run(self._board.leases)

    async def get(self, key: str, *, at: int | datetime | None = None) -> Entry | None:
        """Return the entry of a key, or None if there is no entry. See `statelog.Board.get`."""
        return await self._runner.run(self._board.get, key, at=at)

    async def history(self, key: str, limit: int | None = None) -> builtins.list[Entry]:
        """Return the records of a key, the newest first, back to the first record that retention has removed.

        See `statelog.Board.history`.
        """
        return await self._runner.run(self._board.history, key, limit)

    async def list(
        self,
        pattern: str = "**",
        *,
        limit: int | None = None,
        after: str = "",
        before: str = "",
        reverse: bool = False,
        values: bool = True,
    ) -> builtins.list[Entry]:
        """Return the entries whose keys match a pattern, sorted by key. See `statelog.Board.list`."""
        return await self._runner.run(
            self._board.list, pattern, limit=limit, after=after, before=before, reverse=reverse, values=values
        )

    async def children(self, prefix: str = "") -> builtins.list[str]:
        """Return the children of a prefix, sorted: keys with one more segment, and directories, which end with `/`.

        See `statelog.Board.children`.
        """
        return await self._runner.run(self._board.children, prefix)

    async def claims(self, pattern: str = "**") -> builtins.list[Entry]:
        """Return the claimed entries whose keys match a pattern, sorted by key, including claims past their deadlines.

        See `statelog.Board.claims`.
        """
        return await self._runner.run(self._board.claims, pattern)


class ClaimCalls:
    """Methods of `statelog.aio.board.Claim` that call the methods of `statelog.Claim`."""

    _runner: Runner
    fence: Claim

    async def renew(self, lease_s: float | None = None) -> None:
        """Restart the duration of the claim, optionally with a new duration. Return when the renewal is on the disk.

        See `statelog.Claim.renew`.
        """
        await self._runner.run(self.fence.renew, lease_s)

    async def fail(self, error: BaseException | str, *, retry_in_s: float = 0.0) -> None:
        """End the claim so that the entry may be claimed again, and record the error. See `statelog.Claim.fail`."""
        await self._runner.run(self.fence.fail, error, retry_in_s=retry_in_s)

    async def release(self, *, counts: bool = True) -> None:
        """End the claim and leave the entry unchanged, so that it may be claimed again. Raises the errors of `renew`.

        See `statelog.Claim.release`.
        """
        await self._runner.run(self.fence.release, counts=counts)


class MemoryCalls:
    """Methods of `statelog.aio.memory.Memory` that call the methods of `statelog.Memory`."""

    _runner: Runner
    sync: Memory

    @property
    def scope(self) -> str:
        """The scope of this memory. It cannot be changed. See `statelog.Memory.scope`."""
        return self.sync.scope

    async def get(self, key: str, *, at: date | None = None, known_at: date | None = None) -> Fact | None:
        """Return the fact of a key that is true now, or None. See `statelog.Memory.get`."""
        return await self._runner.run(self.sync.get, key, at=at, known_at=known_at)

    async def history(self, key: str) -> list[Fact]:
        """Return all facts of a key, the last recorded one first. Raises the errors of `get`.

        See `statelog.Memory.history`.
        """
        return await self._runner.run(self.sync.history, key)

    async def facts(
        self,
        *,
        source: str | None = None,
        metadata: dict[str, Any] | None = None,
        at: date | None = None,
        known_at: date | None = None,
    ) -> list[Fact]:
        """Return all facts that are true, sorted by key. The arguments are as for `recall`.

        See `statelog.Memory.facts`.
        """
        return await self._runner.run(self.sync.facts, source=source, metadata=metadata, at=at, known_at=known_at)

    async def pinned(self) -> list[Fact]:
        """Return the pinned facts that are true now, sorted by key. They belong in every prompt.

        See `statelog.Memory.pinned`.
        """
        return await self._runner.run(self.sync.pinned)

    async def forget(self, key: str) -> bool:
        """Remove a fact, its history and its vectors. Return True if the fact existed. See `statelog.Memory.forget`."""
        return await self._runner.run(self.sync.forget, key)

    async def sweep(self) -> list[str]:
        """Delete the expired sessions of the scope and of the scopes below it. Return their thread ids.

        See `statelog.Memory.sweep`.
        """
        return await self._runner.run(self.sync.sweep)


class SessionCalls:
    """Methods of `statelog.aio.memory.Session` that call the methods of `statelog.memory.Session`."""

    _runner: Runner
    _session: Session

    @property
    def id(self) -> str:
        """The id of the session. See `statelog.memory.Session.id`."""
        return self._session.id

    @property
    def thread_id(self) -> str:
        """The id of the session's thread, which has every version of the session.

        See `statelog.memory.Session.thread_id`.
        """
        return self._session.thread_id

    async def messages(self) -> list[Message]:
        """Return all messages, the oldest first, including those that a summary replaces in the window.

        See `statelog.memory.Session.messages`.
        """
        return await self._runner.run(self._session.messages)

    async def summary(self) -> str | None:
        """Return the text of the last summary, or None. See `statelog.memory.Session.summary`."""
        return await self._runner.run(lambda: self._session.summary)

    async def window(self, *, tokens: int, count: Callable[[Message], int] = estimate_tokens) -> list[Message]:
        """Return the newest messages that fit into a prompt.

        See `statelog.memory.Session.window`. `count` is called on a thread of the pool.
        """
        return await self._runner.run(self._session.window, tokens=tokens, count=count)

    async def forget(self) -> bool:
        """Delete the session with all its versions. Return True if it existed. `Store.compact` removes the bytes.

        See `statelog.memory.Session.forget`.
        """
        return await self._runner.run(self._session.forget)


class FleetCalls:
    """Methods of `statelog.aio.fleet.Fleet` that call the methods of `statelog.fleet.Fleet`."""

    _fleet: Fleet

    async def close(self) -> None:
        """Close the open stores, which ships their remaining records, and close the storage.

        See `statelog.fleet.Fleet.close`.
        """
        await run(self._fleet.close)

    def path(self, name: str) -> Path:
        """Return the path of a store on this machine. See `statelog.fleet.Fleet.path`."""
        return self._fleet.path(name)

    async def restore(self, name: str, path: str | os.PathLike[str], *, at: int | datetime | None = None) -> None:
        """Write the storage's copy of a store to a file, as an ordinary store that is not shipped.

        See `statelog.fleet.Fleet.restore`.
        """
        await run(self._fleet.restore, name, path, at=at)

    async def stores(self) -> list[StoreStatus]:
        """Return the stores of the fleet, by name. A store whose head cannot be read is "unreadable".

        See `statelog.fleet.Fleet.stores`.
        """
        return await run(self._fleet.stores)

    async def status(self, name: str) -> StoreStatus:
        """Return the state of a store. Raises StoreNotFoundError. See `statelog.fleet.Fleet.status`."""
        return await run(self._fleet.status, name)

    async def shipped_lsn(self, name: str) -> int:
        """Return the LSN up to which the storage has the log of a store; 0 if it has nothing.

        See `statelog.fleet.Fleet.shipped_lsn`.
        """
        return await run(self._fleet.shipped_lsn, name)

    async def check(self, name: str | None = None) -> list[Problem]:
        """Restore every store, or only `name`, into a temporary file, verify that file, and return the problems.

        See `statelog.fleet.Fleet.check`.
        """
        return await run(self._fleet.check, name)

    async def stranded(self) -> list[Stranded]:
        """Return the local files with commits that were never shipped. See `statelog.fleet.Fleet.stranded`."""
        return await run(self._fleet.stranded)

    async def export_stranded(self, stranded: Stranded, target: ExportTarget) -> dict[str, str]:
        """Export the threads that a stranded file has continued after the store was taken over.

        See `statelog.fleet.Fleet.export_stranded`.
        """
        return await run(self._fleet.export_stranded, stranded, target)

    async def purge(self, name: str, **how: Any) -> None:
        """Also remove a store's deleted contents from the storage. The store's earlier states are lost.

        See `statelog.fleet.Fleet.purge`.
        """
        await run(self._fleet.purge, name, **how)

    async def delete(self, name: str, **how: Any) -> None:
        """Delete a store, here and in the storage. Its name may be used again. See `statelog.fleet.Fleet.delete`."""
        await run(self._fleet.delete, name, **how)
