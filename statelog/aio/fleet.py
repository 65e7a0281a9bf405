"""A fleet for asyncio: `statelog.fleet` with the same names. No call blocks the loop."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from statelog import fleet as fleets
from statelog.aio.bridge import run
from statelog.aio.generated import FleetCalls
from statelog.aio.store import Opening
from statelog.errors import not_hiding
from statelog.fleet import Problem, RemoteStatus, StoreStatus, Stranded
from statelog.late import listing

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator
    from types import TracebackType

    from statelog.aio.store import Store
    from statelog.format.mac import Key

__all__ = ["Fleet", "Problem", "RemoteStatus", "StoreStatus", "Stranded", "connect", "share"]

__dir__ = listing(__name__)


class Fleet(FleetCalls):
    """A fleet with the methods of `statelog.fleet.Fleet`, which are awaited. `connect` returns one."""

    def __init__(self, fleet: fleets.Fleet) -> None:
        self._fleet = fleet

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        with not_hiding(error):
            await self.close()

    def open(self, name: str, **options: Any) -> Opening:
        """Become the owner of a store, and open it here, by `async with` or `await`.

        See `statelog.fleet.Fleet.open`.
        """
        return Opening(name, partial(self._fleet.open, name, **options))

    @asynccontextmanager
    async def follow(self, name: str, *, poll_s: float = 1) -> AsyncIterator[Store]:
        """Yield a read-only copy that follows the owner of a store. See `statelog.fleet.Fleet.follow`."""
        following = self._fleet.follow(name, poll_s=poll_s)
        ended_by: BaseException | None = None
        try:
            async with Opening(name, following.__enter__) as store:
                yield store
        except BaseException as error:
            ended_by = error
            raise
        finally:
            with not_hiding(ended_by):
                await run(following.__exit__, None, None, None)

    async def gc(self, name: str, **how: Any) -> int:
        """Remove objects that no kept state needs, and return their number. See `statelog.fleet.Fleet.gc`."""
        return await run(self._fleet.gc, name, **how)


async def connect(url: str, cache: str | os.PathLike[str], *, key: Key | None = None, **options: Any) -> Fleet:
    """Return a fleet: stores in shared storage, with local copies. See `statelog.fleet.connect`."""
    return Fleet(await run(fleets.connect, url, cache, key=key, **options))


def share(url: str, name: str, cache: str | os.PathLike[str] | None = None, **options: Any) -> Opening:
    """Open a store that many hosts write, by `async with` or `await`. See `statelog.fleet.share`."""
    return Opening(name, partial(fleets.share, url, name, cache, **options))
