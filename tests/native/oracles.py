"""The kernels once more, in plain Python, written from FORMAT.md alone and made for reading, not for speed.

Values are small trees: ``(shape, payload)`` with the shapes of ``SHAPES``. ``Damaged`` is what the kernels
call ``CorruptionError``. Positions are offsets into the bytes given, as in ``statelog.kernels``.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MASK = 2**64 - 1
LIST, TUPLE, DICT, SET, FROZENSET, STR, BYTES, KEYED = range(8)
SORTED = (DICT, SET, FROZENSET)
DELETE, PUT = b"\xfe", b"\xff"


class Damaged(Exception):  # noqa: N818 - says what the bytes are
    """Bytes that FORMAT.md does not allow."""


def require(condition: object) -> None:
    if not condition:
        raise Damaged


def outcome(function: Callable[..., Any], *args: Any, **options: Any) -> tuple[str, Any]:
    """Return ("ok", result), or the name of what was raised, alike for kernels and oracles."""
    try:
        return ("ok", function(*args, **options))
    except Exception as error:  # noqa: BLE001 - the class is what is compared
        return ({"Damaged": "CorruptionError"}.get(type(error).__name__, type(error).__name__), None)


# --- numbers and readers ------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + varint(number >> 7)


@dataclass
class Reader:
    data: bytes
    at: int
    end: int

    def take(self, size: int) -> bytes:
        require(0 <= size <= self.end - self.at)
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def varint(self) -> int:
        start = self.at
        while self.number(1) >= 0x80:
            pass
        number = sum((byte & 0x7F) << (7 * i) for i, byte in enumerate(self.data[start : self.at]))
        require(number <= MASK and varint(number) == self.data[start : self.at])
        return number

    def item(self) -> bytes:
        start = self.at
        _, self.at = decode(self.data[: self.end], self.at)
        return self.data[start : self.at]

    def locator(self, home_lsn: int) -> tuple[int, int]:
        lsn, node = self.varint(), self.varint()
        require(node < 2**32)
        return (lsn or home_lsn, node)

    def finish(self) -> None:
        require(self.at == self.end)


# --- CBOR (section 7) ---------------------------------------------------------------------------------

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
        reader.item()
        ends.append(reader.at)
    return (KIND_OF[shape], first, ends)


def cbor_map_get(data: bytes, key_item: bytes) -> tuple[int, int] | None:
    kind, at, ends = cbor_split(data)
    for key_end, end in zip(ends[::2], ends[1::2], strict=True) if kind == DICT else ():
        if data[at:key_end] == key_item:
            return (key_end, end)
        at = end
    return None


# --- where chunks close (section 4.5) -----------------------------------------------------------------


def mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def content_hash(data: bytes) -> int:
    fnv = 0xCBF29CE484222325
    for byte in data:
        fnv = (fnv ^ byte) * 0x100000001B3 & MASK
    return mix(fnv)


def entry_hash(kind: int, level: int, entry: Entry) -> int:
    if kind in SORTED:
        return content_hash(entry.key)
    if level == 0 and not entry.is_ref:
        return content_hash(entry.slot)
    digest = entry.slot[1:] if level == 0 else entry.slot
    return int.from_bytes(digest[:8], "big")


def closes(kind: int, level: int, entry: Entry, count: int, size: int) -> bool:
    value = entry_hash(kind, level, entry)
    by_hash = value & 7 == 0 if level == 0 else (value >> 8 * min(level, 6)) & 15 == 0
    return (count >= 8 and by_hash) or count == 128 or size >= 8192


def boundaries(kind: int, level: int, entries: bytes, locators: bytes, count: int) -> list[int]:
    flat: list[int] = []
    first_index, first_at = 0, 0
    run = loose(kind, level, entries, locators, count)
    for index, entry in enumerate(run):
        if closes(kind, level, entry, index + 1 - first_index, entry.end - first_at):
            flat += [index + 1, entry.end, entry.locator_end]
            first_index, first_at = index + 1, entry.end
    return flat


def blob_cuts(data: bytes) -> list[int]:
    ends = []
    size = rolling = 0
    for at, byte in enumerate(data):
        rolling = ((rolling << 1) + mix(byte + 1)) & MASK
        size += 1
        if (size >= 2048 and rolling >> 52 == 0) or size == 16384:
            ends.append(at + 1)
            size = rolling = 0
    return ends


# --- entries (sections 4.1 to 4.3) --------------------------------------------------------------------


@dataclass
class Entry:
    at: int
    slot_at: int
    end: int
    covered: int
    lsn: int
    node: int
    locator_end: int
    data: bytes
    key: bytes
    slot: bytes
    fingerprints: bytes
    is_ref: bool
    deletes: bool = False


def read_entries(
    content: Reader, locators: Reader, *, kind: int, level: int, count: int, home_lsn: int = 0, batch: bool = False
) -> Iterator[Entry]:
    previous: bytes | None = None
    for _ in range(count):
        at = content.at
        key = fingerprints = b""
        covered, deletes, is_ref = 1, False, level > 0
        if kind in SORTED:
            key = content.item()
            require(kind != DICT or key[0] >> 5 == 3)
            require(previous is None or previous < key)
            previous = key
        if level > 0:
            covered = content.varint()
            require(covered > 0)
            slot_at = content.at
            slot = content.take(20)
            if kind == KEYED and level == 1:
                require(covered <= 128)
                fingerprints = content.take(2 * covered)
        elif batch and (kind != DICT or content.data[content.at : content.end][:1] == DELETE):
            slot_at = content.at
            slot = content.take(1)
            require(slot in ((DELETE,) if kind == DICT else (DELETE, PUT)))
            deletes = slot == DELETE
        else:
            fingerprints = content.take(2) if kind == KEYED else b""
            slot_at = content.at
            slot = b"" if kind in (SET, FROZENSET) else read_slot(content)
            is_ref = slot[:1] in (b"\xfc", b"\xfd")
        lsn, node = locators.locator(home_lsn) if is_ref else (0, 0)
        yield Entry(
            at, slot_at, content.at, covered, lsn, node, locators.at,
            content.data[at : content.at], key, slot, fingerprints, is_ref, deletes,
        )  # fmt: skip
    content.finish()
    locators.finish()


def read_slot(content: Reader) -> bytes:
    start = content.at
    if content.take(1) in (b"\xfc", b"\xfd"):
        content.take(20)
    else:
        content.at = start
        require(len(content.item()) <= 64)
    return content.data[start : content.at]


def loose(
    kind: int, level: int, entries: bytes, locators: bytes, count: int, *, batch: bool = False
) -> Iterator[Entry]:
    return read_entries(
        Reader(entries, 0, len(entries)), Reader(locators, 0, len(locators)),
        kind=kind, level=level, count=count, batch=batch,
    )  # fmt: skip


@dataclass
class Root:
    kind: int
    key: bytes
    count: int
    levels: tuple[tuple[int, bytes | None, int, int], ...]
    tail_count: int
    tail_at: int
    tail_locators_at: int
    entries: Iterator[Entry]
    spine: bytes


def parse_root(data: bytes, content_size: int, home_lsn: int) -> Root:
    require(0 <= content_size <= len(data))
    content, locators = Reader(data, 0, content_size), Reader(data, content_size, len(data))
    kind = content.number(1)
    require(kind <= KEYED)
    key_size = content.varint() if kind == KEYED else 0
    require(kind != KEYED or 1 <= key_size <= 255)
    key = content.take(key_size)
    count = content.varint()
    spine_at = content.at
    level_count = content.varint()
    require(level_count <= 64)
    levels: list[tuple[int, bytes | None, int, int]] = []
    for _ in range(level_count):
        covered = content.varint()
        levels.append((covered, content.take(20), *locators.locator(home_lsn)) if covered else (0, None, 0, 0))
    require(not levels or levels[0][0])
    spine = data[spine_at : content.at]
    tail_count = content.varint()
    require(sum(level[0] for level in levels) + tail_count == count)
    tail_at, tail_locators_at = content.at, locators.at
    if kind in (STR, BYTES):
        require(tail_count == content_size - tail_at)
        locators.finish()
    else:
        require(tail_count <= 128)
    entries = read_entries(content, locators, kind=kind, level=0, count=tail_count, home_lsn=home_lsn)
    return Root(kind, key, count, tuple(levels), tail_count, tail_at, tail_locators_at, entries, spine)


def root_read(data: bytes, content_size: int, home_lsn: int) -> tuple[Any, ...]:
    root = parse_root(data, content_size, home_lsn)
    return (
        root.kind, root.key, root.count, root.levels, root.tail_count, root.tail_at, root.tail_locators_at,
    )  # fmt: skip


def parse(data: bytes, content_size: int, home_lsn: int, *, is_root: bool, kind: int) -> tuple[int, Iterator[Entry]]:
    """Return (level, entries) of a chunk or of a root's tail."""
    if is_root:
        require(kind not in (STR, BYTES))
        root = parse_root(data, content_size, home_lsn)
        require(root.kind == kind)
        return 0, root.entries
    require(0 <= content_size <= len(data))
    content, locators = Reader(data, 0, content_size), Reader(data, content_size, len(data))
    require(content.number(1) == kind)
    level = content.number(1)
    require(level <= 64 and (level > 0 or kind not in (STR, BYTES)))
    count = content.varint()
    require(1 <= count <= 128)
    return level, read_entries(content, locators, kind=kind, level=level, count=count, home_lsn=home_lsn)


