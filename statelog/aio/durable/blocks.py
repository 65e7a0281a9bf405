"""Runs whose workflow is an `async with` block, for code that calls third-party code without workflows.

A workflow is a function that can be called again. A block cannot be called again. So an event that would call the
workflow again ends the block, and the run continues when the program enters it again. The workflow of such a run waits
for the block, and has the same outcome.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, overload

from statelog.aio.bridge import ended
from statelog.aio.durable.host import EventLoopHost
from statelog.aio.durable.starts import claimed, drive_claimed, on_pool
from statelog.deprecated import step_options
from statelog.durable import starts
from statelog.durable.blocks import (
    SLICE_S,
    CalledAnewError,
    block_has_ended,
    check_ended,
    check_replayed,
    closing_block,
    is_of_block,
    reason,
    refusal,
)
from statelog.durable.driver import replay
from statelog.durable.execution import Stopped, Unwinding, current_scope
from statelog.durable.keys import check_part
from statelog.durable.recorded import recorded_items
from statelog.durable.runs import ENDED, create, find, skip_retry_delay, task_key_of
from statelog.durable.task_claims import LEASE_S
from statelog.durable.workflows import NO_OPTIONS, Cancelled, P, R, StepOptions, check_number, workflow
from statelog.errors import UsageError, not_hiding

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable

    from statelog.aio.durable.operations import Run
    from statelog.aio.store import Store
    from statelog.durable.workflows import Workflow


class EnteredRun:
    """A run that a block has entered.

    Attributes:
        id: the id of the run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.id = run.id
        self._has_ended = False

    def __repr__(self) -> str:
        return f"<EnteredRun {self.id!r}>"

    def _end(self) -> None:
        self._has_ended = True

    @overload
    async def step(self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def step(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    async def step(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function with effects, once. See `statelog.durable.Run.step`.

        The step gets its place when this method is called. Each task that the block starts numbers its own steps. The
        block ends with ConflictError if the step would have to wait for more than five seconds.

        Raises:
            UsageError: the block has ended.
        """
        options, given = step_options(function, kwargs, stacklevel=3)
        return await self.step_with(StepOptions(**options) if options else NO_OPTIONS, function, *args, **given)

    @overload
    async def step_with(
        self,
        options: StepOptions,
        function: Callable[P, Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R: ...
    @overload
    async def step_with(
        self, options: StepOptions, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    async def step_with(self, options: StepOptions, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a step with options, as `statelog.durable.Run.step_with` does. See `step`."""
        if self._has_ended:
            raise block_has_ended(self.id)
        operation = asyncio.create_task(self._run.step_with(options, function, *args, **kwargs))
        try:
            return await operation
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling() or not operation.cancelled():
                raise
            raise Stopped(refusal(self.id, "a step in a block cannot wait that long")) from None


class _Block:
    """The workflow of an entered run. It passes its run to the block, and has the outcome of the block."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[Any] = loop.create_future()
        self.left: asyncio.Future[BaseException | None] = loop.create_future()

    async def hold(self, run: Run) -> None:
        if self.opened.done():
            raise CalledAnewError
        self.opened.set_result((run, current_scope.get()))
        if (error := await self.left) is not None:
            raise error


@asynccontextmanager
async def entered(
    store: Store,
    id: str,
    *,
    name: str = "entered",
    raises: Iterable[type[BaseException]] = (),
    wait_s: float = 0.0,
    lease_s: float = LEASE_S,
) -> AsyncIterator[EnteredRun]:
    """Enter a run for the duration of a block. Begin the run, or continue it without repeating recorded steps.

    The run completes when the block ends. It fails if an exception leaves the block. If statelog cannot record the
    failure, the exception gets a note with the reason. If the process dies or the task is cancelled, the run stays
    open. Then the next task that enters the run continues it. A run that has ended is replayed: its steps return their
    recorded results, and their functions are not called.

    Args:
        store: the store.
        id: the id of the run and of its thread.
        name: the name of the workflow under which the run is listed.
        raises: as for `statelog.durable.workflow`.
        wait_s: how long to wait while another process or task has entered the run.
        lease_s: as for `statelog.durable.run`.

    Raises:
        ConflictError: another process or task drives the run, it is parked, or it belongs to a different workflow.
        NondeterminismError: the block does not do what the run has recorded. The run has stopped.
        RunEndedError: the run has ended, and the block calls more steps than the run has recorded.
        RunCancelledError: the run was cancelled.
        UsageError: an argument is not valid, or the block is inside a run.
    """
    check_number("wait_s", wait_s, least=0)
    check_part("workflow", name)
    if current_scope.get() is not None:
        raise UsageError("a run cannot be entered inside another run", argument="id", value=id)
    block = _Block()
    driven = await _driven(store, workflow(name=name, raises=raises)(block.hold), id, wait_s, lease_s)
    try:
        await asyncio.wait((block.opened, driven), return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        await _interrupted(driven)
        raise
    if not block.opened.done():
        await driven
        raise refusal(id, "it is parked")
    run, scope = block.opened.result()
    run._root.caller = asyncio.current_task()  # noqa: SLF001 - `durable` is the package below this one
    token = current_scope.set(scope)
    entered_run = EnteredRun(run)
    try:
        with closing_block(entered_run):
            yield entered_run
    except (Exception, Cancelled, Unwinding, Stopped) as error:
        current_scope.reset(token)
        with not_hiding(error if is_of_block(error) else None):
            await _left(block, driven, id, error)
        if isinstance(error, Exception):
            raise
        raise await on_pool(store, reason, id, error) from error
    except BaseException:  # This is an interrupt, so the run stays open.
        current_scope.reset(token)
        await _interrupted(driven)
        raise
    current_scope.reset(token)
    await _left(block, driven, id, None)


async def _driven(store: Store, made: Workflow, id: str, wait_s: float, lease_s: float) -> asyncio.Future[Any]:
    """Begin, continue or replay a run. Raises ConflictError."""
    if not await on_pool(store, create, starts.prepare(made, (), {}, id=id, thread=None)):
        await on_pool(store, skip_retry_delay, id)
    loop = asyncio.get_running_loop()
    until_s = loop.time() + wait_s
    while (value := (await on_pool(store, find, id)).value)["status"] not in ENDED:
        left_s = max(until_s - loop.time(), 0.0)
        claim = await claimed(store, task_key_of(value), lease_s, min(left_s, SLICE_S))
        if claim is not None:
            return asyncio.create_task(drive_claimed(store, made, id, claim, lease_s, is_block=True))
        if left_s == 0:
            check_ended((await on_pool(store, find, id)).value)
    items = await on_pool(store, recorded_items, id)
    return asyncio.create_task(_replay(store, made, value, items))


async def _left(block: _Block, driven: asyncio.Future[Any], id: str, error: BaseException | None) -> None:
    """End the run with the outcome of the block. Raises the error that has stopped the run."""
    if not block.left.done():
        block.left.set_result(error)
    await ended(driven)
    try:
        driven.result()
    except CalledAnewError:
        raise refusal(id, "its thread was rolled back in the meantime") from error


async def _interrupted(driven: asyncio.Future[Any]) -> None:
    driven.cancel()
    await ended(driven)
    if not driven.cancelled():
        driven.exception()  # This marks the error as seen, because the caller raises the interrupt instead.


async def _replay(store: Store, made: Workflow, value: Any, items: Any) -> None:
    host = EventLoopHost(store._runner, is_block=True)  # noqa: SLF001 - `_runner` belongs to the same package
    check_replayed(value, await replay(store.sync, made, value, items, host))
