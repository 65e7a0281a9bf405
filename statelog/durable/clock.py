"""The clock of durable runs: the wall clock, or a clock that a test sets."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """A source of the current time, which can also wait."""

    def now_us(self) -> int:
        """Return the time in microseconds since the epoch."""

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""

    def is_short(self, seconds: float) -> bool:
        """Return True if the process sleeps through a wait of this length, instead of suspending the run."""


class WallClock:
    """The wall clock."""

    def now_us(self) -> int:
        """Implement `Clock.now_us`."""
        return time.time_ns() // 1000

    def sleep(self, seconds: float) -> None:
        """Implement `Clock.sleep`."""
        time.sleep(max(seconds, 0.0))

    def is_short(self, seconds: float) -> bool:
        """Implement `Clock.is_short`."""
        return seconds <= _SHORT_S


_SHORT_S = 5.0

_clock: Clock = WallClock()


def clock() -> Clock:
    """Return the clock of this process."""
    return _clock


def moment_of(time_us: int) -> datetime:
    """Return a stored time, in microseconds since the epoch, as a datetime in UTC."""
    return datetime.fromtimestamp(time_us / 1e6, UTC)


def now() -> datetime:
    """Return the current time in UTC, by the clock that is set in this process."""
    return moment_of(_clock.now_us())


def set_clock(other: Clock | None) -> Clock:
    """Set the clock that the runs in this process use; None sets the wall clock. Return the previous clock."""
    global _clock
    before, _clock = _clock, WallClock() if other is None else other
    return before
