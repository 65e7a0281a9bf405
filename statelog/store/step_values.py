"""The values that a schema's migration step gets: lists and dicts that the step may change in place at any depth."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, MutableSequence
from typing import TYPE_CHECKING, Any, Self, SupportsIndex

from statelog.limits import DEPTH_MAX
from statelog.store.views import ListView, MapView

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["GivenChannels", "StepList", "StepMap", "plain_value", "step_value"]


def step_value(value: Any) -> Any:
    """Return a channel's value for a step. A view of a list or dict becomes a mutable list or dict."""
    if isinstance(value, ListView):
        return StepList(value)
    return StepMap(value) if isinstance(value, MapView) else value


def plain_value(value: Any, depth: int = 0) -> Any:
    """Convert a value that a step returned, so that plain lists and dicts replace those that the step got."""
    if isinstance(value, ListView | MapView):
        loaded = value.loaded if isinstance(value, StepList | StepMap) else None
        if loaded is None:
            return value.to_python()
        value = loaded
    if depth < DEPTH_MAX:
        if type(value) is list:
            return [plain_value(each, depth + 1) for each in value]
        if type(value) is dict:
            return {key: plain_value(each, depth + 1) for key, each in value.items()}
    return value


class GivenChannels(dict[str, Any]):
    """The dict of channels that a step gets.

    Attributes:
        named: the channels that the step has read or removed. Iterating over the dict, or copying it, reads all
            channels.
    """

    def __init__(self, channels: dict[str, Any]) -> None:
        super().__init__(channels)
        self.named: set[str] = set()

    def _all(self) -> dict[str, Any]:
        self.named.update(super().keys())
        return self

    def __getitem__(self, key: str) -> Any:
        self.named.add(key)
        return super().__getitem__(key)

    def __delitem__(self, key: str) -> None:
        self.named.add(key)
        super().__delitem__(key)

    def __iter__(self) -> Iterator[str]:
        self._all()
        return super().__iter__()

    def get(self, key: str, *default: Any) -> Any:
        """Return a channel's value, like `dict.get`."""
        self.named.add(key)
        return super().get(key, *default)

    def pop(self, key: str, *default: Any) -> Any:
        """Remove a channel and return its value, like `dict.pop`."""
        self.named.add(key)
        return super().pop(key, *default)

    def keys(self) -> Any:
        """Return the names of the channels."""
        self._all()
        return super().keys()

    def items(self) -> Any:
        """Return the channels with their values."""
        self._all()
        return super().items()

    def values(self) -> Any:
        """Return the values of the channels."""
        self._all()
        return super().values()

    def popitem(self) -> tuple[str, Any]:
        """Remove the last channel and return it with its value, like `dict.popitem`."""
        self._all()
        return super().popitem()

    def clear(self) -> None:
        """Remove all channels."""
        self._all()
        super().clear()

    def copy(self) -> dict[str, Any]:
        """Return a plain dict."""
        return dict(self)

    def __or__(self, other: Any) -> Any:
        return dict(self) | other

    def __ror__(self, other: Any) -> Any:
        return other | dict(self)


class StepList(ListView, MutableSequence[Any]):
    """A list that is read as a whole when a step first looks into it. From then on it is a plain list.

    Attributes:
        stored: the view of the stored list.
        loaded: the plain list, or None until the step looks into it.
    """

    __slots__ = ("loaded", "stored")

    def __init__(self, stored: ListView) -> None:
        super().__init__(stored._source)  # noqa: SLF001 - a view of the same
        self.stored = stored
        self.loaded: list[Any] | None = None

    def _items(self) -> list[Any]:
        if self.loaded is None:
            self.loaded = self._source = self.stored.to_python()
        return self.loaded

    @property
    def lazy(self) -> StepList:
        """The list itself."""
        return self

    def __getitem__(self, index: Any) -> Any:
        return self._items()[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._items()[index] = value

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        del self._items()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items())

    def __iadd__(self, other: Any) -> Self:  # type: ignore[override]  # as a list
        self._items().extend(other)
        return self

    def insert(self, index: SupportsIndex, value: Any) -> None:
        """Insert `value` before `index`, like `list.insert`."""
        self._items().insert(index, value)

    def sort(self, *, key: Callable[[Any], Any] | None = None, reverse: bool = False) -> None:
        """Sort the list in place, like `list.sort`."""
        self._items().sort(key=key, reverse=reverse)

    def to_python(self) -> list[Any]:
        """Return a plain, deep copy."""
        return super().to_python() if self.loaded is not None else self.stored.to_python()


class StepMap(MapView, MutableMapping[str, Any]):
    """A dict that is read as a whole when a step first looks into it. From then on it is a plain dict.

    Attributes:
        stored: the view of the stored dict.
        loaded: the plain dict, or None until the step looks into it.
    """

    __slots__ = ("loaded", "stored")

    def __init__(self, stored: MapView) -> None:
        super().__init__(stored._source)  # noqa: SLF001 - a view of the same
        self.stored = stored
        self.loaded: dict[str, Any] | None = None

    def _members(self) -> dict[str, Any]:
        if self.loaded is None:
            self.loaded = self._source = self.stored.to_python()
        return self.loaded

    @property
    def lazy(self) -> StepMap:
        """The dict itself."""
        return self

    def __getitem__(self, key: str) -> Any:
        return self._members()[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._members()[key] = value

    def __delitem__(self, key: str) -> None:
        del self._members()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members())

    def __ior__(self, other: Any) -> Self:  # type: ignore[override]  # as a dict
        self._members().update(other)
        return self

    def _pairs(self) -> Iterator[tuple[str, Any]]:
        return iter(self._members().items())

    def to_python(self) -> dict[str, Any]:
        """Return a plain, deep copy."""
        return super().to_python() if self.loaded is not None else self.stored.to_python()
