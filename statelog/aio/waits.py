"""Lets asyncio tasks wait. The store's waiter thread wakes them, so a waiting task does not occupy an OS thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from statelog.store.waiter_thread import RACED_S, Sleeper, waiter_thread_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.aio.bridge import Runner
    from statelog.store.session import StoreSession
    from statelog.store.waiter_thread import Condition

T = TypeVar("T")

FOREVER_S = 1e9


class WaitTurn:
    """The place of the current task in a line of waiting tasks, as a context manager.

    If the task was woken when the block ends, the waiter thread checks the condition for the next task of the line.

    Args:
        session: the session of the store.
        condition: the condition that the task waits for.

    Raises:
        ClosedError, ForkedError: the store is not usable. `woken` also raises them if the store is closed while it
            waits.
    """

    def __init__(self, session: StoreSession, condition: Condition) -> None:
        self._thread = waiter_thread_of(session)
        self._loop = asyncio.get_running_loop()
        self._sleeper = Sleeper(condition, self._wake)
        self._future: asyncio.Future[bool] | None = None

    def __enter__(self) -> Self:
        self._thread.join(self._sleeper)
        return self

    def __exit__(self, *_exception: object) -> None:
        self._thread.leave(self._sleeper)

    @property
    def was_looked_for(self) -> bool:
        """Whether the condition was checked since the task joined the line."""
        return self._sleeper.was_looked_for

    @property
    def has_failed(self) -> bool:
        """Whether the check that woke the task raised an error, so that nothing is known about the condition."""
        return self._sleeper.has_failed

    async def woken(self, timeout_s: float, *, after_s: float = 0.0) -> bool:
        """Wait until the condition holds and this task is the first of its line. Return False after a timeout.

        Args:
            timeout_s: how long to wait.
            after_s: delay of the first check, in seconds. A commit causes a check earlier.
        """
        future = self._future = self._loop.create_future()
        timer = self._loop.call_later(min(timeout_s, FOREVER_S), _settle, future, False)  # noqa: FBT003 - the bool is a result
        try:
            self._thread.sleep(self._sleeper, after_s=after_s)
            is_woken = await future
        finally:
            timer.cancel()
        if (error := self._sleeper.error) is not None:
            raise type(error)(error.message, **error.facts)
        return is_woken or self._sleeper.is_awake

    def _wake(self) -> bool:
        assert self._future is not None
        try:
            self._loop.call_soon_threadsafe(_settle, self._future, True)  # noqa: FBT003 - the bool is a result
        except RuntimeError:  # The event loop is closed, so the task cannot continue.
            return False
        return True


def _settle(future: asyncio.Future[bool], result: bool) -> None:  # noqa: FBT001 - the bool is a result
    if not future.done():
        future.set_result(result)


class Attempt(Protocol[T]):
    """An attempt of a task to acquire a claim, a lease, or a run."""

    session: StoreSession

    @property
    def condition(self) -> Condition:
        """The condition under which the attempt may succeed."""

    def take(self) -> T | None:
        """Make the attempt once the condition has held. Called on the thread pool. Return None if the attempt fails."""

    def take_now(self) -> T | None:
        """Check the condition and make the attempt. Called on the thread pool. Return None if it fails."""

    def give_back(self, taken: T) -> object:
        """Give back a claim, lease or run that was taken for a task that was cancelled."""


async def win(runner: Runner, attempt: Attempt[T], wait_s: float) -> T | None:
    """Repeat an attempt for up to `wait_s` seconds. Return the claim, lease or run, or None after a timeout.

    If the task is cancelled, anything that was taken for it is given back before the task ends.
    """
    if wait_s <= 0:
        return await runner.win(attempt.take_now, attempt.give_back)
    loop = asyncio.get_running_loop()
    until_s = loop.time() + wait_s
    after_s = 0.0
    condition = attempt.condition
    if not waiter_thread_of(attempt.session).has_line(condition) and runner.tries.acquire(blocking=False):
        try:  # Only a few tasks try at once, so that many new waiters do not need many threads.
            taken = await runner.win(attempt.take_now, attempt.give_back)
        finally:
            runner.tries.release()
        if taken is not None:
            return taken
    with WaitTurn(attempt.session, condition) as turn:
        while await turn.woken(until_s - loop.time(), after_s=after_s):
            taken = await runner.win(attempt.take, attempt.give_back)
            if taken is not None:
                return taken
            after_s = RACED_S
        if turn.was_looked_for:
            return None
    return await runner.win(attempt.take_now, attempt.give_back)


async def until(runner: Runner, session: StoreSession, condition: Condition, timeout_s: float) -> bool:
    """Wait until a condition holds. Return False after a timeout."""
    if timeout_s > 0:
        with WaitTurn(session, condition) as turn:
            is_woken = await turn.woken(timeout_s)
            if (is_woken or turn.was_looked_for) and not turn.has_failed:
                return is_woken
    return (await runner.run(condition.look, None))[0]


def holds(check: Callable[[], Any]) -> Callable[[object], tuple[bool, None]]:
    """Return a `Condition.look` for a check whose result changes only by commits."""
    return lambda _waiter: (bool(check()), None)
