"""Where tests reach into runs: before and after their commits, and where steps are called.

`statelog.testing.durable` uses it. Without a test each place costs a look at an empty variable.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

probe: ContextVar[Callable[[str, str, Any], None] | None] = ContextVar("probe", default=None)
"""Told of each place that a run passes. What it raises goes through the run as it is."""

stubs: dict[object, Callable[..., Any]] = {}
"""What is called instead of a step, by the step's name or by its function; in all threads of the process."""


def tell(moment: str, run: str, what: Any) -> None:
    """Tell of a place.

    Args:
        moment: `before` or `after` a commit of a run, or `call`: a step is about to be called.
        run: id of the run.
        what: the items that a commit records, or a word for it; of a step its place and its call.
    """
    told = probe.get()
    if told is not None:
        told(moment, run, what)


def stub_of(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what is called for a step."""
    if not stubs:
        return function
    found = stubs.get(name)
    return found or stubs.get(function, function)
