"""Codecs of everyday values: dates, durations, paths, addresses, numpy numbers, pydantic URLs.

A value is stored as tag 27 with a name that begins with `statelog/`, and a payload of plain values. A release that does
not know the name refuses it, like any unknown codec.

Classes are recognised by name, and a module is imported when one of its values is decoded. So numpy, pydantic and rare
Python modules cost nothing until they are used.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
from datetime import date, time, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from statelog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

PREFIX = "statelog/"
"""The prefix of the names of these codecs. User codecs must not have this prefix."""

PAIRS = "statelog/pairs"
"""The codec name of a dict with a key that is not a str. The payload is a list [key, value, key, value, ...] in the
order of the keys' bytes.
"""


QUARANTINED = "statelog/quarantined"
"""The codec name of a value that a guard's check has hidden. The payload is [reason, check, value]."""


class LossyError(ValueError):
    """The error of a value that could not be restored exactly. The message states the reason."""


class Codec(NamedTuple):
    """A codec, which converts values of some classes to plain values and back.

    Args:
        name: the name in the file.
        encode: returns the plain value. Raises LossyError.
        decode: the inverse of `encode`. Raises one of `FAILURES` if `encode` could not have returned the plain value.
            The plain value is not trusted, so `decode` checks its types first. Many Python constructors accept more
            than is safe, such as `bytearray(300_000_000)`.
        module: the module that `decode` imports; empty if it is always available.
    """

    name: str
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    module: str = ""


FAILURES = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RecursionError, MemoryError, re.error)
"""The errors that `decode` may raise if a payload does not fit its codec."""


def _typed(payload: Any, kind: type[T]) -> T:
    """Return the payload if its type is exactly `kind`. Raise TypeError if it is not."""
    if type(payload) is not kind:
        message = f"its payload is a {type(payload).__name__}, where a {kind.__name__} is expected"
        raise TypeError(message)
    return payload


def _listed(payload: Any) -> list[Any]:
    """Return a payload that should be a list. Inside a set, cbor2 decodes a list as a tuple. Raises TypeError."""
    return list(payload) if type(payload) is tuple else _typed(payload, list)


def _parts(payload: Any, *kinds: type) -> list[Any]:
    """Return the items of a payload if they have exactly these types. Raises TypeError, ValueError."""
    return [_typed(part, kind) for part, kind in zip(_listed(payload), kinds, strict=True)]


def _encode_time(value: time) -> str:
    offset = value.utcoffset()
    if value.fold and offset is None:
        raise LossyError("it has a fold, but no time zone")
    if offset is None and value.tzinfo is not None:
        raise LossyError("its time zone has no fixed offset")
    if offset is not None and offset.microseconds:
        raise LossyError("its UTC offset has a fraction of a second")
    return value.isoformat()


def _encode_zone(value: Any) -> str:
    if value.key is None:
        raise LossyError("the time zone has no key")
    return str(value.key)


def _decode_zone(payload: Any) -> object:
    name = _typed(payload, str)
    try:
        return _find("zoneinfo", "ZoneInfo")(name)
    except (LookupError, OSError) as error:  # The host that wrote the value knows a time zone that this host lacks.
        message = f"a stored value has the time zone {name!r}, which this host does not know: update its tzdata"
        raise UsageError(message, codec="statelog/zone") from error


_FLAGS = sum({re.ASCII, re.IGNORECASE, re.LOCALE, re.MULTILINE, re.DOTALL, re.UNICODE, re.VERBOSE, re.DEBUG})


def _decode_pattern(payload: Any) -> object:
    pattern, flags = _listed(payload)
    kind: Any = bytes if type(pattern) is bytes else str
    if _typed(flags, int) & ~_FLAGS:
        message = f"{flags} are not valid flags of a pattern"
        raise ValueError(message)
    return re.compile(_typed(pattern, kind), flags)


def _decode_deque(payload: Any) -> object:
    items, length_max = _listed(payload)
    kept = None if length_max is None else _typed(length_max, int)
    return _find("collections", "deque")(_listed(items), kept)


