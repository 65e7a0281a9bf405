"""A clock that all processes of a run go by: it moves when it is told to, and jumps ahead."""

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


class Moment(NamedTuple):
    """What the clock says."""

    wall_us: int
    boot_us: int


class Clock:
    """The wall clock and the clock since boot, as the processes of a run see them.

    Each look at the wall clock moves it by `step_us`. A durable run that sleeps moves it, too.
    """

    def __init__(self) -> None:
        self.wall_us = _BEGIN_US
        self.boot_us = _BOOT_US
        self.step_us = 1

    def advance(self, seconds: float) -> None:
        """Move both clocks."""
        self.wall_us += round(seconds * 1e6)
        self.boot_us += round(seconds * 1e6)

    @property
    def moment(self) -> Moment:
        """What it says, for another process: see `set`."""
        return Moment(self.wall_us, self.boot_us)

    def set(self, moment: Moment) -> None:
        """Go by what another process's clock says; a clock that is ahead stays where it is."""
        self.wall_us = max(self.wall_us, moment.wall_us)
        self.boot_us = max(self.boot_us, moment.boot_us)

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Let it stand still within a block."""
        before, self.step_us = self.step_us, 0
        try:
            yield
        finally:
            self.step_us = before

    @contextmanager
    def at(self, moment: Moment) -> Iterator[None]:
        """Let it say what it said at an earlier moment, within a block."""
        before = self.moment
        self.wall_us, self.boot_us = moment
        try:
            yield
        finally:
            self.wall_us, self.boot_us = before

    # --- as a clock of durable execution ------------------------------------------------

    def now_us(self) -> int:
        """Return microseconds since the epoch."""
        self.wall_us += self.step_us
        return self.wall_us

    def sleep(self, seconds: float) -> None:
        """Move on by so much."""
        self.advance(max(seconds, 0.0))

    def is_short(self, seconds: float) -> bool:
        """Whether a run waits in place."""
        return seconds <= _SHORT_S


@contextmanager
def installed(clock: Clock) -> Iterator[Clock]:
    """Have this process go by a clock within a block."""
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
