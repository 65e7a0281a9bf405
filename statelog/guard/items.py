"""Walks encoded values, in CBOR and msgpack, and replaces secrets in texts.

Callers pass only values that may contain a secret.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Final, Protocol

from statelog.format import cbor
from statelog.redaction import names_secret

Path = tuple[str, ...]

_BYTES, _TEXT, _LIST, _DICT, _TAG = 2, 3, 4, 5, 6
_STRINGS = frozenset((_BYTES, _TEXT))
_SIZES = {24: 1, 25: 2, 26: 4, 27: 8}
_SETS = frozenset((258, 51301))
_CODEC = 27
_NULLS = frozenset((b"\xf4", b"\xf5", b"\xf6"))
"""The encodings of false, true and null, which are never secrets."""

_PACKED = b"\x67msgpack"
_PACKED_HEAD = b"\xd8\x1b\x82" + _PACKED
_PAIRS = b"\x6estatelog/pairs"
_SERIALISED = b"\x6aserialised"
"""The encoded name of the codec for data of LangGraph's serialisers. Such data has passed the guard already."""
_PACKED_HEADS = (_PACKED_HEAD, b"\xd8\x1b\x82" + _SERIALISED)
_LIBRARY = b"statelog/"
_WALKED = frozenset((_PAIRS, b"\x72statelog/bytearray", b"\x6estatelog/deque", b"\x74statelog/quarantined"))
"""Encoded names of codecs whose payloads can be redacted.

With any other codec, a secret value becomes a redaction as a whole.
"""


_PAIR = 2
_NAMES, _VALUE = (b"name", b"key"), b"value"
"""The keys of a dict that consists of a name and its value, as in a list of environment variables."""

_WIDE = re.compile(rb"(?:[ -~]\x00{1,3}){8,}|(?:\x00{1,3}[ -~]){8,}")
"""The pattern of a run of ASCII in UTF-16 or UTF-32, in either byte order."""


class PartRedactor(Protocol):
    """What a walk calls for each part of a value. `path` has the names that lead to the part."""

    def may_hold(self, data: bytes) -> bool:
        """Return False if bytes certainly contain no secret."""

    def names_field(self, path: Path) -> bool:
        """Return True if the guard declares every value at a path secret."""

    def hidden(self, data: bytes, path: Path) -> bytes:
        """Return the text that replaces a value that is a secret as a whole."""

    def redact_field(self, data: bytes, path: Path) -> bytes:
        """Redact the secrets in the text of a field. Return the same object if it has none."""

    def redact(self, data: bytes, path: Path) -> bytes:
        """Redact the secrets in a text. Return the same object if it has none."""

    def check_key(self, key: bytes, path: Path) -> None:
        """Raise SecretError if the key of a dict has a secret."""

    def refuse_if_found(self, data: bytes, path: Path, what: str) -> None:
        """Raise SecretError if bytes that cannot be changed have a secret."""


class _Unchanged:
    """A redactor that changes nothing, for a walk that only finds the end of a value."""

    def may_hold(self, _data: bytes) -> bool:
        return False

    def names_field(self, _path: Path) -> bool:
        return False

    def hidden(self, data: bytes, _path: Path) -> bytes:
        return data

    def redact_field(self, data: bytes, _path: Path) -> bytes:
        return data

    redact = redact_field

    def check_key(self, key: bytes, path: Path) -> None:
        pass

    def refuse_if_found(self, data: bytes, path: Path, what: str) -> None:
        pass


UNCHANGED = _Unchanged()


class NotMsgpackError(Exception):
    """The bytes are not exactly one msgpack value."""


def redact_item(item: bytes, path: Path, redactor: PartRedactor) -> bytes:
    """Return a CBOR item with the secrets in its texts redacted."""
    made, _end = _Cbor(item, redactor).value(0, path, is_secret=redactor.names_field(path))
    return made


def redact_packed(data: bytes, path: Path, redactor: PartRedactor) -> bytes:
    """Return a msgpack value with the secrets in its texts redacted. Raises NotMsgpackError."""
    try:
        made, end = Msgpack(data, redactor).value(0, path, is_secret=redactor.names_field(path))
    except (IndexError, RecursionError) as error:
        raise NotMsgpackError from error
    if end != len(data):
        raise NotMsgpackError
    return made


