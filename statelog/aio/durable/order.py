"""The order of a workflow's events: outcomes of its calls, cancellations of its calls, and timers. See D32 to D34.

The workflow receives the next event of the record when all tasks of the workflow are at rest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

from statelog.durable.clock import clock
from statelog.durable.record import DONE, event_of
from statelog.errors import NondeterminismError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager

    from statelog.aio.durable.timers import Timer
    from statelog.durable.execution import Execution
    from statelog.durable.record import Item

LATE_S: Final = 10.0
"""How long a replay whose tasks are at rest waits for the next recorded event before it stops the run."""

_LOOK_S: Final = 0.25
"""While calls wait for their turn, the interval at which to check whether the run has stopped."""

_REST_TURNS: Final = 3
"""Tasks are at rest if they wait during this number of successive turns of the event loop.

One turn is not enough. The callback of a future, such as a nested gather, takes a turn in which no task runs.
"""

_TURNS_MAX: Final = 100
"""The maximum number of turns to wait for rest. Then the workflow receives its next event anyway.

A task that awaits `sleep(0)` in a loop, for example, is never at rest.
"""


class Loop(Protocol):
    """The host methods that `Order` uses."""

    under_way: int

    def counted(self, number: int) -> AbstractContextManager[None]:
        """Count `number` operations as under way within a `with` block."""

    def changed(self) -> None:
        """Note that the run may be at rest."""

    async def io(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function that reads or writes the store."""


class _Event:
    """An event that the workflow has not received yet."""

    __slots__ = ("is_dropped", "is_recorded", "key")

    def __init__(self, key: str, *, is_recorded: bool) -> None:
        self.key, self.is_recorded, self.is_dropped = key, is_recorded, False


