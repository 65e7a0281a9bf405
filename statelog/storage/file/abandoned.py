"""Transactions that nobody can end any more: an interrupt came as they were about to end.

A signal handler may raise where `__exit__` begins, and nobody calls that again. Such a transaction is held by the set
of active ones alone, once the frames that the interrupt went through are gone. Whoever waits for all transactions to
end ends these.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

_OWN_MODULES = ("statelog.", "contextlib")


class Ending(Protocol):
    """A transaction."""

    def abort(self) -> None:
        """End it; harmless when repeated."""


def end_abandoned(active: set[Ending]) -> None:
    """End the transactions of a set that nothing else refers to."""
    pending: list[BaseException | None] = [sys.exc_info()[1]]
    seen: set[int] = set()
    while pending:  # The traceback of an error that is being handled keeps objects alive.
        error = pending.pop()
        if error is not None and id(error) not in seen:  # The causes may form a cycle.
            seen.add(id(error))
            _clear_frames(error.__traceback__)
            pending += [error.__cause__, error.__context__]
    least, _control = _references({_Control()})[0]
    for references, transaction in _references(active):
        if references <= least:
            transaction.abort()


T = TypeVar("T")


class _Control:
    """Something that nothing but a set refers to."""


def _references(active: set[T]) -> list[tuple[int, T]]:
    return [(sys.getrefcount(each), each) for each in active.copy()]


def _clear_frames(trace: TracebackType | None) -> None:
    """Let frames of this library go of what they hold, if they have ended."""
    while trace is not None:
        frame = trace.tb_frame
        if str(frame.f_globals.get("__name__")).startswith(_OWN_MODULES):
            with contextlib.suppress(RuntimeError):  # it is running
                frame.clear()
        trace = trace.tb_next