def redact_bytes(data: bytes, path: Path, redactor: PartRedactor) -> bytes:
    """Redact the secrets in bytes that are UTF-8 text or msgpack.

    Raises:
        SecretError: the bytes are neither and have a secret, whose removal would damage them; or a secret is in UTF-16
            or UTF-32.
    """
    if not redactor.may_hold(data):
        return redactor.redact_field(data, path)
    if b"\0" in data:
        for each in _WIDE.finditer(data):
            redactor.refuse_if_found(each[0].replace(b"\0", b""), path, "text in UTF-16 or UTF-32")
    try:
        data.decode()
    except UnicodeDecodeError:
        pass
    else:
        return redactor.redact_field(data, path)
    try:
        return redact_packed(data, path, redactor)
    except NotMsgpackError:
        redactor.refuse_if_found(data, path, "bytes that are neither text nor msgpack")
        return data


class _Walker(ABC):
    """Walks one encoded value, and replaces the secrets in it."""

    def __init__(self, data: bytes, redactor: PartRedactor) -> None:
        self._data = data
        self._redactor = redactor

    @abstractmethod
    def value(self, at: int, path: Path, *, is_secret: bool) -> tuple[bytes, int]:
        """Return the redacted value at the offset `at`, and the offset after the value."""

    @staticmethod
    @abstractmethod
    def is_string(item: bytes) -> bool:
        """Return True if an item is a str or bytes."""

    @staticmethod
    @abstractmethod
    def text_of(item: bytes) -> str:
        """Return an item for which `is_string` returns True as a str, for paths."""

    def _list(self, at: int, start: int, count: int, path: Path, *, is_secret: bool) -> tuple[bytes, int]:
        parts = [self._data[at:start]]
        for _ in range(count):
            made, start = self.value(start, path, is_secret=is_secret)
            parts.append(made)
        if count == _PAIR:
            parts[2] = self._beside(parts[1], parts[2], path, may_be_field=False)
        return b"".join(parts), start

    def _beside(self, name: bytes, item: bytes, path: Path, *, may_be_field: bool) -> bytes:
        """Redact a str or bytes. The item before it, `name`, is its name, as in a list of headers."""
        if not (self.is_string(name) and self.is_string(item)):
            return item
        below = (*path, self.text_of(name))
        is_secret = may_be_field and self._redactor.names_field(below)
        return type(self)(item, self._redactor).value(0, below, is_secret=is_secret)[0]


