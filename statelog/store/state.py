"""The attribute `state` of a thread, a checkpoint or a mount, with its type for type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast, overload

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.schema.typed import D, Fields, Typed, Untyped
    from statelog.store.views import MapView


class StateOf(Protocol):
    """The attribute `state`, which is a read-only view of a dict.

    For type checkers, its type is the TypedDict of the schema if there is one.
    """

    @overload
    def __get__(self, instance: Typed[Untyped], owner: type | None = None) -> MapView: ...
    @overload
    def __get__(self, instance: Typed[D], owner: type | None = None) -> D: ...
    @overload
    def __get__(self, instance: Typed[Fields], owner: type | None = None) -> MapView: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return the state of an object."""


def state_of(read: Callable[[Any], MapView], what: str) -> StateOf:
    """Return a property `state` that calls `read`. `what` is the docstring of the property."""
    return cast("StateOf", property(read, doc=what))
