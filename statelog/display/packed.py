"""Shows values that a framework's serialiser has packed.

Showing a value does not import any module that its bytes name. An object is shown as the name of its constructor and
its fields. If the name is a class of secrets, such as pydantic's `SecretStr`, `HIDDEN_VALUE` replaces the fields.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from statelog.display.short_messages import lengthen
from statelog.redaction import HIDDEN_VALUE, names_credential, names_secret

MSGPACK = "msgpack"
SERIALISED = "serialised"
"""The names of the codecs whose values this module shows."""

SNAPSHOT = b"\xc1"
"""The first item of a list that is LangGraph's snapshot of a DeltaChannel. No msgpack item begins with this byte."""
CUT = SNAPSHOT + SNAPSHOT
"""The beginning of a cut value's first item. A cut value is a list: a header, then the items of the value's lists.
"""
QUARANTINED_CODE = 81
"""The msgpack extension code of a text that a check of a guard hides: [QUARANTINED_NAME, reason, check, text]."""
QUARANTINED_NAME = "statelog/quarantined"
_SIZE = struct.Struct(">I")
_DEPTH_MAX = 128
_SINGLE_ARGUMENT = 0
"""LangGraph's msgpack extension code for an object that wraps one value, such as a secret or an enum member."""
_TEXT_CHARACTERS_MAX = 500
"""The maximum number of characters that an object's repr shows of a string."""


class Coded:
    """A value in the form in which a codec stores it. Each subclass defines `stored`."""

    __slots__ = ()

    @property
    def stored(self) -> tuple[str, Any]:
        """The name of the codec, and the stored data."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError with the way to read the value."""
        message = (
            f"{type(self).__name__!r} object has no attribute {name!r}, because it is a value in its stored form."
            " repr() shows it. What wrote it returns the object, for example graph.get_state() with a StatelogSaver"
        )
        raise AttributeError(message, name=name, obj=self)


@dataclass(frozen=True, slots=True)
class Constructed:
    """An object as its bytes describe it: the constructor's name and its arguments."""

    name: str
    fields: dict[str, Any] | tuple[Any, ...]

    @property
    def short_name(self) -> str:
        """The name without its module."""
        return self.name.rpartition(".")[2]

    @property
    def given(self) -> list[tuple[str, Any]]:
        """The fields that are not empty, with their names. A positional argument has an empty name."""
        if not isinstance(self.fields, dict):
            return [("", value) for value in self.fields]
        return [(name, value) for name, value in self.fields.items() if value is not None and value not in ([], {})]

    def __repr__(self) -> str:
        """Return the object as a Python call. Long strings are cut."""
        told = (f"{name}={_short(value)}" if name else _short(value) for name, value in self.given)
        return f"{self.short_name}({', '.join(told)})"


def _short(value: object) -> str:
    if isinstance(value, str | bytes) and len(value) > _TEXT_CHARACTERS_MAX:
        return f"{value[:_TEXT_CHARACTERS_MAX]!r}…"
    return repr(value)


def unpacked(value: Any) -> Any:
    """Return a readable form of a value that one of this module's codecs has stored. Return any other value unchanged.

    The codec need not be registered in this process. A value that was cut into the items of a list is joined.
    """
    codec, payload = value.stored if isinstance(value, Coded) else ("", None)
    if codec == MSGPACK and isinstance(payload, bytes):
        return shown_msgpack(lengthen(payload, _split))
    if codec == SERIALISED and isinstance(payload, list) and len(payload) == 2:
        return shown_serialised(*payload)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes) and len(value) > 0 and _is_cut(value[0]):
        return shown_msgpack(put_together(b"".join([lengthen(each.stored[1], _split) for each in value])))
    return value


def _is_cut(first: Any) -> bool:
    """Return True if a list that begins with this item is a value that was cut."""
    codec, payload = first.stored if isinstance(first, Coded) else ("", None)
    return codec == MSGPACK and isinstance(payload, bytes) and payload.startswith(CUT)


def shown_msgpack(data: bytes) -> Any:
    """Decode msgpack bytes to plain types and `Constructed`. If the bytes are not msgpack, return only their size.

    Bytes in an unknown form may contain a secret.
    """
    if data == SNAPSHOT:
        return Constructed("DeltaSnapshot", ())
    value, end = None, -1
    with suppress(IndexError, ValueError, UnicodeDecodeError, struct.error, TypeError):  # The data is not msgpack.
        value, end = _read(data, 0, 0)
    return value if end == len(data) else Constructed(MSGPACK, {"size_bytes": len(data)})


def shown_serialised(type_: str, data: bytes) -> Any:
    """Return a readable form of a value packed by a different serialiser.

    Show only its type and size if it is not bytes.
    """
    if type_ == "null":
        return None
    if type_ in ("bytes", "bytearray"):
        return data
    return Constructed(str(type_), {"size_bytes": len(data)})


