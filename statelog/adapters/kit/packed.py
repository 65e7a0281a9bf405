"""Values that a framework's serialiser has packed, in their stored form, and how to show them.

Showing a value does not import any module that its bytes name. An object is shown as the name of its constructor and
its fields. If the name is that of a secret, such as pydantic's `SecretStr`, `HIDDEN_VALUE` replaces the fields.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from statelog import register_codec
from statelog.redaction import HIDDEN_VALUE, names_credential, names_secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Constructed", "Packed", "Serialised"]

MSGPACK = "msgpack"
SERIALISED = "serialised"
SNAPSHOT = b"\xc1"
"""In place of the first item of a list: the list is what LangGraph stores of a DeltaChannel. In msgpack no item begins
so."""
CUT = SNAPSHOT + SNAPSHOT
"""Likewise: the list is the items of lists in a value that is none, behind what stands around these."""
_SIZE = struct.Struct(">I")
_DEPTH_MAX = 128
_SINGLE_ARGUMENT = 0
"""The msgpack extension code of an object that wraps one value, such as a secret or an enum member, in LangGraph."""


@dataclass(frozen=True, slots=True)
class Packed:
    """One item of msgpack."""

    data: bytes

    def __repr__(self) -> str:
        """Return a text with the size only, because the bytes may contain a secret."""
        return f"<msgpack, {len(self.data):,} bytes>"

    def shown(self) -> Any:
        """Return what it says, of plain types and `Constructed`; itself if it is no msgpack."""
        if self.data == SNAPSHOT:
            return Constructed("DeltaSnapshot", ())
        try:
            value, end = _read(self.data, 0, 0)
        except (IndexError, ValueError, UnicodeDecodeError, struct.error, TypeError):
            return self.data
        return value if end == len(self.data) else self.data


@dataclass(frozen=True, slots=True)
class Serialised:
    """What a serialiser made that is no msgpack: how it names it, and the bytes."""

    type: str
    data: bytes

    def __repr__(self) -> str:
        """Return a text with type and size only, as `Packed` does."""
        return f"<{self.type}, {len(self.data):,} bytes>"

    def shown(self) -> Any:
        """Return it as far as it can be told without its serialiser."""
        if self.type == "null":
            return None
        if self.type in ("bytes", "bytearray"):
            return self.data
        return Constructed(self.type, {"size_bytes": len(self.data)})


@dataclass(frozen=True, slots=True)
class Constructed:
    """An object as its bytes tell of it: the constructor's name, and what it was given."""

    name: str
    fields: dict[str, Any] | tuple[Any, ...]

    @property
    def short_name(self) -> str:
        """The name without its module."""
        return self.name.rpartition(".")[2]


# --- values that were cut ----------------------------------------------------------


def cut_header(pieces: Sequence[tuple[bool, Sequence[bytes]]]) -> bytes:
    """Return what stands before the items: their sizes together, and what stands around them.

    Args:
        pieces: of the value, those between two lists together, and those of a list; True with these.

    """
    sizes = b"".join([_SIZE.pack(sum(map(len, those)) << 1 | is_item) for is_item, those in pieces])
    around = b"".join([piece for is_item, those in pieces if not is_item for piece in those])
    return CUT + _SIZE.pack(len(pieces)) + sizes + around


def put_together(data: bytes) -> bytes:
    """Return the value of a header with all items behind it: inverse of a cut."""
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


def is_cut(first: Any) -> bool:
    """Whether a list that begins with an item is a value that was cut."""
    return isinstance(first, Packed) and first.data.startswith(CUT)


def in_one(items: Iterable[Any]) -> Packed:
    """Return the value that was cut into the items of a list."""
    return Packed(put_together(b"".join([item.data for item in items])))


register_codec(Packed, name=MSGPACK, encode=lambda packed: packed.data, decode=Packed)
register_codec(
    Serialised, name=SERIALISED, encode=lambda value: [value.type, value.data], decode=lambda pair: Serialised(*pair)
)


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


def _read(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    """Return (value, offset behind it). Raises ValueError, IndexError and others for what is no msgpack."""
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


def _extension(code: int, data: bytes, depth: int) -> Any:
    """Return what LangGraph's serialiser means by an extension: [module, name, fields, ...]; a snapshot; an array."""
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