def entries_table(data: bytes, content_size: int, home_lsn: int, *, is_root: bool, kind: int) -> list[int]:
    _, entries = parse(data, content_size, home_lsn, is_root=is_root, kind=kind)
    return [number for e in entries for number in (e.at, e.slot_at, e.end, e.covered, e.lsn, e.node)]


def pack(entries: list[Entry]) -> tuple[bytes, bytes]:
    """Return (entries, locators) as bytes."""
    data = b"".join(e.data for e in entries)
    return data, b"".join(varint(e.lsn) + varint(e.node) for e in entries if e.is_ref)


def entries_copy(
    data: bytes, content_size: int, home_lsn: int, *, is_root: bool, kind: int, start: int, stop: int
) -> tuple[bytes, bytes]:
    _, entries = parse(data, content_size, home_lsn, is_root=is_root, kind=kind)
    first = [e for _, e in zip(range(stop), entries, strict=False)]
    require(start <= stop == len(first))
    return pack(first[start:])


def chunk_summary(data: bytes, content_size: int, kind: int, digest: bytes) -> bytes:
    level, run = parse(data, content_size, 0, is_root=False, kind=kind)
    entries = list(run)
    covered = sum(e.covered for e in entries)
    require(covered <= MASK)
    fingerprints = b"".join(e.fingerprints for e in entries) if kind == KEYED and level == 0 else b""
    return (entries[-1].key if kind in SORTED else b"") + varint(covered) + digest + fingerprints


