"""Views whose values have the types of the schema: models, dataclasses and members of enums, created on access."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from statelog.errors import ValidationError
from statelog.format.quarantined import Quarantined, holds_quarantined
from statelog.schema.shapes import MisfitError
from statelog.store.views import ListView, MapView

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from statelog.schema.shapes import Shape


def typed_state(state: MapView, readings: Mapping[str, Shape]) -> MapView:
    """Return a state whose values have the types of the schema, or the same state if none needs conversion."""
    return TypedState(state, readings) if readings else state


def typed_value(channel: str, shape: Shape | None, value: Any) -> Any:
    """Convert a stored value to its type. A list or dict becomes a view that converts each item.

    Raises:
        ValidationError: the value was written with a different declaration. Facts: channel, path, reason.
    """
    if shape is None or shape.load is None:
        return value
    if shape.items is not None and isinstance(value, ListView) and shape.kind is list:
        return TypedList(value, channel, shape.items)
    if shape.items is not None and isinstance(value, MapView) and shape.kind is dict:
        return TypedMap(value, channel, shape.items)
    plain = value.to_python() if isinstance(value, ListView | MapView) else value
    if type(plain) is Quarantined:
        return plain
    try:
        return shape.load(plain)
    except (MisfitError, TypeError, ValueError) as error:
        hidden = holds_quarantined(plain)
        if hidden is not None:  # Hide the whole value, because its type accepts no placeholder.
            return Quarantined(hidden.check, hidden.reason, plain)
        reason = error.reason if isinstance(error, MisfitError) else str(error)
        path = error.path.replace("value", channel, 1) if isinstance(error, MisfitError) else channel
        message = (
            f"{path}: the stored value does not match the schema: {reason}."
            " A thread opened without schema= returns it as stored"
        )
        raise ValidationError(message, channel=channel, path=path, reason=reason) from error


class TypedList(ListView):
    """A stored list whose items are converted when they are read."""

    __slots__ = ("_channel", "_items")

    def __init__(self, stored: ListView, channel: str, items: Shape) -> None:
        super().__init__(stored._source, is_lazy=stored._is_lazy)  # noqa: SLF001 - a view of the same
        self._channel = channel
        self._items = items

    @property
    def lazy(self) -> TypedList:
        """See `ListView.lazy`."""
        return TypedList(super().lazy, self._channel, self._items)

    def _typed(self, item: Any) -> Any:
        return typed_value(self._channel, self._items, item)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        if isinstance(index, slice):
            return list(map(self._typed, super().__getitem__(index)))
        return self._typed(super().__getitem__(index))

    def __iter__(self) -> Iterator[Any]:
        return map(self._typed, super().__iter__())

    def to_python(self) -> list[Any]:
        """Return a plain, deep copy."""
        return list(map(self._typed, super().to_python()))


class TypedMap(MapView):
    """A stored dict whose values are converted when they are read."""

    __slots__ = ("_channel", "_items")

    def __init__(self, stored: MapView, channel: str, items: Shape | None) -> None:
        super().__init__(stored._source, is_state=stored._is_state, is_lazy=stored._is_lazy)  # noqa: SLF001 - of the same
        self._channel = channel
        self._items = items

    @property
    def lazy(self) -> MapView:
        """See `MapView.lazy`."""
        return TypedMap(super().lazy, self._channel, self._items)

    def _typed(self, _key: str, value: Any) -> Any:
        return typed_value(self._channel, self._items, value)

    def __getitem__(self, key: str) -> Any:
        return self._typed(key, super().__getitem__(key))

    def _pairs(self) -> Iterator[tuple[str, Any]]:
        for key, value in super()._pairs():
            yield key, self._typed(key, value)

    def to_python(self) -> dict[str, Any]:
        """Return a plain, deep copy."""
        return {key: self._typed(key, value) for key, value in super().to_python().items()}


class TypedState(TypedMap):
    """A state in which each channel has its declared type."""

    __slots__ = ("_readings",)

    def __init__(self, state: MapView, readings: Mapping[str, Shape]) -> None:
        super().__init__(state, "", None)
        self._readings = readings

    @property
    def lazy(self) -> MapView:
        """See `MapView.lazy`."""
        return TypedState(MapView(self._source, is_state=True, is_lazy=True), self._readings)

    def _typed(self, key: str, value: Any) -> Any:
        return typed_value(key, self._readings.get(key), value)
