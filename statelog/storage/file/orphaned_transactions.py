"""Ends orphaned transactions: an interrupt has ended their `with` block, but not the transaction.

A signal handler may raise an error just as `__exit__` begins, and nothing calls `__exit__` again. When the frames that
the error passed through are gone, only the set of active transactions refers to the transaction. A thread that waits
until all transactions have ended also ends the orphaned ones.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

_OWN_MODULES = ("statelog.", "contextlib")


class Ending(Protocol):
    """A transaction that can be ended."""

    def abort(self) -> None:
        """End the transaction. A second call does nothing."""


def end_orphaned(active: set[Ending]) -> None:
    """End the transactions that only the set `active` refers to."""
    pending: list[BaseException | None] = [sys.exc_info()[1]]
    seen: set[int] = set()
    while pending:  # Clear the tracebacks of the errors that are being handled, because they keep objects alive.
        error = pending.pop()
        if error is not None and id(error) not in seen:  # Visit each error once, because the causes may form a cycle.
            seen.add(id(error))
            _clear_frames(error.__traceback__)
            pending += [error.__cause__, error.__context__]
    least, _unreferenced = _references({_Unreferenced()})[0]
    for references, transaction in _references(active):
        if references <= least:
            transaction.abort()


T = TypeVar("T")


class _Unreferenced:
    """An object that only a set refers to. Its reference count is the smallest that `_references` can return."""


def _references(active: set[T]) -> list[tuple[int, T]]:
    return [(sys.getrefcount(each), each) for each in active.copy()]


def _clear_frames(trace: TracebackType | None) -> None:
    """Clear the frames of this library in a traceback, except frames that are still running."""
    while trace is not None:
        frame = trace.tb_frame
        if str(frame.f_globals.get("__name__")).startswith(_OWN_MODULES):
            with contextlib.suppress(RuntimeError):  # Python raises RuntimeError if the frame is still running.
                frame.clear()
        trace = trace.tb_next
