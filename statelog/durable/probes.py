"""Hooks for tests, before and after the commits of runs, and before calls of steps.

`statelog.testing.durable` uses them. Without a test, each hook only checks a variable.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

probe: ContextVar[Callable[[str, str, Any], None] | None] = ContextVar("probe", default=None)
"""Called at each hook that a run passes. Its exceptions go through the run unchanged."""

stubs: dict[object, Callable[..., Any]] = {}
"""Functions to call instead of steps, keyed by the step's name or function. All threads of the process use them."""


def call_probe(moment: str, run: str, what: Any) -> None:
    """Call the probe, if there is one.

    Args:
        moment: `before` or `after` a commit of a run, or `call` before a step is called.
        run: the id of the run.
        what: the items of the commit, or a word that describes it; for a step, the place and the call.
    """
    found = probe.get()
    if found is not None:
        found(moment, run, what)


def stub_of(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the stub of a step, or the function itself if there is none."""
    if not stubs:
        return function
    found = stubs.get(name)
    return found or stubs.get(function, function)
