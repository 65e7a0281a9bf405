"""The simulated clock that all processes of a run use. The driver advances it, often by a long jump."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from statelog.durable.clock import set_clock

if TYPE_CHECKING:
    from collections.abc import Iterator

_BEGIN_US = 1_900_000_000_000_000
_BOOT_US = 1_000_000_000
_SHORT_S = 5.0


class ClockReading(NamedTuple):
    """The times of a clock: wall-clock time, and time since boot."""

    wall_us: int
    boot_us: int


class SimulatedClock:
    """The wall clock and the clock since boot, as the processes of a run see them.

    Each reading of the wall clock advances it by `step_us`. A durable run that sleeps advances both clocks.
    """

    def __init__(self) -> None:
        self.wall_us = _BEGIN_US
        self.boot_us = _BOOT_US
        self.step_us = 1

    def advance(self, seconds: float) -> None:
        """Advance both clocks."""
        self.wall_us += round(seconds * 1e6)
        self.boot_us += round(seconds * 1e6)

    @property
    def moment(self) -> ClockReading:
        """The current times, to be passed to `set` in another process."""
        return ClockReading(self.wall_us, self.boot_us)

    def set(self, moment: ClockReading) -> None:
        """Advance both clocks to the times of another process. A clock that is ahead does not go back."""
        self.wall_us = max(self.wall_us, moment.wall_us)
        self.boot_us = max(self.boot_us, moment.boot_us)

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Stop the wall clock within a `with` block, so that reading it does not advance it."""
        before, self.step_us = self.step_us, 0
        try:
            yield
        finally:
            self.step_us = before

    @contextmanager
    def at(self, moment: ClockReading) -> Iterator[None]:
        """Set both clocks to an earlier moment within a `with` block."""
        before = self.moment
        self.wall_us, self.boot_us = moment
        try:
            yield
        finally:
            self.wall_us, self.boot_us = before

    # --- the interface of a clock of durable execution ----------------------------------

    def now_us(self) -> int:
        """Return microseconds since the epoch."""
        self.wall_us += self.step_us
        return self.wall_us

    def sleep(self, seconds: float) -> None:
        """Advance both clocks instead of sleeping."""
        self.advance(max(seconds, 0.0))

    def is_short(self, seconds: float) -> bool:
        """Return True if a wait of `seconds` is short, so that a run waits in place instead of being suspended."""
        return seconds <= _SHORT_S


@contextmanager
def installed(clock: SimulatedClock) -> Iterator[SimulatedClock]:
    """Replace the clocks of this process by a simulated clock within a `with` block."""
    real_time, real_time_ns, real_gettime_ns = time.time, time.time_ns, time.clock_gettime_ns
    boot = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def gettime_ns(which: int) -> int:
        return clock.boot_us * 1000 if which == boot else real_gettime_ns(which)

    before = set_clock(clock)
    time.time = lambda: clock.now_us() / 1e6
    time.time_ns = lambda: clock.now_us() * 1000
    time.clock_gettime_ns = gettime_ns
    try:
        yield clock
    finally:
        time.time, time.time_ns, time.clock_gettime_ns = real_time, real_time_ns, real_gettime_ns
        set_clock(before)
