"""A compact form of LangChain's messages, as items of lists.

LangGraph's serialiser repeats the name of a message's class, the names of its fields, and empty fields, which takes 150
to 230 bytes. This module stores the number of the class, a bit for each field that does not have its default value, and
these fields' values. An id that is a UUID is stored as 16 bytes. A message that is not exactly in the serialiser's form
stays as it is.

The form is a msgpack extension of code 82 with an array: the number of the class, the bits of the fields, then the
values, the id first. So code that walks msgpack finds each text and may replace it. An extension of code 82 from a
serialiser is stored as the array of number 0 and that extension.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from statelog.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Split = Callable[[bytes], list[bytes] | None]
    """Returns the encoded items of a msgpack array, or None for anything else."""

_CODE, _OBJECT_CODE = b"\x52", b"\x05"
"""Extension codes of a short message, and of an object built from its fields: [module, name, fields, method]."""
_WIDTHS = {0xC7: 1, 0xC8: 2, 0xC9: 4}
"""The width in bytes of an extension's size field, by the first byte of the extension."""
_SIZES_MIN = {1: 0, 2: 1 << 8, 4: 1 << 16}
"""The smallest size that needs a size field of this width, by the width."""
_FIXMAP, _ARRAY, _FIXED_COUNT_MAX = 0x80, 0x90, 15
_FIXED_MAX = 0x7F
"""The greatest number that msgpack encodes in one byte."""
_UINT16 = b"\xcd"
_ESCAPED = b"\x00"
_NIL, _MAP, _LIST, _ANY = b"\xc0", b"\x80", b"\x90", b""
_TEXT_WIDTHS = {0xD9: 1, 0xDA: 2, 0xDB: 4}

