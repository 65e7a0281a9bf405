"""Values of msgpack as items of a store, and texts and bytes in msgpack. Nothing here imports LangGraph."""

from __future__ import annotations

from statelog.adapters.kit import items
from statelog.adapters.kit.packed import MSGPACK
from statelog.kernels.msgpack import join_array, split_array

PREFIX = items.codec_prefix(MSGPACK)
_SHORT_PREFIXES_NUMBER = 256
_SHORT_PREFIXES = tuple(items.wrap(PREFIX, bytes(size))[: -size or None] for size in range(_SHORT_PREFIXES_NUMBER))
"""By the size of what follows."""


def pack(data: bytes) -> bytes:
    """Return the item of a value that is msgpack already."""
    size = len(data)
    return _SHORT_PREFIXES[size] + data if size < _SHORT_PREFIXES_NUMBER else items.wrap(PREFIX, data)


def pack_parts(parts: list[str | bytes | None]) -> bytes:
    """Return the item of a msgpack array: of texts, None as nil, and bytes that are msgpack already."""
    return pack(join_array([part if isinstance(part, bytes) else pack_text(part) for part in parts]))


def unpack(item: bytes) -> bytes:
    """Return the msgpack of such an item."""
    return items.unwrap(PREFIX, item)


def unpack_texts(item: bytes, number: int) -> list[str | None]:
    """Return the first texts of an array that `pack_parts` made. Nothing else of it is read."""
    return [unpack_text(part) for part in (split_array(unpack(item)) or [])[:number]]


def is_packed(item: bytes) -> bool:
    """Whether an item is one value that is msgpack."""
    return item.startswith(PREFIX)


_SHORT_SIZE = 32
_SHORT_HEADS = tuple(bytes([0xA0 | size]) for size in range(_SHORT_SIZE))


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
