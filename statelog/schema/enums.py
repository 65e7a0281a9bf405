"""Stores enum members by value if the annotation names their class.

Only a few types can be stored. If a schema names ``Color``, a read can turn ``"red"`` back into the
member. Without such a schema, a read could not restore the member, so the encoder refuses it.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from statelog.errors import ValidationError
from statelog.format.cbor import is_storable
from statelog.limits import DEPTH_MAX
from statelog.reducers import Overwrite, Remove
from statelog.schema.annotations import classes_named, is_typed_dict
from statelog.schema.shapes import BUILTIN

if TYPE_CHECKING:
    from collections.abc import Callable

_CONTAINERS = frozenset({list, tuple, dict, set, frozenset})


def _base_of(cls: type) -> Callable[[Any], Any] | None:
    """Return the builtin base class of a class whose instances cannot be stored as they are, or None."""
    if issubclass(cls, Enum) or is_storable(cls) or is_typed_dict(cls):  # No value is an instance of a TypedDict.
        return None
    return next((base for base in BUILTIN if issubclass(cls, base)), None)


class EnumCheck:
    """Replaces members of some enum classes by their values, also inside builtin containers.

    It also replaces an instance of a subclass of a builtin type by an instance of that builtin
    type. A value that needs no replacement is returned as the same object.
    """

    __slots__ = ("_classes",)

    def __init__(self, classes: tuple[type, ...]) -> None:
        """Create the check for members of these classes."""
        self._classes = classes

    @classmethod
    def of(cls, annotation: object) -> EnumCheck | None:
        """Return the check for an annotation, or None if it names no enum class."""
        classes = tuple(named for named in classes_named(annotation) if issubclass(named, Enum) or _base_of(named))
        return cls(classes) if classes else None

    def __call__(self, channel: str, value: object) -> object:
        """Return the value, or the value of an ``Overwrite``, with members replaced by their values.

        Raises:
            ValidationError: two keys of a dict or elements of a set would become equal.
        """
        if isinstance(value, Overwrite):
            return Overwrite(self._dump(channel, value.value, set()))
        return self._dump(channel, value, set())

    def _dump(self, channel: str, value: object, around: set[int]) -> object:
        # `around` has the ids of the containers around this value, so that a cycle ends the recursion.
        if isinstance(value, self._classes):
            base = _base_of(type(value))
            inside = value.value if isinstance(value, Enum) else value if base is None else base(value)
            return self._dump(channel, inside, around)
        if isinstance(value, Remove):
            return Remove(self._dump(channel, value.id, around))
        if type(value) not in _CONTAINERS or id(value) in around or len(around) >= DEPTH_MAX:
            return value  # The value is a scalar, or the encoder refuses it for a cycle or its depth.
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
            message = f"{channel}: an enum member and another key would be stored as the same key"
            raise ValidationError(message, channel=channel, path=channel)
        return dumped
