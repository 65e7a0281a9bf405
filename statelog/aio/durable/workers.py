"""A worker on the event loop: each run it takes up is a task."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from statelog.aio.durable.starting import claimed, deliver_here, drive_claimed
from statelog.aio.durable.threads import ended
from statelog.durable.holding import LEASE_S
from statelog.durable.workers import CONCURRENCY, patterns_of
from statelog.durable.workflows import by_name
from statelog.errors import LeaseLostError, StatelogError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from statelog.aio.store import Store
    from statelog.durable.workflows import Workflow
    from statelog.store.claims import Claim

_log = logging.getLogger("statelog.durable")

_SLICE_S = 0.5


async def work(
    store: Store,
    workflows: Iterable[Workflow],
    *,
    queues: Any = None,
    outbox: Iterable[Any] = (),
    concurrency: int = CONCURRENCY,
    stop: asyncio.Event | None = None,
    until_idle: bool = False,
    lease_s: float = LEASE_S,
) -> int:
    """Drive runs, until stopped; return how often one was taken up. See `statelog.durable.work`.

    Async workflows run on this loop, others in threads of their own.

    Args:
        store: the store.
        workflows: those whose runs are taken up.
        queues: names of the queues to take runs from; all, if left out.
        outbox: webhooks and callables that get what runs emit.
        concurrency: so many runs are driven at once.
        stop: set it to have this return when the runs at work are at rest. Or cancel the task that awaits this: then
            async steps are interrupted, and the runs go on in another worker.
        until_idle: return when there is nothing to do now.
        lease_s: so long others wait for this process if it is killed.

    Raises:
        UsageError: one of the arguments is none.

    """
    known = by_name(workflows)
    patterns = patterns_of(known, queues, concurrency)
    worker = _Worker(store, known, tuple(outbox), lease_s)
    return await worker.go_on(patterns, concurrency, stop or asyncio.Event(), until_idle=until_idle)


class _Worker:
    def __init__(self, store: Store, known: dict[str, Workflow], outbox: tuple[Any, ...], lease_s: float) -> None:
        self._store, self._known, self._outbox, self._lease_s = store, known, outbox, lease_s
        self._at_work: set[asyncio.Task[None]] = set()

    async def go_on(self, patterns: list[str], concurrency: int, stop: asyncio.Event, *, until_idle: bool) -> int:
        """Claim runs, and have them driven."""
        taken = 0
        stopping = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                if len(self._at_work) >= concurrency:
                    await asyncio.wait({stopping, *self._at_work}, return_when=asyncio.FIRST_COMPLETED)
                    continue
                claim = await self._claim(patterns, stopping, wait_s=0.0 if until_idle else _SLICE_S)
                if claim is not None:
                    taken += 1
                    task = asyncio.create_task(self._drive(claim))
                    self._at_work.add(task)
                    task.add_done_callback(self._at_work.discard)
                elif until_idle:
                    if not self._at_work:
                        break
                    await asyncio.wait({stopping, *self._at_work}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(*self._at_work)
        finally:
            left = {stopping, *self._at_work}
            for each in left:
                each.cancel()
            await ended(*left)
        return taken

    async def _claim(self, patterns: list[str], stopping: asyncio.Task[Any], *, wait_s: float) -> Claim | None:
        """Claim a task, None if there was none in time, or the worker is to stop."""
        claiming = asyncio.create_task(claimed(self._store, patterns, self._lease_s, wait_s))
        try:
            await asyncio.wait({claiming, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not claiming.done():
                claiming.cancel()
                await ended(claiming)
        return None if claiming.cancelled() else claiming.result()

    async def _drive(self, claim: Claim) -> None:
        run = claim.value["run"]
        try:
            workflow = self._known[claim.key.split("/")[3]]
            await drive_claimed(self._store, workflow, run, claim, self._lease_s)
            await deliver_here(self._store, self._outbox, run)
        except LeaseLostError:
            _log.info("run %s was taken over by another process", run)
        except StatelogError as error:
            _log.warning("run %s has stopped: %s", run, error.message)
        except asyncio.CancelledError:
            raise
        except BaseException:  # noqa: BLE001 - of one run; the others go on
            _log.exception("run %s has stopped", run)
