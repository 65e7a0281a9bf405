"""Converts msgpack values to items of a store, and strings and bytes to msgpack. Nothing here imports LangGraph."""

from __future__ import annotations

import re
from functools import lru_cache

from statelog.adapters.kit import items
from statelog.adapters.kit.packed import MSGPACK
from statelog.display.short_messages import is_short, shorten
from statelog.kernels.msgpack import split_array

PREFIX = items.codec_prefix(MSGPACK)
_PREFIX_16 = PREFIX + b"\x59"
"""The prefix before a size of two bytes."""
_SHORT_PREFIXES_NUMBER = 256
_SHORT_PREFIXES = tuple(items.wrap(PREFIX, bytes(size))[: -size or None] for size in range(_SHORT_PREFIXES_NUMBER))
"""Prefixes by the size of what follows."""


def pack(data: bytes) -> bytes:
    """Return the item for a msgpack value."""
    size = len(data)
    if size < _SHORT_PREFIXES_NUMBER:
        return _SHORT_PREFIXES[size] + data
    return _PREFIX_16 + size.to_bytes(2) + data if size < 1 << 16 else items.wrap(PREFIX, data)


def pack_item(data: bytes) -> bytes:
    """Return the item for a msgpack value in a list. A message gets its short form."""
    return pack(shorten(data, split_array))


def renewed(item: bytes) -> bytes:
    """Return a list's item in the form that `pack_item` makes. Older releases stored messages in full."""
    data = unpack(item)
    return item if is_short(data) else pack_item(data)


def unpack(item: bytes) -> bytes:
    """Return the msgpack bytes in an item from `pack` or `pack_item`."""
    return items.unwrap(PREFIX, item)


def split_parts(item: bytes) -> list[bytes]:
    """Return the parts of an item that is an array, each as msgpack."""
    return split_array(items.unwrap(PREFIX, item)) or []


def is_packed(item: bytes) -> bool:
    """Return whether an item is one value in msgpack."""
    return item.startswith(PREFIX)


_SHORT_SIZE = 32
_SHORT_HEADS = tuple(bytes([0xA0 | size]) for size in range(_SHORT_SIZE))


@lru_cache(maxsize=1024)
def pack_text(text: str | None) -> bytes:
    """Encode a string, or None, as msgpack."""
    if text is None:
        return b"\xc0"
    data = text.encode("utf-8", "surrogatepass")
    size = len(data)
    return (_SHORT_HEADS[size] if size < _SHORT_SIZE else b"\xdb" + size.to_bytes(4)) + data


def unpack_text(item: bytes) -> str | None:
    """Return the string that `pack_text` has encoded."""
    if item == b"\xc0":
        return None
    return item[1 if item[0] != 0xDB else 5 :].decode("utf-8", "surrogatepass")


def pack_bytes(data: bytes) -> bytes:
    """Encode bytes as msgpack."""
    size = len(data)
    return (b"\xc4" + size.to_bytes(1) if size < 1 << 8 else b"\xc6" + size.to_bytes(4)) + data


def unpack_bytes(item: bytes) -> bytes:
    """Return the bytes that `pack_bytes` has encoded."""
    return item[2 if item[0] == 0xC4 else 5 :]


_NAMES = (*map(str, range(32)), "__start__", "messages", "null", "~__pregel_pull, __start__", "~__pregel_pull, model")
"""Frequent strings in pending writes. Their positions are stored instead, so positions never change."""
_BEGINNINGS = ("branch:to:", "~__pregel_pull, ", "~__pregel_push, ")
"""Frequent beginnings of strings in pending writes. Their positions are stored instead, so positions never change."""
_NUMBERS = {name: bytes([number]) for number, name in enumerate(_NAMES)}


@lru_cache(maxsize=1024)
def pack_name(text: str) -> bytes:
    """Encode a string as msgpack. A number replaces a string in `_NAMES`, or a beginning in `_BEGINNINGS`."""
    known = _NUMBERS.get(text)
    if known is None:
        for number, beginning in enumerate(_BEGINNINGS):
            if text.startswith(beginning):
                return pack_bytes(bytes([number]) + text.removeprefix(beginning).encode("utf-8", "surrogatepass"))
    return pack_text(text) if known is None else known


def unpack_name(item: bytes) -> str:
    """Return the string that `pack_name` or `pack_text` has encoded."""
    if item[0] < len(_NAMES):
        return _NAMES[item[0]]
    if item[0] in (0xC4, 0xC6):
        data = unpack_bytes(item)
        return _BEGINNINGS[data[0]] + data[1:].decode("utf-8", "surrogatepass")
    return unpack_text(item) or ""


_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UUID_HEAD = b"\xc4\x10"
"""The head of 16 bytes in msgpack."""


@lru_cache(maxsize=256)
def pack_id(text: str | None) -> bytes:
    """Encode a string or None as msgpack. A UUID becomes 16 bytes."""
    if text is None or _UUID.fullmatch(text) is None:
        return pack_text(text)
    return _UUID_HEAD + bytes.fromhex(text.replace("-", ""))


def unpack_id(item: bytes) -> str | None:
    """Return the string that `pack_id` or `pack_text` has encoded."""
    if item == b"\xc0":
        return None
    if not item.startswith(_UUID_HEAD):
        return item[1 if item[0] != 0xDB else 5 :].decode("utf-8", "surrogatepass")
    digits = item[2:].hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