class Order:
    """Hands out the events of one execution of a workflow, in order."""

    def __init__(self, execution: Execution, host: Loop) -> None:
        self._execution, self._host = execution, host
        events = execution.record.events()
        self._queue = deque(_Event(key, is_recorded=True) for key in events)
        self._events = {event.key: event for event in self._queue}
        self._recorded = len(self._queue)
        """The number of recorded events that the workflow has not received."""
        self._ready: dict[str, asyncio.Future[None]] = {}
        """Calls that have an outcome and wait for their turn."""
        self._new: dict[str, asyncio.Future[bool]] = {}
        """Calls that are not recorded, and wait until all recorded events are handed out."""
        self._looked: set[str] = set()
        self._uncut: dict[str, asyncio.Future[None]] = {}
        """Calls that are recorded as cancelled, and wait for their cancellation."""
        self._timers: dict[str, Timer] = {}
        """Pending timers, by place."""
        self._firing: set[asyncio.Task[None]] = set()
        self._members: set[asyncio.Task[Any]] = set()
        """The tasks of the workflow."""
        self._loose: set[asyncio.Task[Any]] = set()
        """The tasks of the workflow that are not in an operation."""
        self._moves = 0
        self._changed = asyncio.Event()
        self._is_at_rest = True
        self._late_at_s: float | None = None
        self.is_stuck = False
        """True if the replay cannot continue by any known event or timer, while no call waits for its turn."""

    # --- what the workflow does -------------------------------------------------------------------

    def join(self, task: asyncio.Task[Any]) -> None:
        """Add a task of the workflow."""
        if task not in self._members:
            self._members.add(task)
            self._loose.add(task)
            task.add_done_callback(self._left)
            self.moved()

    def _left(self, task: asyncio.Task[Any]) -> None:
        self._members.discard(task)
        self._loose.discard(task)
        self.moved()

    def enter(self, task: asyncio.Task[Any]) -> None:
        """Note that a task has entered an operation."""
        self.join(task)
        self._loose.discard(task)
        self.moved()

    def leave(self, task: asyncio.Task[Any], place: str) -> None:
        """Note that the operation of a task has ended."""
        self.drop(place)
        if task in self._members:
            self._loose.add(task)
        self.moved()

    def moved(self) -> None:
        """Note that the workflow has made progress."""
        self._moves += 1
        self.is_stuck, self._late_at_s = False, None
        self._changed.set()

    # --- events -----------------------------------------------------------------------------------

    def expect(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Append events to the order when their commit begins. The caller holds the lock of the commits."""
        for item in items:
            key = event_of(item)
            if key is not None:
                event = self._events[key] = _Event(key, is_recorded=False)
                self._queue.append(event)

    def withdraw(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Remove events whose commit has failed."""
        for item in items:
            event = self._events.pop(event_of(item) or "", None)
            if event is not None:
                event.is_dropped = True

    def drop(self, key: str) -> None:
        """Skip an event that no call waits for."""
        event = self._events.pop(key, None)
        if event is not None:
            event.is_dropped = True
            self._count(event)

    async def turn(self, key: str) -> None:
        """Wait until it is the turn of an event. Raises Stopped."""
        event = self._events.get(key)
        if event is None:
            return
        if self._next() is event and self._is_at_rest and len(self._members) == 1:
            self._take(event)
            return
        await self._held(self._ready, key)

    async def caught_up(self, key: str) -> bool:
        """Wait until the workflow has received all recorded events.

        Returns:
            True if it has. False if the caller must first check whether the run was cancelled.

        Raises:
            Stopped: the run has stopped.
        """
        if not self._recorded:
            return True
        found: bool = await self._held(self._new, key)
        return found

    async def cut(self, key: str) -> None:
        """Wait until the workflow cancels the calling task. Raises Stopped."""
        await self._held(self._uncut, key)

    async def _held(self, waiting: dict[str, asyncio.Future[Any]], key: str) -> Any:
        future = waiting[key] = asyncio.get_running_loop().create_future()
        self._changed.set()
        try:
            found = await future
        finally:
            if waiting.get(key) is future:
                del waiting[key]
        self._execution.check_stop()
        return found

    @property
    def is_used_up(self) -> bool:
        """True if the workflow is at rest, and has received all recorded events that it can reach."""
        return self._is_at_rest and (not self._recorded or self.is_stuck)

    def _next(self) -> _Event | None:
        while self._queue:
            if not self._queue[0].is_dropped:
                return self._queue[0]
            self._queue.popleft()
        return None

    def _take(self, event: _Event) -> None:
        self._queue.popleft()
        if self._events.get(event.key) is event:
            del self._events[event.key]
        self._count(event)

    def _count(self, event: _Event) -> None:
        if not event.is_recorded:
            return
        self._recorded -= 1
        if not self._recorded:
            for future in self._new.values():
                _wake(future, result=True)
            for timer in sorted(self._timers.values(), key=lambda each: each.due_us):
                if timer.is_due:
                    self._record(timer)

    # --- timers -----------------------------------------------------------------------------------

    def watch(self, timer: Timer, call_at: Callable[..., asyncio.Handle]) -> None:
        """Start a timer that the workflow has set. A recorded timer keeps its recorded time."""
        record = self._execution.record
        record.see(timer.place)
        begun = record.begun.get(timer.place)
        if begun is not None:
            timer.due_us = begun["u"]
        timer.end = self._end
        self._timers[timer.place] = timer
        timer.wait(call_at, (timer.due_us - clock().now_us()) / 1e6, self.is_due)
        self.moved()

    def _end(self, timer: Timer) -> None:
        self._timers.pop(timer.place, None)
        self.moved()

    def is_due(self, timer: Timer) -> None:
        """Note that the time of a timer has come. The timer fires when it is its turn."""
        timer.is_due = True
        if not self._recorded:
            self._record(timer)

    def _record(self, timer: Timer) -> None:
        task = asyncio.Task(self._fire(timer), loop=asyncio.get_running_loop())
        self._firing.add(task)
        task.add_done_callback(self._firing.discard)

    async def _fire(self, timer: Timer) -> None:
        execution = self._execution
        with self._host.counted(1):
            item = execution.item(timer.place, DONE, "timer", "")
            await self._host.io(execution.defer, item)
            await self._held(self._ready, timer.place)
            if not timer.cancelled():
                timer.fire()

    def first_timer(self) -> Timer | None:
        """Return the pending timer with the earliest due time, or None."""
        return min(self._timers.values(), key=lambda each: each.due_us, default=None)

    def begun_timers(self) -> list[Item]:
        """Return the items of pending timers that must be recorded when the run is suspended."""
        execution = self._execution
        new = [timer for timer in self._timers.values() if timer.place not in execution.record.begun]
        return [execution.begun(timer.place, "timer", "", u=timer.due_us) for timer in new]

    # --- handing out ------------------------------------------------------------------------------

    async def hand_out(self) -> None:
        """Hand out the events until this task is cancelled."""
        try:
            while True:
                self._changed.clear()
                if self._execution.stop is not None:
                    self._release()
                else:
                    await self._hand_out_ready()
                await self._change()
        except Exception as error:
            self._execution.stopped(error)
            self._release()
            raise
        finally:
            for task in tuple(self._firing):
                task.cancel()

    async def _hand_out_ready(self) -> None:
        """Hand out events until the next one has to wait."""
        while self._next() is not None or self._new or not self._is_at_rest:
            await self._rest()
            if not (self._hand_out_next() or self._unblock()):
                return

    async def _change(self) -> None:
        """Wait until something has changed. While calls wait for their turn, wait at most `_LOOK_S`."""
        timer = None
        if self._ready or self._new or self._uncut:
            timer = asyncio.get_running_loop().call_later(_LOOK_S, self._changed.set)
        await self._changed.wait()
        if timer is not None:
            timer.cancel()

    async def _rest(self) -> None:
        """Wait until all tasks of the workflow are at rest."""
        turns = 0
        for _ in range(_TURNS_MAX):
            moves = self._moves
            await asyncio.sleep(0)
            turns = turns + 1 if moves == self._moves and all(map(_waits, self._loose)) else 0
            if turns == _REST_TURNS:
                break
        self._is_at_rest = True
        self._host.changed()

    def _hand_out_next(self) -> bool:
        """Hand out the next event. Return False if the workflow has not yet reached the call of the event."""
        event = self._next()
        if event is None:
            return False
        waiting = self._ready.get(event.key)
        if waiting is None:
            done = self._execution.record.done.get(event.key)
            if not event.is_recorded or done is None or done["o"] != "timer":
                return False
            timer = self._timers.get(event.key)
            if timer is not None:  # If it is None, the timer was cancelled as it fired.
                timer.fire()
        self._is_at_rest = False
        self._take(event)
        if waiting is not None:
            _wake(waiting)
        self.moved()
        return True

    def _unblock(self) -> bool:
        """Unblock a workflow whose next event does not come. Return False if this is not possible now."""
        held = len(self._ready) + len(self._new) + len(self._uncut)
        if self._host.under_way != held:
            return False
        event = self._next()
        if not self._recorded:  # No call waits for this event.
            if event is None:
                return False
            self.drop(event.key)
            return True
        if held:
            if self._replay_on():
                return True
            self._stop_late(event)
        elif not self.is_stuck:
            self.is_stuck = True
            self._host.changed()
        return False

    def _replay_on(self) -> bool:
        """Wake a call or fire a timer that may lead to the next recorded event. Return False if there is neither."""
        for key, future in self._new.items():
            if self._goes_on(key):
                return _wake(future, result=True)
        timer = self.first_timer()
        if timer is not None:
            self._is_at_rest = False
            timer.fire()
            return True
        for key, future in self._new.items():
            if key not in self._looked:
                self._looked.add(key)
                return _wake(future, result=False)
        return False

    def _goes_on(self, key: str) -> bool:
        """Return True if an unrecorded call must begin to wait because a recorded event may depend on its wait."""
        execution = self._execution
        op = execution.calls.get(key, ("",))[0]
        return op == "recv" or (execution.is_dry and key in execution.record.begun)

    def _stop_late(self, event: _Event | None) -> None:
        """Stop the run if the next event has not come for `LATE_S`, because the code differs from the record."""
        now_s = asyncio.get_running_loop().time()
        if self._late_at_s is None:
            self._late_at_s = now_s + LATE_S
        if event is None or now_s < self._late_at_s:
            return
        self._execution.stopped(self._missing(event.key))
        self._release()

    def _missing(self, place: str) -> NondeterminismError:
        execution = self._execution
        if place in self._uncut:
            message = (
                f"run {execution.id!r} has recorded that the call at place {place} was cancelled, and the code does "
                "not cancel it. The run has stopped. It continues with code that cancels the call as before"
            )
            return NondeterminismError(message, run=execution.id, place=place, recorded="a cancellation", called=None)
        return execution.record.missing(place, "does not reach it")

    def _release(self) -> None:
        """Wake all waiting calls, so that they raise the error that has stopped the run."""
        for waiting in (self._ready, self._new, self._uncut):
            for future in waiting.values():
                _wake(future)


def _wake(future: asyncio.Future[Any], *, result: bool | None = None) -> bool:
    if not future.done():
        future.set_result(result)
    return True


def _waits(task: asyncio.Task[Any]) -> bool:
    """Return True if a task is done, or waits for a pending future."""
    waiter = getattr(task, "_fut_waiter", None)
    return task.done() or (waiter is not None and not waiter.done())
