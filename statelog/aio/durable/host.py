"""Where a run is executed on the event loop: each workflow is a task, and so is each branch of it.

What reads or writes the store is done by the runner's pool, and functions that are not async are called in threads of
their own: nothing here holds the loop up.

An operation that waits for long does not raise here: it never ends, and the task that called it sleeps. So a TaskGroup,
or a gather, in which one task waits for a person lets the others go on. When nothing of a run goes on any more, the run
is suspended, and its tasks are cancelled.
"""

from __future__ import annotations

import asyncio
import inspect
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from statelog.aio.durable.tasks import is_operation, numbered_tasks
from statelog.aio.running import ended, in_thread
from statelog.durable.clock import WallClock, clock
from statelog.durable.execution import ContinuedAsNew, CutShort, Stopped, Suspended, Unwinding, Wait, in_step
from statelog.durable.failures import CarriedError
from statelog.durable.hosts import called
from statelog.durable.workflows import Cancelled
from statelog.errors import NondeterminismError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence

    from statelog.aio.running import Runner
    from statelog.durable.execution import Execution
    from statelog.durable.hosts import ThreadHost

T = TypeVar("T")

LOOK_S: Final = 0.25
"""So often an async step is looked at: whether its run was cancelled meanwhile."""

_QUIET_TURNS: Final = 10
_QUIET_S: Final = 0.002
"""Nothing of a run goes on when no operation begins in so many turns of the loop, so long each. A task that was woken
by another one needs some turns until it calls its next operation."""

_CANCELLED_LATE_S: Final = 5.0
"""So much later than when it was recorded, and once more the time that it took then, a cancellation may come again."""

_FAIR: Final = 32
"""After so many operations others have their turn, also where all are replayed."""

_beside: ContextVar[tuple[asyncio.Future[Any], ...]] = ContextVar("beside", default=())
"""The branches that a task is in, the outermost first."""


