"""Writes to channels of a TypedDict, a dataclass or a plain dict: checked against their annotations, without pydantic.

How a write relates to the annotation is the reducer's: `append` takes an item of the list, `extend` a list of some,
`merge` a dict of some of the keys.
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
    """Checks writes to one channel, and makes of them what is stored."""

    __slots__ = ("_channel", "_reducer", "_shape", "_write")

    def __init__(self, channel: Channel, shape: Shape) -> None:
        """Make the check of one channel."""
        self._channel = channel.name
        self._reducer = channel.reducer.name
        self._shape = shape
        self._write = _write_shape(channel.reducer.name, shape)

    @classmethod
    def of(cls, channel: Channel) -> PlainCheck | None:
        """The check of a channel; None if its annotation takes any value."""
        shape = shape_of(channel.annotation)
        return None if shape is ANY else cls(channel, shape)

    def check_write(self, _channel: str, value: object) -> object:
        """The write, for the reducer to merge, as it can be stored.

        Raises:
            ValidationError: it does not fit the annotation. Facts: channel, path, reason, problems.
        """
        if isinstance(value, Overwrite):
            return Overwrite(self.check_result(self._channel, value.value))
        if isinstance(value, Remove):
            return _removal(value)
        return self._check(self._write, value)

    def check_result(self, _channel: str, value: object) -> object:
        """The whole value of the channel, as it can be stored.

        Raises:
            ValidationError: as `check_write`.
        """
        return self._check(self._shape.dump, value)

    def check_part(self, path: str, value: object) -> bool:
        """Check an item of a list, or a value of a dict, that stands in the channel's value.

        Returns:
            Whether that says all of it; False: the whole value must be checked.

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
            return value  # a cycle, or a depth that the encoder refuses, with its path
        except MisfitError as misfit:
            raise ValidationError(
                str(misfit),
                channel=self._channel,
                path=misfit.path,
                reason=misfit.reason,
                problems=((misfit.path, misfit.reason),),
            ) from None


def _write_shape(reducer: str, shape: Shape) -> Dump:
    """What a write to a channel with this reducer must be."""
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
    """Some items; other things are left to the reducer, if it knows what it takes."""

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
    """A removal by what the identity is stored as."""
    return Remove(removal.id.value) if isinstance(removal.id, Enum) else removal


def _merged(shape: Shape, *, is_deep: bool) -> Dump:
    partial: Callable[[Any, str], Any] = shape.partial or shape.dump

    def dump(value: Any, path: str) -> Any:
        if is_deep and shape.load is None:
            return value  # its dicts hold some of the keys, at any depth: what they come to is not known here
        return partial(value, path)

    return dump
