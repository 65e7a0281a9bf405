"""Calls of the store from tasks, under asyncio and under trio: no call blocks the loop, not even a read."""

from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["run"]

P = ParamSpec("P")
T = TypeVar("T")

WORKERS_MAX = 32
"""OS threads: so many commits can wait for one flush."""


async def run(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what a call returns that runs on another OS thread.

    A task that is cancelled waits until the call has ended, and is cancelled then: what it has committed is known, and
    nothing of it goes on behind the task's back.
    """
    call = partial(function, *args, **kwargs)
    if _is_trio():
        import trio

        return await trio.to_thread.run_sync(call)  # waits for the call when it is cancelled
    future = _workers.executor().submit(copy_context().run, call)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:  # which has taken the call out of the queue, if it had not begun
        while not future.done():
            with suppress(asyncio.CancelledError):  # asked again
                await asyncio.wait([asyncio.wrap_future(future)])
        raise


def _is_trio() -> bool:
    if "trio" not in sys.modules:
        return False
    import trio

    return bool(trio.lowlevel.in_trio_run())


class _Workers:
    """Threads that are there once they are needed; a child of a fork has its own."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._process_id = 0

    def executor(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._executor is None or self._process_id != os.getpid():
                self._process_id = os.getpid()
                self._executor = ThreadPoolExecutor(WORKERS_MAX, thread_name_prefix="statelog-adapters")
            return self._executor


_workers = _Workers()