def find_position(
    data: bytes, content_size: int, home_lsn: int, *, is_root: bool, kind: int, position: int
) -> tuple[int, ...]:
    if is_root and kind in (STR, BYTES):
        root = parse_root(data, content_size, 0)
        require(root.kind in (STR, BYTES) and position < root.tail_count)
        return (0, position, root.tail_at, content_size, 0, 0)
    _, entries = parse(data, content_size, home_lsn, is_root=is_root, kind=kind)
    for index, e in enumerate(entries):
        if position < e.covered:
            return (index, position, e.slot_at, e.end, e.lsn, e.node)
        position -= e.covered
    raise Damaged


def fingerprint_find(data: bytes, content_size: int, *, is_root: bool, fingerprint: int, start: int) -> int:
    _, entries = parse(data, content_size, 0, is_root=is_root, kind=KEYED)
    position = 0
    for e in entries:
        for at in range(0, len(e.fingerprints), 2):
            if position >= start and int.from_bytes(e.fingerprints[at : at + 2], "big") == fingerprint:
                return position
            position += 1
    return -1


def chunk_replace(
    data: bytes,
    content_size: int,
    home_lsn: int,
    *,
    kind: int,
    start: int,
    stop: int,
    entries: bytes,
    locators: bytes,
    added: int,
    is_closed: bool,
) -> tuple[bytes, int] | None:
    level, run = parse(data, content_size, home_lsn, is_root=False, kind=kind)
    held = list(run)
    require(start <= stop <= len(held))
    if added > 128 or not 1 <= len(held) - (stop - start) + added <= 128:
        return None
    kept = held[:start] + held[stop:]
    raw = [e.data for e in held]
    body = b"".join(raw[:start]) + entries + b"".join(raw[stop:])
    packed = [varint(e.lsn) + varint(e.node) if e.is_ref else b"" for e in held]
    places = b"".join(packed[:start]) + locators + b"".join(packed[stop:])
    count = len(kept) + added
    size = 0
    for index, e in enumerate(loose(kind, level, body, places, count)):
        size = e.end
        if closes(kind, level, e, index + 1, size) != (is_closed and index + 1 == count):
            return None
    content = bytes([kind, level]) + varint(count) + body
    return content + places, len(content)


