"""JSON that keeps the order of its keys.

statelog sorts the keys of a dict. Models see the order of keys, and caches of prompts depend on it. So an adapter
stores its framework's values as JSON text. The command line shows such a value decoded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from statelog import register_codec
from statelog.adapters.kit import items
from statelog.errors import ValueTypeError
from statelog.kernels.objects import copy_plain, join_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from statelog.store.views import MapView

__all__ = ["Json", "KnownList", "join_list", "of_all", "read_list", "read_value"]

CODEC = "json"
_PREFIX = items.codec_prefix(CODEC)


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON value, stored as text. Two values are equal if their texts are equal.

    Args:
        text: JSON text, from `Json.of` or from another source.
    """

    text: str

    @classmethod
    def of(cls, value: object, *, default: Callable[[Any], Any] | None = None, allow_nan: bool = False) -> Json:
        """Return a value as JSON. A tuple becomes a list.

        Args:
            value: a value made of str, int, float, bool, None, list, tuple and dict.
            default: as for `json.dumps`.
            allow_nan: allow NaN and infinity, written as Python writes them, for a framework whose JSON has them.

        Raises:
            ValueTypeError: the value has another type, contains itself, or has a NaN or infinity that is not allowed.
        """
        return cls(_text(value, default, allow_nan=allow_nan))

    @property
    def value(self) -> Any:
        """The decoded value, a new object at each access."""
        return json.loads(self.text)


def _text(value: object, default: Callable[[Any], Any] | None = None, *, allow_nan: bool = False) -> str:
    is_usual = default is None and not allow_nan
    try:
        text = _dumps(value) if is_usual else json.dumps(value, default=default, allow_nan=allow_nan, **_FORMAT)
    except (TypeError, ValueError, RecursionError) as error:
        message = f"cannot be stored as JSON: {error or type(error).__name__}"
        raise ValueTypeError(message, type=type(value).__qualname__) from error
    try:
        text.encode()
    except UnicodeEncodeError:  # The text has a lone surrogate, which JSON writes as an escape.
        return json.dumps(json.loads(text), separators=(",", ":"))
    return text


_FORMAT: dict[str, Any] = {"ensure_ascii": False, "separators": (",", ":")}
_dumps = json.JSONEncoder(allow_nan=False, **_FORMAT).encode

register_codec(Json, name=CODEC, encode=lambda kept: kept.text, decode=Json)


def of_all(values: Iterable[object]) -> list[Json]:
    """Return each value as JSON. Raises ValueTypeError like `Json.of`."""
    return [Json(_text(value)) for value in values]


def read_list(state: MapView, channel: str, start: int = 0, stop: int | None = None) -> list[Any]:
    """Return the decoded values `start` to `stop` (excluded) of a channel that is a list of `Json`.

    For any number of values, C and the JSON decoder are called only once. If the channel does not exist, the list is
    empty.

    Args:
        state: the state of a checkpoint or thread.
        channel: the name of the channel.
        start: the first index. A negative index counts from the end.
        stop: the end index, as in a slice.

    Raises:
        ValueTypeError: the channel is not a list of `Json`.
    """
    return _decode(_items(state, channel, start, stop), channel)


def join_list(state: MapView, channel: str, start: int = 0) -> str:
    """Return the items from `start` on as the text of one JSON array, for the caller's own decoder.

    Raises:
        ValueTypeError: the channel is not a list of `Json`.
    """
    return _join(_items(state, channel, start, None), channel)


def _items(state: MapView, channel: str, start: int, stop: int | None) -> list[bytes]:
    stored = items.get(state, channel)
    if stored is None:
        return []
    first, last, _step = slice(start, stop).indices(items.count(stored))
    return items.read_list(stored, first, last) if first < last else []


def _join(encoded: list[bytes], channel: str) -> str:
    try:
        return join_texts(encoded, _PREFIX)
    except ValueError as error:
        message = f"channel {channel!r} is not a list of JSON texts: {error}"
        raise ValueTypeError(message, path=channel) from error


def _decode(encoded: list[bytes], channel: str) -> list[Any]:
    try:
        found: list[Any] = json.loads(_join(encoded, channel))
    except json.JSONDecodeError as error:
        message = f"channel {channel!r} is not a list of JSON texts: {error}"
        raise ValueTypeError(message, path=channel) from error
    return found


def read_value(state: MapView, channel: str) -> Any:
    """Return the decoded value of a channel that is one `Json`, or None if the channel does not exist."""
    kept = state.get(channel)
    return None if kept is None else kept.value


class KnownList:
    """Reads one list of `Json` repeatedly. Unchanged values are copied from memory.

    It remembers one version of the list.

    Args:
        channel: the channel of the list.
    """

    def __init__(self, channel: str) -> None:
        self._channel = channel
        self._last: tuple[bytes, list[Any]] | None = None

    def read(self, state: MapView, start: int = 0) -> list[Any]:
        """Return the values from `start` as new objects. Raises ValueTypeError like `read_list`."""
        stored = items.get(state, self._channel)
        if stored is None:
            return []
        known = self._known(stored)
        if known is None:
            known = _decode(items.read_list(stored), self._channel)
            self._last = items.identity(stored), known
        return _copied(known, start)

    def remembered(self, state: MapView, start: int = 0) -> list[Any] | None:
        """Return the values like `read`, or None if they are not in memory."""
        stored = items.get(state, self._channel)
        known = None if stored is None else self._known(stored)
        return None if known is None else _copied(known, start)

    def _known(self, stored: items.Stored) -> list[Any] | None:
        last = self._last
        return last[1] if last is not None and last[0] == items.identity(stored) else None


def _copied(values: list[Any], start: int) -> list[Any]:
    copied: list[Any] = copy_plain(values[start:] if start else values)
    return copied
