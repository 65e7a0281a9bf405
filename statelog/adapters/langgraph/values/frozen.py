"""Proof that the items of a list are what they were when they were serialised last, without serialising them.

An item is *frozen*: taken apart into immutable parts, with their exact types, at the time it is serialised. Another
that freezes to the same is serialised to the same bytes, whether it is the same object or not, and whatever was done
to either in between. That holds for None, bool, int, float, str and bytes, for list, tuple and dict of such, and for
models of pydantic that hold such and leave serialising to pydantic. Anything else proves nothing, and is serialised
again.

Most versions of a list add some items to the one before. Of a list of models (messages, say), or of dicts, the members
of all items therefore stand in flat lists: whether a version begins with what is known is a few comparisons of whole
lists, not a loop over the items.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from itertools import chain, compress
from operator import attrgetter, not_
from threading import RLock
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_ITEMS_MAX = 200_000
"""Frozen items in memory, some 400 bytes each beside the texts they hold."""

_TYPES_MAX = 4096
"""Types, and shapes of dicts, in memory."""

_TRUE, _FALSE = ("true",), ("false",)
_IMMUTABLE = frozenset([str, bytes, int, bool, type(None)])
_CONTAINERS = frozenset([dict, list, tuple])
_JUST_DICTS, _TEXT_ALONE = frozenset([dict]), frozenset([str])


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


_shapes: dict[tuple[type, ...], tuple[tuple[type, ...], tuple[int, ...]]] = {}
"""By the types of a dict's values: those types, and which of the values are not immutable by type."""


def _freeze_members(held: dict[Any, Any]) -> list[Any]:
    """Return a dict's values frozen, and their types: most are texts, and few dicts have types of their own."""
    members = [*held.values()]
    types = tuple(map(type, members))
    shape = _shapes.get(types)
    if shape is None:
        shape = (types, tuple(at for at, kind in enumerate(types) if kind not in _IMMUTABLE))
        if len(_shapes) < _TYPES_MAX:
            _shapes[types] = shape
    for at in shape[1]:
        member = members[at]
        members[at] = None if type(member) in _CONTAINERS and not member else freeze(member)
    members.append(shape[0])
    return members


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


def _is_frozen_by_members(kind: type) -> bool:
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


_held = attrgetter("__dict__")
_extra = attrgetter("__pydantic_extra__")

_UNTOLD = (RecursionError, RuntimeError, AttributeError)
"""RuntimeError: changed meanwhile by another OS thread. AttributeError: a model that was not made as pydantic does."""


class Singles:
    """Items frozen one by one."""

    __slots__ = ("_frozen",)

    def __init__(self, frozen: list[Any]) -> None:
        self._frozen = frozen

    def __len__(self) -> int:
        return len(self._frozen)

    def items(self) -> list[Any]:
        """Return the items, frozen: they compare as `freeze` says."""
        return self._frozen

    def begins(self, _values: Sequence[Any]) -> bool:
        """Whether it is told at once that a list begins with these items."""
        return False


class _Members:
    """The members of some items, one behind the other."""

    __slots__ = ("kinds", "members", "names", "sizes", "types")

    def __init__(self, values: Sequence[Any], kinds: list[type]) -> None:
        helds: Any = values if kinds[0] is dict else [*map(_held, values)]
        self.kinds = kinds
        self.sizes = [*map(len, helds)]
        self.names: list[Any] = [*chain.from_iterable(helds)]
        self.members: list[Any] = [*chain.from_iterable(map(dict.values, helds))]
        self.types = [*map(type, self.members)]


