"""The board on the event loop."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from statelog.aio.generated import BoardCalls, ClaimCalls
from statelog.aio.waits import WaitTurn, win
from statelog.deprecated import OldBoardNames
from statelog.errors import not_hiding
from statelog.store.board import attempt_claim, attempt_lease

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from statelog.aio.bridge import Runner
    from statelog.store.board import Board as SyncBoard
    from statelog.store.claims import Claim as SyncClaim
    from statelog.store.claims import Lease
    from statelog.store.watches import Event


class Claim(ClaimCalls):
    """A claim with the methods of `statelog.Claim`, which are awaited. It is also a fence."""

    def __init__(self, runner: Runner, claim: SyncClaim) -> None:
        self._runner = runner
        self.fence = claim
        """The fence to pass to fenced writes."""
        self.key, self.value, self.attempt, self.token = claim.key, claim.value, claim.attempt, claim.token

    def __repr__(self) -> str:
        return repr(self.fence)

    async def complete(self, *result: Any, to: str | None = None) -> None:
        """Record that the work is done, and delete the entry.

        See `statelog.Claim.complete`. `result` is at most one value.
        """
        await self._runner.run(self.fence.complete, *result, to=to)


class Board(BoardCalls, OldBoardNames):
    """A board with the methods of `statelog.Board`, which are awaited."""

    def __init__(self, runner: Runner, board: SyncBoard) -> None:
        self._runner = runner
        self._board = board

    def __repr__(self) -> str:
        return repr(self._board)

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
        """Claim the entry with the highest priority; among equals, the oldest.

        See `statelog.Board.claim`. If the task is cancelled, a claim made for it is given back.
        """
        how: dict[str, Any] = {"lease_s": lease_s, "wait_s": wait_s, "max_attempts": max_attempts, "dead": dead}
        attempt = attempt_claim(self._board, pattern, unless=unless, **how)
        claim = await win(self._runner, attempt, wait_s)
        return None if claim is None else Claim(self._runner, claim)

    @asynccontextmanager
    async def lease(
        self, name: str, *, ttl_s: float = 30.0, wait_s: float = 0.0, auto_renew: bool = True
    ) -> AsyncIterator[Lease]:
        """Acquire the lease called `name` for the duration of a block.

        See `statelog.Board.lease`. If the task is cancelled, a lease taken for it is given back.
        """
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

    async def claim_of(
        self, key: str, token: int, *, max_attempts: int | None = None, dead: str | None = None
    ) -> Claim:
        """Return a `Claim` object for an existing claim, given its token. See `statelog.Board.claim_of`."""
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
        """Yield the events of all entries that match a pattern.

        See `statelog.Board.watch`. The watch begins when the first event is requested.
        """
        how: dict[str, Any] = {"after": after, "follow": follow, "timeout_s": timeout_s, "coalesce": coalesce}
        call = partial(self._board.watch, pattern, renew=renew, progress_s=progress_s, **how)
        watch = await self._runner.poll(call)
        try:
            with WaitTurn(watch.session, watch.condition) as turn:
                while (page := (polled := await self._runner.poll(watch.poll))[0]) is not None:
                    for event in page:
                        yield event
                    if follow and not page:
                        await turn.woken(polled[1])
        finally:
            watch.close()
