"""A fleet for asyncio: `statelog.fleet` with the same names. No call blocks the loop."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from statelog import fleet as fleets
from statelog.aio.bridge import run
from statelog.aio.store import Opening
from statelog.errors import not_hiding
from statelog.fleet import Problem, RemoteStatus, StoreStatus, Stranded
from statelog.late import listing

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator
    from datetime import datetime
    from types import TracebackType

    from statelog.aio.store import Store
    from statelog.format.mac import Key
    from statelog.portable.frames import Target

__all__ = ["Fleet", "Problem", "RemoteStatus", "StoreStatus", "Stranded", "connect", "share"]

__dir__ = listing(__name__)


class Fleet:
    """See `statelog.fleet.Fleet`. Get one by `connect`."""

    def __init__(self, fleet: fleets.Fleet) -> None:
        self._fleet = fleet

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        with not_hiding(error):
            await self.close()

    async def close(self) -> None:
        """See `statelog.fleet.Fleet.close`."""
        await run(self._fleet.close)

    def open(self, name: str, **options: Any) -> Opening:
        """See `statelog.fleet.Fleet.open`; `async with` it, or `await` it."""
        return Opening(name, partial(self._fleet.open, name, **options))

    def path(self, name: str) -> os.PathLike[str]:
        """See `statelog.fleet.Fleet.path`."""
        return self._fleet.path(name)

    async def restore(self, name: str, path: str | os.PathLike[str], *, at: int | datetime | None = None) -> None:
        """See `statelog.fleet.Fleet.restore`."""
        await run(self._fleet.restore, name, path, at=at)

    @asynccontextmanager
    async def follow(self, name: str, *, poll_s: float = 1) -> AsyncIterator[Store]:
        """See `statelog.fleet.Fleet.follow`."""
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

    async def stores(self) -> list[fleets.StoreStatus]:
        """See `statelog.fleet.Fleet.stores`."""
        return await run(self._fleet.stores)

    async def status(self, name: str) -> fleets.StoreStatus:
        """See `statelog.fleet.Fleet.status`."""
        return await run(self._fleet.status, name)

    async def shipped_lsn(self, name: str) -> int:
        """See `statelog.fleet.Fleet.shipped_lsn`."""
        return await run(self._fleet.shipped_lsn, name)

    async def check(self, name: str | None = None) -> list[fleets.Problem]:
        """See `statelog.fleet.Fleet.check`."""
        return await run(self._fleet.check, name)

    async def stranded(self) -> list[fleets.Stranded]:
        """See `statelog.fleet.Fleet.stranded`."""
        return await run(self._fleet.stranded)

    async def export_stranded(self, stranded: fleets.Stranded, target: Target) -> dict[str, str]:
        """See `statelog.fleet.Fleet.export_stranded`."""
        return await run(self._fleet.export_stranded, stranded, target)

    async def gc(self, name: str, **how: Any) -> int:
        """See `statelog.fleet.Fleet.gc`."""
        return await run(self._fleet.gc, name, **how)

    async def purge(self, name: str, **how: Any) -> None:
        """See `statelog.fleet.Fleet.purge`."""
        await run(self._fleet.purge, name, **how)

    async def delete(self, name: str, **how: Any) -> None:
        """See `statelog.fleet.Fleet.delete`."""
        await run(self._fleet.delete, name, **how)


async def connect(url: str, cache: str | os.PathLike[str], *, key: Key | None = None, **options: Any) -> Fleet:
    """See `statelog.fleet.connect`."""
    return Fleet(await run(fleets.connect, url, cache, key=key, **options))


def share(url: str, name: str, cache: str | os.PathLike[str] | None = None, **options: Any) -> Opening:
    """See `statelog.fleet.share`; `async with` it, or `await` it."""
    return Opening(name, partial(fleets.share, url, name, cache, **options))
