"""Enum members stored by value, where the annotation names their class.

A value is stored as one of a closed set of types. A schema that says ``Color`` knows the way
back from ``"red"``; without one, a member would return as something else, so it is left for
the encoder to refuse.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from statelog.errors import ValidationError
from statelog.format.cbor import is_storable
from statelog.limits import DEPTH_MAX
from statelog.reducers import Overwrite, Remove
from statelog.schema.annotations import classes_named
from statelog.schema.shapes import BUILTIN

if TYPE_CHECKING:
    from collections.abc import Callable

_CONTAINERS = frozenset({list, tuple, dict, set, frozenset})


def _base_of(cls: type) -> Callable[[Any], Any] | None:
    """The builtin type that a class is a subclass of, if it cannot be stored itself."""
    if issubclass(cls, Enum) or is_storable(cls):
        return None
    return next((base for base in BUILTIN if issubclass(cls, base)), None)


class EnumCheck:
    """Replaces members of the given classes by their values, inside the builtin containers.

    So it does with instances of subclasses of builtin types, which become instances of these.
    A value without such members comes back as the same object.
    """

    __slots__ = ("_classes",)

    def __init__(self, classes: tuple[type, ...]) -> None:
        """Make the check for members of these classes."""
        self._classes = classes

    @classmethod
    def of(cls, annotation: object) -> EnumCheck | None:
        """The check for an annotation; None if it names no Enum class."""
        classes = tuple(named for named in classes_named(annotation) if issubclass(named, Enum) or _base_of(named))
        return cls(classes) if classes else None

    def __call__(self, channel: str, value: object) -> object:
        """The value with members by value; of an ``Overwrite``, its value so.

        Raises:
            ValidationError: two keys of a dict, or elements of a set, would become one.
        """
        if isinstance(value, Overwrite):
            return Overwrite(self._dump(channel, value.value, set()))
        return self._dump(channel, value, set())

    def _dump(self, channel: str, value: object, around: set[int]) -> object:
        # around: ids of the containers this value lies in, so that a cycle ends.
        if isinstance(value, self._classes):
            base = _base_of(type(value))
            inside = value.value if isinstance(value, Enum) else value if base is None else base(value)
            return self._dump(channel, inside, around)
        if isinstance(value, Remove):
            return Remove(self._dump(channel, value.id, around))
        if type(value) not in _CONTAINERS or id(value) in around or len(around) >= DEPTH_MAX:
            return value  # a scalar; or a cycle or a depth the encoder refuses, with its path
        around.add(id(value))
        try:
            return self._dump_container(channel, value, around)
        finally:
            around.discard(id(value))

    def _dump_container(self, channel: str, value: Any, around: set[int]) -> object:
        is_dict = type(value) is dict
        before = [part for item in value.items() for part in item] if is_dict else list(value)
        after = [self._dump(channel, part, around) for part in before]
        if all(new is old for new, old in zip(after, before, strict=True)):
            return value
        pairs = zip(after[::2], after[1::2], strict=True)
        dumped: Any = dict(pairs) if is_dict else type(value)(after)
        if len(dumped) != len(value):
            message = f"{channel}: an enum member and another key are equal once stored"
            raise ValidationError(message, channel=channel, path=channel)
        return dumped
