"""The one bridge between event loops and the sync surface: calls and iterators on OS threads."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from statelog.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

P = ParamSpec("P")
T = TypeVar("T")

WORKERS_MAX = 32
"""OS threads of one runner: as many commits can wait for one flush."""

_TRIES_MAX = 4
_POLL_WORKERS_MAX = 3
"""OS threads for the reads of waiting tasks: with the waiter thread four, however many tasks wait."""

_PAGE = 64


class Runner:
    """Makes calls on a pool of OS threads. A process that was forked begins a pool of its own.

    Args:
        path: of the store that `close` closes; later calls raise ClosedError. Without it, later calls begin a new pool.

    """

    def __init__(self, path: str | None = None) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._poll_pool: ThreadPoolExecutor | None = None
        self._process_id = os.getpid()
        self._closing: Future[None] | None = None
        self.tries = threading.Semaphore(_TRIES_MAX)
        """For attempts that are made before a task begins to wait."""

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Begin a call in the caller's context. Its result outlives a task that is cancelled while it waits.

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
        """Return what a call returns. Cancelling the task does not undo a commit that has begun."""
        return await asyncio.wrap_future(self.submit(function, *args, **kwargs))

    async def poll(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Return what a short read returns that a task makes between two waits. All tasks share a few OS threads."""
        return await asyncio.wrap_future(self._begin(self._poll_executor, partial(function, *args, **kwargs)))

    async def finish(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a call returns, under asyncio and under trio.

        A cancelled task waits for the end of its call, and is cancelled then: so the task knows what was committed, and
        nothing goes on behind its back.
        """
        if _is_trio():
            import trio

            call = partial(_call, partial(function, *args, **kwargs))
            result: T = await trio.to_thread.run_sync(call)  # waits for the call when it is cancelled
            return result
        future = asyncio.wrap_future(self.submit(function, *args, **kwargs))
        await ended(future)
        return future.result()

    async def win(self, take: Callable[[], T | None], give_back: Callable[[T], object]) -> T | None:
        """Return what `take` takes for this task. A cancelled task gives it back first.

        Args:
            take: takes a claim or a lease, and returns it; None if there is none.
            give_back: what is called with it when nobody gets it. What it raises is lost.

        """
        future = asyncio.wrap_future(self.submit(take))
        try:
            await ended(future)
        except asyncio.CancelledError:
            if not future.cancelled() and future.exception() is None and (taken := future.result()) is not None:
                returning = in_thread(partial(give_back, taken))  # also where the pool is closed by now
                await ended(returning)
                returning.exception()
            raise
        return future.result()

    def close(self, last: Callable[[], None] | None = None) -> Future[None]:
        """Let the threads end after a last call, which is made whoever waits for it, and once."""
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
        """In a forked child, forget the pools: their threads run in the parent alone."""
        if self._process_id != os.getpid():
            self._process_id = os.getpid()
            self._pool = self._poll_pool = None


_shared = Runner()

run = _shared.finish
"""`Runner.finish` of a pool that the process shares: for what belongs to no store of `statelog.aio`, as in adapters."""


def _do_nothing() -> None:
    pass


def _call(call: Callable[[], T]) -> T:
    """Return what a call returns. Raise RuntimeError for StopIteration, which no future can hold."""
    try:
        return call()
    except StopIteration as error:
        message = f"a call raised {type(error).__name__}, which cannot leave a coroutine"
        raise RuntimeError(message) from error


def _is_trio() -> bool:
    if "trio" not in sys.modules:
        return False
    import trio

    return bool(trio.lowlevel.in_trio_run())


async def ended(*futures: asyncio.Future[Any]) -> None:
    """Wait until all futures have ended. A task that is cancelled meanwhile waits, too, and is cancelled then."""
    cancelled: asyncio.CancelledError | None = None
    while waiting := [each for each in futures if not each.done()]:
        try:
            await asyncio.wait(waiting)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        for each in futures:
            if not each.cancelled():
                each.exception()  # nobody else will look at it
        raise cancelled


def in_thread(call: Callable[[], T]) -> asyncio.Future[T]:
    """Make a call in a thread of its own, in the caller's context: it may take as long as it likes."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    context = copy_context()

    def make() -> None:
        try:
            future.set_result(context.run(_call, call))
        except BaseException as error:  # noqa: BLE001 - the awaiting task gets it
            future.set_exception(error)

    threading.Thread(target=make, name="statelog step", daemon=True).start()
    return asyncio.wrap_future(future)


async def stream(runner: Runner, make: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
    """Draw from an iterator in pages, on the pool."""
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
