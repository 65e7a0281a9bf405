"""The CBOR profile of FORMAT.md section 7: each value has exactly one encoding, and each encoding one value.

This module has its own encoder. The profile orders keys as in RFC 8949 section 4.2.1, preserves tuples, and refuses
values that it could not restore exactly. No available encoder does this, and some crash on deep nesting. A kernel
encodes plain values of moderate size. This module encodes the other values, member by member, and finds the errors. The
library cbor2 decodes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

import cbor2

from statelog.errors import CorruptionError, LimitError, StatelogError, UsageError
from statelog.format import everyday
from statelog.format.interrupts_in_decoders import is_about_bytes, unwrapped
from statelog.format.unstorable import Refusals, has_twins, holds_nan, is_lossy, is_uuid
from statelog.kernels import encode_plain
from statelog.limits import DEPTH_MAX, INTEGER_BITS_MAX, KEY_SIZE_BYTES_MAX, VALUE_SIZE_BYTES_MAX

if TYPE_CHECKING:
    from uuid import UUID

R = TypeVar("R")
T = TypeVar("T")

TAG_TUPLE = 51300
TAG_FROZENSET = 51301
TAG_DATETIME = 51302
TAG_DECIMAL = 51303
TAG_CODEC = 27

TUPLE_PREFIX = b"\xd9\xc8\x64"
FROZENSET_PREFIX = b"\xd9\xc8\x65"
SET_PREFIX = b"\xd9\x01\x02"
_DATETIME_PREFIX = b"\xd9\xc8\x66"
_DECIMAL_PREFIX = b"\xd9\xc8\x67"
_UUID_PREFIX = b"\xd8\x25\x50"
_CODEC_PREFIX = b"\xd8\x1b\x82"
PAIRS_PREFIX = _CODEC_PREFIX + b"\x6e" + everyday.PAIRS.encode()
"""The first bytes of an encoded dict with a key that is not a str."""

_SHAPES_MAX = 1024
_SHAPE_KEYS_MAX = 32
_SHAPE_TEXT_MAX = 512
_shapes: dict[tuple[str, ...], tuple[tuple[str, bytes], ...]] = {}
"""A cache that maps the tuple of a dict's keys to these keys in encoded order, with their bytes."""

_codecs_by_type: dict[type, tuple[str, Callable[[Any], Any]]] = {}
_codecs_by_name: dict[str, Callable[[Any], Any]] = {}


class _Refused(Exception):  # noqa: N818 - it never leaves this module
    """An internal error: a value cannot be stored. `Refusals.locate` then finds its path."""


def head(major: int, argument: int) -> bytes:
    """Return the shortest head of a CBOR item."""
    first = major << 5
    if argument < 24:
        return bytes((first | argument,))
    if argument < 0x100:
        return bytes((first | 24, argument))
    if argument < 0x10000:
        return struct.pack(">BH", first | 25, argument)
    if argument < 0x1_0000_0000:
        return struct.pack(">BI", first | 26, argument)
    return struct.pack(">BQ", first | 27, argument)


_TEXT_HEADS = tuple(head(3, size) for size in range(1024))
_ARRAY_HEADS = tuple(head(4, size) for size in range(256))
_MAP_HEADS = tuple(head(5, size) for size in range(64))
_SMALL_INTS = tuple(head(0, number) for number in range(1024))


def _encode_none(_value: None, _depth: int) -> bytes:
    return b"\xf6"


def _encode_bool(value: bool, _depth: int) -> bytes:  # noqa: FBT001 - the table of encoders calls it
    return b"\xf5" if value else b"\xf4"


def _encode_int(value: int, _depth: int) -> bytes:
    if 0 <= value < 1024:
        return _SMALL_INTS[value]
    magnitude = value if value >= 0 else -1 - value
    if magnitude < 1 << 64:
        return head(0 if value >= 0 else 1, magnitude)
    if magnitude.bit_length() > INTEGER_BITS_MAX:
        raise _Refused
    size = (magnitude.bit_length() + 7) // 8
    return (b"\xc2" if value >= 0 else b"\xc3") + head(2, size) + magnitude.to_bytes(size, "big")


