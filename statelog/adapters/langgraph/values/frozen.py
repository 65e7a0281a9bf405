"""Proves that the items of a list have not changed since they were last serialised, without serialising them.

An item is *frozen* when it is serialised: copied into immutable parts with their exact types. An item that freezes to
equal parts is serialised to the same bytes, whether it is the same object or not. That holds for None, bool, int,
float, str and bytes, for lists, tuples and dicts of these, and for pydantic models that have only these and do not
customise serialising. Anything else is serialised again. The kernel (`native/python/frozen.c`) compares a frozen item
with a value member by member, and creates no objects.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import RLock
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from statelog.kernels.objects import freeze_items, still_items

if TYPE_CHECKING:
    from collections.abc import Sequence

_ITEMS_MAX = 200_000
"""The maximum number of frozen items in memory, each about 400 bytes plus its strings."""

_TYPES_MAX = 4096
"""The maximum number of types in memory."""

Items = tuple[Any, ...]
"""The frozen items of a list."""

_kinds: dict[type, bool] = {}


def is_plain_model(kind: type) -> bool:
    """Return whether the serialised form of a model depends only on its fields."""
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


def _learn(kind: type) -> bool:
    is_plain = is_plain_model(kind)
    if len(_kinds) < _TYPES_MAX:
        _kinds[kind] = is_plain
    return is_plain


def freeze(values: list[Any]) -> Items:
    """Return the frozen items of a list."""
    return freeze_items(values, _kinds, _learn)


def common_ends(known: Items, values: list[Any]) -> tuple[int, int]:
    """Return how many items of a list are unchanged at its beginning, and then at its end."""
    return still_items(known, values)


def still(was: Items, values: list[Any]) -> Items:
    """Return frozen items, with `...` in place of those that have changed while they were serialised.

    Args:
        was: the items as they were frozen.
        values: the present items.
    """
    if still_items(was, values)[0] == len(was):
        return was
    return tuple(each if still_items((each,), [value])[0] else ... for each, value in zip(was, values, strict=True))


class Frozen:
    """Remembers the frozen items of stored lists by identity. OS threads may share an object; interrupts are safe."""

    def __init__(self, items_max: int = _ITEMS_MAX) -> None:
        self._lists: OrderedDict[bytes, Items] = OrderedDict()
        self._items_max = items_max
        self._items = 0
        self._lock = RLock()

    def get(self, identity: bytes) -> Items | None:
        """Return the frozen items of a stored list, if they are remembered."""
        with self._lock:
            found = self._lists.get(identity)
            if found is not None:
                self._lists.move_to_end(identity)
            return found

    def put(self, identity: bytes, frozen: Items) -> None:
        """Remember a list's frozen items. If there are too many, the least recently used lists are forgotten."""
        with self._lock:
            self._items += len(frozen) - len(self._lists.pop(identity, ()))
            self._lists[identity] = frozen
            while self._items > self._items_max and len(self._lists) > 1:
                self._items -= len(self._lists.popitem(last=False)[1])


def equal_ends(old: Sequence[bytes], new: Sequence[bytes]) -> tuple[int, int]:
    """Return how many serialised items two lists have in common at the beginning, and then at the end."""
    shorter = min(len(old), len(new))
    if old[:shorter] == new[:shorter]:
        return shorter, 0
    first = next(at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    last = 0
    while last < shorter - first and old[-1 - last] == new[-1 - last]:
        last += 1
    return first, last