_UUID_BYTES, _UUID_SIZE = b"\xc4\x10", 18
_UUID = re.compile(rb"\xd9\$[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UUID_TEXT = b"\xd9$%b-%b-%b-%b-%b"


def _text(text: str) -> bytes:
    data = text.encode()
    return (bytes([0xA0 | len(data)]) if len(data) < 32 else bytes([0xD9, len(data)])) + data


class _Form(NamedTuple):
    """The bytes with which the serialiser writes the messages of one class."""

    number: int
    """The number that stands for the class in files. It must never change."""
    before: bytes
    """The bytes before the content."""
    keys: list[bytes]
    usual: list[bytes]
    """The default value of each key. A default is not stored."""
    between: bytes
    """The bytes between content and id if all values there are defaults."""
    behind: bytes
    """The bytes after the id if all values there are defaults."""
    alone: bytes
    """The bytes before the content of a message that stores only its content."""
    with_id: bytes
    """The bytes before the id and the content of a message that stores only these two."""


_METHOD = _text("model_validate_json")
_CONTENT, _ID = _text("content"), _text("id")
_ID_PLACE = 5
_OF_CONTENT, _OF_ID = 1, 1 << _ID_PLACE
_CALLS = (("tool_calls", _LIST), ("invalid_tool_calls", _LIST), ("usage_metadata", _NIL))


def _form(number: int, module: str, name: str, type_: str, *more: tuple[str, bytes]) -> _Form:
    empty = [("additional_kwargs", _MAP), ("response_metadata", _MAP), ("type", _text(type_)), ("name", _NIL)]
    fields = [(_text(key), value) for key, value in (("content", _ANY), *empty, ("id", _NIL), *more)]
    names = _text(f"langchain_core.messages.{module}") + _text(name)
    return _Form(
        number,
        b"\x94" + names + bytes([_FIXMAP | len(fields)]) + _CONTENT,
        [key for key, _value in fields],
        [value for _key, value in fields],
        b"".join([key + value for key, value in fields[1:_ID_PLACE]]) + _ID,
        b"".join([key + value for key, value in fields[_ID_PLACE + 1 :]]) + _METHOD,
        bytes([0x93, number, _OF_CONTENT]),
        bytes([0x94, number, _OF_CONTENT | _OF_ID]),
    )


_FORMS = (
    _form(1, "human", "HumanMessage", "human"),
    _form(2, "ai", "AIMessage", "ai", *_CALLS),
    _form(3, "tool", "ToolMessage", "tool", ("tool_call_id", _ANY), ("artifact", _NIL), ("status", _text("success"))),
    _form(4, "system", "SystemMessage", "system"),
    _form(5, "ai", "AIMessageChunk", "AIMessageChunk", *_CALLS, ("tool_call_chunks", _LIST), ("chunk_position", _NIL)),
)
_BY_NUMBER = {bytes([form.number]): form for form in _FORMS}
_USUAL = {form.alone: (form, True) for form in _FORMS} | {form.with_id: (form, False) for form in _FORMS}
"""Maps the first bytes of a short message to its form, and to a bool.

The bool is True if the message has only a text, and False if it also has an id.
"""
_UNUSUAL = (None, False)
_SAME = slice(0, 35)
"""The beginning of `before`, which differs between the forms."""
_BY_BEGINNING = {form.before[_SAME]: form for form in _FORMS}


def is_short(data: bytes) -> bool:
    """Return True if a msgpack value is a message in its short form."""
    width = _WIDTHS.get(data[0], 0) if data else 0
    return width > 0 and data[1 + width : 2 + width] == _CODE


def shorten(data: bytes, split: Split) -> bytes:
    """Return the short form of a msgpack message. Return any other value unchanged."""
    width = _WIDTHS.get(data[0], 0)
    if not width:
        return data
    at = 2 + width
    code, size = data[at - 1 : at], len(data) - at
    if code == _CODE:
        return _extension(_CODE, b"\x92" + _ESCAPED + data)
    form = _BY_BEGINNING.get(data[at : at + _SAME.stop]) if code == _OBJECT_CODE else None
    is_exact = size == int.from_bytes(data[1 : at - 1]) and size >= _SIZES_MIN[width]
    if form is None or not is_exact or not data.startswith(form.before, at):
        return data
    # Most messages have only a text, or a text and an id.
    start = at + len(form.before)
    first = data[start]
    width = _TEXT_WIDTHS.get(first, 0)
    end = start + 1 + width + (int.from_bytes(data[start + 1 : start + 1 + width]) if width else first & 31)
    if (width or 0xA0 <= first < 0xC0) and data.startswith(form.between, end) and data.endswith(form.behind):
        id = data[end + len(form.between) : len(data) - len(form.behind)]
        body = b""
        if id == _NIL:
            body = form.alone + data[start:end]
        elif _UUID.fullmatch(id):
            digits = id[2:].replace(b"-", b"").decode()
            body = form.with_id + _UUID_BYTES + bytes.fromhex(digits) + data[start:end]
        size = len(body)
        if 0 < size < 1 << 8:
            return b"\xc7" + size.to_bytes(1) + _CODE + body
        if size:
            return _extension(_CODE, body)
    values = _values(form, data, at, split)
    return data if values is None else _extension(_CODE, _array([bytes([form.number]), *values]))


def _values(form: _Form, data: bytes, at: int, split: Split) -> list[bytes] | None:
    """Return the bits and the values of a message, or None if it is not in the serialiser's form."""
    start = at + len(form.before)
    fields = split(_array_head(2 * len(form.keys)) + _CONTENT + data[start : -len(_METHOD)])
    if fields is None or fields[::2] != form.keys or not data.endswith(_METHOD):
        return None
    bits = 0
    given: list[bytes] = []
    for place, (value, usual) in enumerate(zip(fields[1::2], form.usual, strict=True)):
        if value != usual:
            bits |= 1 << place
            if place != _ID_PLACE:
                given.append(value)
            elif value.startswith(_UUID_BYTES):
                return None
            elif _UUID.fullmatch(value):
                given.insert(0, _UUID_BYTES + bytes.fromhex(value[2:].replace(b"-", b"").decode()))
            else:
                given.insert(0, value)
    return [bytes([bits]) if bits <= _FIXED_MAX else _UINT16 + bits.to_bytes(2), *given]


def lengthen(data: bytes, split: Split) -> bytes:
    """Return the original value of a short form, like `lengthen_all`."""
    return lengthen_all((data,), split)[0]


def lengthen_all(values: Sequence[bytes], split: Split) -> list[bytes]:
    """Return the original values of short forms, byte for byte. Other values are returned unchanged.

    Raises:
        FormatError: a value was stored by a newer release.
    """
    made = []
    for data in values:
        at = 2 + _WIDTHS.get(data[0], -1) if data else 0
        if data[at - 1 : at] != _CODE:
            made.append(data)
            continue
        form, is_alone = _USUAL.get(data[at : at + 3], _UNUSUAL)
        start = at + 3
        id = _NIL
        if form is not None and not is_alone:
            if data.startswith(_UUID_BYTES, start):
                digits = data[start + 2 : start + _UUID_SIZE].hex().encode()
                start += _UUID_SIZE
                id = _UUID_TEXT % (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
            else:
                form = None
        if form is None:
            made.append(_lengthen_others(data, at, split))
            continue
        body = b"".join((form.before, data[start:], form.between, id, form.behind))
        size = len(body)
        if size < 1 << 8:
            made.append(b"\xc7" + size.to_bytes(1) + _OBJECT_CODE + body)
        elif size < 1 << 16:
            made.append(b"\xc8" + size.to_bytes(2) + _OBJECT_CODE + body)
        else:
            made.append(_extension(_OBJECT_CODE, body))
    return made


def _lengthen_others(data: bytes, at: int, split: Split) -> bytes:
    parts = split(data[at:])
    if parts is None:
        return data
    if parts[0] == _ESCAPED:
        return parts[1]
    form, values = _of_number(parts[0]), parts[2:]
    bits = int.from_bytes(parts[1][-2:])
    if bits >> _ID_PLACE & 1:
        id = values.pop(0)
        values.insert((bits & (1 << _ID_PLACE) - 1).bit_count(), _text_of_uuid(id))
    fragments = _around(form.number, bits)
    body = [*chain.from_iterable(zip(fragments, values, strict=False)), fragments[-1]]
    return _extension(_OBJECT_CODE, b"".join(body))


@lru_cache(maxsize=256)
def _around(number: int, bits: int) -> list[bytes]:
    """Return the bytes before each stored value, and the bytes after the last one."""
    form = _of_number(bytes([number]))
    fragments = [form.before.removesuffix(_CONTENT)]
    for place, (key, usual) in enumerate(zip(form.keys, form.usual, strict=True)):
        fragments[-1] += key
        if bits >> place & 1:
            fragments.append(b"")
        else:
            fragments[-1] += usual
    fragments[-1] += _METHOD
    return fragments


def _of_number(number: bytes) -> _Form:
    form = _BY_NUMBER.get(number)
    if form is None:
        message = f"a message of class {number.hex()} was stored by a newer release of statelog"
        raise FormatError(message, number=number[0])
    return form


def _text_of_uuid(id: bytes) -> bytes:
    """Return an id in the serialiser's form. An id that is not a UUID is already stored in this form."""
    if not id.startswith(_UUID_BYTES):
        return id
    digits = id[2:].hex().encode()
    return _UUID_TEXT % (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])


def _array_head(count: int) -> bytes:
    return bytes([_ARRAY | count]) if count <= _FIXED_COUNT_MAX else b"\xdc" + count.to_bytes(2)


def _array(items: Sequence[bytes]) -> bytes:
    return b"".join([_array_head(len(items)), *items])


def _extension(code: bytes, body: bytes) -> bytes:
    """Return an extension with the shortest head."""
    size = len(body)
    if size < 1 << 8:
        return b"\xc7" + size.to_bytes(1) + code + body
    return (b"\xc8" + size.to_bytes(2) if size < 1 << 16 else b"\xc9" + size.to_bytes(4)) + code + body
