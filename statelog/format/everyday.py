"""Codecs of everyday values: dates, durations, paths, addresses, numbers of numpy, URLs of pydantic.

A value lies in the file as tag 27 with a name that begins with `statelog/`, and a payload of plain values. So it
tells what it is. A release that does not know the name refuses it, as it refuses any codec.

Classes are told by name, and a module is imported when one of its values is read: numpy, pydantic and the rarer
modules of Python cost nothing where they are not used.
"""

from __future__ import annotations

import functools
import importlib
import sys
from dataclasses import dataclass
from datetime import date, time, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX = "statelog/"
"""Begins the name of each of these codecs, and of no codec of a user."""

PAIRS = "statelog/pairs"
"""A dict with a key that is no text, as a list [key, value, key, value, ...] in the order of the keys' bytes."""


class LossyError(ValueError):
    """A value that would not come back as it is; the message says why."""


@dataclass(frozen=True, slots=True)
class Codec:
    """How values of some classes become plain ones, and back.

    Args:
        name: what stands in the file.
        encode: value -> plain value. Raises LossyError.
        decode: plain value -> value. Raises ValueError or TypeError if it is none of `encode`.
        module: imported by `decode`; empty for none that could be missing.
    """

    name: str
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    module: str = ""


def _encode_time(value: time) -> str:
    offset = value.utcoffset()
    if value.fold and offset is None:
        raise LossyError("a fold without a zone")
    if offset is None and value.tzinfo is not None:
        raise LossyError("its zone has no fixed offset")
    if offset is not None and offset.microseconds:
        raise LossyError("an offset below a second")
    return value.isoformat()


def _encode_zone(value: Any) -> str:
    if value.key is None:
        raise LossyError("a zone without a name")
    return str(value.key)


def _by_class(module: str, *names: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return encode and decode of classes that are made of their own text: [class, text]."""

    def decode(payload: Any) -> object:
        name, text = payload
        if name not in names:
            message = f"{name!r} is no class of {module}"
            raise ValueError(message)
        return _find(module, name)(text)

    return lambda value: [type(value).__name__, str(value)], decode


def _find(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _made_of_text(module: str, name: str) -> Callable[[Any], Any]:
    def decode(text: str) -> object:
        return _find(module, name)(text)

    return decode


def _pairs(payload: list[Any]) -> dict[Any, Any]:
    return dict(zip(payload[::2], payload[1::2], strict=True))


# --- numpy --------------------------------------------------------------------------


def _dtype_text(value: Any) -> str:
    kind = value.dtype
    if kind.hasobject or kind.names or kind.subdtype or kind.kind not in "?biufcSUmM":
        raise LossyError("its dtype has fields, objects, or a kind without a fixed form")
    text: str = kind.newbyteorder("<").str
    return text


def _raw(value: Any, dtype: str) -> bytes:
    data: bytes = value.astype(dtype, copy=False).tobytes()  # in C order, little endian: equal arrays, equal bytes
    return data


def _encode_array(value: Any) -> list[Any]:
    dtype = _dtype_text(value)
    return [dtype, list(value.shape), _raw(value, dtype)]


def _encode_scalar(value: Any) -> list[Any]:
    dtype = _dtype_text(value)
    return [dtype, _raw(value, dtype)]


def _decode_array(payload: Any) -> Any:
    dtype, shape, data = payload
    numpy = importlib.import_module("numpy")
    stored = numpy.dtype(dtype)
    flat = numpy.frombuffer(data, stored) if data else numpy.empty(0, stored)  # frombuffer refuses no bytes at all
    return flat.reshape(shape).astype(stored.newbyteorder("="))  # a copy: it can be changed


def _decode_scalar(payload: Any) -> Any:
    dtype, data = payload
    return _decode_array([dtype, [1], data])[0]


# --- the table -----------------------------------------------------------------------

_ADDRESSES = ("IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network", "IPv4Interface", "IPv6Interface")
_URLS = (
    *("AnyUrl", "AnyHttpUrl", "HttpUrl", "AnyWebsocketUrl", "WebsocketUrl", "FileUrl", "FtpUrl", "PostgresDsn"),
    *("CockroachDsn", "AmqpDsn", "RedisDsn", "MongoDsn", "KafkaDsn", "NatsDsn", "MySQLDsn", "MariaDBDsn"),
    *("ClickHouseDsn", "SnowflakeDsn"),
)
_MICROSECOND = timedelta(microseconds=1)

_CODECS: dict[str, Codec] = {
    "datetime.date": Codec("statelog/date", date.isoformat, date.fromisoformat),
    "datetime.time": Codec("statelog/time", _encode_time, time.fromisoformat),
    "datetime.timedelta": Codec(
        "statelog/timedelta", lambda value: value // _MICROSECOND, lambda count: count * _MICROSECOND
    ),
    "zoneinfo.ZoneInfo": Codec("statelog/zone", _encode_zone, _made_of_text("zoneinfo", "ZoneInfo")),
    "builtins.complex": Codec(
        "statelog/complex", lambda value: [value.real, value.imag], lambda parts: complex(*parts)
    ),
    "builtins.bytearray": Codec("statelog/bytearray", bytes, bytearray),
    "fractions.Fraction": Codec(
        "statelog/fraction",
        lambda value: [value.numerator, value.denominator],
        lambda parts: _find("fractions", "Fraction")(*parts),
    ),
    "re.Pattern": Codec(
        "statelog/pattern", lambda value: [value.pattern, value.flags], lambda parts: _find("re", "compile")(*parts)
    ),
    "collections.deque": Codec(
        "statelog/deque",
        lambda value: [list(value), value.maxlen],
        lambda parts: _find("collections", "deque")(*parts),
    ),
    "pathlib.PosixPath": Codec("statelog/path", str, _made_of_text("pathlib", "Path")),
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
"""Modules by which some Pythons and releases name what they define: where else it is found."""


def full_name(kind: type) -> str:
    """Return a class's name with its module, but for those of Python that need none."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def codec_of(kind: type) -> Codec | None:
    """Return the codec of a class, None if it has none. A subclass of one that has is another class."""
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
    # A class of a user may call itself so.
    return found if found is not None and getattr(sys.modules.get(home), kind.__qualname__, None) is kind else None


@functools.lru_cache(maxsize=256)
def codec_named(name: str) -> Codec | None:
    """Return a codec by its name; None if there is none, or what it needs is not installed here."""
    codec = _BY_NAME.get(name)
    if codec is not None and codec.module:
        try:
            importlib.import_module(codec.module)
        except ImportError:
            return None
    return codec


def needs(name: str) -> str:
    """Return the module that a codec of this name needs; empty for none."""
    codec = _BY_NAME.get(name)
    return "" if codec is None else codec.module
