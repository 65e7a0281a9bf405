"""Hosts, which execute runs: `ThreadHost` in the calling thread. `statelog.aio.durable` has a host for an event loop.

The operations of a run are written once, as coroutines that use a host. `ThreadHost` never suspends a coroutine: it
waits in the calling thread. So `finish` runs a coroutine to its end.
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
    """Runs a workflow and its steps."""

    is_async: bool

    def another(self) -> Host:
        """Return the host for a child run."""

    async def aside(self, host: ThreadHost, call: Callable[[], T]) -> T:
        """Make a call, which uses `host`, in another thread. If this host is stopped, also stop `host`."""

    async def call_workflow(
        self, execution: Any, enter: Callable[[], None], function: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Call `enter`, then the workflow, in the same thread or task. Raises Suspended if the workflow must wait."""

    async def settle(self, execution: Any) -> None:
        """Wait for the branches that run concurrently with the workflow."""

    def operate(self, make: Callable[[], Coroutine[Any, Any, T]], place: str = "") -> Any:
        """Return the result of an operation, or an awaitable of the result."""

    async def call(self, function: Callable[..., Any], args: Any, kwargs: Any, timeout_s: float | None) -> Any:
        """Call a step or a branch of a workflow. Raises TimeoutError if the call was stopped after `timeout_s`."""

    async def in_order(self, place: str, work: Coroutine[Any, Any, T]) -> T:
        """Make the call `work`. Return its outcome when it is the turn of this event (D32)."""

    async def caught_up(self, place: str) -> bool:
        """Wait until all recorded events are replayed (D33). Return False to let the caller check for signals."""

    async def io(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function that reads or writes the store."""

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""

    def spawn(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Begin a branch. Return its future."""

    async def wait(self, futures: Sequence[Any], *, first: bool) -> None:
        """Wait until all futures are done. With `first`, wait until one future is done."""

    def place_of_caller(self) -> object:
        """Return an object that identifies the calling task or thread."""

    def abandon(self, future: Any) -> None:
        """Cancel a branch whose result is no longer needed, if the host can cancel it."""


class ThreadHost:
    """Executes runs in the calling thread."""

    is_async = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._executions: WeakSet[Any] = WeakSet()
        self._stop: BaseException | None = None

    def stop(self, error: BaseException) -> None:
        """Stop the runs of this host with `error` at their next operation. They stay open. Any thread may call this."""
        with self._lock:
            self._stop = error
            for execution in self._executions:
                execution.stopped(error)

    def another(self) -> ThreadHost:
        """Implement `Host.another`."""
        return self

    async def aside(self, host: ThreadHost, call: Callable[[], T]) -> T:
        """Implement `Host.aside`."""
        del host
        return call()

    async def call_workflow(
        self, execution: Any, enter: Callable[[], None], function: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Implement `Host.call_workflow`."""
        with self._lock:
            self._executions.add(execution)
            if self._stop is not None:
                execution.stopped(self._stop)
        enter()
        return await self.call(function, args, kwargs, None)

    async def settle(self, execution: Any) -> None:
        """Implement `Host.settle`."""
        while execution.outstanding:
            futures = list(execution.outstanding.values())
            wait(futures)
            for place in [place for place, each in execution.outstanding.items() if each in futures]:
                del execution.outstanding[place]

    def operate(self, make: Callable[[], Coroutine[Any, Any, T]], place: str = "") -> T:
        """Implement `Host.operate`."""
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
            return end.value  # type: ignore[no-any-return]  # This is the result of the coroutine.
        work.close()
        message = "an internal coroutine of statelog.durable has awaited something outside its host"
        raise AssertionError(message)

    async def call(
        self,
        function: Callable[..., Any],
        args: Any,
        kwargs: Any,
        timeout_s: float | None,  # noqa: ARG002 - a thread cannot be stopped
    ) -> Any:
        """Implement `Host.call`."""
        result = called(function, args, kwargs)
        if inspect.iscoroutine(result):
            result.close()
            message = f"{getattr(function, '__qualname__', function)!r} is async: call it with statelog.aio.durable"
            raise UsageError(message, argument="function", value=function)
        return result

    async def in_order(self, place: str, work: Coroutine[Any, Any, T]) -> T:  # noqa: ARG002 - `Host` declares this parameter
        """Make the call at once. Operations such as `wait_any` record the order of threads themselves."""
        return await work

    async def caught_up(self, place: str) -> bool:  # noqa: ARG002 - `Host` declares this parameter
        """Implement `Host.caught_up`."""
        return True

    async def io(self, function: Callable[..., T], *args: Any) -> T:
        """Implement `Host.io`."""
        return function(*args)

    async def sleep(self, seconds: float) -> None:
        """Implement `Host.sleep`."""
        clock().sleep(seconds)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Implement `Host.spawn`. Each branch has an OS thread, so that it can wait for other branches."""
        future: Future[Any] = Future()
        context = copy_context()

        def run() -> None:
            try:
                future.set_result(context.run(self._finish, work))
            except BaseException as error:  # noqa: BLE001 - the waiting thread gets the error
                future.set_exception(error)

        threading.Thread(target=run, name="statelog run", daemon=True).start()
        return future

    async def wait(self, futures: Sequence[Any], *, first: bool) -> None:
        """Implement `Host.wait`."""
        if first:
            wait(futures, return_when=FIRST_COMPLETED)
        else:
            wait(futures)

    def place_of_caller(self) -> object:
        """Implement `Host.place_of_caller`."""
        return threading.get_ident()

    def abandon(self, future: Any) -> None:
        """Implement `Host.abandon`. This does nothing, because a thread cannot be stopped."""
