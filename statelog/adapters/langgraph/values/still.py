"""What the items of a list were when they were serialised last, for the next version of the list.

Most versions add some items to the one before. Of a list of models (messages, say), or of dicts, the members of all
items therefore stand in flat lists: whether a version begins with what is known is a few comparisons of whole lists,
not a loop over the items.
"""

from __future__ import annotations

from itertools import chain, compress
from operator import attrgetter, not_
from typing import TYPE_CHECKING, Any

from statelog.adapters.langgraph.values.unchanged import CONTAINERS, IMMUTABLE, Unproved, freeze, is_frozen_by_members

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_held = attrgetter("__dict__")
_extra = attrgetter("__pydantic_extra__")
_JUST_DICTS, _TEXT_ALONE = frozenset([dict]), frozenset([str])

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
        """Return the items, frozen: they compare as `unchanged` says."""
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
        self._is_solid = [*map(IMMUTABLE.__contains__, of.types)]
        self._is_loose = [*map(not_, self._is_solid)]
        self._solid = [*compress(of.members, self._is_solid)]
        self._has_containers_alone = set(compress(of.types, self._is_loose)) <= CONTAINERS
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
        if not different or not (different == _JUST_DICTS or all(map(is_frozen_by_members, different))):
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
        return [type(member) not in CONTAINERS or bool(member) for member in loose]

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