class Rows:
    """Items that are models, or dicts, as their members say, which stand in flat lists."""

    __slots__ = ("_frozen", "_has_containers_alone", "_is_filled", "_is_loose", "_is_solid", "_of", "_solid")

    def __init__(self, of: _Members) -> None:
        self._is_solid = [*map(_IMMUTABLE.__contains__, of.types)]
        self._is_loose = [*map(not_, self._is_solid)]
        self._solid = [*compress(of.members, self._is_solid)]
        self._has_containers_alone = set(compress(of.types, self._is_loose)) <= _CONTAINERS
        loose = [*compress(of.members, self._is_loose)]
        self._is_filled = self._filled(loose)
        self._frozen = [*map(freeze, compress(loose, self._is_filled))]
        """Of the members that are not immutable by their types, those that are not empty containers."""
        of.members = []  # what is held must not be what can change
        self._of = of

    @classmethod
    def of(cls, values: Sequence[Any]) -> Rows | None:
        """Freeze some items, None if they are to be frozen one by one."""
        kinds = [*map(type, values)]
        different = set(kinds)
        if not different or not (different == _JUST_DICTS or all(map(_is_frozen_by_members, different))):
            return None
        if different != _JUST_DICTS and any(map(_extra, values)):
            return None
        of = _Members(values, kinds)
        if different == _JUST_DICTS and not set(map(type, of.names)) <= _TEXT_ALONE:
            return None
        if not len(of.names) == len(of.members) == sum(of.sizes):
            return None  # changed meanwhile
        return cls(of)

    def __len__(self) -> int:
        return len(self._of.kinds)

    def _filled(self, loose: Iterable[Any]) -> list[bool]:
        if self._has_containers_alone:
            return [*map(bool, loose)]
        return [type(member) not in _CONTAINERS or bool(member) for member in loose]

    def begins(self, values: Sequence[Any]) -> bool:
        """Whether a list begins with these items: whether the items freeze to the same."""
        count, known = len(self), self._of
        if len(values) < count:
            return False
        head = values if len(values) == count else values[:count]
        kinds = [*map(type, head)]
        if kinds != known.kinds or (kinds[0] is not dict and any(map(_extra, head))):
            return False
        now = _Members(head, kinds)
        if now.types != known.types or now.sizes != known.sizes or now.names != known.names:
            return False
        if [*compress(now.members, self._is_solid)] != self._solid:
            return False
        if kinds[0] is dict and not set(map(type, now.names)) <= _TEXT_ALONE:
            return False
        loose = [*compress(now.members, self._is_loose)]
        is_filled = self._filled(loose)
        return is_filled == self._is_filled and [*map(freeze, compress(loose, is_filled))] == self._frozen

    def items(self) -> list[Any]:
        """Return the items as `freeze` does."""
        known = self._of
        solid, frozen, is_filled = iter(self._solid), iter(self._frozen), iter(self._is_filled)
        members = [
            next(solid) if is_solid else next(frozen) if next(is_filled) else None for is_solid in self._is_solid
        ]
        found: list[Any] = []
        at = 0
        for kind, size in zip(known.kinds, known.sizes, strict=True):
            end = at + size
            found.append((kind, *known.names[at:end], *members[at:end], tuple(known.types[at:end])))
            at = end
        return found

    def followed_by(self, more: Rows) -> Rows | None:
        """Return these items and more of them; None if they do not go together."""
        ours, theirs = self._of, more._of
        if (ours.kinds[0] is dict) != (theirs.kinds[0] is dict):
            return None
        made = object.__new__(Rows)
        of = object.__new__(_Members)
        for name in ("kinds", "names", "sizes", "types"):
            setattr(of, name, getattr(ours, name) + getattr(theirs, name))
        of.members = []
        made._of = of
        made._has_containers_alone = self._has_containers_alone and more._has_containers_alone
        for name in ("_frozen", "_is_filled", "_is_loose", "_is_solid", "_solid"):
            setattr(made, name, getattr(self, name) + getattr(more, name))
        return made


Still = Singles | Rows
"""What the items of a list were."""


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


def freeze_all(values: Sequence[Any]) -> Still:
    """Return what the items of a list are."""
    try:
        return Rows.of(values) or Singles([*map(freeze, values)])
    except _UNTOLD:
        return Singles([Unproved() for _ in values])


def begins(known: Still, values: Sequence[Any]) -> bool:
    """Whether it is told at once that a list begins with what is known."""
    try:
        return known.begins(values)
    except _UNTOLD:
        return False


def still(was: Still, values: Sequence[Any], first: int = 0, last: int = 0) -> Still:
    """Return what the items were while they were serialised: of one that has changed meanwhile nothing is known.

    Args:
        was: what they were before.
        values: what they are.
        first: so many at the beginning were not serialised.
        last: as many at the end.

    """
    if begins(was, values):
        return was
    frozen = was.items()
    stop = len(frozen) - last
    for at, again in enumerate(freeze_all(values[first:stop]).items(), first):
        if frozen[at] != again:
            frozen[at] = Unproved()
    return Singles(frozen)


def joined(known: Still, more: Still) -> Still:
    """Return what is known of a list and of the items behind it."""
    if not len(more):
        return known
    made = known.followed_by(more) if isinstance(known, Rows) and isinstance(more, Rows) else None
    return made or Singles([*known.items(), *more.items()])
