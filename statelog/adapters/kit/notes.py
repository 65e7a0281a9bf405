"""What is said of an exception that is not ours: it reaches the application as itself, with a note of where it rose."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from statelog.errors import StatelogError

if TYPE_CHECKING:
    from collections.abc import Iterator


def note(error: Exception, where: str) -> None:
    """Note where an exception of somebody else's code rose; our own say it themselves."""
    if not isinstance(error, StatelogError):
        error.add_note(f"statelog: {where}")


@contextmanager
def noted(where: str) -> Iterator[None]:
    """Note it of what rises in a block."""
    try:
        yield
    except Exception as error:
        note(error, where)
        raise
