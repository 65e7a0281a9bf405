"""Checks writes to channels of a TypedDict, a dataclass or a plain dict against their annotations, without pydantic.

The type of a write depends on the reducer: `append` takes an item of the list, `extend` a list of items, `merge` a dict
with some of the keys.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from statelog.errors import ValidationError
from statelog.reducers import Overwrite, Remove
from statelog.schema.shapes import ANY, Dump, MisfitError, shape_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.schema.channels import Channel
    from statelog.schema.shapes import Shape


class PlainCheck:
    """Checks writes to one channel, and converts them to their stored form."""

    __slots__ = ("_channel", "_reducer", "_shape", "_write")

    def __init__(self, channel: Channel, shape: Shape) -> None:
        """Create the check of one channel."""
        self._channel = channel.name
        self._reducer = channel.reducer.name
        self._shape = shape
        self._write = _write_shape(channel.reducer.name, shape)

    @classmethod
    def of(cls, channel: Channel) -> PlainCheck | None:
        """Return the check of a channel, or None if its annotation accepts any value."""
        shape = shape_of(channel.annotation)
        return None if shape is ANY else cls(channel, shape)

    def check_write(self, _channel: str, value: object) -> object:
        """Return the write for the reducer, in a form that can be stored.

        Raises:
            ValidationError: the write does not fit the annotation. Facts: channel, path, reason, problems.
        """
        if isinstance(value, Overwrite):
            return Overwrite(self.check_result(self._channel, value.value))
        if isinstance(value, Remove):
            return _removal(value)
        return self._check(self._write, value)

    def check_result(self, _channel: str, value: object) -> object:
        """Return the whole value of the channel, in a form that can be stored.

        Raises:
            ValidationError: as `check_write`.
        """
        return self._check(self._shape.dump, value)

    def check_part(self, path: str, value: object) -> bool:
        """Check one item of the list in a channel, or one member of the dict.

        Returns:
            True if this check is sufficient; False if the whole value must be checked.

        Raises:
            ValidationError: as `check_write`.
        """
        if self._shape.items is None or self._shape.load is not None:
            return False
        self._check(self._shape.items.dump, value, path)
        return True

    def _check(self, dump: Dump, value: object, path: str | None = None) -> object:
        try:
            return dump(value, path or self._channel)
        except RecursionError:
            return value  # The encoder refuses a cycle, or a value that is too deep.
        except MisfitError as misfit:
            raise ValidationError(
                str(misfit),
                channel=self._channel,
                path=misfit.path,
                reason=misfit.reason,
                problems=((misfit.path, misfit.reason),),
            ) from None


def _write_shape(reducer: str, shape: Shape) -> Dump:
    """Return the function that dumps a write to a channel with this reducer."""
    items = ANY if shape.items is None else shape.items
    if reducer == "append":
        return items.dump
    if reducer in {"extend", "add", "union", "upsert"} and shape.kind in {list, set, frozenset}:
        return _several(shape, items, reducer)
    if reducer == "upsert":
        return ANY.dump
    if reducer in {"merge", "deep_merge"}:
        return _merged(shape, is_deep=reducer == "deep_merge")
    return shape.dump


def _several(shape: Shape, items: Shape, reducer: str) -> Dump:
    """Return the function that dumps a list of items. It leaves other values to a reducer that checks types itself."""

    def dump(value: Any, path: str) -> Any:
        if not isinstance(value, list | tuple):
            if reducer == "upsert":
                return items.dump(value, path)
            return value if shape.kind is list and reducer != "add" else shape.dump(value, path)
        dumped = [
            _removal(each) if isinstance(each, Remove) else items.dump(each, f"{path}[{place}]")
            for place, each in enumerate(value)
        ]
        return value if all(old is new for old, new in zip(value, dumped, strict=True)) else dumped

    return dump


def _removal(removal: Remove) -> Remove:
    """Return the removal with its id in the stored form."""
    return Remove(removal.id.value) if isinstance(removal.id, Enum) else removal


def _merged(shape: Shape, *, is_deep: bool) -> Dump:
    partial: Callable[[Any, str], Any] = shape.partial or shape.dump

    def dump(value: Any, path: str) -> Any:
        if is_deep and shape.load is None:
            return value  # The dicts in the write may lack keys at any depth, so only the merged value can be checked.
        return partial(value, path)

    return dump
