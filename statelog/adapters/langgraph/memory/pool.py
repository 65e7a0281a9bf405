"""OS threads on which calls of tasks run, so that the event loop never waits for the disk."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

WORKERS_MAX = 32
"""As in `statelog.aio`: so many commits can share a flush. Those of the loop's own pool would be fewer, and others'."""


class Pool:
    """A pool that is there once it is needed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._process_id = os.getpid()

    async def run(self, function: Callable[..., T], /, *args: object) -> T:
        """Return what a call returns. A task that is cancelled does not take back a commit on its way."""
        with self._lock:
            if self._executor is None or self._process_id != os.getpid():  # a child has not its parent's threads
                self._process_id = os.getpid()
                self._executor = ThreadPoolExecutor(WORKERS_MAX, thread_name_prefix="statelog-langgraph")
            executor = self._executor
        return await asyncio.get_running_loop().run_in_executor(executor, partial(function, *args))

    def close(self) -> None:
        """Let the threads end when they are done. A later call begins new ones."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False)