def encode_unsigned(number: int) -> bytes:
    """Return the item of an unsigned 64-bit number."""
    return _SMALL_INTS[number] if number < 1024 else head(0, number)


def _encode_float(value: float, _depth: int) -> bytes:
    if math.isnan(value):
        return b"\xf9\x7e\x00"
    try:
        half = struct.pack(">e", value)
        if struct.unpack(">e", half)[0] == value:
            return b"\xf9" + half
    except OverflowError:
        pass
    try:
        single = struct.pack(">f", value)
        if struct.unpack(">f", single)[0] == value:
            return b"\xfa" + single
    except OverflowError:
        pass
    return b"\xfb" + struct.pack(">d", value)


def _encode_str(value: str, _depth: int) -> bytes:
    data = value.encode()
    size = len(data)
    return (_TEXT_HEADS[size] if size < 1024 else head(3, size)) + data


def _encode_bytes(value: bytes, _depth: int) -> bytes:
    return head(2, len(value)) + value


def _encode_list(value: list[Any], depth: int) -> bytes:
    if depth >= DEPTH_MAX:
        raise _Refused
    below = depth + 1
    size = len(value)
    parts = [_ARRAY_HEADS[size] if size < 256 else head(4, size)]
    parts += [encode_plain(item, below) or _encoders[type(item)](item, below) for item in value]
    return b"".join(parts)


def _encode_tuple(value: tuple[Any, ...], depth: int) -> bytes:
    return TUPLE_PREFIX + _encode_list(value, depth)  # type: ignore[arg-type]  # It has the same elements.


def _shape(keys: tuple[Any, ...]) -> tuple[tuple[str, bytes], ...]:
    encoded = []
    for key in keys:
        item = _encode_str(key, 0)
        if len(item) > KEY_SIZE_BYTES_MAX:
            raise _Refused
        encoded.append((key, item))
    encoded.sort(key=_second)
    shape = tuple(encoded)
    if len(keys) <= _SHAPE_KEYS_MAX and sum(map(len, keys)) <= _SHAPE_TEXT_MAX:
        if len(_shapes) >= _SHAPES_MAX:
            _shapes.clear()
        _shapes[keys] = shape
    return shape


def _second(pair: tuple[str, bytes]) -> bytes:
    return pair[1]


_TEXT_ONLY = frozenset((str,))


def _encode_dict(value: dict[str, Any], depth: int) -> bytes:
    if depth >= DEPTH_MAX:
        raise _Refused
    below = depth + 1
    keys = tuple(value)
    shape = _shapes.get(keys)
    # An instance of a subclass of str may equal a cached key, so check the type each time.
    if not _TEXT_ONLY.issuperset(map(type, keys)):
        return _encode_pairs(value, depth)
    if shape is None:
        shape = _shape(keys)
    size = len(keys)
    parts = [_MAP_HEADS[size] if size < 64 else head(5, size)]
    for key, item in shape:
        member = value[key]
        kind = type(member)
        if kind is str:  # This inlines `_encode_str`, because most members are strings.
            data = member.encode()
            size = len(data)
            parts += (item, _TEXT_HEADS[size] if size < 1024 else head(3, size), data)
        else:
            parts += (item, encode_plain(member, below) or _encoders[kind](member, below))
    return b"".join(parts)


def _encode_pairs(value: dict[Any, Any], depth: int) -> bytes:
    """Encode a dict that has a key other than a str as pairs, in the order of the keys' bytes."""
    below = depth + 2  # Two lists surround the members: the list of the codec and the list of pairs.
    if below > DEPTH_MAX:
        raise _Refused
    pairs = sorted((_encoders[type(key)](key, below), member) for key, member in value.items())
    items = [key for key, _member in pairs]
    if any(len(item) > KEY_SIZE_BYTES_MAX for item in items) or has_twins(items) or any(map(holds_nan, value)):
        raise _Refused
    parts = [PAIRS_PREFIX, head(4, 2 * len(pairs))]
    for key, member in pairs:
        parts += (key, _encoders[type(member)](member, below))
    return b"".join(parts)