def _by_class(module: str, *names: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return `encode` and `decode` for classes that can be created from their `str`.

    The plain value is [class name, string].
    """

    def decode(payload: Any) -> object:
        name, text = _parts(payload, str, str)
        if name not in names:
            message = f"{name!r} is not a class of {module}"
            raise ValueError(message)
        return _find(module, name)(text)

    return lambda value: [type(value).__name__, str(value)], decode


def _find(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _made_of_text(module: str, name: str) -> Callable[[Any], Any]:
    def decode(payload: Any) -> object:
        return _find(module, name)(_typed(payload, str))

    return decode


def _pairs(payload: Any) -> dict[Any, Any]:
    payload = _listed(payload)
    return dict(zip(payload[::2], payload[1::2], strict=True))


# --- numpy --------------------------------------------------------------------------


_DTYPE = r"[<>|=]?[?biufcSUmM]\d*(?:\[\w+\])?"
_EMPTY_ITEM_SIZE_BYTES_MAX = 1024 * 1024


def _dtype_text(value: Any) -> str:
    kind = value.dtype
    if kind.hasobject or kind.names or kind.subdtype or kind.kind not in "?biufcSUmM":
        raise LossyError("its dtype has fields, objects, or a kind without a fixed form")
    text: str = kind.newbyteorder("<").str
    return text


def _raw(value: Any, dtype: str) -> bytes:
    # The bytes are in C order and little endian, so equal arrays have equal bytes.
    data: bytes = value.astype(dtype, copy=False).tobytes()
    return data


def _encode_array(value: Any) -> list[Any]:
    dtype = _dtype_text(value)
    return [dtype, list(value.shape), _raw(value, dtype)]


def _encode_scalar(value: Any) -> list[Any]:
    dtype = _dtype_text(value)
    return [dtype, _raw(value, dtype)]


def _decode_array(payload: Any) -> Any:
    dtype, shape, data = _listed(payload)
    if not re.fullmatch(_DTYPE, _typed(dtype, str)):
        message = f"{dtype!r:.40} is not a dtype of a stored array"
        raise ValueError(message)
    numpy = importlib.import_module("numpy")
    stored = numpy.dtype(dtype)
    if not data and stored.itemsize > _EMPTY_ITEM_SIZE_BYTES_MAX:  # numpy allocates an item even for an empty array.
        message = f"it is an empty array whose items have {stored.itemsize} bytes"
        raise ValueError(message)
    flat = (
        numpy.frombuffer(_typed(data, bytes), stored) if data else numpy.empty(0, stored)
    )  # `frombuffer` refuses empty bytes.
    if stored.kind == "U" and data and flat.view(stored.byteorder + "u4").max() > sys.maxunicode:
        message = "it contains a number that is not a valid code point"
        raise ValueError(message)
    return flat.reshape([_typed(size, int) for size in _listed(shape)]).astype(
        stored.newbyteorder("=")
    )  # The copy makes the array writable.


def _decode_scalar(payload: Any) -> Any:
    dtype, data = _parts(payload, str, bytes)
    if dtype in ("<U0", "|S0") and not data.strip(b"\0"):  # numpy cannot create arrays of these types from bytes.
        return importlib.import_module("numpy").dtype(dtype).type()
    return _decode_array([dtype, [1], data])[0]


# --- the table -----------------------------------------------------------------------

_ADDRESSES = ("IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network", "IPv4Interface", "IPv6Interface")
_URLS = (
    *("AnyUrl", "AnyHttpUrl", "HttpUrl", "AnyWebsocketUrl", "WebsocketUrl", "FileUrl", "FtpUrl", "PostgresDsn"),
    *("CockroachDsn", "AmqpDsn", "RedisDsn", "MongoDsn", "KafkaDsn", "NatsDsn", "MySQLDsn", "MariaDBDsn"),
    *("ClickHouseDsn", "SnowflakeDsn"),
)
_MICROSECOND = timedelta(microseconds=1)


def _decode_quarantined(payload: Any) -> object:
    reason, check, value = _listed(payload)
    return _find("statelog.format.quarantined", "Quarantined")(_typed(check, str), _typed(reason, str), value)


_CODECS: dict[str, Codec] = {
    "datetime.date": Codec("statelog/date", date.isoformat, lambda payload: date.fromisoformat(_typed(payload, str))),
    "datetime.time": Codec("statelog/time", _encode_time, lambda payload: time.fromisoformat(_typed(payload, str))),
    "datetime.timedelta": Codec(
        "statelog/timedelta",
        lambda value: value // _MICROSECOND,
        lambda payload: _typed(payload, int) * _MICROSECOND,
    ),
    "zoneinfo.ZoneInfo": Codec("statelog/zone", _encode_zone, _decode_zone),
    "builtins.complex": Codec(
        "statelog/complex",
        lambda value: [value.real, value.imag],
        lambda payload: complex(*_parts(payload, float, float)),
    ),
    "builtins.bytearray": Codec("statelog/bytearray", bytes, lambda payload: bytearray(_typed(payload, bytes))),
    "fractions.Fraction": Codec(
        "statelog/fraction",
        lambda value: [value.numerator, value.denominator],
        lambda payload: _find("fractions", "Fraction")(*_parts(payload, int, int)),
    ),
    "re.Pattern": Codec("statelog/pattern", lambda value: [value.pattern, value.flags], _decode_pattern),
    "collections.deque": Codec("statelog/deque", lambda value: [list(value), value.maxlen], _decode_deque),
    "pathlib.PosixPath": Codec("statelog/path", str, _made_of_text("pathlib", "Path")),
    "statelog.format.quarantined.Quarantined": Codec(QUARANTINED, lambda value: value.payload(), _decode_quarantined),
    **dict.fromkeys(
        ("pathlib.PurePosixPath", "pathlib.PureWindowsPath"),
        Codec("statelog/pure-path", *_by_class("pathlib", "PurePosixPath", "PureWindowsPath")),
    ),
    **dict.fromkeys(
        map("ipaddress.{}".format, _ADDRESSES),
        Codec("statelog/address", *_by_class("ipaddress", *_ADDRESSES)),
    ),
    **dict.fromkeys(
        map("pydantic.networks.{}".format, _URLS),
        Codec("statelog/url", *_by_class("pydantic", *_URLS), "pydantic"),
    ),
    **dict.fromkeys(
        ("pydantic_core.Url", "pydantic_core.MultiHostUrl"),
        Codec("statelog/core-url", *_by_class("pydantic_core", "Url", "MultiHostUrl"), "pydantic_core"),
    ),
}
_ARRAY = Codec("statelog/array", _encode_array, _decode_array, "numpy")
_SCALAR = Codec("statelog/scalar", _encode_scalar, _decode_scalar, "numpy")
_BY_NAME = {codec.name: codec for codec in (*_CODECS.values(), _ARRAY, _SCALAR, Codec(PAIRS, list, _pairs))}

_HOMES = {"pathlib._local": "pathlib", "pydantic_core._pydantic_core": "pydantic_core"}
"""Maps internal modules to public ones. Some releases name the internal module as the module of a class."""


def full_name(kind: type) -> str:
    """Return a class's name with its module, except for builtins."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def codec_of(kind: type) -> Codec | None:
    """Return the codec of a class, or None. A subclass does not inherit the codec of its base."""
    return _codec_of(kind)


@functools.lru_cache(maxsize=1024)
def _codec_of(kind: type) -> Codec | None:
    if kind.__module__ == "numpy":
        numpy: Any = sys.modules["numpy"]
        if kind is numpy.ndarray:
            return _ARRAY
        return _SCALAR if issubclass(kind, numpy.generic) else None
    home = _HOMES.get(kind.__module__, kind.__module__)
    found = _CODECS.get(f"{home}.{kind.__qualname__}")
    # Check the class itself, because a user's class may have the same name.
    return found if found is not None and getattr(sys.modules.get(home), kind.__qualname__, None) is kind else None


@functools.lru_cache(maxsize=256)
def codec_named(name: str) -> Codec | None:
    """Return the codec called `name`, or None if it does not exist or its module is not installed."""
    codec = _BY_NAME.get(name)
    if codec is not None and codec.module:
        try:
            importlib.import_module(codec.module)
        except ImportError:
            return None
    return codec


def needs(name: str) -> str:
    """Return the name of the module that the codec `name` needs. It is empty if the codec needs none or is unknown."""
    codec = _BY_NAME.get(name)
    return "" if codec is None else codec.module
