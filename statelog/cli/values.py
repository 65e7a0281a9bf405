"""Shows stored values to people and programs.

In JSON, types that JSON lacks become an object with one key that begins with `$`, from
which they can be read back:

    {"$bytes": base64}  {"$tuple": [...]}  {"$set": [...]}  {"$frozenset": [...]}
    {"$datetime": ISO 8601}  {"$uuid": text}  {"$decimal": text}
    {"$float": "nan" | "inf" | "-inf"}  {"$int": hexadecimal, beyond 64 bits}
    {"$dict": {...}}  a dict that looks like one of these forms
    {"$date": text}  {"$timedelta": microseconds}  {"$path": text} ...  see `format/everyday.py`
    {"$quarantined": {"check": name, "reason": text}}  a value quarantined by a guard's check: output only
    {"$pairs": [key, value, ...]}  a dict with a key that is not a str
    {"$repr": text}  an object of a registered codec: output only
    {"$codec": name, "payload": ...}  the encoded form of an object whose codec is not registered
    {"$object": constructor, "fields": ...}  an object packed by a framework's serialiser: output only
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from itertools import chain, islice
from typing import Any
from uuid import UUID

from statelog.adapters.kit.ordered import Json
from statelog.adapters.kit.packed import Packed, Serialised
from statelog.cli.text import ELLIPSIS, count, escape, shorten
from statelog.display.lines import written
from statelog.display.packed import Constructed, unpacked
from statelog.errors import UsageError, ValueTypeError
from statelog.format import cbor, everyday
from statelog.format.quarantined import Quarantined
from statelog.format.unregistered import Unregistered
from statelog.store.views import ListView, MapView

_TEXT_ONLY = frozenset((str,))
_INT_BITS_MAX = 64
_INT_BITS_SHOWN_MAX = 1024


def dump_json(document: object) -> str:
    """Return one line of JSON in ASCII, which is safe for every terminal and locale."""
    return json.dumps(document, ensure_ascii=True, allow_nan=False).replace("\x7f", "\\u007f")


# --- to JSON and back -------------------------------------------------------------


def to_json(value: Any) -> Any:
    """Return a value in a form that `json.dumps` accepts."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= _INT_BITS_MAX else {"$int": hex(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": str(value)}
    if isinstance(value, ListView | MapView):
        return to_json(value.to_python())
    if isinstance(value, list):
        whole = unpacked(value)
        return [to_json(item) for item in value] if whole is value else to_json(whole)
    if isinstance(value, dict):
        return _dict_to_json(value)
    if isinstance(value, Unregistered):
        return {"$codec": value.codec, "payload": to_json(value.shown)}
    return _object_to_json(value)


def _dict_to_json(value: dict[Any, Any]) -> dict[str, Any]:
    if not _TEXT_ONLY.issuperset(map(type, value)):
        return {"$pairs": [to_json(part) for pair in value.items() for part in pair]}
    plain = {key: to_json(item) for key, item in value.items()}
    return {"$dict": plain} if _looks_tagged(plain) else plain


def _object_to_json(value: Any) -> Any:
    kind: type[Any] = type(value)
    if kind in _ENCODERS:
        tag, encode = _ENCODERS[kind]
        return {tag: encode(value)}
    if kind in _SHOWN:
        return _SHOWN[kind](value)
    codec = everyday.codec_of(kind)
    if codec is not None:
        return {f"${codec.name.removeprefix(everyday.PREFIX)}": to_json(codec.encode(value))}
    return {"$repr": repr(value)}


def _looks_tagged(value: dict[str, Any]) -> bool:
    return len(value) == 1 and next(iter(value)).startswith("$")


def _elements(value: set[Any] | frozenset[Any]) -> list[Any]:
    """Return the elements in their stored order."""
    return sorted(value, key=_order)


def _order(element: object) -> bytes:
    try:
        return cbor.encode(element)
    except ValueTypeError:  # The codec of an element is not registered here.
        return repr(element).encode()


_ENCODERS: dict[type, tuple[str, Callable[[Any], Any]]] = {
    bytes: ("$bytes", lambda value: base64.b64encode(value).decode("ascii")),
    tuple: ("$tuple", lambda value: [to_json(item) for item in value]),
    set: ("$set", lambda value: [to_json(item) for item in _elements(value)]),
    frozenset: ("$frozenset", lambda value: [to_json(item) for item in _elements(value)]),
    datetime: ("$datetime", datetime.isoformat),
    UUID: ("$uuid", str),
    Decimal: ("$decimal", str),
}
_SHOWN: dict[type, Callable[[Any], Any]] = {
    Quarantined: lambda value: {"$quarantined": {"check": value.check, "reason": value.reason}},
    Json: lambda value: json.loads(value.text, parse_constant=lambda name: {"$float": str(float(name))}),
    Packed: lambda value: to_json(unpacked(value)),
    Serialised: lambda value: to_json(unpacked(value)),
    Constructed: lambda value: {"$object": value.name, "fields": to_json(value.fields)},
}

_DECODERS: dict[str, Callable[[Any], Any]] = {
    "$bytes": lambda text: base64.b64decode(text, validate=True),
    "$tuple": lambda items: tuple(from_json(item) for item in items),
    "$set": lambda items: {from_json(item) for item in items},
    "$frozenset": lambda items: frozenset(from_json(item) for item in items),
    "$datetime": datetime.fromisoformat,
    "$uuid": UUID,
    "$decimal": Decimal,
    "$float": float,
    "$int": lambda text: int(text, 16),
    "$dict": lambda members: {key: from_json(item) for key, item in members.items()},
}


