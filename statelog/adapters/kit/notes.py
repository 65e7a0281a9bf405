"""Adds a note with the origin to exceptions of foreign code, which reach the application unchanged."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from statelog.errors import StatelogError

if TYPE_CHECKING:
    from collections.abc import Iterator


def note(error: Exception, where: str) -> None:
    """Add a note with the origin to an exception of foreign code. statelog's errors already name their origin."""
    if not isinstance(error, StatelogError):
        error.add_note(f"statelog: {where}")


@contextmanager
def noted(where: str) -> Iterator[None]:
    """Add the note to exceptions raised in the block."""
    try:
        yield
    except Exception as error:
        note(error, where)
        raise
