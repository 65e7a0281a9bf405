"""Values of msgpack as items of a store, and texts and bytes in msgpack. Nothing here imports LangGraph."""

from __future__ import annotations

import re
from functools import lru_cache

from statelog.adapters.kit import items
from statelog.adapters.kit.packed import MSGPACK
from statelog.kernels.msgpack import join_array, split_array

PREFIX = items.codec_prefix(MSGPACK)
_PREFIX_16 = PREFIX + b"\x59"
"""Before a size of two bytes."""
_SHORT_PREFIXES_NUMBER = 256
_SHORT_PREFIXES = tuple(items.wrap(PREFIX, bytes(size))[: -size or None] for size in range(_SHORT_PREFIXES_NUMBER))
"""By the size of what follows."""


def pack(data: bytes) -> bytes:
    """Return the item of a value that is msgpack already."""
    size = len(data)
    if size < _SHORT_PREFIXES_NUMBER:
        return _SHORT_PREFIXES[size] + data
    return _PREFIX_16 + size.to_bytes(2) + data if size < 1 << 16 else items.wrap(PREFIX, data)


def pack_parts(parts: list[str | bytes | None]) -> bytes:
    """Return the item of a msgpack array: of texts, None as nil, and bytes that are msgpack already."""
    return pack(join_parts(parts))


def join_parts(parts: list[str | bytes | None]) -> bytes:
    """Return a msgpack array: of texts, None as nil, and bytes that are msgpack already."""
    return join_array([part if type(part) is bytes else pack_text(part) for part in parts])


def unpack(item: bytes) -> bytes:
    """Return the msgpack of such an item."""
    return items.unwrap(PREFIX, item)


def split_parts(item: bytes) -> list[bytes]:
    """Return the parts of an item that is an array, each as msgpack."""
    return split_array(items.unwrap(PREFIX, item)) or []


def is_packed(item: bytes) -> bool:
    """Whether an item is one value that is msgpack."""
    return item.startswith(PREFIX)


_SHORT_SIZE = 32
_SHORT_HEADS = tuple(bytes([0xA0 | size]) for size in range(_SHORT_SIZE))


@lru_cache(maxsize=1024)
def pack_text(text: str | None) -> bytes:
    """Return a text, or nil, in msgpack."""
    if text is None:
        return b"\xc0"
    data = text.encode("utf-8", "surrogatepass")
    size = len(data)
    return (_SHORT_HEADS[size] if size < _SHORT_SIZE else b"\xdb" + size.to_bytes(4)) + data


def unpack_text(item: bytes) -> str | None:
    """Return the text of `pack_text`."""
    if item == b"\xc0":
        return None
    return item[1 if item[0] != 0xDB else 5 :].decode("utf-8", "surrogatepass")


def pack_bytes(data: bytes) -> bytes:
    """Return bytes in msgpack."""
    return b"\xc6" + len(data).to_bytes(4, "big") + data


def unpack_bytes(item: bytes) -> bytes:
    """Return the bytes of `pack_bytes`."""
    return item[5:]


_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UUID_HEAD = b"\xc4\x10"
"""What stands before 16 bytes in msgpack."""


@lru_cache(maxsize=256)
def pack_id(text: str | None) -> bytes:
    """Return a text in msgpack, of a UUID its 16 bytes; or nil."""
    if text is None or _UUID.fullmatch(text) is None:
        return pack_text(text)
    return _UUID_HEAD + bytes.fromhex(text.replace("-", ""))


def unpack_id(item: bytes) -> str | None:
    """Return the text of `pack_id` or `pack_text`."""
    if not item.startswith(_UUID_HEAD):
        return unpack_text(item)
    digits = item[2:].hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