def find_key(
    data: bytes, content_size: int, home_lsn: int, *, is_root: bool, kind: int, key_item: bytes
) -> tuple[Any, ...]:
    level, entries = parse(data, content_size, home_lsn, is_root=is_root, kind=kind)
    before = index = 0
    for e in entries:
        if e.key == key_item or (level > 0 and e.key > key_item):
            return (index, True, e.slot_at, e.end, e.lsn, e.node, before)
        if e.key > key_item:
            return (index, False, e.at, e.at, 0, 0, before)
        before += e.covered
        require(before <= MASK)
        index += 1
    return (index, False, content_size, content_size, 0, 0, before)


# --- making roots and chunks --------------------------------------------------------------------------


def root_node(
    kind: int, key: bytes, count: int, spine: bytes, tail: list[Entry], spine_locators: bytes
) -> tuple[bytes, int]:
    entries, locators = pack(tail)
    named = varint(len(key)) + key if kind == KEYED else b""
    content = bytes([kind]) + named + varint(count) + spine + varint(len(tail)) + entries
    return content + spine_locators + locators, len(content)


def tail_append(
    data: bytes, content_size: int, home_lsn: int, entries: bytes, locators: bytes, count: int
) -> tuple[bytes, int] | None:
    root = parse_root(data, content_size, home_lsn)
    tail = list(root.entries)
    size = content_size - root.tail_at
    added = []
    for e in loose(root.kind, 0, entries, locators, count):
        added.append(e)
        if closes(root.kind, 0, e, len(tail) + len(added), size + e.end):
            return None
    spine_locators = b"".join(varint(lsn) + varint(node) for covered, _, lsn, node in root.levels if covered)
    return root_node(root.kind, root.key, root.count + count, root.spine, tail + added, spine_locators)


def tail_merge(
    data: bytes, content_size: int, home_lsn: int, entries: bytes, locators: bytes, count: int
) -> tuple[bytes, int] | None:
    root = parse_root(data, content_size, home_lsn)
    if root.levels:
        return None
    merged = {e.key: e for e in root.entries}
    for e in loose(root.kind, 0, entries, locators, count, batch=True):
        if e.deletes:
            merged.pop(e.key, None)
        else:
            e.data = e.key + e.slot if root.kind == DICT else e.key
            merged[e.key] = e
    tail = [merged[key] for key in sorted(merged)]
    size = 0
    for index, e in enumerate(tail):
        size += len(e.data)
        if closes(root.kind, 0, e, index + 1, size):
            return None
    return root_node(root.kind, b"", len(tail), b"\0", tail, b"")


# --- records (section 3) ------------------------------------------------------------------------------


def record_nodes(record: bytes) -> list[tuple[int, bytes, int, int, int]]:
    reader = Reader(record, 0, len(record))
    envelope = reader.take(56)
    reader.take(int.from_bytes(envelope[12:16], "big"))
    count = int.from_bytes(envelope[52:56], "big")
    require(count <= 1 << 22)
    is_vacuumed = bool(envelope[11] & 2)
    row_count = reader.number(4) if is_vacuumed and count else count
    require(row_count <= count)
    rows = [
        (
            reader.number(4) if is_vacuumed else row,
            reader.number(1),
            reader.take(20),
            reader.number(4),
            reader.number(4),
        )
        for row in range(row_count)
    ]
    nodes: list[tuple[int, bytes, int, int, int]] = [(0, b"", 0, 0, 0)] * count
    start, previous = 0, -1
    for number, node_type, digest, content_end, end in rows:
        require(previous < number < count and 1 <= node_type <= 4 and start < content_end <= end)
        nodes[number] = (node_type, digest, reader.at + start, content_end - start, end - start)
        start, previous = end, number
    reader.take(start)
    reader.finish()
    return nodes


