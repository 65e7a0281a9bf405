"""Connects event loops with the synchronous API: makes its calls and runs its iterators on OS threads."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from statelog.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

P = ParamSpec("P")
T = TypeVar("T")

WORKERS_MAX = 32
"""The maximum number of OS threads in a runner's pool. This many commits can wait for one flush."""

_TRIES_MAX = 4
_POLL_WORKERS_MAX = 3
"""The maximum number of OS threads for reads of waiting tasks. Together with the waiter thread, these are four threads.
"""

_PAGE = 64


class Runner:
    """Makes calls on a pool of OS threads. A forked process starts its own pool.

    Args:
        path: the path of the store. After `close`, calls raise ClosedError. Without a path, they start a new pool.
    """

    def __init__(self, path: str | None = None) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._poll_pool: ThreadPoolExecutor | None = None
        self._process_id = os.getpid()
        self._closing: Future[None] | None = None
        self.tries = threading.Semaphore(_TRIES_MAX)
        """Limits the attempts that tasks make at the same time before they begin to wait."""

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Start a call in the caller's context. The future stays valid if the task that waits for it is cancelled.

        Raises:
            ClosedError: the store is closed.
        """
        return self._begin(self._executor, partial(function, *args, **kwargs))

    def _begin(self, executor: Callable[[], ThreadPoolExecutor], call: Callable[[], T]) -> Future[T]:
        if self._closing is not None and self.path is not None:
            message = f"the store {self.path} is closed"
            raise ClosedError(message, path=self.path)
        with self._lock:
            return executor().submit(copy_context().run, _call, call)

    async def run(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Make a call, and return its result. Cancelling the task does not undo a commit that has begun."""
        return await asyncio.wrap_future(self.submit(function, *args, **kwargs))

    async def poll(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Make a short read between two waits of a task, and return its result. All tasks share a few OS threads."""
        return await asyncio.wrap_future(self._begin(self._poll_executor, partial(function, *args, **kwargs)))

    async def finish(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call under asyncio or trio, and return its result.

        If the task is cancelled, it waits for the call to end. So no commit happens after the task has ended.
        """
        if _is_trio():
            import trio

            call = partial(_call, partial(function, *args, **kwargs))
            result: T = await trio.to_thread.run_sync(call)  # By default, a cancelled task waits for the call.
            return result
        future = self.submit(function, *args, **kwargs)
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()

        def wake(_future: Future[T]) -> None:
            with suppress(RuntimeError):  # The loop was closed, so no task waits.
                loop.call_soon_threadsafe(_end, waiter)

        future.add_done_callback(wake)
        try:
            await waiter
        except asyncio.CancelledError:
            await ended(asyncio.wrap_future(future))
            raise
        return future.result()

    async def win(self, take: Callable[[], T | None], give_back: Callable[[T], object]) -> T | None:
        """Return the result of `take` to the task. If the task is cancelled, give the result back first.

        Args:
            take: a function that takes a claim or a lease and returns it, or returns None.
            give_back: a function that is called with the result if the task is cancelled. Its errors are ignored.
        """
        future = asyncio.wrap_future(self.submit(take))
        try:
            await ended(future)
        except asyncio.CancelledError:
            if not future.cancelled() and future.exception() is None and (taken := future.result()) is not None:
                returning = in_thread(partial(give_back, taken))  # Use a new thread: the pool may be closed by now.
                await ended(returning)
                returning.exception()
            raise
        return future.result()

    def close(self, last: Callable[[], None] | None = None) -> Future[None]:
        """Call `last`, and then end the threads. `last` is called only once, even if no task waits for it."""
        with self._lock:
            if self._closing is None or self.path is None:
                pool = self._executor()
                self._closing = pool.submit(last or _do_nothing)
                self._pool = None
                pool.shutdown(wait=False)
                if self._poll_pool is not None:
                    self._poll_pool.shutdown(wait=False)
                    self._poll_pool = None
            return self._closing

    def _executor(self) -> ThreadPoolExecutor:
        self._forget_pools_of_parent()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(WORKERS_MAX, thread_name_prefix="statelog")
        return self._pool

    def _poll_executor(self) -> ThreadPoolExecutor:
        self._forget_pools_of_parent()
        if self._poll_pool is None:
            self._poll_pool = ThreadPoolExecutor(_POLL_WORKERS_MAX, thread_name_prefix="statelog poll")
        return self._poll_pool

    def _forget_pools_of_parent(self) -> None:
        """Forget the pools in a forked child, because their threads exist only in the parent."""
        if self._process_id != os.getpid():
            self._process_id = os.getpid()
            self._pool = self._poll_pool = None


_shared = Runner()

run = _shared.finish
"""`Runner.finish` of a pool that the whole process shares. Adapters use it for stores not opened by `statelog.aio`."""


def _do_nothing() -> None:
    pass


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _call(call: Callable[[], T]) -> T:
    """Make a call, and return its result. Raise RuntimeError in place of StopIteration, which a future cannot hold."""
    try:
        return call()
    except StopIteration as error:
        message = f"a call raised {type(error).__name__}, which a coroutine cannot raise"
        raise RuntimeError(message) from error


def _is_trio() -> bool:
    if "trio" not in sys.modules:
        return False
    import trio

    return bool(trio.lowlevel.in_trio_run())


async def ended(*futures: asyncio.Future[Any]) -> None:
    """Wait until all futures are done.

    If the task is cancelled while it waits, raise CancelledError only when they are done.
    """
    cancelled: asyncio.CancelledError | None = None
    while waiting := [each for each in futures if not each.done()]:
        try:
            await asyncio.wait(waiting)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        for each in futures:
            if not each.cancelled():
                each.exception()  # Mark the exception as retrieved.
        raise cancelled


def in_thread(call: Callable[[], T]) -> asyncio.Future[T]:
    """Make a call of any duration in a new thread, in the caller's context."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    context = copy_context()

    def make() -> None:
        try:
            future.set_result(context.run(_call, call))
        except BaseException as error:  # noqa: BLE001 - the awaiting task gets the error
            future.set_exception(error)

    threading.Thread(target=make, name="statelog step", daemon=True).start()
    return asyncio.wrap_future(future)


async def stream(runner: Runner, make: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
    """Yield the items of an iterator, which the pool reads in pages."""
    iterator: Iterator[T] | None = None

    def page() -> list[T]:
        nonlocal iterator
        iterator = make() if iterator is None else iterator
        found = []
        for item in iterator:
            found.append(item)
            if len(found) == _PAGE:
                break
        return found

    while items := await runner.run(page):
        for item in items:
            yield item
