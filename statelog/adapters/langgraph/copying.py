"""Copies of what was decoded, as good as decoded anew, for checkpoints that share most: listed together, or in turn.

A copy has nothing in common with its original that can be changed. Only values are copied whose decoding has no other
effect and no other result: those that `unchanged.freeze` knows, and models that pydantic or LangChain alone make.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from operator import call
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pydantic import BaseModel

from statelog.adapters.langgraph.unchanged import is_plain_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from statelog.adapters.langgraph.values import Codec, Joined, Read

Maker = Any
"""A function without arguments that returns a copy."""

_IMMUTABLE = frozenset([str, bytes, int, bool, float, type(None), datetime, date, timedelta, UUID, Decimal])
_BASE: Any = BaseModel
_set = object.__setattr__
_make = object.__new__
_set_fields: Any = BaseModel.__dict__["__pydantic_fields_set__"].__set__
_set_extra: Any = BaseModel.__dict__["__pydantic_extra__"].__set__
_set_private: Any = BaseModel.__dict__["__pydantic_private__"].__set__


def maker(value: Any) -> Callable[[], Any] | None:
    """Return a function that returns copies of a value that nobody changes; None if that cannot be known."""
    kind = type(value)
    if kind in _IMMUTABLE:
        return partial(_same, value)
    if kind is dict:
        return _dict_maker(value)
    if kind is list:
        return _list_maker(value)
    if _is_copied(kind) and value.__pydantic_private__ is None:
        return _model_maker(value)
    return None


def _same(value: Any) -> Any:
    return value


def _parts(members: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Callable[[], Any]]] | None:
    """Return makers of those members that can be changed, by key or position; None if one cannot be copied."""
    found = []
    for key, member in members:
        if type(member) not in _IMMUTABLE:
            made = maker(member)
            if made is None:
                return None
            found.append((key, made))
    return found


def _dict_maker(value: dict[Any, Any]) -> Callable[[], Any] | None:
    if not value:
        return dict
    parts = _parts(value.items()) if all(type(key) in _IMMUTABLE for key in value) else None
    if parts is None:
        return None
    return partial(_copy_with, value, parts) if parts else value.copy


def _list_maker(value: list[Any]) -> Callable[[], Any] | None:
    if not value:
        return list
    parts = _parts(enumerate(value))
    if parts is None:
        return None
    return partial(_copy_with, value, parts) if parts else value.copy


def _copy_with(value: Any, parts: Sequence[tuple[Any, Callable[[], Any]]]) -> Any:
    copied = value.copy()
    for key, make in parts:
        copied[key] = make()
    return copied


def _model_maker(value: Any) -> Callable[[], Any] | None:
    held = value.__dict__
    parts = _parts(held.items())
    extra = value.__pydantic_extra__
    more = _nothing if extra is None else _dict_maker(extra)
    if parts is None or more is None:
        return None
    return partial(_copy_model, type(value), held.copy, parts, value.__pydantic_fields_set__.copy, more)


def _nothing() -> None:
    return None


def _copy_model(kind: type, held: Maker, parts: Sequence[tuple[Any, Maker]], fields: Maker, extra: Maker) -> Any:
    made: Any = _make(kind)
    copied = held()
    for key, make in parts:
        copied[key] = make()
    _set(made, "__dict__", copied)
    _set_fields(made, fields())
    _set_extra(made, extra())
    _set_private(made, None)
    return made


_copied_kinds: dict[type, bool] = {}


def _is_copied(kind: Any) -> bool:
    known = _copied_kinds.get(kind)
    if known is None:
        is_made_plainly = issubclass(kind, BaseModel) and (
            kind.__init__ is _BASE.__init__ or kind.__module__.startswith("langchain_core.")
        )
        known = _copied_kinds[kind] = (
            is_made_plainly
            and is_plain_model(kind)
            and kind.__new__ is object.__new__
            and kind.model_post_init is _BASE.model_post_init
        )
    return known


_NEVER: Any = object()
_ONCE: Any = object()
_VALUE_SIZE_BYTES = 512
"""What a value takes beyond its bytes."""


class Decoded:
    """What one reading after another decodes, each by the serialiser of its time."""

    def __init__(self) -> None:
        self._last: DecodedBy | None = None

    def by(self, codec: Codec) -> DecodedBy:
        """Return what was decoded by a serialiser that would decode as this one does."""
        last = self._last
        if last is None or not last.holds_for(codec):
            last = self._last = DecodedBy(codec)
        return last


class DecodedBy:
    """What is decoded a second time is kept, and copied from then on. For several OS threads.

    Args:
        codec: what decodes.
        size_bytes_max: of what is kept, roughly; all of it is forgotten when there is more.

    """

    def __init__(self, codec: Codec, size_bytes_max: int = 16 * 1024 * 1024) -> None:
        self.codec = codec
        self._of = _what_decodes(codec)
        self._size_bytes_max = size_bytes_max
        self._size = 0
        self._makers: dict[bytes, Any] = {}

    def holds_for(self, codec: Codec) -> bool:
        """Whether that would decode as what has decoded this."""
        return all(now is then for now, then in zip(_what_decodes(codec), self._of, strict=True))

    def expect(self, reads: Iterable[Read]) -> None:
        """Say what will be decoded next: what occurs in it twice is kept at once."""
        seen: set[bytes] = set()
        for read in reads:
            if isinstance(read, list):
                for part in read:
                    if part.data in seen and part.data not in self._makers:
                        self._note(part)
                    seen.add(part.data)

    def items(self, part: Joined) -> list[Any]:
        """Return the values of a part, for the caller to do with what he likes."""
        found = self._makers.get(part.data, _NEVER)
        if type(found) is list:
            return [*map(call, found)]
        values = self.codec.decode_items(part)
        if found is _NEVER:
            self._note(part)
        elif found is _ONCE:
            self._makers[part.data] = makers = _makers(values)
            if makers is not None:
                return [*map(call, makers)]
        return values

    def _note(self, part: Joined) -> None:
        """Remember that it was decoded, or is about to be."""
        size_bytes = len(part.data) + _VALUE_SIZE_BYTES * part.number
        self._size += size_bytes
        if self._size > self._size_bytes_max:
            self._makers.clear()
            self._size = size_bytes
        self._makers[part.data] = _ONCE


def _what_decodes(codec: Codec) -> tuple[object, ...]:
    names = ("_allowed_msgpack_modules", "_unpack_ext_hook")
    return codec.serde, *(getattr(codec.serde, name, None) for name in names)


def _makers(values: Sequence[Any]) -> list[Callable[[], Any]] | None:
    """Return makers of values that are nobody else's from now on; None if one of them cannot be copied."""
    made = [maker(value) for value in values]
    return None if None in made else [make for make in made if make is not None]
