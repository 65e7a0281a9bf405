"""Calls and iterators of the sync surface, on a pool of OS threads."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from statelog.errors import ClosedError, ForkedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from concurrent.futures import Future

T = TypeVar("T")

WORKERS_MAX = 32
"""OS threads of one store: as many commits can wait for one flush."""

_PAGE = 64


class Runner:
    """Runs calls on the pool."""

    def __init__(self, path: str) -> None:
        self.path = path
        """Of the store, for errors."""
        self._process_id = os.getpid()
        self._pool = ThreadPoolExecutor(WORKERS_MAX, thread_name_prefix="statelog")
        self._closing: Future[None] | None = None
        # Waiting for news must not keep commits waiting for a thread.
        self._waiters = ThreadPoolExecutor(WORKERS_MAX, thread_name_prefix="statelog-wait")

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Begin a call, in the caller's context. Its result outlives a task that is cancelled while it waits."""
        self._check_open()
        return self._pool.submit(copy_context().run, function, *args, **kwargs)

    async def run(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Return what a call returns. A task that is cancelled does not undo a commit on its way."""
        return await asyncio.wrap_future(self.submit(function, *args, **kwargs))

    async def wait(self, function: Callable[..., T], /, *args: Any) -> T:
        """Return what a call returns that sleeps for long."""
        return await asyncio.wrap_future(self.submit_waiting(function, *args))

    def submit_waiting(self, function: Callable[..., T], /, *args: Any) -> Future[T]:
        """Begin a call that sleeps for long."""
        self._check_open()
        return self._waiters.submit(function, *args)

    def close(self, last: Callable[[], None]) -> Future[None]:
        """Let the threads end, with a last call that happens whoever waits for it; once, however often asked."""
        if self._closing is None:
            is_forked = os.getpid() != self._process_id
            self._closing = (ThreadPoolExecutor(1) if is_forked else self._pool).submit(last)
            self._pool.shutdown(wait=False)
            self._waiters.shutdown(wait=False)
        return self._closing

    def _check_open(self) -> None:
        if os.getpid() != self._process_id:  # whose threads this process has not
            message = f"{self.path} was opened before this process was forked: open it again in the child"
            raise ForkedError(message, path=self.path)
        if self._closing is not None:
            message = f"the store {self.path} is closed"
            raise ClosedError(message, path=self.path)


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
