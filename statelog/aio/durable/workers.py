"""A worker on the event loop. Each run is driven in a task."""

from __future__ import annotations

import asyncio
import inspect
import threading
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from statelog.aio.bridge import ended, in_thread
from statelog.aio.durable.starts import drive_claimed
from statelog.aio.waits import WaitTurn
from statelog.durable.delivery import delivered_beside
from statelog.durable.queues import HeldSlots
from statelog.durable.subscriptions import check_subscribers
from statelog.durable.task_claims import LEASE_S
from statelog.durable.workers import CONCURRENCY, ClaimedRun, RunClaimer, log_stop
from statelog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from statelog.aio.store import Store
    from statelog.durable.workflows import Workflow

_LOOK_S = 2.0
"""The interval, in seconds, at which a waiting worker looks for runs of dead processes."""


async def run_worker(
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
    """Drive runs until stopped. Return the number of claims. See `statelog.durable.run_worker`.

    Async workflows run on this loop, and other workflows in OS threads.

    Args:
        store: the store.
        workflows: the workflows to run.
        queues: the names of the queues to take runs from, or a dict of their limits. The default is all queues.
        outbox: webhooks and callables that receive the messages of runs.
        concurrency: the maximum number of runs that are driven at once.
        stop: an event. After it is set, this returns when the current runs have ended or are suspended. If instead the
            task that awaits this is cancelled, async steps are interrupted, and the runs continue in another worker.
        until_idle: return when there is nothing to do now.
        lease_s: how long other processes wait for this process if they cannot detect that it was killed, in seconds.

    Raises:
        UsageError: an argument is not valid.
    """
    # The `wait` of a threading.Event would block the event loop.
    if stop is not None and not inspect.iscoroutinefunction(getattr(stop, "wait", None)):
        raise UsageError(f"stop must be an asyncio.Event, not {stop!r}", argument="stop", value=stop)
    claimer = RunClaimer(store.sync, workflows, queues, concurrency, lease_s)
    with ExitStack() as beside:
        beside.enter_context(delivered_beside(store.sync, check_subscribers(outbox), drains=until_idle))
        try:
            return await _Worker(store, claimer).drive_runs(stop or asyncio.Event(), until_idle=until_idle)
        finally:
            await ended(in_thread(beside.pop_all().close))


class _Worker:
    def __init__(self, store: Store, claimer: RunClaimer) -> None:
        self._store, self._claimer = store, claimer
        self._halt = threading.Event()
        self._count = 0
        self._at_work: set[asyncio.Task[None]] = set()

    async def drive_runs(self, stop: asyncio.Event, *, until_idle: bool) -> int:
        """Claim and drive runs."""
        stopping = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                if len(self._at_work) >= self._claimer.concurrency:
                    await asyncio.wait({stopping, *self._at_work}, return_when=asyncio.FIRST_COMPLETED)
                    continue
                held = HeldSlots()
                claimed = await (self._next(held) if until_idle else self._next_in_time(held, stopping))
                if claimed is not None:
                    task = asyncio.create_task(self._drive(claimed, held))
                    self._at_work.add(task)
                    task.add_done_callback(self._at_work.discard)
                elif until_idle:
                    if not self._at_work:
                        break
                    await asyncio.wait({stopping, *self._at_work}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(*self._at_work)
        finally:
            self._halt.set()
            left = {stopping, *self._at_work}
            for each in left:
                each.cancel()
            await ended(*left)
        return self._count

    async def _next(self, held: HeldSlots) -> ClaimedRun | None:
        """Claim a run. If this task is cancelled, a run claimed for it is given back."""
        take = partial(self._claimer.next, held, self._halt, 0.0)
        return await self._store._runner.win(take, partial(self._claimer.give_back, held=held))  # noqa: SLF001 - `_runner` belongs to the same package

    async def _next_in_time(self, held: HeldSlots, stopping: asyncio.Task[Any]) -> ClaimedRun | None:
        """Claim a run, or wait until one may be available.

        Return None if the worker should stop, or should look again.
        """
        attempt, waits_s = self._claimer.attempt(held)
        with WaitTurn(attempt.session, attempt.condition) as turn:
            waiting = asyncio.ensure_future(turn.woken(min(waits_s, _LOOK_S)))
            try:
                await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not waiting.done():
                    waiting.cancel()
                    await asyncio.wait([waiting])
            if not waiting.cancelled():
                waiting.result()
            return None if stopping.done() else await self._next(held)

    async def _drive(self, claimed: ClaimedRun | None, held: HeldSlots) -> None:
        """Drive a run, and then the next ones, until there are none."""
        try:
            while claimed is not None:
                self._count += 1
                with log_stop(claimed.run):
                    what = (claimed.workflow, claimed.run, claimed.claim, self._claimer.lease_s)
                    await drive_claimed(self._store, *what, backs_off=True)
                claimed = await self._next(held)
        except asyncio.CancelledError:
            await ended(in_thread(lambda: self._claimer.drop(held)))
            raise
