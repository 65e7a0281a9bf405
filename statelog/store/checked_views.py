"""Values as a guard's checks let them be read, with or without those that were quarantined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from statelog.errors import CheckError
from statelog.format.quarantined import Quarantined, revealed
from statelog.guard.verdicts import Where
from statelog.store.typed_views import typed_value
from statelog.store.views import ListView, MapView

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from statelog.guard.checks import Checks
    from statelog.schema.shapes import Shape


@dataclass(frozen=True, slots=True)
class Reading:
    """How values are read.

    Args:
        checks: the checks of values that are read, or None.
        include_quarantined: whether values that a check has quarantined are read.
    """

    checks: Checks | None
    include_quarantined: bool

    def seen(self, value: Any, where: Where) -> Any:
        """Return a value as it may be seen. Raises CheckError."""
        if self.include_quarantined:
            value = revealed(value)
        if self.checks is None or where.is_own:
            return value
        seen = self.checks.value(value, where)
        return revealed(seen) if self.include_quarantined else seen

    def metadata(self, metadata: dict[str, Any], thread: str) -> dict[str, Any]:
        """Return metadata as it may be seen: members are hidden one by one. Raises CheckError."""
        if self.include_quarantined:
            metadata = revealed(metadata)
        if self.checks is None:
            return metadata
        seen = self.checks.members(metadata, Where("read", "metadata", "metadata", thread))
        return revealed(seen) if self.include_quarantined else seen

    def state(self, state: MapView, thread: str, readings: Mapping[str, Shape]) -> MapView:
        """Return a state whose values are read as they may be seen, and then as the schema says."""
        return CheckedState(state, self, thread, readings)


def entry_seen(checks: Checks, value: Any, key: str, agent: str | None, *, raises: bool) -> Any:
    """Return the value of an entry as it may be seen: a placeholder if its read is refused, or else CheckError."""
    where = Where("read", "board", key, key=key, agent=agent)
    if where.is_own:
        return value
    try:
        return checks.value(value, where)
    except CheckError as error:
        if raises:
            raise
        return Quarantined(error.facts["check"], error.facts["reason"])


def check_mounted(checks: Checks, value: Any, channel: str, thread: str) -> None:
    """Refuse to read a value for changing if the checks do not allow it. Raises CheckError."""
    where = Where("read", "thread", channel, thread)
    if where.is_own:
        return
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    for each in parts:
        checks.check(each, where)


class _Place:
    """Makes the values of one channel as they are read."""

    __slots__ = ("_channel", "_reading", "_thread")

    def __init__(self, reading: Reading, thread: str, channel: str) -> None:
        self._reading = reading
        self._thread = thread
        self._channel = channel

    def make(self, value: Any, shape: Shape | None) -> Any:
        """Return a stored value as it may be seen. A list or dict is a view that does so item by item."""
        kind = None if shape is None or shape.load is None else shape.kind
        is_plain = shape is None or shape.load is None
        if isinstance(value, ListView) and (is_plain or kind is list):
            return CheckedList(value, self, None if shape is None else shape.items)
        if isinstance(value, MapView) and (is_plain or kind is dict):
            return CheckedMap(value, self, None if shape is None else shape.items)
        plain = value.to_python() if isinstance(value, ListView | MapView) else value
        return typed_value(self._channel, shape, self.seen(plain))

    def seen(self, value: Any) -> Any:
        """Return a value as it may be seen. Raises CheckError."""
        if isinstance(value, ListView | MapView):
            value = value.to_python()
        return self._reading.seen(value, Where("read", "thread", self._channel, self._thread))

    def item(self, value: Any, shape: Shape | None) -> Any:
        """Return an item of the channel's list or dict as it may be seen."""
        return typed_value(self._channel, shape, self.seen(value))


class CheckedList(ListView):
    """A stored list whose items are checked as they are read."""

    __slots__ = ("_items", "_place")

    def __init__(self, stored: ListView, place: _Place, items: Shape | None) -> None:
        super().__init__(stored._source, is_lazy=stored._is_lazy)  # noqa: SLF001 - a view of the same
        self._place = place
        self._items = items

    @property
    def lazy(self) -> CheckedList:
        """The list itself: a check sees whole items."""
        return self

    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        if isinstance(index, slice):
            return [self._place.item(each, self._items) for each in super().__getitem__(index)]
        return self._place.item(super().__getitem__(index), self._items)

    def __iter__(self) -> Iterator[Any]:
        return (self._place.item(each, self._items) for each in super().__iter__())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ListView | list):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None

    def to_python(self) -> list[Any]:
        """Return a plain, deep copy."""
        return list(self)


class CheckedMap(MapView):
    """A stored dict whose members are checked as they are read."""

    __slots__ = ("_items", "_place")

    def __init__(self, stored: MapView, place: _Place, items: Shape | None) -> None:
        super().__init__(stored._source, is_lazy=stored._is_lazy)  # noqa: SLF001 - a view of the same
        self._place = place
        self._items = items

    @property
    def lazy(self) -> CheckedMap:
        """The dict itself: a check sees whole members."""
        return self

    def __getitem__(self, key: str) -> Any:
        return self._place.item(super().__getitem__(key), self._items)

    def _pairs(self) -> Iterator[tuple[str, Any]]:
        for key, value in super()._pairs():
            yield key, self._place.item(value, self._items)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MapView | dict):
            return NotImplemented
        return len(self) == len(other) and all(key in other and self[key] == other[key] for key in self)

    __hash__ = None

    def to_python(self) -> dict[str, Any]:
        """Return a plain, deep copy."""
        return dict(self._pairs())


class CheckedState(MapView):
    """A state whose channels are checked as they are read."""

    __slots__ = ("_reading", "_readings", "_thread")

    def __init__(self, state: MapView, reading: Reading, thread: str, readings: Mapping[str, Shape]) -> None:
        super().__init__(state._source, is_state=True)  # noqa: SLF001 - a view of the same
        self._reading = reading
        self._thread = thread
        self._readings = readings

    @property
    def lazy(self) -> CheckedState:
        """The state itself: a check sees whole items."""
        return self

    def _made(self, channel: str, value: Any) -> Any:
        if Where("read", "thread", channel, self._thread).is_own:
            return value
        return _Place(self._reading, self._thread, channel).make(value, self._readings.get(channel))

    def part(self, channel: str, value: Any) -> Any:
        """Return a part of a channel as it may be seen: a placeholder if its read is refused."""
        try:
            return self._reading.seen(value, Where("read", "thread", channel, self._thread))
        except CheckError as error:
            return Quarantined(error.facts["check"], error.facts["reason"])

    def __getitem__(self, key: str) -> Any:
        return self._made(key, super().__getitem__(key))

    def _pairs(self) -> Iterator[tuple[str, Any]]:
        for key, value in super()._pairs():
            yield key, self._made(key, value)

    def to_python(self) -> dict[str, Any]:
        """Return a plain, deep copy."""
        return {
            key: value.to_python() if isinstance(value, ListView | MapView) else value for key, value in self._pairs()
        }
