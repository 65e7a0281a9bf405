"""Where a run is executed: in the calling thread. `statelog.aio.durable` has the other host, the event loop.

What a run does is written once, as coroutines over a host. This one never suspends a coroutine: whatever it is asked to
wait for it does at once, in the thread that asks. So `finish` runs a coroutine to its end.
"""

from __future__ import annotations

import inspect
import threading
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakSet

from statelog.durable.clock import clock
from statelog.durable.failures import CarriedError
from statelog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

T = TypeVar("T")


def called(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a function for a coroutine. A StopIteration is wrapped, because a coroutine cannot raise it."""
    try:
        return function(*args, **kwargs)
    except StopIteration as error:
        raise CarriedError(error) from error


class EventOrder(Protocol):
    """The events of a workflow on an event loop (D32)."""

    def expect(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Append events to the order when their commit begins."""

    def withdraw(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Remove events whose commit has failed."""

    def join(self, task: Any) -> None:
        """Add a task of the workflow."""

    def watch(self, timer: Any, call_at: Callable[..., Any]) -> None:
        """Start a timer that the workflow has set."""


class Host(Protocol):
    """What runs a workflow and its steps."""

    is_async: bool

    def another(self) -> Host:
        """Return what runs a child."""

    async def aside(self, host: ThreadHost, call: Callable[[], T]) -> T:
        """Make a call that works in its thread by another host. Who is to stop meanwhile stops that one."""

    async def call_workflow(
        self, execution: Any, enter: Callable[[], None], function: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Call a workflow; `enter` is called where it is. Raises Suspended: all that it does waits for long."""

    async def settle(self, execution: Any) -> None:
        """Wait for all that is under way beside the workflow."""

    def operate(self, make: Callable[[], Coroutine[Any, Any, T]], place: str = "") -> Any:
        """Return what an operation returns, or an awaitable of it."""

    async def call(self, function: Callable[..., Any], args: Any, kwargs: Any, timeout_s: float | None) -> Any:
        """Call a step, or a part of a workflow. Raises TimeoutError: it was stopped as its time was up."""

    async def in_order(self, place: str, work: Coroutine[Any, Any, T]) -> T:
        """Make a call. Return its outcome when it is the turn of its event (D32)."""

    async def caught_up(self, place: str) -> bool:
        """Wait until all recorded events were replayed (D33). Return False to make the caller check for signals."""

    async def io(self, function: Callable[..., T], *args: Any) -> T:
        """Call what reads or writes the store."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    def spawn(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Begin a branch; return a future."""

    async def wait(self, futures: Sequence[Any], *, first: bool) -> None:
        """Wait until one of the futures is done, or all are."""

    def place_of_caller(self) -> object:
        """Return the task, or the thread, that calls."""

    def let_go(self, future: Any) -> None:
        """Have a branch come to nothing, if it can be stopped."""


class ThreadHost:
    """The calling thread."""

    is_async = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._executions: WeakSet[Any] = WeakSet()
        self._stop: BaseException | None = None

    def stop(self, error: BaseException) -> None:
        """Have the runs here stop at their next operation, resumable, with an error; for another thread to call."""
        with self._lock:
            self._stop = error
            for execution in self._executions:
                execution.stopped(error)

    def another(self) -> ThreadHost:
        """As declared."""
        return self

    async def aside(self, host: ThreadHost, call: Callable[[], T]) -> T:
        """As declared."""
        del host
        return call()

    async def call_workflow(
        self, execution: Any, enter: Callable[[], None], function: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """As declared."""
        with self._lock:
            self._executions.add(execution)
            if self._stop is not None:
                execution.stopped(self._stop)
        enter()
        return await self.call(function, args, kwargs, None)

    async def settle(self, execution: Any) -> None:
        """As declared."""
        while execution.outstanding:
            futures = list(execution.outstanding.values())
            wait(futures)
            for place in [place for place, each in execution.outstanding.items() if each in futures]:
                del execution.outstanding[place]

    def operate(self, make: Callable[[], Coroutine[Any, Any, T]], place: str = "") -> T:
        """As declared."""
        del place
        return self.finish(make())

    def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine that uses this host, and return its result."""
        try:
            return self._finish(work)
        except CarriedError as carrier:
            raise carrier.error from carrier.error.__cause__

    def _finish(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            work.send(None)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # of the coroutine
        work.close()
        message = "a coroutine of this room has waited for something outside of its host"
        raise AssertionError(message)

    async def call(
        self,
        function: Callable[..., Any],
        args: Any,
        kwargs: Any,
        timeout_s: float | None,  # noqa: ARG002 - a thread cannot be stopped
    ) -> Any:
        """As declared."""
        result = called(function, args, kwargs)
        if inspect.iscoroutine(result):
            result.close()
            message = f"{getattr(function, '__qualname__', function)!r} is async: call it by statelog.aio.durable"
            raise UsageError(message, argument="function", value=function)
        return result

    async def in_order(self, place: str, work: Coroutine[Any, Any, T]) -> T:  # noqa: ARG002 - as declared
        """Make the call at once. Operations such as `wait_any` record the order of threads themselves."""
        return await work

    async def caught_up(self, place: str) -> bool:  # noqa: ARG002 - as declared
        """As declared."""
        return True

    async def io(self, function: Callable[..., T], *args: Any) -> T:
        """As declared."""
        return function(*args)

    async def sleep(self, seconds: float) -> None:
        """As declared."""
        clock().sleep(seconds)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """As declared: an OS thread of its own, so that a branch may wait for others."""
        future: Future[Any] = Future()
        context = copy_context()

        def run() -> None:
            try:
                future.set_result(context.run(self._finish, work))
            except BaseException as error:  # noqa: BLE001 - who waits for it gets it
                future.set_exception(error)

        threading.Thread(target=run, name="statelog run", daemon=True).start()
        return future

    async def wait(self, futures: Sequence[Any], *, first: bool) -> None:
        """As declared."""
        if first:
            wait(futures, return_when=FIRST_COMPLETED)
        else:
            wait(futures)

    def place_of_caller(self) -> object:
        """As declared."""
        return threading.get_ident()

    def let_go(self, future: Any) -> None:
        """As declared: a thread cannot be stopped."""