def _encode_elements(prefix: bytes, value: set[Any] | frozenset[Any], depth: int) -> bytes:
    if depth >= DEPTH_MAX:
        raise _Refused
    items = sorted(_encoders[type(element)](element, depth + 1) for element in value)
    # A NaN does not equal itself, so a set may contain it twice, and its encoding would not be unique.
    if any(len(item) > KEY_SIZE_BYTES_MAX for item in items) or has_twins(items) or any(map(holds_nan, value)):
        raise _Refused
    return prefix + head(4, len(items)) + b"".join(items)


def _encode_set(value: set[Any], depth: int) -> bytes:
    return _encode_elements(SET_PREFIX, value, depth)


def _encode_frozenset(value: frozenset[Any], depth: int) -> bytes:
    return _encode_elements(FROZENSET_PREFIX, value, depth)


def _encode_datetime(value: datetime, depth: int) -> bytes:
    if is_lossy(value):
        raise _Refused
    return _DATETIME_PREFIX + _encode_str(value.isoformat(), depth)


def _encode_decimal(value: Decimal, depth: int) -> bytes:
    return _DECIMAL_PREFIX + _encode_str(str(value), depth)


def _encode_uuid(value: UUID, _depth: int) -> bytes:
    return _UUID_PREFIX + value.bytes


def _codec_of(kind: type) -> tuple[str, Callable[[Any], Any]] | None:
    """Return the name and the encoder of a type's codec, which a user has registered or which is built in."""
    codec = _codecs_by_type.get(kind)
    if codec is not None:
        return codec
    found = everyday.codec_of(kind)
    return None if found is None else (found.name, found.encode)


def payload_of(value: object) -> tuple[str, Any] | None:
    """Return the name of a value's codec and the payload that the codec makes, or None if the value needs no codec."""
    codec = None if type(value) in _encoders else _codec_of(type(value))
    return None if codec is None else (codec[0], codec[1](value))


def _encode_registered(value: Any, depth: int) -> bytes:
    codec = _codec_of(type(value))
    if codec is None or depth >= DEPTH_MAX:
        raise _Refused
    try:
        payload = codec[1](value)
    except (everyday.LossyError, RecursionError) as error:
        raise _Refused from error
    return _CODEC_PREFIX + _encode_str(codec[0], depth) + _encoders[type(payload)](payload, depth + 1)


class _Encoders(dict[type, Callable[[Any, int], bytes]]):
    def __missing__(self, kind: type) -> Callable[[Any, int], bytes]:
        return _encode_uuid if is_uuid(kind) else _encode_registered


_encoders = _Encoders(
    {
        type(None): _encode_none,
        bool: _encode_bool,
        int: _encode_int,
        float: _encode_float,
        str: _encode_str,
        bytes: _encode_bytes,
        list: _encode_list,
        tuple: _encode_tuple,
        dict: _encode_dict,
        set: _encode_set,
        frozenset: _encode_frozenset,
        datetime: _encode_datetime,
        Decimal: _encode_decimal,
    }
)


_IMMUTABLE = frozenset((type(None), bool, int, float, str, bytes, datetime, Decimal))


def is_immutable(kind: type) -> bool:
    """Return True if values of this type cannot change. A type with a codec may be mutable, so return False for it."""
    return kind in _IMMUTABLE or is_uuid(kind)


def is_storable(kind: type) -> bool:
    """Return True if values of exactly this type can be stored and restored, with or without a codec."""
    return kind in _encoders or is_uuid(kind) or _codec_of(kind) is not None