class _Cbor(_Walker):
    """A walk over one CBOR item."""

    @staticmethod
    def is_string(item: bytes) -> bool:
        """Return True if an item is a str or bytes."""
        return item[0] >> 5 in _STRINGS

    @staticmethod
    def text_of(item: bytes) -> str:
        """Return an item for which `is_string` returns True as a str, for paths."""
        return item[1 + _SIZES.get(item[0] & 31, 0) :].decode("utf-8", "replace")

    def head(self, at: int) -> tuple[int, int, int]:
        """Return major type, argument, and the offset after the head."""
        first = self._data[at]
        size = _SIZES.get(first & 31, 0)
        argument = int.from_bytes(self._data[at + 1 : at + 1 + size], "big") if size else first & 31
        return first >> 5, argument, at + 1 + size

    def value(self, at: int, path: Path, *, is_secret: bool) -> tuple[bytes, int]:
        """Return the redacted value at the offset `at`, and the offset after the value."""
        data, redactor = self._data, self._redactor
        major, argument, start = self.head(at)
        if major in _STRINGS:
            end = start + argument
            held = data[start:end]
            if is_secret:
                made = redactor.hidden(held, path)
            elif major == _TEXT:
                made = redactor.redact_field(held, path)
            else:
                made = redact_bytes(held, path, redactor)
            return (data[at:end] if made is held else cbor.head(major, len(made)) + made), end
        if major == _LIST:
            return self._list(at, start, argument, path, is_secret=is_secret)
        if major == _DICT:
            return self._dict(argument, start, path, is_secret=is_secret)
        if major == _TAG:
            return self._tagged(at, argument, start, path, is_secret=is_secret)
        item = data[at:start]
        made = redactor.hidden(item, path) if is_secret and item not in _NULLS else item
        return (item if made is item else _text(made)), start

    def _pairs(self, at: int, path: Path, *, is_secret: bool) -> tuple[bytes, int]:
        """Redact the encoded list of keys and values of a dict whose keys are not all strings."""
        _major, count, start = self.head(at)
        parts = [self._data[at:start]]
        for _ in range(0, count, 2):
            key_at = start
            start = _Cbor(self._data, UNCHANGED).value(start, path, is_secret=False)[1]
            key = self._data[key_at:start]
            self._redactor.check_key(key, path)
            is_named = key[0] >> 5 in _STRINGS
            below = (*path, self.text_of(key)) if is_named else path
            made, start = self.value(start, below, is_secret=is_secret or self._redactor.names_field(below))
            parts += (key, made)
        return b"".join(parts), start

    def _dict(self, count: int, at: int, path: Path, *, is_secret: bool) -> tuple[bytes, int]:
        redactor = self._redactor
        name, value_number = b"", 0
        parts = [cbor.head(_DICT, count)]
        for _ in range(count):
            head_at = at
            _major, size, start = self.head(at)
            key = self._data[start : start + size]
            below = (*path, key.decode())
            made, at = self.value(start + size, below, is_secret=is_secret or redactor.names_field(below))
            redactor.check_key(key, path)
            parts += (self._data[head_at : start + size], made)
            if key in _NAMES:
                name = made
            elif key == _VALUE:
                value_number = len(parts) - 1
        if name and value_number:
            parts[value_number] = self._beside(name, parts[value_number], path, may_be_field=True)
        return b"".join(parts), at

    def _tagged(self, at: int, tag: int, start: int, path: Path, *, is_secret: bool) -> tuple[bytes, int]:
        if tag == _CODEC:
            return self._codec(at, start, path, is_secret=is_secret)
        made, end = self.value(start, path, is_secret=is_secret)
        if made == self._data[start:end]:
            return self._data[at:end], end
        if tag in _SETS:
            elements = _Cbor(made, self._redactor).children()
            return self._data[at:start] + cbor.head(_LIST, len(elements)) + b"".join(sorted(elements)), end
        if made[0] >> 5 == _LIST:  # The value is a tuple.
            return self._data[at:start] + made, end
        return _text(self._redactor.hidden(self._data[start:end], path)), end  # The value is a number or a time.

    def children(self) -> set[bytes]:
        """Return the items of a list."""
        _major, count, at = self.head(0)
        items = set()
        for _ in range(count):
            made, end = self.value(at, (), is_secret=False)
            items.add(made)
            at = end
        return items

    def _codec(self, at: int, start: int, path: Path, *, is_secret: bool) -> tuple[bytes, int]:
        """Redact the value of a codec, which is encoded as [name, payload]."""
        data, redactor = self._data, self._redactor
        _major, size, name_at = self.head(start + 1)
        payload_at = name_at + size
        name_item, name = data[start + 1 : payload_at], data[name_at:payload_at]
        head = data[at:payload_at]
        if name_item == _PACKED:
            _major, size, body_at = self.head(payload_at)
            body = data[body_at : body_at + size]
            try:
                made = redact_packed(body, path, redactor) if not is_secret else redact_secret(body, path, redactor)
            except NotMsgpackError:
                redactor.refuse_if_found(body, path, "part of a split value")
                made = body
            return head + cbor.head(_BYTES, len(made)) + made, body_at + size
        is_secret = (is_secret or names_secret(name.decode())) and name_item != _SERIALISED
        walk = self._pairs if name_item == _PAIRS else self.value
        made, end = walk(payload_at, path, is_secret=is_secret)
        if made == data[payload_at:end]:
            return data[at:end], end
        if name_item == _PAIRS:
            return head + _sorted_pairs(made, redactor), end
        if name.startswith(_LIBRARY) and name_item not in _WALKED:
            return _text(redactor.hidden(data[payload_at:end], path)), end
        return head + made, end


def is_packed(item: bytes) -> bool:
    """Return True if an item is a value of LangGraph's serialiser, or a list that begins with one."""
    start = 1 + _SIZES.get(item[0] & 31, 0) if item[0] >> 5 == _LIST else 0
    return item.startswith(_PACKED_HEADS, start)