class EventLoopHost:
    """The event loop: one host is of one run that is driven."""

    is_async = True

    def __init__(self, runner: Runner, *, is_block: bool = False) -> None:
        self._runner = runner
        self.is_block = is_block
        """Whether the calls are those of a block: who cancels it may be its caller, and that is not recorded."""
        self._begin()

    def _begin(self, execution: Execution | None = None) -> None:
        self._execution = execution
        self._under_way = 0
        """Operations, and branches, that do not wait for others."""
        self._begun = 0
        self._waits: list[Wait] = []
        self._asleep: set[asyncio.Task[Any]] = set()
        """Tasks whose operation waits for long."""
        self._tasks: set[asyncio.Task[Any]] = set()
        """All tasks that have called an operation, or are a branch, and have not ended."""
        self._branches: dict[asyncio.Future[Any], asyncio.Task[Any]] = {}
        self._let_go: set[asyncio.Future[Any]] = set()
        self._steps: dict[asyncio.Future[Any], tuple[asyncio.Future[Any], ...]] = {}
        self._changed = asyncio.Event()
        self._root: asyncio.Task[Any] | None = None
        self._is_over = False
        """Whether tasks are cancelled because the workflow has ended, or the run is suspended."""
        self._owed: set[asyncio.Task[Any]] = set()
        """Tasks that the workflow has cancelled in a call that had come to its end: their next one is cancelled."""

    def another(self) -> EventLoopHost:
        """As declared."""
        return EventLoopHost(self._runner)

    async def aside(self, host: ThreadHost, call: Callable[[], T]) -> T:
        """As declared."""
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
        """As declared. Who cancels this stops the run."""

        async def work() -> Any:
            enter()
            return await function(*args, **kwargs)

        self._begin(execution)
        root = self._root = self._adopted(_task(work()))
        try:
            with numbered_tasks():
                await self._until_rest(root)
        except asyncio.CancelledError as error:
            execution.stopped(error)
            raise
        if not root.done():
            raise Suspended(*self._waits, *self._waits_of_branches())
        return _result_of(root)

    async def _until_rest(self, root: asyncio.Task[Any]) -> None:
        """Return when the workflow has ended, or nothing of it goes on."""
        while not root.done():
            if self._under_way or not self._waits:
                await self._change()
            elif await self._is_quiet():
                waiting = [branch for branch in self._branches if not branch.done()]
                for branch in waiting:  # who waits for all of them hears what the others have come to
                    branch.set_exception(Suspended(*self._waits))
                if not waiting:
                    return

    async def _is_quiet(self) -> bool:
        """Whether no operation begins any more."""
        if self._tasks <= self._asleep:
            return True
        begun = self._begun
        for _ in range(_QUIET_TURNS):
            await asyncio.sleep(_QUIET_S)
            if self._under_way or self._begun != begun:
                return False
        return True

    def _waits_of_branches(self) -> Iterator[Wait]:
        for branch in self._branches:
            error = branch.exception() if branch.done() and not branch.cancelled() else None
            if isinstance(error, Suspended):
                yield from error.waits

    async def settle(self, execution: Execution) -> None:
        """As declared: operations under way, and branches that were not let go. All other tasks are cancelled."""
        try:
            while not isinstance(execution.stop, asyncio.CancelledError):
                going_on = [task for each, task in self._branches.items() if not (task.done() or each in self._let_go)]
                if not self._under_way and (not going_on or (self._waits and await self._is_quiet())):
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

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _adopted(self, task: asyncio.Task[Any]) -> asyncio.Task[Any]:
        """Note a task of the run."""
        if task not in self._tasks:
            self._tasks.add(task)
            task.add_done_callback(self._left)
        return task

    def _left(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._owed.discard(task)
        self._asleep.discard(task)
        self._changed.set()

    def _counted(self, number: int) -> _Counted:
        return _Counted(self, number)

    def count(self, number: int) -> None:
        """Add to the number of calls that are under way."""
        self._under_way += number
        self._changed.set()

    # --- operations -------------------------------------------------------------------------------

    def operate(self, make: Callable[[], Coroutine[Any, Any, T]], place: str = "") -> Coroutine[Any, Any, T]:
        """As declared. Its task sleeps for good where it waits for long."""
        return self._operate(make, place)

    @is_operation
    async def _operate(self, make: Callable[[], Coroutine[Any, Any, T]], place: str) -> T:
        """Make a call. That the workflow cancels it is recorded, and comes again on replay.

        A call that has come to its end is not cancelled: the next one of its task is.
        """
        task = asyncio.current_task()
        assert task is not None
        if self._has_ended():
            raise asyncio.CancelledError
        self._adopted(task)
        began_s = asyncio.get_running_loop().time()
        while True:
            try:
                self._pass_on(task, place)
                return await self._undertaken(task, make)
            except asyncio.CancelledError as cancelled:
                cut = await self._cut(place, asyncio.get_running_loop().time() - began_s, cancelled)
                if cut is not None:
                    raise cut from None
                self._owed.add(task)
            except CutShort as cut_short:
                await self._cancelled_again(cut_short)

    async def _undertaken(self, task: asyncio.Task[Any], make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        try:
            self._begun += 1
            with self._counted(1):
                if self._begun % _FAIR == 0:
                    await asyncio.sleep(0)
                return await make()
        except CarriedError as carrier:
            message = "a step has raised StopIteration, which no coroutine can raise"
            raise RuntimeError(message) from carrier.error
        except Suspended as raised:
            suspended = raised
        self._waits += suspended.waits
        self._asleep.add(task)
        self._changed.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not self._is_over:  # the workflow goes on without it
                self._asleep.discard(task)
                self._waits = [each for each in self._waits if each not in suspended.waits]
                if suspended.scope is not None:
                    suspended.scope.suspended = None
            raise
        raise AssertionError("a task that sleeps for good has woken")

    # --- what the workflow cancels ----------------------------------------------------------------

    def _has_ended(self) -> bool:
        """Whether the workflow has ended, and this is of no branch."""
        assert self._root is not None
        return self._root.done() and not _beside.get()

    async def _cut(self, place: str, seconds: float, cancelled: asyncio.CancelledError) -> BaseException | None:
        """Record that the workflow cancelled a call; return what it raises, None: what the call came to."""
        execution = self._execution
        is_ours = self._is_over or self._has_ended() or not self._let_go.isdisjoint(_beside.get())
        if not place or is_ours or self.is_block or execution is None or execution.stop is not None:
            return cancelled
        done = execution.record.done.get(place)
        if done is None and (execution.is_dry or execution.is_unwinding):
            return cancelled
        return await self.io(execution.cut, place, seconds)

    def _pass_on(self, task: asyncio.Task[Any], place: str) -> None:
        """Cancel a call, if the one before had come to its end as the workflow cancelled it."""
        if task not in self._owed or self._execution is None:
            return
        done = self._execution.record.done.get(place)
        if done is not None and "x" not in done:
            return
        self._owed.discard(task)
        if not task.cancelling():
            return  # a timeout that ran out as its block ended
        if done is not None:
            raise asyncio.CancelledError
        task.uncancel()
        task.cancel()

    async def _cancelled_again(self, cut: CutShort) -> None:
        """Wait until a call is cancelled that was cancelled when it was recorded. Raises CancelledError, Stopped."""
        execution = self._execution
        assert execution is not None
        with self._counted(1):
            await asyncio.sleep(2 * cut.seconds + _CANCELLED_LATE_S)
        message = (
            f"run {execution.id!r} has recorded that the call at place {cut.place} was cancelled, and the code does "
            "not cancel it. It has stopped, and goes on with code that does as it did"
        )
        facts = {"run": execution.id, "place": cut.place, "recorded": "a cancellation", "called": None}
        raise execution.stopped(NondeterminismError(message, **facts))

    async def io(self, function: Callable[..., T], *args: Any) -> T:
        """As declared: on the runner's pool. A task that is cancelled waits for its end all the same."""
        return await self._runner.finish(function, *args)

    async def sleep(self, seconds: float) -> None:
        """As declared."""
        if isinstance(clock(), WallClock):
            await asyncio.sleep(seconds)
        else:
            await self.io(clock().sleep, seconds)

    def place_of_caller(self) -> object:
        """As declared."""
        return asyncio.current_task()

    # --- branches ---------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
        """As declared: a task."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            _beside.set((*_beside.get(), future))
            try:
                with self._counted(1):
                    result = await work
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # noqa: BLE001 - who waits for it gets it
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
                future.exception()  # whether somebody waits for it is the workflow's affair

        task = self._branches[future] = self._adopted(_task(run()))
        task.add_done_callback(end)
        return future

    async def wait(self, futures: Sequence[Any], *, first: bool) -> None:
        """As declared."""
        with self._counted(-1):
            await asyncio.wait(set(futures), return_when=asyncio.FIRST_COMPLETED if first else asyncio.ALL_COMPLETED)

    def let_go(self, future: Any) -> None:
        """As declared: its async steps are interrupted, and it calls no other one."""
        self._let_go.add(future)
        for step, branches in self._steps.items():
            if future in branches:
                step.cancel()

    # --- steps ------------------------------------------------------------------------------------

    async def call(self, function: Callable[..., Any], args: Any, kwargs: Any, timeout_s: float | None) -> Any:
        """As declared. A function that is not async is called in a thread of its own."""
        if not in_step.get():  # a part of the workflow
            with self._counted(-1):
                found = function(*args, **kwargs)
                return await found if inspect.isawaitable(found) else found
        if not self._let_go.isdisjoint(_beside.get()):
            raise asyncio.CancelledError
        if not inspect.iscoroutinefunction(function):
            made = in_thread(lambda: called(function, args, kwargs))
            await ended(made)
            result = made.result()
            return await self._interruptible(result, timeout_s) if inspect.isawaitable(result) else result
        return await self._interruptible(function(*args, **kwargs), timeout_s)

    async def _interruptible(self, work: Awaitable[Any], timeout_s: float | None) -> Any:
        """Await a step, in a task of its own. Raises TimeoutError, Cancelled, Stopped: it was interrupted."""
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
            was_let_go = step.cancelled() and not self._let_go.isdisjoint(_beside.get())
            if not step.done():
                step.cancel()
                await ended(step)
        if not step.cancelled():
            return step.result()
        if signal is not None:
            raise signal
        if was_let_go:
            raise asyncio.CancelledError
        raise RuntimeError("the step has cancelled itself")


class _Counted(NamedTuple):
    """Counts calls while a block lasts.

    It is no `contextmanager`: that sets the traceback of what is raised, which a frozen dataclass refuses.
    """

    host: EventLoopHost
    number: int

    def __enter__(self) -> None:
        self.host.count(self.number)

    def __exit__(self, *_: object) -> None:
        self.host.count(-self.number)


def _task(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Return a task of this room's own, which the workflow has not begun."""
    return asyncio.Task(work, loop=asyncio.get_running_loop())


def _result_of(root: asyncio.Task[Any]) -> Any:
    """Return what a workflow has returned, or raise that; of a group of exceptions what makes the run stop or turn."""
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
