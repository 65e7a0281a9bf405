"""Copies decoded values instead of decoding them again, for checkpoints that share most of their values.

A copy shares nothing mutable with its original. Only lists with messages of LangChain's own classes are worth it and
safe to copy. A user's class may run any code when an object is created (validators, defaults, registries), and its name
may later mean a different class, so such values are decoded each time. So are deep values and values of many pieces.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from operator import call, is_not
from typing import TYPE_CHECKING, Any
from uuid import UUID

from langchain_core.messages import BaseMessage
from pydantic import BaseModel

from statelog.adapters.langgraph.values.codec import read_whole
from statelog.adapters.langgraph.values.frozen import is_plain_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from statelog.adapters.kit.items import Stored
    from statelog.adapters.langgraph.values.codec import Joined, Read, ValueCodec

Maker = Any
"""A function without arguments that returns a copy."""

_IMMUTABLE = frozenset([str, bytes, int, bool, float, type(None), datetime, date, timedelta, UUID, Decimal])
_BASE: Any = BaseModel
_set = object.__setattr__
_make = object.__new__
_set_fields: Any = BaseModel.__dict__["__pydantic_fields_set__"].__set__
_set_extra: Any = BaseModel.__dict__["__pydantic_extra__"].__set__
_set_private: Any = BaseModel.__dict__["__pydantic_private__"].__set__

_DEPTH_MAX = 32
_PIECES_MAX = 16
"""Decoding a value of more pieces (non-empty dicts, lists and models) is as fast as copying it."""


class Making:
    """Makes functions that return copies of values that nobody changes.

    Attributes:
        pieces: the number of dicts, lists and models that these functions copy.
    """

    def __init__(self, pieces_max: int) -> None:
        self.pieces = 0
        self._pieces_max = pieces_max

    def maker(self, value: Any, depth: int = 0) -> Callable[[], Any] | None:
        """Return a function that copies a value, or None if copying is not safe or not worth it."""
        kind: Any = type(value)
        if kind in _IMMUTABLE:
            return partial(_same, value)
        self.pieces += 1
        if depth > _DEPTH_MAX or self.pieces > self._pieces_max:
            return None
        if kind is dict:
            return self._dict_maker(value, depth)
        if kind is list:
            return self._list_maker(value, depth)
        if _is_copied(kind) and value.__pydantic_private__ is None:
            return self._model_maker(value, depth)
        return None

    def _parts(self, members: Iterable[tuple[Any, Any]], depth: int) -> list[tuple[Any, Callable[[], Any]]] | None:
        """Return makers of the mutable members, by key or position, or None if one cannot be copied."""
        found = []
        for key, member in members:
            if type(member) not in _IMMUTABLE:
                made = self.maker(member, depth + 1)
                if made is None:
                    return None
                found.append((key, made))
        return found

    def _dict_maker(self, value: dict[Any, Any], depth: int) -> Callable[[], Any] | None:
        if not value:
            self.pieces -= 1
            return dict
        parts = self._parts(value.items(), depth) if all(type(key) in _IMMUTABLE for key in value) else None
        if parts is None:
            return None
        return partial(_copy_with, value, parts) if parts else value.copy

    def _list_maker(self, value: list[Any], depth: int) -> Callable[[], Any] | None:
        if not value:
            self.pieces -= 1
            return list
        parts = self._parts(enumerate(value), depth)
        if parts is None:
            return None
        return partial(_copy_with, value, parts) if parts else value.copy

    def _model_maker(self, value: Any, depth: int) -> Callable[[], Any] | None:
        held = value.__dict__
        parts = self._parts(held.items(), depth)
        extra = value.__pydantic_extra__
        more = _nothing if extra is None else self._dict_maker(extra, depth)
        if parts is None or more is None:
            return None
        return partial(_copy_model, type(value), held.copy, parts, value.__pydantic_fields_set__.copy, more)


def _same(value: Any) -> Any:
    return value


def _copy_with(value: Any, parts: Sequence[tuple[Any, Callable[[], Any]]]) -> Any:
    copied = value.copy()
    for key, make in parts:
        copied[key] = make()
    return copied


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


@lru_cache(maxsize=64)
def _is_copied(kind: Any) -> bool:
    return (
        issubclass(kind, BaseMessage)
        and kind.__module__.startswith("langchain_core.messages.")
        and is_plain_model(kind)
        and kind.__new__ is object.__new__
        and kind.model_post_init is _BASE.model_post_init
    )


_NEVER: Any = object()
_ONCE: Any = object()
_VALUE_SIZE_BYTES = 512
"""The assumed memory of a value in addition to its bytes, and of each of its pieces."""


CACHE_SIZE_BYTES = 64 * 1024 * 1024
"""The default size of the cache."""


class Decoded:
    """The cache of values that several reads decode. A serialiser that decodes differently gets a new cache."""

    def __init__(self, size_bytes_max: int = CACHE_SIZE_BYTES) -> None:
        self._size_bytes_max = size_bytes_max
        self._last: DecodedBy | None = None

    def by(self, codec: ValueCodec) -> DecodedBy:
        """Return the cache for `codec`. It is new if the last codec decoded differently."""
        last = self._last
        if last is None or any(map(is_not, last.of, what_decodes(codec))):
            last = self._last = DecodedBy(codec, self._size_bytes_max)
        return last


class _ListParts(dict[bytes, "Joined"]):
    """Parts of lists as they were read, by digest. Versions of a list share all parts except the last ones."""

    def __init__(self, take: Callable[[int], None]) -> None:
        super().__init__()
        self._take = take

    def __setitem__(self, digest: bytes, part: Joined) -> None:
        self._take(len(part.data))
        super().__setitem__(digest, part)


class DecodedBy:
    """A thread-safe cache of parts that were read. Values that were decoded twice are copied from then on.

    Args:
        codec: the codec that decodes.
        size_bytes_max: the approximate size at which the cache is cleared.
    """

    def __init__(self, codec: ValueCodec, size_bytes_max: int = CACHE_SIZE_BYTES) -> None:
        self.codec = codec
        self.of = what_decodes(codec)
        self._size_bytes_max = size_bytes_max
        self._size = 0
        self._makers: dict[bytes, Any] = {}
        self._parts = _ListParts(self._take)

    def read(self, stored: Stored) -> Read:
        """Return a stored value with all its parts."""
        return read_whole(stored, self._parts)

    def read_all(self, stored: Mapping[str, Stored]) -> dict[str, Read]:
        """Return the values of several channels with all their parts."""
        parts = self._parts
        return {name: each if type(each) is bytes else read_whole(each, parts) for name, each in stored.items()}

    def expect(self, reads: Iterable[Read]) -> None:
        """Announce the values that will be decoded next. A part that occurs twice is cached at its first use."""
        seen: set[bytes] = set()
        for read in reads:
            if isinstance(read, list):
                for part in read:
                    if part.data in seen and part.data not in self._makers:
                        self._note(part)
                    seen.add(part.data)

    def items(self, part: Joined) -> list[Any]:
        """Return the values of a part. The caller may change them."""
        found = self._makers.get(part.data, _NEVER)
        if type(found) is list:
            return [*map(call, found)]
        values = self.codec.decode_items(part)
        if found is _NEVER:
            self._note(part)
        elif found is _ONCE:
            makers = self._keep(part, values)
            if makers is not None:
                return [*map(call, makers)]
        return values

    def _note(self, part: Joined) -> None:
        """Remember that a part was decoded or is about to be."""
        self._take(len(part.data) + _VALUE_SIZE_BYTES * part.number)
        self._makers[part.data] = _ONCE

    def _keep(self, part: Joined, values: Sequence[Any]) -> list[Callable[[], Any]] | None:
        """Remember and return makers of values, or None if one has no maker. Nobody else may use the values."""
        making = Making(_PIECES_MAX * len(values))
        is_worth_it = any(isinstance(value, BaseMessage) for value in values)
        made = [making.maker(value) for value in values] if is_worth_it else [None]
        makers = None if None in made else [make for make in made if make is not None]
        if makers is not None:
            self._take(_VALUE_SIZE_BYTES * making.pieces)
        self._makers[part.data] = makers
        return makers

    def _take(self, size_bytes: int) -> None:
        self._size += size_bytes
        if self._size > self._size_bytes_max:
            self._makers.clear()
            self._parts.clear()
            self._size = size_bytes


def what_decodes(codec: ValueCodec) -> tuple[object, object, object]:
    """Return everything that affects what a serialiser decodes."""
    serde = codec.serde
    return serde, getattr(serde, "_allowed_msgpack_modules", None), getattr(serde, "_unpack_ext_hook", None)