def packed_body(item: bytes) -> bytes | None:
    """Return the msgpack body of an item of LangGraph's serialiser, or None for any other item."""
    if not item.startswith(_PACKED_HEAD):
        return None
    first = item[len(_PACKED_HEAD)]
    return item[len(_PACKED_HEAD) + 1 + _SIZES.get(first & 31, 0) :]


def packed_item(body: bytes) -> bytes:
    """Return the item with a msgpack body: the inverse of `packed_body`."""
    return _PACKED_HEAD + cbor.head(_BYTES, len(body)) + body


def redact_secret(body: bytes, path: Path, redactor: PartRedactor) -> bytes:
    """Return the replacement of a msgpack value that is a secret as a whole."""
    made, _end = Msgpack(body, redactor).value(0, path, is_secret=True)
    return made


def _sorted_pairs(item: bytes, redactor: PartRedactor) -> bytes:
    """Sort the pairs of a dict whose keys are not all strings by the bytes of the keys. Return the encoded list."""
    reader = _Cbor(item, redactor)
    _major, count, at = reader.head(0)
    parts = []
    for _ in range(count):
        end = reader.value(at, (), is_secret=False)[1]
        parts.append(item[at:end])
        at = end
    pairs = sorted(zip(parts[::2], parts[1::2], strict=True))
    return cbor.head(_LIST, len(parts)) + b"".join([part for pair in pairs for part in pair])


def _text(text: bytes) -> bytes:
    return cbor.head(_TEXT, len(text)) + text


# --- msgpack ----------------------------------------------------------------------------

_WIDTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDD: 4, 0xDE: 2}
_WIDTHS |= {0xDF: 4}
_NUMBERS = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_FIXED = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_EXTENSIONS = frozenset((0xC7, 0xC8, 0xC9, *_FIXED))
_NIL, _FALSE, _TRUE, _RESERVED = 0xC0, 0xC2, 0xC3, 0xC1
_SHORT_SIZE: Final = 32


