"""Items of msgpack, from its specification: github.com/msgpack/msgpack/blob/master/spec.md."""

from __future__ import annotations

from oracles.reading import Damaged, Reader, require

FIXED = {
    **dict.fromkeys([0xC0, 0xC2, 0xC3], 0),
    0xCA: 4,
    0xCB: 8,
    0xCC: 1,
    0xCD: 2,
    0xCE: 4,
    0xCF: 8,
    0xD0: 1,
    0xD1: 2,
    0xD2: 4,
    0xD3: 8,
    0xD4: 2,
    0xD5: 3,
    0xD6: 5,
    0xD7: 9,
    0xD8: 17,
}
"""Bytes behind the first one."""

COUNTED = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1), 0xD9: (1, 0),
           0xDA: (2, 0), 0xDB: (4, 0)}  # fmt: skip
"""The size of the size field, and the number of further bytes."""

CONTAINERS = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
"""The size of the count field, and the number of items for each count."""


def skip(reader: Reader) -> None:
    """Move past one item."""
    byte = reader.number(1)
    if byte < 0x80 or byte >= 0xE0:
        return
    if byte < 0xA0:
        for _ in range((byte & 15) * (2 if byte < 0x90 else 1)):
            skip(reader)
    elif byte < 0xC0:
        reader.take(byte & 31)
    elif byte in FIXED:
        reader.take(FIXED[byte])
    elif byte in COUNTED:
        size, extra = COUNTED[byte]
        reader.take(reader.number(size) + extra)
    else:
        require(byte in CONTAINERS)
        size, each = CONTAINERS[byte]
        for _ in range(reader.number(size) * each):
            skip(reader)


def array_head(count: int) -> bytes:
    if count < 16:
        return bytes([0x90 + count])
    return b"\xdc" + count.to_bytes(2, "big") if count < 2**16 else b"\xdd" + count.to_bytes(4, "big")


def msgpack_split(data: bytes) -> list[bytes] | None:
    """Return the items of the array that ``data`` is, or None."""
    items = []
    reader = Reader(data, 0, len(data))
    try:
        byte = reader.number(1)
        require(byte in (0xDC, 0xDD) or 0x90 <= byte < 0xA0)
        count = byte & 15 if byte < 0xA0 else reader.number(CONTAINERS[byte][0])
        require(data.startswith(array_head(count)))
        for _ in range(count):
            start = reader.at
            skip(reader)
            items.append(data[start : reader.at])
        require(reader.at == len(data))
    except Damaged:
        return None
    return items
