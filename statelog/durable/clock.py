"""The clock that runs go by: the wall clock, or another one in a test."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What time it is, and how to wait."""

    def now_us(self) -> int:
        """Return microseconds since the epoch."""

    def sleep(self, seconds: float) -> None:
        """Wait."""

    def is_short(self, seconds: float) -> bool:
        """Whether a wait is so short that a run is not suspended for it."""


class WallClock:
    """The wall clock."""

    def now_us(self) -> int:
        """As declared."""
        return time.time_ns() // 1000

    def sleep(self, seconds: float) -> None:
        """As declared."""
        time.sleep(max(seconds, 0.0))

    def is_short(self, seconds: float) -> bool:
        """As declared."""
        return seconds <= _SHORT_S


_SHORT_S = 5.0

_clock: Clock = WallClock()


def clock() -> Clock:
    """Return the clock of this process."""
    return _clock


def moment_of(time_us: int) -> datetime:
    """Return a time of a record, or of the board, as users get it."""
    return datetime.fromtimestamp(time_us / 1e6, UTC)


def now() -> datetime:
    """Return the time by the clock of this process."""
    return moment_of(_clock.now_us())


def set_clock(other: Clock | None) -> Clock:
    """Let runs of this process go by another clock, None for the wall clock; return the one before."""
    global _clock
    before, _clock = _clock, WallClock() if other is None else other
    return before
