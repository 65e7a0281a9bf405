"""The timers of workflows. `asyncio.timeout`, `wait_for`, `sleep` and `wait` set them with `call_at` of the event loop.

A timer that fires is an event of its run, and is recorded. So while workflows run on an event loop, this module
replaces the `call_at` of the loop. The replacement distinguishes the timers of workflows from all other timers.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from statelog.aio.durable.tasks import in_operation
from statelog.durable.clock import clock
from statelog.durable.execution import current_scope, in_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextvars import Context


class Timer(asyncio.TimerHandle):
    """A timer of a workflow.

    Attributes:
        place: the place of the timer in its run.
        due_us: the time at which the timer fires, by the clock of runs, in microseconds.
        is_due: whether this time has come. The timer fires when it is the next event of the run.
        end: a function that is called when the timer is cancelled or fires.
    """

    def __init__(
        self,
        when: float,
        callback: Callable[..., Any],
        args: Any,
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
        place: str,
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self.place = place
        self.due_us = clock().now_us() + round((when - loop.time()) * 1e6)
        self.is_due = False
        self.end: Callable[[Timer], None] | None = None
        """Called when the timer is cancelled or fires."""
        self._fires = callback, args, context
        self._handle: asyncio.Handle | None = None

    def wait(self, call_at: Callable[..., asyncio.Handle], seconds: float, is_due: Callable[[Timer], None]) -> None:
        """Call `is_due` after the given number of seconds."""
        self._handle = call_at(asyncio.get_running_loop().time() + seconds, is_due, self)

    def fire(self) -> None:
        """Make the event loop call the callback of the timer."""
        self._leave()
        callback, args, context = self._fires
        self._handle = asyncio.get_running_loop().call_soon(callback, *args, context=context)

    def cancel(self) -> None:
        """Cancel the timer, as in `asyncio.TimerHandle`."""
        self._leave()
        asyncio.Handle.cancel(self)

    def _leave(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        if self.end is not None:
            self.end(self)
            self.end = None


class _CallAt:
    """Replaces `call_at` of an event loop while workflows run on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.before = loop.call_at
        self.held = vars(loop).get("call_at")
        self.uses = 0

    def __call__(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        held = current_scope.get()
        order = None if held is None or in_step.get() or in_operation.get() else held[0].order
        if held is None or order is None:
            return self.before(when, callback, *args, context=context)
        timer = Timer(when, callback, args, self._loop, context, held[1].take_timer())
        order.watch(timer, self.before)
        return timer

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self(self._loop.time() + delay, callback, *args, context=context)


@contextmanager
def recorded_timers() -> Iterator[None]:
    """Record the timers that workflows set on this event loop while the `with` block runs."""
    loop: Any = asyncio.get_running_loop()
    call_at = loop.call_at
    if not isinstance(call_at, _CallAt):
        call_at = _CallAt(loop)
        with suppress(AttributeError):  # Some loops do not allow new attributes. Their timers are not recorded.
            loop.call_at, loop.call_later = call_at, call_at.call_later
    call_at.uses += 1
    try:
        yield
    finally:
        call_at.uses -= 1
        if not call_at.uses and loop.call_at is call_at:
            del loop.call_at, loop.call_later
            if call_at.held is not None:
                loop.call_at = call_at.held
