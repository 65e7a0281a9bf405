"""Copies of what was decoded, as good as decoded anew, for checkpoints that are listed together and share most.

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

    from statelog.adapters.langgraph.values import Joined, Read

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


class Prototypes:
    """What lists of several checkpoints share, decoded once."""

    def __init__(self, decode: Callable[[Joined], list[Any]]) -> None:
        self._decode = decode
        self._makers: dict[bytes, list[Callable[[], Any]] | None] = {}
        self._shared: set[bytes] = set()

    def expect(self, reads: Iterable[Read]) -> None:
        """Say what will be decoded next: what occurs in it once is not worth a copy."""
        seen: set[bytes] = set()
        shared: set[bytes] = set()
        for read in reads:
            if isinstance(read, list):
                for part in read:
                    (shared if part.data in seen else seen).add(part.data)
        self._shared = shared
        self._makers = {data: makers for data, makers in self._makers.items() if data in seen}

    def items(self, part: Joined) -> list[Any]:
        """Return the values of a part, for the caller to do with what he likes."""
        makers = self._makers.get(part.data)
        if makers is None:
            values = self._decode(part)
            if part.data not in self._shared or part.data in self._makers:
                return values
            made = [maker(value) for value in values]
            makers = None if None in made else [make for make in made if make is not None]
            self._makers[part.data] = makers
            if makers is None:
                return values
        return [*map(call, makers)]
