"""The state of a thread, a checkpoint or a mount, as type checkers see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from statelog.schema.typed import D, Fields, Typed, Untyped
    from statelog.store.views import MapView


class StateOf:
    """The attribute `state`: for type checkers a TypedDict where that is the schema, and the view of a dict otherwise.

    It is such a view in any case.
    """

    @overload
    def __get__(self, instance: Typed[Untyped], owner: type | None = None) -> MapView: ...
    @overload
    def __get__(self, instance: Typed[D], owner: type | None = None) -> D: ...
    @overload
    def __get__(self, instance: Typed[Fields], owner: type | None = None) -> MapView: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else instance._read_state()  # noqa: SLF001 - of the class that has this attribute