def encode(value: object, *, path: str = "value", depth: int = 0, around: int = 0) -> bytes:
    """Return the canonical bytes of `value`. Equal values have equal bytes.

    Args:
        value: None, bool, int, float, str, bytes, list, dict, tuple, set, frozenset, datetime, UUID, Decimal, a type of
            `everyday`, or a type given to `register_codec`. Subclasses are refused, because they could not be restored.
        path: the name of `value` in errors.
        depth: the number of lists and dicts around `value` that `path` includes.
        around: the number of lists and dicts around `value` that `path` does not include.

    Raises:
        ValueTypeError: the type is not listed above, a NaN is in a set or a key, or a str has a lone surrogate.
        LimitError: the value is nested deeper than `DEPTH_MAX`, for example by a cycle, or is too large.
    """
    try:
        data = encode_plain(value, depth + around) or _encoders[type(value)](value, depth + around)
    except (_Refused, UnicodeEncodeError):
        Refusals(_encoders, _codec_of, DEPTH_MAX - around).locate(value, path, depth)
        message = f"{path}: changed while it was being stored"
        raise UsageError(message) from None
    if len(data) > VALUE_SIZE_BYTES_MAX:
        message = f"{path}: the value has {len(data)} bytes when encoded; at most {VALUE_SIZE_BYTES_MAX} are allowed"
        raise LimitError(message, path=path, actual=len(data), limit=VALUE_SIZE_BYTES_MAX)
    return data


_REGISTERED_BY = dict.fromkeys(("msgpack", "serialised"), "statelog.adapters.langgraph")
"""The modules of this library that register a codec when they are imported, keyed by the codec's name."""


def _decode_registered(value: Any, _immutable: bool) -> object:  # noqa: FBT001 - cbor2 calls it
    name, payload = value
    decoder = _decoder_named(name)
    if decoder is None:
        unknown = _unknown_codecs.get()
        if unknown is not None:
            unknown.add(name)
            from statelog.format.unregistered import Unregistered

            return Unregistered(name, payload)
        needed, module = everyday.needs(name), _REGISTERED_BY.get(name)
        why = f"and {needed} is not installed here" if needed else "which is not registered here"
        why += f": `import {module}` registers it" if module else ""
        message = f"a value was stored with the codec {name!r}, {why}"
        raise UsageError(message, codec=name)
    return _decoded(name, decoder, payload)


def _decoded(name: str, decoder: Callable[[Any], Any], payload: Any) -> object:
    """Return the value that a codec decodes from its payload.

    Raises:
        UsageError: the user's function fails, for example because the class has changed since the value was stored.
            Facts: codec.
        CorruptionError: the payload does not fit its built-in codec. Facts: codec.
    """
    try:
        return decoder(payload)
    except Exception as error:
        if isinstance(error, StatelogError) and name.startswith(everyday.PREFIX):  # This error already names its codec.
            raise
        told = f"{type(error).__name__}: {error}"
        if name.startswith(everyday.PREFIX):
            if not isinstance(error, everyday.FAILURES):  # A signal handler has raised this error.
                raise
            message = f"a stored value is not valid for its codec {name!r}: {told:.200}"
            raise CorruptionError(message, codec=name) from error
        message = f"the codec {name!r} cannot decode a stored value: {told:.200}"
        raise UsageError(message, codec=name) from error


def _decoder_named(name: str) -> Callable[[Any], Any] | None:
    if not name.startswith(everyday.PREFIX):
        return _codecs_by_name.get(name)
    codec = everyday.codec_named(name)
    return None if codec is None else codec.decode


_unknown_codecs: ContextVar[set[str] | None] = ContextVar("unknown_codecs", default=None)


@contextmanager
def reading_unregistered() -> Iterator[set[str]]:
    """Let `decode` return `Unregistered` for values of unregistered codecs. Yield the names of these codecs."""
    unknown: set[str] = set()
    token = _unknown_codecs.set(unknown)
    try:
        yield unknown
    finally:
        _unknown_codecs.reset(token)


def decoded_loosely(show: Callable[[T], R], value: T) -> R:
    """Call `show` on a value. In place of a value whose codec is not registered, `show` reads `Unregistered`."""
    with reading_unregistered():
        return show(value)


def _decode_if_registered(value: Any, _immutable: bool) -> object:  # noqa: FBT001 - cbor2 calls it
    name, payload = value
    decoder = _decoder_named(name)
    if decoder is not None:
        return _decoded(name, decoder, payload)
    from statelog.format.unregistered import Unregistered

    return Unregistered(name, payload)


