"""The board, on the loop."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from statelog.aio.waits import Turn, win
from statelog.deprecated import OldBoardNames
from statelog.errors import not_hiding
from statelog.store.board import attempt_claim, attempt_lease

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncIterator, Callable, Sequence
    from datetime import datetime, timedelta

    from statelog.aio.bridge import Runner
    from statelog.log.care.vacuum import RetentionReport
    from statelog.reducers import Reducer
    from statelog.schema.versions import Versioned
    from statelog.store.board import Board as SyncBoard
    from statelog.store.claims import Claim as SyncClaim
    from statelog.store.claims import Lease, LeaseInfo
    from statelog.store.entries import Entry
    from statelog.store.fences import Fence
    from statelog.store.migrations import MigrationReport
    from statelog.store.watches import Event


class Claim:
    """See `statelog.Claim`: the same names, awaited. It is a fence, too."""

    def __init__(self, runner: Runner, claim: SyncClaim) -> None:
        self._runner = runner
        self.fence = claim
        """What fenced writes take."""
        self.key, self.value, self.attempt, self.token = claim.key, claim.value, claim.attempt, claim.token

    def __repr__(self) -> str:
        return repr(self.fence)

    async def renew(self, lease_s: float | None = None) -> None:
        """See `statelog.Claim.renew`."""
        await self._runner.run(self.fence.renew, lease_s)

    async def complete(self, *result: Any, to: str | None = None) -> None:
        """See `statelog.Claim.complete`. `result` is at most one value."""
        await self._runner.run(self.fence.complete, *result, to=to)

    async def fail(self, error: BaseException | str, *, retry_in_s: float = 0.0) -> None:
        """See `statelog.Claim.fail`."""
        await self._runner.run(self.fence.fail, error, retry_in_s=retry_in_s)

    async def release(self, *, counts: bool = True) -> None:
        """See `statelog.Claim.release`."""
        await self._runner.run(self.fence.release, counts=counts)


class Board(OldBoardNames):
    """See `statelog.Board`: the same names, awaited."""

    def __init__(self, runner: Runner, board: SyncBoard) -> None:
        self._runner = runner
        self._board = board

    def __repr__(self) -> str:
        return repr(self._board)

    async def get(self, key: str, *, at: int | datetime | None = None) -> Entry | None:
        """See `statelog.Board.get`."""
        return await self._runner.run(self._board.get, key, at=at)

    async def history(self, key: str, limit: int | None = None) -> builtins.list[Entry]:
        """See `statelog.Board.history`."""
        return await self._runner.run(self._board.history, key, limit)

    async def children(self, prefix: str = "") -> builtins.list[str]:
        """See `statelog.Board.children`."""
        return await self._runner.run(self._board.children, prefix)

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
        """See `statelog.Board.set`."""
        how: dict[str, Any] = {"ttl_s": ttl_s, "priority": priority, "delay_s": delay_s, "fence": fence}
        return await self._runner.run(partial(self._board.set, key, value, expected_version=expected_version, **how))

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
        """See `statelog.Board.create`."""
        how: dict[str, Any] = {"ttl_s": ttl_s, "priority": priority, "delay_s": delay_s, "fence": fence}
        return await self._runner.run(partial(self._board.create, key, value, **how))

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
        """See `statelog.Board.cas`."""
        how: dict[str, Any] = {"ttl_s": ttl_s, "priority": priority, "delay_s": delay_s, "fence": fence}
        return await self._runner.run(partial(self._board.cas, key, value, expected_version=expected_version, **how))

    async def update(
        self, key: str, reducer: Reducer | Callable[[Any, Any], Any], value: Any, *, fence: Fence | None = None
    ) -> Entry:
        """See `statelog.Board.update`."""
        return await self._runner.run(self._board.update, key, reducer, value, fence=fence)

    async def delete(self, key: str, *, expected_version: int | None = None, fence: Fence | None = None) -> bool:
        """See `statelog.Board.delete`."""
        return await self._runner.run(self._board.delete, key, expected_version=expected_version, fence=fence)

    async def rollback(self, prefix: str, *, to: int, fence: Fence | None = None) -> builtins.list[str]:
        """See `statelog.Board.rollback`."""
        return await self._runner.run(self._board.rollback, prefix, to=to, fence=fence)

    async def sweep(self) -> int:
        """See `statelog.Board.sweep`."""
        return await self._runner.run(self._board.sweep)

    async def claim(
        self,
        pattern: str | Sequence[str],
        *,
        lease_s: float = 60.0,
        wait_s: float = 0.0,
        max_attempts: int | None = None,
        dead: str | None = None,
        unless: Sequence[str] = (),
    ) -> Claim | None:
        """See `statelog.Board.claim`. If the task is cancelled, a claim made for it is given back."""
        how: dict[str, Any] = {"lease_s": lease_s, "wait_s": wait_s, "max_attempts": max_attempts, "dead": dead}
        attempt = attempt_claim(self._board, pattern, unless=unless, **how)
        claim = await win(self._runner, attempt, wait_s)
        return None if claim is None else Claim(self._runner, claim)

    async def claims(self, pattern: str = "**") -> builtins.list[Entry]:
        """See `statelog.Board.claims`."""
        return await self._runner.run(self._board.claims, pattern)

    @asynccontextmanager
    async def lease(
        self, name: str, *, ttl_s: float = 30.0, wait_s: float = 0.0, auto_renew: bool = True
    ) -> AsyncIterator[Lease]:
        """See `statelog.Board.lease`. If the task is cancelled, a lease taken for it is given back."""
        attempt = attempt_lease(self._board, name, ttl_s=ttl_s, wait_s=wait_s, auto_renew=auto_renew)
        lease = await win(self._runner, attempt, wait_s)
        if lease is None:
            raise await self._runner.run(attempt.refusal)
        try:
            yield lease
        except BaseException as error:
            with not_hiding(error):
                await self._runner.run(lease.__exit__, type(error), error, None)
            raise
        await self._runner.run(lease.__exit__, None, None, None)

    async def leases(self) -> builtins.list[LeaseInfo]:
        """See `statelog.Board.leases`."""
        return await self._runner.run(self._board.leases)

    async def prune(
        self, pattern: str = "**", *, keep_last: int | None = None, max_age: timedelta | float | None = None
    ) -> RetentionReport:
        """See `statelog.Board.prune`."""
        return await self._runner.run(self._board.prune, pattern, keep_last=keep_last, max_age=max_age)

    async def set_retention(
        self, pattern: str = "**", *, keep_last: int | None = None, max_age: timedelta | float | None = None
    ) -> RetentionReport:
        """See `statelog.Board.set_retention`."""
        return await self._runner.run(self._board.set_retention, pattern, keep_last=keep_last, max_age=max_age)

    async def erase(self, pattern: str) -> builtins.list[str]:
        """See `statelog.Board.erase`."""
        return await self._runner.run(self._board.erase, pattern)

    async def schema(self, pattern: str, schema: Versioned[Any, Any]) -> None:
        """See `statelog.Board.schema`."""
        await self._runner.run(self._board.schema, pattern, schema)

    async def migrate(
        self, pattern: str = "**", *, dry_run: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> MigrationReport:
        """See `statelog.Board.migrate`."""
        return await self._runner.run(partial(self._board.migrate, pattern, dry_run=dry_run, progress=progress))

    async def claim_of(
        self, key: str, token: int, *, max_attempts: int | None = None, dead: str | None = None
    ) -> Claim:
        """See `statelog.Board.claim_of`."""
        call = partial(self._board.claim_of, key, token, max_attempts=max_attempts, dead=dead)
        return Claim(self._runner, await self._runner.run(call))

    async def watch(
        self,
        pattern: str = "**",
        *,
        after: str | int | None = None,
        follow: bool = True,
        timeout_s: float | None = None,
        coalesce: bool = False,
        renew: bool = False,
        progress_s: float | None = None,
    ) -> AsyncIterator[Event]:
        """See `statelog.Board.watch`. It begins with the first event that is asked for."""
        how: dict[str, Any] = {"after": after, "follow": follow, "timeout_s": timeout_s, "coalesce": coalesce}
        call = partial(self._board.watch, pattern, renew=renew, progress_s=progress_s, **how)
        watch = await self._runner.poll(call)
        try:
            with Turn(watch.session, watch.condition) as turn:
                while (page := (polled := await self._runner.poll(watch.poll))[0]) is not None:
                    for event in page:
                        yield event
                    if follow and not page:
                        await turn.woken(polled[1])
        finally:
            watch.close()

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
        """See `statelog.Board.list`."""
        how: dict[str, Any] = {"limit": limit, "after": after, "before": before, "reverse": reverse, "values": values}
        return await self._runner.run(partial(self._board.list, pattern, **how))
