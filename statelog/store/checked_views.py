"""Views that apply a guard's read checks to stored values, with or without quarantined values."""

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
    """The read options: the checks to apply, and whether to show quarantined values.

    Args:
        checks: the read checks, or None.
        include_quarantined: whether reads return values that a check has quarantined.
    """

    checks: Checks | None
    include_quarantined: bool

    def seen(self, value: Any, where: Where) -> Any:
        """Apply the read checks to a value, and return what may be seen. Raises CheckError."""
        if self.include_quarantined:
            value = revealed(value)
        if self.checks is None or where.is_own:
            return value
        seen = self.checks.value(value, where)
        return revealed(seen) if self.include_quarantined else seen

    def metadata(self, metadata: dict[str, Any], thread: str) -> dict[str, Any]:
        """Apply the checks to metadata, and hide refused members one by one. Raises CheckError."""
        if self.include_quarantined:
            metadata = revealed(metadata)
        if self.checks is None:
            return metadata
        seen = self.checks.members(metadata, Where("read", "metadata", "metadata", thread))
        return revealed(seen) if self.include_quarantined else seen

    def channel(self, value: Any, channel: str, thread: str) -> Any:
        """Apply the checks to the value of a channel, and return what may be seen. Raises CheckError."""
        return _ChannelReader(self, thread, channel).make(value, None)

    def state(self, state: MapView, thread: str, readings: Mapping[str, Shape]) -> MapView:
        """Return a view of a state whose values are checked, and then converted to their types in the schema."""
        return CheckedState(state, self, thread, readings)


def entry_seen(checks: Checks, value: Any, key: str, agent: str | None, *, raises: bool) -> Any:
    """Apply the checks to the value of an entry, and return what may be seen.

    If a check refuses the read, raise CheckError if `raises`, or else return a placeholder.
    """
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
    """Raise CheckError if the checks hide any part of a value that a mount or an edit reads."""
    where = Where("read", "thread", channel, thread)
    if where.is_own:
        return
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    for each in parts:
        checks.check(each, where)


class _ChannelReader:
    """Applies the read checks and the schema to the values of one channel."""

    __slots__ = ("_channel", "_reading", "_thread")

    def __init__(self, reading: Reading, thread: str, channel: str) -> None:
        self._reading = reading
        self._thread = thread
        self._channel = channel

    def make(self, value: Any, shape: Shape | None) -> Any:
        """Apply the checks to a stored value, and return what may be seen.

        A list or dict becomes a view that checks its items.
        """
        kind = None if shape is None or shape.load is None else shape.kind
        is_plain = shape is None or shape.load is None
        if isinstance(value, ListView) and (is_plain or kind is list):
            return CheckedList(value, self, None if shape is None else shape.items)
        if isinstance(value, MapView) and (is_plain or kind is dict):
            return CheckedMap(value, self, None if shape is None else shape.items)
        plain = value.to_python() if isinstance(value, ListView | MapView) else value
        return typed_value(self._channel, shape, self.seen(plain))

    def seen(self, value: Any) -> Any:
        """Apply the read checks to a value, and return what may be seen. Raises CheckError."""
        if isinstance(value, ListView | MapView):
            value = value.to_python()
        return self._reading.seen(value, Where("read", "thread", self._channel, self._thread))

    def item(self, value: Any, shape: Shape | None) -> Any:
        """Apply the read checks to an item of the channel's list or dict."""
        return typed_value(self._channel, shape, self.seen(value))


class CheckedList(ListView):
    """A stored list whose items are checked as they are read."""

    __slots__ = ("_items", "_reader")

    def __init__(self, stored: ListView, reader: _ChannelReader, items: Shape | None) -> None:
        super().__init__(stored._source, is_lazy=stored._is_lazy)  # noqa: SLF001 - a view of the same
        self._reader = reader
        self._items = items

    @property
    def lazy(self) -> CheckedList:
        """The same list, because a check must see whole items."""
        return self

    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        if isinstance(index, slice):
            return [self._reader.item(each, self._items) for each in super().__getitem__(index)]
        return self._reader.item(super().__getitem__(index), self._items)

    def __iter__(self) -> Iterator[Any]:
        return (self._reader.item(each, self._items) for each in super().__iter__())

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

    __slots__ = ("_items", "_reader")

    def __init__(self, stored: MapView, reader: _ChannelReader, items: Shape | None) -> None:
        super().__init__(stored._source, is_lazy=stored._is_lazy)  # noqa: SLF001 - a view of the same
        self._reader = reader
        self._items = items

    @property
    def lazy(self) -> CheckedMap:
        """The same dict, because a check must see whole members."""
        return self

    def __getitem__(self, key: str) -> Any:
        return self._reader.item(super().__getitem__(key), self._items)

    def _pairs(self) -> Iterator[tuple[str, Any]]:
        for key, value in super()._pairs():
            yield key, self._reader.item(value, self._items)

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
        """The same state, because a check must see whole values."""
        return self

    def _made(self, channel: str, value: Any) -> Any:
        if Where("read", "thread", channel, self._thread).is_own:
            return value
        return _ChannelReader(self._reading, self._thread, channel).make(value, self._readings.get(channel))

    def part(self, channel: str, value: Any) -> Any:
        """Apply the checks to a part of a channel. Return a placeholder if a check refuses the read."""
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
