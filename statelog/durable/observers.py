"""The observer of runs, which `statelog.otel` sets. Without an observer, each function only checks a variable."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from statelog.durable.record import Item

ObservedExecution = Any
"""The execution of a run. This module cannot import the class, because `execution` imports this module."""


class Observer(Protocol):
    """An observer of runs. Its methods must not raise."""

    def started(self, store: Any) -> Mapping[str, Any]:
        """Return additional fields for the entry of a run that begins."""

    def executing(self, execution: ObservedExecution) -> AbstractContextManager[object]:
        """Return a context manager. Within it, a process drives a run until the run ends, waits or stops."""

    def calling(self, execution: ObservedExecution, place: str, call: Any, attempt: int) -> AbstractContextManager[Any]:
        """Return a context manager. Within it, a step is called. It yields a function that receives the result."""

    def metadata(self, execution: ObservedExecution, metadata: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the metadata to store with a run's checkpoint."""

    def recorded(self, execution: ObservedExecution, items: Sequence[Item], checkpoint: str) -> None:
        """Take note that a run has recorded `items` in a commit."""

    def suspended(self, execution: ObservedExecution, waits: Sequence[Any]) -> None:
        """Take note that a run was suspended."""

    def ended(self, execution: ObservedExecution, status: str, error: str | None, items: Sequence[Item]) -> None:
        """Take note of the end of a run. `items` were recorded with it."""


observer: Observer | None = None
"""The observer, which `statelog.otel` sets and removes."""


def started(store: Any) -> Mapping[str, Any]:
    """Return additional fields for the entry of a run that begins."""
    return {} if observer is None else observer.started(store)


def executing(execution: ObservedExecution) -> AbstractContextManager[object]:
    """Return a context manager. Within it, a process drives a run until the run ends, waits or stops."""
    return nullcontext() if observer is None else observer.executing(execution)


def _ignore_result(_result: Any) -> None:
    """Do nothing."""


_UNOBSERVED: AbstractContextManager[Callable[[Any], None]] = nullcontext(_ignore_result)


def calling(
    execution: ObservedExecution, place: str, call: Any, attempt: int
) -> AbstractContextManager[Callable[[Any], None]]:
    """Return a context manager. Within it, a step is called. It yields a function that receives the result."""
    return _UNOBSERVED if observer is None else observer.calling(execution, place, call, attempt)