def from_json(document: Any) -> Any:
    """Return the value of a JSON document. This is the inverse of `to_json`.

    Raises:
        UsageError: an object has an unknown `$` key, or content that does not fit the key.
    """
    if isinstance(document, list):
        return [from_json(item) for item in document]
    if not isinstance(document, dict):
        return document
    if not _looks_tagged(document):
        return {key: from_json(item) for key, item in document.items()}
    ((tag, content),) = document.items()
    decode = _DECODERS.get(tag) or _everyday_decoder(tag)
    if decode is None:
        message = f'unknown form {{"{tag}": ...}}; write a dict with that key as {{"$dict": {{"{tag}": ...}}}}'
        raise UsageError(message)
    try:
        return decode(content)
    except (ValueError, TypeError, ArithmeticError, AttributeError) as error:
        message = f"{tag} cannot be {json.dumps(content):.60}: {error or type(error).__name__}"
        raise UsageError(message) from error


def _everyday_decoder(tag: str) -> Callable[[Any], Any] | None:
    codec = everyday.codec_named(everyday.PREFIX + tag.removeprefix("$"))
    return None if codec is None else lambda payload: codec.decode(from_json(payload))


def parse_json(text: str, what: str = "the value") -> Any:
    """Return the value of a JSON string from a command line. Raises UsageError if the string is not JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        message = f"{what} is not valid JSON: {error}; a text needs quotes, such as '\"done\"'"
        raise UsageError(message, argument=what.rpartition(" ")[2], value=text) from None


# --- for people -------------------------------------------------------------------


def describe(value: object) -> str:
    """Return the type and the size of a value as a string."""
    value = unpacked(value)
    if isinstance(value, Constructed):
        return value.short_name
    if value is None:
        return "none"
    if isinstance(value, str):
        return f"text, {count(len(value), 'character')}"
    if isinstance(value, bytes):
        return f"bytes, {len(value):,}"
    if isinstance(value, Mapping):
        return f"dict, {count(len(value), 'key')}"
    if isinstance(value, ListView | list):
        return f"list, {count(len(value), 'item')}"
    if isinstance(value, tuple | set | frozenset):
        return f"{type(value).__name__}, {count(len(value), 'item')}"
    if isinstance(value, Unregistered):
        return f"codec {value.codec}, not registered"
    return type(value).__name__.lower()


def render(value: object, characters_max: int) -> str:
    """Return a value as a Python literal on one line, safe for a terminal.

    Only the shown part of a large value is read. An ellipsis replaces the rest.
    """
    parts: list[str] = []
    size = 0
    for part in _parts(value, characters_max):
        parts.append(part)
        size += len(part)
        if size > characters_max:
            return escape("".join(parts))[: max(characters_max - 1, 0)] + ELLIPSIS
    return escape("".join(parts))


def render_pairs(members: Mapping[str, Any], characters_max: int) -> str:
    """Return a dict as `node=search, step=3` on one line, safe for a terminal."""
    pairs = (
        f"{key[:characters_max]}={value[:characters_max] if isinstance(value, str) else render(value, characters_max)}"
        for key, value in islice(members.items(), characters_max)
    )
    return shorten(escape(", ".join(pairs)), characters_max)


def _parts(value: object, characters_max: int) -> Iterator[str]:
    value = unpacked(value)
    if isinstance(value, Json):
        value = value.value
    if isinstance(value, str | bytes):
        yield repr(value[: characters_max + 1])
    elif isinstance(value, int) and value.bit_length() > _INT_BITS_SHOWN_MAX:
        yield hex(value)  # Python refuses to write very long ints in decimal.
    elif isinstance(value, Mapping):
        members = (
            chain(_parts(key, characters_max), [": "], _parts(member, characters_max)) for key, member in value.items()
        )
        yield from _joined("{", members, "}")
    elif isinstance(value, ListView | list):
        yield from _joined("[", (_parts(item, characters_max) for item in value), "]")
    elif isinstance(value, tuple):
        end = ",)" if len(value) == 1 else ")"
        yield from _joined("(", (_parts(item, characters_max) for item in value), end)
    elif isinstance(value, set | frozenset):
        start, end = ("{", "}") if isinstance(value, set) and value else (f"{type(value).__name__}(", ")")
        yield from _joined(start, (_parts(item, characters_max) for item in _elements(value)), end)
    elif isinstance(value, datetime | UUID | Decimal):
        text = value.isoformat() if isinstance(value, datetime) else str(value)
        yield f"{type(value).__name__.lower()}({text})"
    else:
        yield from _object_parts(value, characters_max)


def _object_parts(value: object, characters_max: int) -> Iterator[str]:
    if isinstance(value, Unregistered):
        yield f"<{value.codec}: "
        yield from _parts(value.shown, characters_max)
        yield ">"
    elif isinstance(value, Constructed):
        yield from _constructed(value, characters_max)
    else:
        yield written(value, characters_max)


def _constructed(value: Constructed, characters_max: int) -> Iterator[str]:
    given = (chain([f"{name}="] if name else [], _parts(member, characters_max)) for name, member in value.given)
    yield from _joined(f"{value.short_name}(", given, ")")


def _joined(start: str, members: Iterator[Iterator[str]], end: str) -> Iterator[str]:
    yield start
    for number, member in enumerate(members):
        if number:
            yield ", "
        yield from member
    yield end