def record_node(record: bytes, number: int) -> tuple[int, bytes, int, int, int]:
    nodes = record_nodes(record)
    require(number < len(nodes))
    return nodes[number]


# --- reducers -----------------------------------------------------------------------------------------


class ReducerTypeError(Exception):
    """The same name as the kernels'."""


NUMBERS = ("int", "float")


def reducer_operands(a: bytes, b: bytes) -> tuple[Value, Value]:
    cbor_check(a)
    cbor_check(b)
    return decode(a)[0], decode(b)[0]


def is_foreign(value: Value) -> bool:
    is_big = value[0] == "int" and not -(2**64) <= value[1] < 2**64
    return is_big or value[0] in ("datetime", "uuid", "decimal", "codec")


def as_number(value: Value) -> Value:
    return ("int", int(value[1])) if value in (("simple", True), ("simple", False)) else value


def add(a: bytes, b: bytes) -> bytes | None:
    left, right = (as_number(value) for value in reducer_operands(a, b))
    if is_foreign(left) or is_foreign(right):
        return None
    if left[0] in NUMBERS and right[0] in NUMBERS:
        total = left[1] + right[1]
        result = ("int" if isinstance(total, int) else "float", total)
        return None if is_foreign(result) else encode(result)
    if left[0] != right[0] or left[0] not in ("text", "bytes", "list", "tuple"):
        raise ReducerTypeError
    return encode((left[0], left[1] + right[1]))


def compare(a: bytes, b: bytes) -> int | None:
    left, right = (as_number(value) for value in reducer_operands(a, b))
    for value in (left, right):
        if is_foreign(value) or value[0] not in (*NUMBERS, "text", "bytes"):
            return None
    if left[0] in NUMBERS and right[0] in NUMBERS:
        if math.isnan(left[1]) or math.isnan(right[1]):
            return None
    elif left[0] != right[0]:
        raise ReducerTypeError
    return (left[1] > right[1]) - (left[1] < right[1])


def merge_maps(a: bytes, b: bytes, *, deep: bool) -> bytes:
    left, right = reducer_operands(a, b)
    if left[0] != "map" or right[0] != "map":
        raise ReducerTypeError
    return encode(merged_map(left, right, deep=deep))


def merged_map(left: Value, right: Value, *, deep: bool) -> Value:
    merged = dict(left[1])
    for key, value in right[1]:
        nests = deep and key in merged and merged[key][0] == value[0] == "map"
        merged[key] = merged_map(merged[key], value, deep=True) if nests else value
    return ("map", list(merged.items()))


def union(a: bytes, b: bytes) -> bytes:
    left, right = reducer_operands(a, b)
    if left[0] != right[0] or left[0] not in ("set", "frozenset"):
        raise ReducerTypeError
    return encode((left[0], left[1] + right[1]))


# --- version pages (section 6) ------------------------------------------------------------------------

PAGE_ENTRY = struct.Struct(">QQ")


def page_parse(payload: bytes) -> tuple[int, list[tuple[int, ...]]]:
    reader = Reader(payload, 0, len(payload))
    first, count = reader.number(4), reader.number(4)
    require(1 <= count <= 32 and (first + count - 1) // 32 == first // 32)
    entries = [PAGE_ENTRY.unpack(reader.take(16)) for _ in range(count)]
    reader.finish()
    return first, entries


def page_build(first: int, entries: list[tuple[int, ...]]) -> bytes:
    return struct.pack(">II", first, len(entries)) + b"".join(PAGE_ENTRY.pack(*entry) for entry in entries)


def page_read(payload: bytes, version: int) -> tuple[int, ...]:
    first, entries = page_parse(payload)
    require(first <= version < first + len(entries))
    return entries[version - first]


def page_find_time(payload: bytes, time_us: int) -> int:
    first, entries = page_parse(payload)
    found = [version for version, entry in enumerate(entries, first) if entry[0] and entry[1] <= time_us]
    return max(found, default=first - 1)
