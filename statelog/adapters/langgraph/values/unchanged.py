"""Proof that an item of a list is what it was when it was serialised last, without serialising it.

An item is *frozen*: taken apart into immutable parts, with their exact types, at the time it is serialised. Another
that freezes to the same is serialised to the same bytes, whether it is the same object or not, and whatever was done
to either in between. That holds for None, bool, int, float, str and bytes, for list, tuple and dict of such, and for
models of pydantic that hold such and leave serialising to pydantic. Anything else proves nothing, and is serialised
again.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from threading import RLock
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from statelog.adapters.langgraph.values.still import Still

_ITEMS_MAX = 200_000
"""Frozen items in memory, some 400 bytes each beside the texts they hold."""

_TRUE, _FALSE = ("true",), ("false",)


class Unproved:
    """Equal to nothing, not even itself."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # it is never a key

    def __eq__(self, _other: object) -> bool:
        return False


def freeze(value: Any) -> Any:
    """Return what is equal for values that serialise equally, and for no others that it can tell apart from them."""
    kind = type(value)
    if kind is str or value is None:
        return value
    handler = _handlers.get(kind)
    if handler is None:
        handler = _learn(kind)
    return handler(value)


def _freeze_dict(value: dict[Any, Any]) -> Any:
    if set(map(type, value)) <= _TEXT_ALONE:
        return (dict, *value, *_freeze_members(value))
    return (dict, *map(freeze, value), *_freeze_members(value))


def _freeze_model(value: Any) -> Any:
    held = value.__dict__
    extra = value.__pydantic_extra__
    frozen = (type(value), *held, *_freeze_members(held))
    return (frozen, freeze(extra)) if extra else frozen


_TEXT_ALONE = {str}
_shapes: dict[tuple[type, ...], tuple[tuple[type, ...], tuple[int, ...]]] = {}
"""By the types of a dict's values: those types, and which of the values are not immutable by type."""


def _freeze_members(held: dict[Any, Any]) -> list[Any]:
    """Return a dict's values frozen, and their types: most are texts, and few dicts have types of their own."""
    members = [*held.values()]
    types = tuple(map(type, members))
    shape = _shapes.get(types)
    if shape is None:
        shape = (types, tuple(at for at, kind in enumerate(types) if kind not in IMMUTABLE))
        if len(_shapes) < _TYPES_MAX:
            _shapes[types] = shape
    for at in shape[1]:
        member = members[at]
        members[at] = None if type(member) in CONTAINERS and not member else freeze(member)
    members.append(shape[0])
    return members


IMMUTABLE = frozenset([str, bytes, int, bool, type(None)])
CONTAINERS = frozenset([dict, list, tuple])
_TYPES_MAX = 4096
_handlers: dict[type, Callable[[Any], Any]] = {
    bytes: lambda value: value,
    int: lambda value: value,
    bool: lambda value: _TRUE if value else _FALSE,
    float: lambda value: ("float", struct.pack(">d", value)),
    list: lambda value: (list, *map(freeze, value)),
    tuple: lambda value: (tuple, *map(freeze, value)),
    dict: _freeze_dict,
}


def _learn(kind: type) -> Callable[[Any], Any]:
    handler = _freeze_model if is_plain_model(kind) else _freeze_nothing
    if len(_handlers) < _TYPES_MAX:
        _handlers[kind] = handler
    return handler


def is_frozen_by_members(kind: type) -> bool:
    """Whether a value of a type is a model that is frozen as its members say."""
    return (_handlers.get(kind) or _learn(kind)) is _freeze_model


def _freeze_nothing(_value: Any) -> Any:
    return Unproved()


def is_plain_model(kind: type) -> bool:
    """Whether what a model is serialised to follows from its fields alone."""
    if not issubclass(kind, BaseModel) or kind.model_dump is not BaseModel.model_dump:
        return False
    if kind.__getattribute__ is not object.__getattribute__:
        return False
    made = kind.__pydantic_decorators__
    if made.field_serializers or made.model_serializers or made.computed_fields:
        return False
    return not _has_serialization(kind.__pydantic_core_schema__)


def _has_serialization(schema: Any) -> bool:
    pending = [schema]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            if "serialization" in each:
                return True
            pending += each.values()
        elif isinstance(each, list | tuple):
            pending += each
    return False


class Frozen:
    """What lists were when they were stored, by what identifies the stored list.

    For several OS threads, and what interrupts them.
    """

    def __init__(self, items_max: int = _ITEMS_MAX) -> None:
        self._lists: OrderedDict[bytes, Still] = OrderedDict()
        self._items_max = items_max
        self._items = 0
        self._lock = RLock()

    def get(self, identity: bytes) -> Still | None:
        """Return the frozen items of a stored list, if they are remembered."""
        with self._lock:
            found = self._lists.get(identity)
            if found is not None:
                self._lists.move_to_end(identity)
            return found

    def put(self, identity: bytes, frozen: Still) -> None:
        """Remember them; those not asked for the longest are forgotten."""
        with self._lock:
            self._items += len(frozen) - len(self._lists.pop(identity, ()))
            self._lists[identity] = frozen
            while self._items > self._items_max and len(self._lists) > 1:
                self._items -= len(self._lists.popitem(last=False)[1])


def common_ends(old: Sequence[Any], new: Sequence[Any]) -> tuple[int, int]:
    """Return how many items two sequences have in common at the beginning, and then at the end."""
    shorter = min(len(old), len(new))
    if old[:shorter] == new[:shorter]:
        return shorter, 0
    first = next(at for at, (a, b) in enumerate(zip(old, new, strict=False)) if not a == b)  # noqa: SIM201 - see Unproved
    last = 0
    while last < shorter - first and old[-1 - last] == new[-1 - last]:
        last += 1
    return first, last