class Msgpack(_Walker):
    """A walk over one msgpack value."""

    @staticmethod
    def is_string(item: bytes) -> bool:
        """Return True if a value is a str or bytes."""
        return 0xA0 <= item[0] < 0xC0 or item[0] in (0xC4, 0xC5, 0xC6, 0xD9, 0xDA, 0xDB)

    @staticmethod
    def text_of(item: bytes) -> str:
        """Return a value for which `is_string` returns True as a str, for paths."""
        first = item[0]
        start = 1 if first < 0xC0 else 1 + _WIDTHS.get(first, 0)
        return item[start:].decode("utf-8", "replace")

    def value(self, at: int, path: Path, *, is_secret: bool) -> tuple[bytes, int]:
        """Return the redacted value at the offset `at`, and the offset after the value."""
        data = self._data
        first = data[at]
        if first == _RESERVED:
            raise NotMsgpackError
        if first < 0x80 or first >= 0xE0 or first in _NUMBERS or first in (_NIL, _FALSE, _TRUE):
            end = at + 1 + _NUMBERS.get(first, 0)
            item = data[at : self._checked(end)]
            made = self._redactor.hidden(item, path) if is_secret and first not in (_NIL, _FALSE, _TRUE) else item
            return (item if made is item else packed_text(made)), end
        if first < 0xC0:
            size, start = first & (15 if first < 0xA0 else 31), at + 1
            kind = _DICT if first < 0x90 else _LIST if first < 0xA0 else _TEXT
        elif first in _EXTENSIONS:
            return self._extension(at, first, path, is_secret=is_secret)
        else:
            width = _WIDTHS[first]
            start = self._checked(at + 1 + width)
            size = int.from_bytes(data[at + 1 : start], "big")
            kind = _BYTES if first < 0xC7 else _TEXT if first < 0xDC else _LIST if first < 0xDE else _DICT
        if kind == _LIST:
            return self._list(at, start, size, path, is_secret=is_secret)
        if kind == _DICT:
            return self._dict(at, start, size, path, is_secret=is_secret)
        return self._string(at, start, size, path, is_text=kind == _TEXT, is_secret=is_secret)

    def _checked(self, end: int) -> int:
        if end > len(self._data):
            raise NotMsgpackError
        return end

    def _string(
        self, at: int, start: int, size: int, path: Path, *, is_text: bool, is_secret: bool
    ) -> tuple[bytes, int]:
        end = self._checked(start + size)
        held = self._data[start:end]
        if is_secret:
            made = self._redactor.hidden(held, path)
        else:
            made = self._redactor.redact_field(held, path) if is_text else redact_bytes(held, path, self._redactor)
        if made is held:
            return self._data[at:end], end
        return (packed_text(made) if is_text else b"\xc6" + len(made).to_bytes(4, "big") + made), end

    def _dict(self, at: int, start: int, count: int, path: Path, *, is_secret: bool) -> tuple[bytes, int]:
        name, value_number = b"", 0
        parts = [self._data[at:start]]
        for _ in range(count):
            behind = Msgpack(self._data, UNCHANGED).value(start, path, is_secret=False)[1]
            key = self._data[start:behind]
            self._redactor.check_key(key, path)
            below = (*path, self.text_of(key))
            is_named = is_secret or self._redactor.names_field(below)
            made, start = self.value(behind, below, is_secret=is_named)
            parts += (key, made)
            if key[1:] in _NAMES:
                name = made
            elif key[1:] == _VALUE:
                value_number = len(parts) - 1
        if name and value_number:
            parts[value_number] = self._beside(name, parts[value_number], path, may_be_field=True)
        return b"".join(parts), start

    def _extension(self, at: int, first: int, path: Path, *, is_secret: bool) -> tuple[bytes, int]:
        """Redact an extension. LangGraph's extensions contain msgpack: [module, name, arguments, ...]."""
        data = self._data
        start, end = self.extension_span(at, first)
        size, body = end - start, data[start:end]
        inner = Msgpack(body, self._redactor)
        try:
            is_secret = is_secret or inner.is_of_secret()
            made, behind = inner.arguments(path) if is_secret else inner.value(0, path, is_secret=False)
            if behind != size:
                raise NotMsgpackError  # noqa: TRY301 - handled as any other bytes
        except (NotMsgpackError, IndexError):
            self._redactor.refuse_if_found(body, path, "an extension of msgpack")
            made = body
        if made == body:
            return data[at:end], end
        return extension_head(data[start - 1], len(made)) + made, end

    def extension_span(self, at: int, first: int) -> tuple[int, int]:
        """Return the start and the end of the content of an extension. The byte before the start is its code."""
        width = _WIDTHS.get(first, 0)
        size = _FIXED.get(first) or int.from_bytes(self._data[at + 1 : at + 1 + width], "big")
        start = at + 2 + width
        return start, self._checked(start + size)

    def is_of_secret(self) -> bool:
        """Return True if this value is [module, name, ...] and names a pydantic secret class."""
        names = self.names()
        return names is not None and names_secret(names[1].decode("utf-8", "replace"))

    def names(self) -> tuple[bytes, bytes, int] | None:
        """Return (module, name, offset after both) if this value is [module, name, ...], or None."""
        if not 0x92 <= self._data[0] < 0xA0:
            return None
        texts = []
        at = 1
        for _ in range(2):
            first = self._data[at]
            if not (0xA0 <= first < 0xC0 or first == 0xD9):
                return None
            start = at + (2 if first == 0xD9 else 1)
            at = start + (self._data[start - 1] if first == 0xD9 else first & 31)
            texts.append(self._data[start:at])
        return texts[0], texts[1], at

    def arguments(self, path: Path) -> tuple[bytes, int]:
        """Hide all arguments in [module, name, arguments, method]. Return the result and the offset after this list."""
        names = self.names()
        if names is None:
            return self.value(0, path, is_secret=True)
        at = names[2]
        parts = [self._data[:at]]
        for number in range((self._data[0] & 15) - 2):
            made, at = self.value(at, path, is_secret=not number)
            parts.append(made)
        return b"".join(parts), at


def packed_text(text: bytes) -> bytes:
    """Encode UTF-8 text as msgpack."""
    size = len(text)
    return (bytes((0xA0 | size,)) if size < _SHORT_SIZE else b"\xdb" + size.to_bytes(4, "big")) + text


def extension_head(code: int, size: int) -> bytes:
    """Return the bytes before the content of a msgpack extension."""
    width = 1 if size < 1 << 8 else 2 if size < 1 << 16 else 4
    return bytes((0xC6 + width.bit_length(),)) + size.to_bytes(width, "big") + bytes((code,))
