"""Runs workflows on the event loop: each workflow is a task, and so is each of its branches.

The runner's pool reads and writes the store, and functions that are not async are called in OS threads, so nothing here
blocks the loop.

An operation with a long wait does not raise here: it never ends, and the task that called it sleeps. So in a TaskGroup
or a gather, other tasks continue while one waits for a person. When all tasks of a run sleep, the run is suspended, and
its tasks are cancelled.
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from statelog.aio.bridge import ended, in_thread
from statelog.aio.durable.order import Order
from statelog.aio.durable.tasks import in_operation, is_operation, numbered_tasks
from statelog.aio.durable.timers import recorded_timers
from statelog.durable.clock import WallClock, clock
from statelog.durable.execution import CallCancelled, ContinuedAsNew, Stopped, Suspended, Unwinding, Wait, in_step
from statelog.durable.failures import CarriedError
from statelog.durable.hosts import called
from statelog.durable.workflows import Cancelled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence

    from statelog.aio.bridge import Runner
    from statelog.aio.durable.timers import Timer
    from statelog.durable.execution import Execution
    from statelog.durable.hosts import ThreadHost

T = TypeVar("T")

LOOK_S: Final = 0.25
"""The interval at which the library checks whether the run of an async step was cancelled."""

_QUIET_TURNS: Final = 10
_QUIET_S: Final = 0.002
"""A run is quiet if no operation begins during `_QUIET_TURNS` turns of the loop. Each of these turns lasts at least
this long. A task that another task has woken needs some turns until it calls its next operation.
"""

_FAIR: Final = 32
"""The number of operations after which other tasks get a turn, even if all operations are replayed."""

_beside: ContextVar[tuple[asyncio.Future[Any], ...]] = ContextVar("beside", default=())
"""The branches that contain the current task, the outermost first."""


class EventLoopHost:
    """The event loop as the host of one run."""

    is_async = True

    def __init__(self, runner: Runner, *, is_block: bool = False) -> None:
        self._runner = runner
        self.is_block = is_block
        """True if the host serves a block. Cancellations of a block are not recorded: its caller may cancel it."""
        self._begin()

    def _begin(self, execution: Execution | None = None) -> None:
        self._execution = execution
        self._order: Order | None = None
        """The order of the workflow's events. A block does not have one."""
        self._handing_out: asyncio.Task[None] | None = None
        self.under_way = 0
        """The number of operations and branches that do not wait for other operations or branches."""
        self._begun = 0
        self._waits: list[Wait] = []
        self._asleep: set[asyncio.Task[Any]] = set()
        """Tasks whose operation has a long wait."""
        self._tasks: set[asyncio.Task[Any]] = set()
        """All unfinished tasks that are branches or have called an operation."""
        self._branches: dict[asyncio.Future[Any], asyncio.Task[Any]] = {}
        self._abandoned: set[asyncio.Future[Any]] = set()
        self._steps: dict[asyncio.Future[Any], tuple[asyncio.Future[Any], ...]] = {}
        self._changed = asyncio.Event()
        self._root: asyncio.Task[Any] | None = None
        self._is_over = False
        """True if tasks are cancelled because the workflow has ended, or the run is suspended."""
        self._owed: set[asyncio.Task[Any]] = set()
        """Tasks that were cancelled by the workflow in a call that had ended. Their next call is cancelled instead."""

    def another(self) -> EventLoopHost:
        """Implement `Host.another`."""
        return EventLoopHost(self._runner)

    async def aside(self, host: ThreadHost, call: Callable[[], T]) -> T:
        """Implement `Host.aside`."""
        made = in_thread(call)
        try:
            await asyncio.wait([made])
        except asyncio.CancelledError as error:
            host.stop(error)
            await ended(made)
            raise
        return made.result()

    # --- the workflow -----------------------------------------------------------------------------

    async def call_workflow(
        self, execution: Execution, enter: Callable[[], None], function: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Implement `Host.call_workflow`. If the awaiting task is cancelled, the run stops."""

        async def work() -> Any:
            in_operation.set(False)  # The parent's operation may drive this run, but the workflow is not in it.
            enter()
            return await function(*args, **kwargs)

        self._begin(execution)
        if not self.is_block:
            execution.order = self._order = Order(execution, self)
            self._handing_out = _task(self._order.hand_out())
            self._handing_out.add_done_callback(lambda _task: self.changed())
        root = self._root = self._adopted(_task(work()))
        try:
            with numbered_tasks(), nullcontext() if self.is_block else recorded_timers():
                await self._until_rest(root)
        except asyncio.CancelledError as error:
            execution.stopped(error)
            raise
        if not root.done():
            raise Suspended(*self._waits, *self._waits_of_branches(), *await self._waits_of_timers(execution))
        return _result_of(root)

    async def _until_rest(self, root: asyncio.Task[Any]) -> None:
        """Wait until the workflow has ended or all its tasks sleep."""
        order = self._order
        while not root.done():
            if self.under_way or not self._waits or not (order is None or order.is_used_up):
                await self._change()
            elif await self._is_quiet():
                if order is not None and (timer := order.first_timer()) is not None and await self._waited(timer):
                    continue
                waiting = [branch for branch in self._branches if not branch.done()]
                for branch in waiting:  # The exception ends a wait for all branches.
                    branch.set_exception(Suspended(*self._waits))
                if not waiting:
                    return

    async def _is_quiet(self) -> bool:
        """Return True if no further operations begin."""
        if self._tasks <= self._asleep:
            return True
        begun = self._begun
        for _ in range(_QUIET_TURNS):
            await asyncio.sleep(_QUIET_S)
            if self.under_way or self._begun != begun:
                return False
        return True

    async def _waited(self, timer: Timer) -> bool:
        """Wait for a timer that is due soon. Return False if the run should be suspended instead."""
        left_s = (timer.due_us - clock().now_us()) / 1e6
        if timer.is_due or (isinstance(clock(), WallClock) and clock().is_short(left_s)):
            await self._change()
        elif not clock().is_short(left_s):
            return False
        else:
            await self.io(clock().sleep, left_s)
            if self._order is not None:
                self._order.is_due(timer)
        return True

    async def _waits_of_timers(self, execution: Execution) -> list[Wait]:
        """Return the wait for the next timer. The pending timers are recorded when the run is suspended."""
        timer = None if self._order is None else self._order.first_timer()
        if self._order is None or timer is None:
            return []
        for item in self._order.begun_timers():
            await self.io(execution.defer, item)
        return [Wait("time", timer.due_us, lambda: False)]

    def _waits_of_branches(self) -> Iterator[Wait]:
        for branch in self._branches:
            error = branch.exception() if branch.done() and not branch.cancelled() else None
            if isinstance(error, Suspended):
                yield from error.waits

    async def settle(self, execution: Execution) -> None:
        """Wait for running operations and for branches that were not abandoned. Cancel all other tasks."""
        try:
            while not isinstance(execution.stop, asyncio.CancelledError):
                going_on = [
                    task for each, task in self._branches.items() if not (task.done() or each in self._abandoned)
                ]
                if not self.under_way and (not going_on or (self._waits and await self._is_quiet())):
                    break
                await self._change()
        except asyncio.CancelledError as error:
            execution.stopped(error)
            raise
        finally:
            self._is_over = True
            while self._tasks:
                left = tuple(self._tasks)
                for task in left:
                    task.cancel()
                await ended(*left)
                self._tasks.difference_update(left)
            if self._handing_out is not None:
                self._handing_out.cancel()
                await ended(self._handing_out)

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _adopted(self, task: asyncio.Task[Any]) -> asyncio.Task[Any]:
        """Add a task to the tasks of the run. Return the task."""
        if task not in self._tasks:
            self._tasks.add(task)
            task.add_done_callback(self._left)
            if self._order is not None:
                self._order.join(task)
        return task

    def _left(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._owed.discard(task)
        self._asleep.discard(task)
        self._changed.set()

    def changed(self) -> None:
        """Note that the run may be at rest."""
        self._changed.set()

    def counted(self, number: int) -> _Counted:
        """Count `number` calls as under way within a `with` block."""
        return _Counted(self, number)

    def count(self, number: int) -> None:
        """Add to the number of calls that are under way."""
        self.under_way += number
        self._changed.set()

    # --- operations -------------------------------------------------------------------------------

    def operate(self, make: Callable[[], Coroutine[Any, Any, T]], place: str = "") -> Coroutine[Any, Any, T]:
        """Return a coroutine that makes the call.

        If the call suspends the run, its task sleeps until it is cancelled.
        """
        return self._operate(make, place)

    @is_operation
    async def _operate(self, make: Callable[[], Coroutine[Any, Any, T]], place: str) -> T:
        """Make a call. If the workflow cancels the call, the cancellation is recorded, and repeated on replay.

        If the call has already ended, the next call of its task is cancelled instead.
        """
        task = asyncio.current_task()
        assert task is not None
        if self._has_ended():
            raise asyncio.CancelledError
        self._adopted(task)
        began_s = asyncio.get_running_loop().time()
        with _InOperation(self._order, task, place):
            while True:
                try:
                    self._pass_on(task, place)
                    return await self._undertaken(task, make, place)
                except asyncio.CancelledError as cancelled:
                    cut = await self._cut(place, asyncio.get_running_loop().time() - began_s, cancelled)
                    if cut is not None:
                        raise cut from None
                    self._owed.add(task)

    async def _undertaken(self, task: asyncio.Task[Any], make: Callable[[], Coroutine[Any, Any, T]], place: str) -> T:
        try:
            self._begun += 1
            with self.counted(1):
                if self._begun % _FAIR == 0:
                    await asyncio.sleep(0)
                return await self._in_turn(place, make())
        except CallCancelled:
            assert self._order is not None
            with self.counted(1):
                await self._order.cut(place)
            raise AssertionError("a call that should wait until it is cancelled has woken up") from None
        except CarriedError as carrier:
            message = "a step raised StopIteration, which a coroutine cannot raise"
            raise RuntimeError(message) from carrier.error
        except Suspended as raised:
            suspended = raised
        self._waits += suspended.waits
        self._asleep.add(task)
        self._changed.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not self._is_over:  # The workflow continues without this call.
                self._asleep.discard(task)
                self._waits = [each for each in self._waits if each not in suspended.waits]
                if suspended.scope is not None:
                    suspended.scope.suspended = None
            raise
        raise AssertionError("a task that should sleep forever has woken up")

    async def _in_turn(self, place: str, work: Coroutine[Any, Any, T]) -> T:
        try:
            result = await work
        except Exception:
            await self._turn(place)
            raise
        await self._turn(place)
        return result

    async def _turn(self, place: str) -> None:
        """Wait for the turn of an outcome. If the workflow cancels the call while it waits, add the task to `_owed`."""
        while self._order is not None:
            try:
                await self._order.turn(place)
                break
            except asyncio.CancelledError:
                task, execution = asyncio.current_task(), self._execution
                if task is None or execution is None or not self._has_outcome(execution, place):
                    raise
                self._owed.add(task)

    def _has_outcome(self, execution: Execution, place: str) -> bool:
        done = execution.record.done.get(place)
        return not self._is_ours(execution) and done is not None and "x" not in done

    def _is_ours(self, execution: Execution) -> bool:
        """Return True if the library, not the workflow, cancels the tasks."""
        is_behind = self._is_over or self._has_ended() or execution.stop is not None
        return is_behind or not self._abandoned.isdisjoint(_beside.get())

    async def in_order(self, place: str, work: Coroutine[Any, Any, T]) -> T:
        """Implement `Host.in_order`."""
        task = asyncio.current_task()
        assert task is not None
        with _InOperation(self._order, task, place):
            return await self._in_turn(place, work)

    async def caught_up(self, place: str) -> bool:
        """Implement `Host.caught_up`."""
        return self._order is None or await self._order.caught_up(place)

    # --- what the workflow cancels ----------------------------------------------------------------

    def _has_ended(self) -> bool:
        """Return True if the workflow has ended and the current task is not in a branch."""
        assert self._root is not None
        return self._root.done() and not _beside.get()

    async def _cut(self, place: str, seconds: float, cancelled: asyncio.CancelledError) -> BaseException | None:
        """Record that the workflow cancelled a call. Return the error to raise, or None if the call has an outcome."""
        while True:
            execution, order = self._execution, self._order
            if not place or order is None or execution is None or self._is_ours(execution):
                return cancelled
            done = execution.record.done.get(place)
            if done is None and (execution.is_dry or execution.is_unwinding):
                return cancelled
            try:
                with self.counted(1):
                    return await self._cut_in_turn(execution, order, place, seconds)
            except asyncio.CancelledError:  # The task was cancelled a second time.
                continue

    async def _cut_in_turn(
        self, execution: Execution, order: Order, place: str, seconds: float
    ) -> BaseException | None:
        done = execution.record.done.get(place)
        if done is not None and "x" in done:  # This is a replay.
            await order.turn(place)
            return execution.cancellation(place)
        while done is None and not await order.caught_up(place):
            pass
        cut = await self.io(execution.cut, place, seconds)
        if cut is not None:
            await order.turn(place)
        return cut

    def _pass_on(self, task: asyncio.Task[Any], place: str) -> None:
        """Cancel a call if the workflow cancelled the previous call of `task` after that call had already ended."""
        if task not in self._owed or self._execution is None:
            return
        done = self._execution.record.done.get(place)
        if done is not None and "x" not in done:
            return
        self._owed.discard(task)
        if not task.cancelling():
            return  # Ignore a timeout that expired just as its block ended.
        if done is not None:
            raise asyncio.CancelledError
        task.uncancel()
        task.cancel()

    async def io(self, function: Callable[..., T], *args: Any) -> T:
        """Implement `Host.io` on the pool of the runner. A cancelled task still waits for the end of the call."""
        return await self._runner.finish(function, *args)

    async def sleep(self, seconds: float) -> None:
        """Implement `Host.sleep`."""
        if isinstance(clock(), WallClock):
            await asyncio.sleep(seconds)
        else:
            await self.io(clock().sleep, seconds)

    def place_of_caller(self) -> object:
        """Implement `Host.place_of_caller`."""
        return asyncio.current_task()

    # --- branches ---------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
        """Implement `Host.spawn`. Each branch is a task."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            _beside.set((*_beside.get(), future))
            try:
                with self.counted(1):
                    result = await work
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # noqa: BLE001 - the waiting task gets the error
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        def end(_task: asyncio.Task[None]) -> None:
            work.close()
            if not future.done():
                future.cancel()
            if not future.cancelled():
                future.exception()  # This marks the error as seen, because the workflow need not wait for the branch.

        task = self._branches[future] = self._adopted(_task(run()))
        task.add_done_callback(end)
        return future

    async def wait(self, futures: Sequence[Any], *, first: bool) -> None:
        """Implement `Host.wait`."""
        with self.counted(-1):
            await asyncio.wait(set(futures), return_when=asyncio.FIRST_COMPLETED if first else asyncio.ALL_COMPLETED)

    def abandon(self, future: Any) -> None:
        """Implement `Host.abandon`. The async steps of the branch are interrupted, and it calls no other step."""
        self._abandoned.add(future)
        for step, branches in self._steps.items():
            if future in branches:
                step.cancel()

    # --- steps ------------------------------------------------------------------------------------

    async def call(self, function: Callable[..., Any], args: Any, kwargs: Any, timeout_s: float | None) -> Any:
        """Call a step. A function that is not async is called in an OS thread."""
        if not in_step.get():  # Outside a step, the function is a part of the workflow.
            with self.counted(-1):
                found = function(*args, **kwargs)
                return await found if inspect.isawaitable(found) else found
        if not self._abandoned.isdisjoint(_beside.get()):
            raise asyncio.CancelledError
        if not inspect.iscoroutinefunction(function):
            made = in_thread(lambda: called(function, args, kwargs))
            await ended(made)
            result = made.result()
            return await self._interruptible(result, timeout_s) if inspect.isawaitable(result) else result
        return await self._interruptible(function(*args, **kwargs), timeout_s)

    async def _interruptible(self, work: Awaitable[Any], timeout_s: float | None) -> Any:
        """Await a step in a task. Raises TimeoutError, Cancelled or Stopped if it was interrupted."""
        loop = asyncio.get_running_loop()
        until_s = None if timeout_s is None else loop.time() + timeout_s
        step = asyncio.ensure_future(work)
        self._steps[step] = _beside.get()
        signal: BaseException | None = None
        try:
            while not step.done() and signal is None:
                left_s = LOOK_S if until_s is None else min(LOOK_S, max(until_s - loop.time(), 0.0))
                await asyncio.wait([step], timeout=left_s)
                if until_s is not None and until_s <= loop.time():
                    signal = TimeoutError()
                elif not step.done() and self._execution is not None:
                    signal = await self.io(self._execution.look)
        finally:
            del self._steps[step]
            was_abandoned = step.cancelled() and not self._abandoned.isdisjoint(_beside.get())
            if not step.done():
                step.cancel()
                await ended(step)
        if not step.cancelled():
            return step.result()
        if signal is not None:
            raise signal
        if was_abandoned:
            raise asyncio.CancelledError
        raise RuntimeError("the step has cancelled itself")


class _Counted(NamedTuple):
    """Counts calls as under way during a `with` block.

    This is a class, because a `contextmanager` sets the traceback of an exception, which a frozen dataclass refuses.
    """

    host: EventLoopHost
    number: int

    def __enter__(self) -> None:
        self.host.count(self.number)

    def __exit__(self, *_: object) -> None:
        self.host.count(-self.number)


class _InOperation:
    """Marks a task as being in an operation during a `with` block. It is a class for the same reason as `_Counted`."""

    def __init__(self, order: Order | None, task: asyncio.Task[Any], place: str) -> None:
        self._order, self._task, self._place = order, task, place

    def __enter__(self) -> None:
        self._token = in_operation.set(True)
        if self._order is not None:
            self._order.enter(self._task)

    def __exit__(self, *_: object) -> None:
        in_operation.reset(self._token)
        if self._order is not None:
            self._order.leave(self._task, self._place)


def _task(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Start a task that does not belong to the workflow."""
    return asyncio.Task(work, loop=asyncio.get_running_loop())


def _result_of(root: asyncio.Task[Any]) -> Any:
    """Return the result of a workflow, or raise its error.

    From an exception group, raise the one that controls the run.
    """
    try:
        return root.result()
    except asyncio.CancelledError:
        raise RuntimeError("the workflow has cancelled itself") from None
    except BaseExceptionGroup as group:
        for kind in (Stopped, ContinuedAsNew, Unwinding, Cancelled):
            if (found := _in_group(group, kind)) is not None:
                raise found from None
        raise


def _in_group(group: BaseExceptionGroup[Any], kind: type[BaseException]) -> BaseException | None:
    found: BaseException | None = group.subgroup(kind)
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
