"""Calls in threads of their own, and waiting for what a task that is cancelled must not leave behind."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


async def ended(*futures: asyncio.Future[Any]) -> None:
    """Wait until all have ended, also where the task that waits is cancelled meanwhile: it is cancelled then."""
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

    def run() -> None:
        try:
            future.set_result(context.run(call))
        except BaseException as error:  # noqa: BLE001 - who waits for it gets it
            future.set_exception(error)

    threading.Thread(target=run, name="statelog step", daemon=True).start()
    return asyncio.wrap_future(future)
