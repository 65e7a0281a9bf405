"""A skipping clock. Runs that use it skip their waits."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from statelog.durable.clock import set_clock
from statelog.durable.runs import ENDED, board_of, task_key_of, wake
from statelog.durable.workflows import check_number
from statelog.errors import ConflictError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog.store.store import Store


class SkippingClock:
    """A running or stopped clock to which skipped time is added. See `skipping_clock`."""

    def __init__(self, store: Store, *, suspends: bool = False, stands_at_us: int | None = None) -> None:
        self._store, self._suspends, self._stands_at_us = store, suspends, stands_at_us
        self._skipped_us = 0
        self._lock = threading.Lock()

    def now_us(self) -> int:
        """Return microseconds since the epoch, including the skipped time."""
        now_us = time.time_ns() // 1000 if self._stands_at_us is None else self._stands_at_us
        return now_us + self._skipped_us

    def sleep(self, seconds: float) -> None:
        """Skip `seconds` and return at once."""
        self._skip(max(seconds, 0.0))

    def is_short(self, seconds: float) -> bool:
        """Return True if a run skips a wait of `seconds` in place, instead of being suspended."""
        return not self._suspends or seconds <= 0

    def advance(self, seconds: float) -> None:
        """Skip `seconds`, and make runs due whose gates, mail or sleeps time out by then.

        `durable.run`, `durable.resume_all` and workers then find these runs as if the time had passed.

        Raises:
            UsageError: `seconds` is not a non-negative number.
        """
        self._skip(check_number("seconds", seconds, least=0))
        now_us = self.now_us()
        board = board_of(self._store)
        for entry in board.list("durable/deadlines/*"):
            if entry.value["due"] <= now_us and entry.claim is None:
                with suppress(ConflictError):
                    board.cas(entry.key, entry.value, expected_version=entry.version, priority=entry.priority)
        for entry in board.list("durable/runs/*"):
            if entry.value["status"] in (*ENDED, "parked"):
                continue
            task = board.get(task_key_of(entry.value))
            if task is not None and 0 < task.value["due"] <= now_us:
                wake(self._store, entry.value["id"])

    def _skip(self, seconds: float) -> None:
        with self._lock:
            self._skipped_us += round(seconds * 1e6)


@contextmanager
def skipping_clock(store: Store, *, suspends: bool = False, stands_at_us: int | None = None) -> Iterator[SkippingClock]:
    """Make the runs of this process use a skipping clock within a block.

    A wait inside a run (a sleep, the pause after a failed attempt) advances the clock and returns at once. A suspended
    run (a gate, mail, a delayed start) waits for `clock.advance(seconds)`.

    Args:
        store: the store whose runs `advance` makes due.
        suspends: also suspend runs for sleeps and retries, as for long waits in production.
        stands_at_us: stop the clock at these microseconds since the epoch, plus the skipped time. By default, the clock
            runs.
    """
    clock = SkippingClock(store, suspends=suspends, stands_at_us=stands_at_us)
    before = set_clock(clock)
    try:
        yield clock
    finally:
        set_clock(before)