def _keep_coded(value: Any, _immutable: bool) -> object:  # noqa: FBT001 - cbor2 calls it
    from statelog.format.unregistered import Unregistered

    return Unregistered(*value)


# Do not use a tag_hook of cbor2, because cbor2 passes it every list as a tuple.
_DECODERS = {
    TAG_TUPLE: lambda value, _immutable: tuple(value),
    TAG_FROZENSET: lambda value, _immutable: frozenset(value),
    TAG_DATETIME: lambda value, _immutable: datetime.fromisoformat(value),
    TAG_DECIMAL: lambda value, _immutable: Decimal(value),
    TAG_CODEC: _decode_registered,
}
_LOOSE_DECODERS = {**_DECODERS, TAG_CODEC: _decode_if_registered}
_STORED_DECODERS = {**_DECODERS, TAG_CODEC: _keep_coded}


def decode(data: bytes | memoryview, *, loosely: bool = False, as_stored: bool = False) -> Any:
    """Return the value of one item written by `encode`.

    The input must be one item of the profile whose digest, checksum or seal was checked. Check other bytes with
    `kernels.cbor_check` first.

    Args:
        data: the item.
        loosely: return `Unregistered` for a value of an unregistered codec.
        as_stored: return `Unregistered` for the value of every codec, so that all processes get the same result.

    Raises:
        CorruptionError: the bytes are not an item of the profile.
        UsageError: a codec of the value is not registered, or its function fails. Facts: codec.
    """
    decoders = _STORED_DECODERS if as_stored else _LOOSE_DECODERS if loosely else _DECODERS
    try:
        return cbor2.loads(data, semantic_decoders=decoders)
    except (ValueError, TypeError, ArithmeticError, cbor2.CBORDecodeError) as error:
        failure = unwrapped(error)
    if not is_about_bytes(failure):
        raise failure
    message = f"a stored value cannot be decoded: {failure}"
    raise CorruptionError(message) from failure


def decode_all(items: Sequence[bytes]) -> list[Any]:
    """Return the values of several items, like `decode`."""
    values = decode(head(4, len(items)) + b"".join(items))
    assert isinstance(values, list)
    return values


def register_codec(kind: type, *, name: str, encode: Callable[[Any], Any], decode: Callable[[Any], Any]) -> None:
    """Register a codec, so that values of exactly the type `kind` can be stored.

    Args:
        kind: the type.
        name: the name in the file. Decoding finds the codec by this name, so never change it.
        encode: returns a value of storable types for a value of the type.
        decode: the inverse of `encode`.

    Raises:
        UsageError: CBOR already encodes the type, or another codec has the type or the name.
    """
    for argument, value, what, fits in (
        ("kind", kind, "a class", isinstance(kind, type)),
        ("name", name, "a non-empty str", isinstance(name, str) and name != ""),
        ("encode", encode, "a function", callable(encode)),
        ("decode", decode, "a function", callable(decode)),
    ):
        if not fits:
            raise UsageError(f"{argument} must be {what}, not {value!r}", argument=argument, value=value)
    if kind in _encoders:
        message = f"{kind.__name__} is stored natively"
        raise UsageError(message)
    if name.startswith(everyday.PREFIX):
        message = (
            f"the codec name {name!r} begins with {everyday.PREFIX!r}, which is reserved for statelog: choose"
            " another name"
        )
        raise UsageError(message, codec=name)
    taken = _codecs_by_type.get(kind)
    if (taken is not None and taken[0] != name) or (taken is None and name in _codecs_by_name):
        message = f"the codec name {name!r} or the type {kind.__name__} is already registered"
        raise UsageError(message, codec=name)
    _codecs_by_type[kind] = (name, encode)
    _codecs_by_name[name] = decode


def __getattr__(name: str) -> Any:
    """Return the class `Unregistered`, which pickles of earlier releases look up in this module."""
    if name == "Unregistered":
        from statelog.format.unregistered import Unregistered

        return Unregistered
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
