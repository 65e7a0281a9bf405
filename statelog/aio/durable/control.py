"""Controls and shows runs from outside, on the event loop."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from statelog.aio.bridge import ended, in_thread
from statelog.aio.durable.generated import get_run
from statelog.aio.durable.host import EventLoopHost
from statelog.aio.durable.starts import Handle, changed, has_ended, on_pool
from statelog.aio.waits import FOREVER_S
from statelog.durable import control, forks, streams
from statelog.durable.delivery import deliver as deliver_in_thread
from statelog.durable.driver import rehearse, rehearse_here
from statelog.durable.keys import event_key, run_key
from statelog.durable.steps import StepContext as ThreadStepContext
from statelog.durable.steps import current_step as step_in_thread
from statelog.durable.workflows import check_number

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from statelog.aio.store import Store
    from statelog.durable.delivery import Delivery
    from statelog.durable.forks import StepInfo
    from statelog.durable.streams import Chunk
    from statelog.durable.workflows import Workflow
    from statelog.errors import NondeterminismError, NotFoundError
    from statelog.store.store import Store as SyncStore


async def get_event(store: Store, run: str, name: str, *, timeout_s: float = 0.0) -> Any:
    """Wait until a run has set an event, and return its value. See `statelog.durable.get_event`."""
    check_number("timeout_s", timeout_s, least=0)
    check = partial(_is_set_or_ended, store.sync, run, name)
    if timeout_s:
        await changed(store, check, event_key(run, name), run_key(run), timeout_s=timeout_s)
    return await on_pool(store, control.get_event, run, name)


def _is_set_or_ended(store: SyncStore, run: str, name: str) -> bool:
    return has_ended(store, run) or control.get_event(store, run, name) is not None


async def stream(
    store: Store, run: str, *, after: int = 0, follow: bool = True, timeout_s: float | None = None
) -> AsyncIterator[Chunk]:
    """Yield the parts of results that the steps of a run stream, in order. See `statelog.durable.stream`."""
    streams.check_stream(after, timeout_s)
    loop = asyncio.get_running_loop()
    heard_s = loop.time()
    while True:
        lsn = await store.last_lsn()
        is_over = (await get_run(store, run)).has_ended
        for chunk in await on_pool(store, _chunks, run, after):
            after = chunk.cursor
            yield chunk
            heard_s = loop.time()
        left_s = FOREVER_S if timeout_s is None else heard_s + timeout_s - loop.time()
        if is_over or not follow or left_s <= 0:
            return
        await store.wait(lsn, left_s)


def _chunks(store: Any, run: str, after: int) -> list[Chunk]:
    return list(streams.stream(store, run, after=after, follow=False))


async def fork(
    store: Store,
    run: str,
    *,
    at: str | int | StepInfo,
    id: str,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    replace: Mapping[str, Any] | None = None,
) -> Handle:
    """Begin a new run from the middle of another run. See `statelog.durable.fork`."""
    made = await on_pool(store, forks.fork, run, at=at, id=id, args=args, kwargs=kwargs, replace=replace)
    return Handle(store, made.id)


async def check_replay(store: Store, workflows: Iterable[Workflow]) -> dict[str, NondeterminismError | NotFoundError]:
    """Replay all open runs with this code, async ones on this loop. See `statelog.durable.check_replay`."""
    found: dict[str, NondeterminismError | NotFoundError]
    open_runs, found = await on_pool(store, forks.to_check, workflows)
    for value, workflow in open_runs:
        if workflow.is_async:
            host = EventLoopHost(store._runner)  # noqa: SLF001 - `_runner` belongs to the same package
            differs = await rehearse(store.sync, workflow, value, host)
        else:
            differs = await in_thread(partial(rehearse_here, store.sync, workflow, value))
        if differs is not None:
            found[value["id"]] = differs
    return found


async def deliver(store: Store, subscribers: Iterable[Any], *, run: str | None = None, wait: bool = False) -> Delivery:
    """Deliver the waiting messages to the subscribers.

    See `statelog.durable.deliver`. Subscribers are called in an OS thread. A cancelled task waits for its end.
    """
    delivery = in_thread(partial(deliver_in_thread, store.sync, subscribers, run=run, wait=wait))
    await ended(delivery)
    return delivery.result()


class StepContext:
    """The step that is being called, as in `statelog.durable.StepContext`. Await its methods."""

    def __init__(self, context: ThreadStepContext) -> None:
        self._context = context
        self.run, self.name, self.attempt = context.run, context.name, context.attempt
        self.idempotency_key = context.idempotency_key

    async def is_cancelled(self) -> bool:
        """Return True if the run was cancelled, or a time limit has passed. An async step is interrupted soon after."""
        is_cancelled: bool = await self._io(lambda: self._context.is_cancelled)
        return is_cancelled

    async def heartbeat(self) -> None:
        """Renew the claim of the run now. See `statelog.durable.StepContext.heartbeat`."""
        await self._io(self._context.heartbeat)

    async def stream(self, chunk: Any) -> None:
        """Publish a part of the result before the step has ended. See `statelog.durable.StepContext.stream`."""
        await self._io(self._context.stream, chunk)

    async def _io(self, function: Any, *args: Any) -> Any:
        return await self._context._execution.host.io(function, *args)  # noqa: SLF001 - `durable` is the package below this one


def current_step() -> StepContext:
    """Return the async step that is running. In other steps, use `statelog.durable.current_step()`.

    Raises:
        UsageError: no step is running.
    """
    return StepContext(step_in_thread())
