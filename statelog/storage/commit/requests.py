"""A caller's work on its way through a group, and how those who sleep are woken."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from statelog.storage.write_transaction import WriteTransaction

NONE: list[Any] = []
"""None of something: never changed."""


class Request:
    """One caller's work, on its way through a group."""

    # What each begins with stands here, once: one is made for every commit.
    result: Any = None
    error: BaseException | None = None
    is_flushed = True
    """Whether its caller waits for a flush: then it is worth another's while to wait for it."""
    settled = False
    """Result or error is final. Not yet so, the work has no effect and may be run again."""
    gate: threading.Lock | None = None
    """Held while its follower sleeps; released when it is settled, or leads."""
    to_wake: list[Any] = NONE
    """Of a leader that has passed on: gates still to be released."""

    def __init__(self, work: Callable[[WriteTransaction], Any], *, is_flushed: bool = True) -> None:
        self.work = work
        self.is_flushed = is_flushed


def wake_all(gates: list[threading.Lock]) -> None:
    """Release every gate; one that was released before an interrupt, once more."""
    while gates:
        with contextlib.suppress(RuntimeError):
            gates[-1].release()
        gates.pop()