def mended_header(header: bytes, items: Sequence[bytes], made: Sequence[bytes], whole: bytes) -> bytes:
    """Return the header of a value that was cut into items, after the items have changed.

    Args:
        header: the old header.
        items: the old items.
        made: the new items.
        whole: the new value as a whole. The bytes around its items are taken from it.

    Raises:
        ValueError: the new value does not consist of the new items.
    """
    at = len(CUT)
    (count,) = _SIZE.unpack_from(header, at)
    sizes = []
    around: list[bytes] = []
    next_item = end = 0
    start = 0
    for (number,) in _SIZE.iter_unpack(header[at + _SIZE.size : at + (1 + count) * _SIZE.size]):
        if not number & 1:
            sizes.append(-1)
            continue
        size, first = number >> 1, next_item
        while size > 0:
            size -= len(items[next_item])
            next_item += 1
        group = b"".join(made[first:next_item])
        start = whole.index(group, end)
        if sizes[-1:] == [-1]:
            around.append(whole[end:start])
            sizes[-1] = (start - end) << 1
        end = start + len(group)
        sizes.append(len(group) << 1 | 1)
    if sizes[-1:] == [-1]:
        around.append(whole[end:])
        sizes[-1] = (len(whole) - end) << 1
    new = CUT + _SIZE.pack(count) + b"".join(map(_SIZE.pack, sizes)) + b"".join(around)
    if put_together(new + b"".join(made)) != whole:
        message = "these items do not make up the value"
        raise ValueError(message)
    return new


def put_together(data: bytes) -> bytes:
    """Join the header of a cut value and the items after it, and return the whole value."""
    at = len(CUT) + _SIZE.size
    (count,) = _SIZE.unpack_from(data, len(CUT))
    sizes = [_SIZE.unpack_from(data, at + _SIZE.size * number)[0] for number in range(count)]
    at += _SIZE.size * count
    item_at = at + sum(size >> 1 for size in sizes if not size & 1)
    parts: list[bytes] = []
    for size in sizes:
        if size & 1:
            parts.append(data[item_at : item_at + (size >> 1)])
            item_at += size >> 1
        else:
            parts.append(data[at : at + (size >> 1)])
            at += size >> 1
    return b"".join(parts)


# --- msgpack, for display ------------------------------------------------------------

_NUMBERS = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
_SINGLES = {0xC0: None, 0xC2: False, 0xC3: True}
_SIZES = {
    0xD9: ("text", 1),
    0xDA: ("text", 2),
    0xDB: ("text", 4),
    0xC4: ("bytes", 1),
    0xC5: ("bytes", 2),
    0xC6: ("bytes", 4),
    0xDC: ("list", 2),
    0xDD: ("list", 4),
    0xDE: ("dict", 2),
    0xDF: ("dict", 4),
    0xC7: ("extension", 1),
    0xC8: ("extension", 2),
    0xC9: ("extension", 4),
}
_FIXED = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}


def _split(data: bytes) -> list[bytes] | None:
    """Return the encoded items of a list. Raises what `_read` raises."""
    kind = data[0]
    at = 1 if kind < 0xDC else 3
    items = []
    while at < len(data):
        end = _read(data, at, 0)[1]
        items.append(data[at:end])
        at = end
    return items


def _read(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    """Decode a value. Return the value and the offset after it.

    Raises ValueError, IndexError and others if the data is not msgpack.
    """
    if depth > _DEPTH_MAX:
        raise ValueError(depth)
    first = data[at]
    at += 1
    if first < 0x80:
        return first, at
    if first >= 0xE0:
        return first - 0x100, at
    if first in _SINGLES:
        return _SINGLES[first], at
    if first in _NUMBERS:
        form = _NUMBERS[first]
        end = at + struct.calcsize(form)
        return struct.unpack(form, data[at:end])[0], end
    if first < 0xC0:
        kind, size = (
            ("dict", first & 15) if first < 0x90 else ("list", first & 15) if first < 0xA0 else ("text", first & 31)
        )
    elif first in _FIXED:
        kind, size = "extension", _FIXED[first]
    else:
        kind, width = _SIZES.get(first, ("", 0))
        size = int.from_bytes(data[at : at + width], "big")
        at += width
    return _read_sized(data, at, kind, size, depth)


def _read_sized(data: bytes, at: int, kind: str, size: int, depth: int) -> tuple[Any, int]:
    if kind == "list":
        items = []
        for _ in range(size):
            item, at = _read(data, at, depth + 1)
            items.append(item)
        return items, at
    if kind == "dict":
        members = {}
        for _ in range(size):
            key, at = _read(data, at, depth + 1)
            members[key if isinstance(key, str) else repr(key)], at = _read(data, at, depth + 1)
        return members, at
    end = at + size + (kind == "extension")
    if not kind or end > len(data):
        raise ValueError(kind)
    if kind == "extension":
        return _extension(data[at], data[at + 1 : end], depth + 1), end
    return (data[at:end].decode() if kind == "text" else data[at:end]), end


def quarantined_text(check: str, reason: str) -> str:
    """Return the string that replaces a hidden value in places that allow only a string."""
    return f"[QUARANTINED by {check}: {reason}]"


def _extension(code: int, data: bytes, depth: int) -> Any:
    """Return the value of a msgpack extension of LangGraph's serialiser: an object's parts, a snapshot or an array."""
    if code == QUARANTINED_CODE:
        value, _end = _read(data, 0, depth)
        return quarantined_text(value[2], value[1])
    value, end = _read(data, 0, depth)
    if end == len(data):
        if code == 7:
            return Constructed("DeltaSnapshot", (value,))
        if code == 6 and isinstance(value, list) and len(value) == 4:
            return Constructed(
                "numpy.ndarray", {"dtype": value[0], "shape": value[1], "order": value[2], "data": value[3]}
            )
        if isinstance(value, list) and len(value) > 2 and all(isinstance(name, str) for name in value[:2]):
            name = f"{value[0]}.{value[1]}"
            fields = tuple(value[2]) if code == 1 and isinstance(value[2], list) else value[2]
            if names_credential(name) if code == _SINGLE_ARGUMENT else names_secret(name):
                fields = HIDDEN_VALUE
            return Constructed(name, fields if isinstance(fields, dict | tuple) else (fields,))
    return Constructed(f"extension {code}", (data,))
