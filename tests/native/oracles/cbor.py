"""CBOR items (FORMAT.md 7)."""

from __future__ import annotations

import math
import struct
from typing import Any

from oracles.reading import DICT, FROZENSET, LIST, SET, TUPLE, Damaged, Reader, require

SHAPES = (
    "int", "float", "bytes", "text", "list", "map", "tuple", "set", "frozenset", "codec",
    "datetime", "uuid", "decimal", "simple",
)  # fmt: skip
TAGS = {51300: "tuple", 258: "set", 51301: "frozenset", 27: "codec", 51302: "datetime", 37: "uuid", 51303: "decimal"}
TAG_OF = {shape: tag for tag, shape in TAGS.items()}
SIMPLE = {20: False, 21: True, 22: None}
KIND_OF = {"list": LIST, "tuple": TUPLE, "map": DICT, "set": SET, "frozenset": FROZENSET}
DEPTH_MAX = 128

Value = tuple[str, Any]


def head(major: int, argument: int) -> bytes:
    if argument < 24:
        return bytes([major << 5 | argument])
    power = next(i for i in range(4) if argument < 256 ** (2**i))
    return bytes([major << 5 | 24 + power]) + argument.to_bytes(2**power, "big")


def encode_float(number: float) -> bytes:
    if math.isnan(number):
        return b"\xf9\x7e\x00"
    for initial, form in ((b"\xf9", ">e"), (b"\xfa", ">f")):
        try:
            packed = struct.pack(form, number)
        except OverflowError:
            continue
        if struct.unpack(form, packed)[0] == number:
            return initial + packed
    return b"\xfb" + struct.pack(">d", number)


def encode_int(number: int) -> bytes:
    if -(2**64) <= number < 2**64:
        return head(0, number) if number >= 0 else head(1, -1 - number)
    magnitude = number if number >= 0 else -1 - number
    raw = magnitude.to_bytes((magnitude.bit_length() + 7) // 8, "big")
    return head(6, 2 if number >= 0 else 3) + head(2, len(raw)) + raw


def encode(value: Value) -> bytes:
    """Encode a value; pairs and elements are sorted and made unique here."""
    shape, payload = value
    if shape == "simple":
        return bytes([0xE0 | next(code for code, known in SIMPLE.items() if known is payload)])
    if shape == "int":
        return encode_int(payload)
    if shape == "float":
        return encode_float(payload)
    if shape in ("bytes", "text"):
        raw = payload if shape == "bytes" else payload.encode()
        return head(2 if shape == "bytes" else 3, len(raw)) + raw
    if shape == "map":
        pairs = {encode(key): encode(child) for key, child in payload}
        return head(5, len(pairs)) + b"".join(key + pairs[key] for key in sorted(pairs))
    if shape in ("datetime", "uuid", "decimal"):
        return head(6, TAG_OF[shape]) + encode(("bytes" if shape == "uuid" else "text", payload))
    children = [encode(child) for child in payload]
    if shape in ("set", "frozenset"):
        children = sorted(set(children))
    tag = b"" if shape == "list" else head(6, TAG_OF[shape])
    return tag + head(4, len(children)) + b"".join(children)


def decode(data: bytes, at: int = 0) -> tuple[Value, int]:
    """Decode one item, and accept it only if encoding it again gives the same bytes."""
    reader = Reader(data, at, len(data))
    value = read_value(reader, 0)
    require(encode(value) == data[at : reader.at])
    return value, reader.at


def read_item(reader: Reader) -> bytes:
    """Read one item, and return its bytes."""
    start = reader.at
    _, reader.at = decode(reader.data[: reader.end], start)
    return reader.data[start : reader.at]


def read_head(reader: Reader) -> tuple[int, int, int]:
    initial = reader.number(1)
    info = initial & 31
    require(info < 28)
    return initial >> 5, info, info if info < 24 else reader.number(2 ** (info - 24))


def read_value(reader: Reader, depth: int) -> Value:
    major, info, argument = read_head(reader)
    if major in (0, 1):
        return ("int", argument if major == 0 else -1 - argument)
    if major == 2:
        return ("bytes", reader.take(argument))
    if major == 3:
        return ("text", read_text(reader.take(argument)))
    if major == 4:
        return ("list", read_children(reader, argument, depth))
    if major == 5:
        children = read_children(reader, 2 * argument, depth)
        pairs = list(zip(children[::2], children[1::2], strict=True))
        require(all(key[0] == "text" for key, _ in pairs))
        return ("map", pairs)
    if major == 6:
        return read_tagged(argument, read_value(reader, depth))
    if info in (25, 26, 27):
        form = {25: ">e", 26: ">f", 27: ">d"}[info]
        return ("float", struct.unpack(form, argument.to_bytes(struct.calcsize(form), "big"))[0])
    require(info in SIMPLE)
    return ("simple", SIMPLE[info])


def read_text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Damaged from None


def read_children(reader: Reader, count: int, depth: int) -> list[Value]:
    require(depth < DEPTH_MAX and count <= reader.end - reader.at)
    return [read_value(reader, depth + 1) for _ in range(count)]


def read_tagged(tag: int, inner: Value) -> Value:
    shape, payload = inner
    if tag in (2, 3):
        require(shape == "bytes")
        magnitude = int.from_bytes(payload, "big")
        return ("int", magnitude if tag == 2 else -1 - magnitude)
    require(tag in TAGS)
    wanted = {"uuid": "bytes", "datetime": "text", "decimal": "text"}.get(TAGS[tag], "list")
    require(shape == wanted)
    require(tag != 37 or len(payload) == 16)
    require(tag != 27 or (len(payload) == 2 and payload[0][0] == "text"))
    return (TAGS[tag], payload)


def cbor_check(data: bytes) -> None:
    require(decode(data)[1] == len(data))


def cbor_split(data: bytes) -> tuple[int, int, list[int]]:
    cbor_check(data)
    (shape, _), _ = decode(data)
    if shape not in KIND_OF:
        return (-1, 0, [])
    reader = Reader(data, 0, len(data))
    if shape not in ("list", "map"):
        read_head(reader)
    read_head(reader)
    first = reader.at
    ends = []
    while reader.at < len(data):
        read_item(reader)
        ends.append(reader.at)
    return (KIND_OF[shape], first, ends)


def cbor_map_get(data: bytes, key_item: bytes) -> tuple[int, int] | None:
    kind, at, ends = cbor_split(data)
    for key_end, end in zip(ends[::2], ends[1::2], strict=True) if kind == DICT else ():
        if data[at:key_end] == key_item:
            return (key_end, end)
        at = end
    return None
