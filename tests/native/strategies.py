"""Strategies for kernels and oracles: values, nodes, records, and damaged copies of them."""

from __future__ import annotations

import struct

import oracles
from hypothesis import strategies as st
from oracles import DELETE, DICT, FROZENSET, KEYED, LIST, PUT, SET, SORTED, TUPLE, varint

texts = st.text(max_size=12)
floats = st.floats() | st.floats(width=32) | st.floats(width=16)
integers = (
    st.integers() | st.integers(-(2**66), 2**66) | st.sampled_from([2**64 - 1, -(2**64), 2**64, -(2**64) - 1, 2**63])
)
scalars = (
    st.tuples(st.just("int"), integers)
    | st.tuples(st.just("float"), floats)
    | st.tuples(st.just("bytes"), st.binary(max_size=40))
    | st.tuples(st.just("text"), texts)
    | st.tuples(st.just("simple"), st.sampled_from([None, True, False]))
    | st.tuples(st.sampled_from(["datetime", "decimal"]), texts)
    | st.tuples(st.just("uuid"), st.binary(min_size=16, max_size=16))
)
text_values = st.tuples(st.just("text"), texts)


def containers(children: st.SearchStrategy[oracles.Value]) -> st.SearchStrategy[oracles.Value]:
    return (
        st.tuples(st.sampled_from(["list", "tuple", "set", "frozenset"]), st.lists(children, max_size=5))
        | maps(children)
        | st.tuples(st.just("codec"), st.tuples(text_values, children).map(list))
    )


def maps(children: st.SearchStrategy[oracles.Value]) -> st.SearchStrategy[oracles.Value]:
    return st.tuples(
        st.just("map"), st.lists(st.tuples(text_values, children), max_size=5, unique_by=lambda pair: pair[0])
    )


values = st.recursive(scalars, containers, max_leaves=12)
items = values.map(oracles.encode)
map_items = maps(st.recursive(scalars, lambda children: maps(children) | containers(children), max_leaves=12)).map(
    oracles.encode
)
keys = text_values.map(oracles.encode)
digests = st.binary(min_size=20, max_size=20)
lsns = st.sampled_from([0, 0, 1, 77, 300, 2**32, 2**63]) | st.integers(0, 2**64 - 1)
locators = st.tuples(lsns, st.integers(0, 300) | st.just(2**32 - 1))
inline_slots = items.filter(lambda item: len(item) <= 64)
refs = st.tuples(st.sampled_from([b"\xfc", b"\xfd"]), digests).map(b"".join)

sequence_kinds = st.sampled_from([LIST, TUPLE, KEYED])
sorted_kinds = st.sampled_from(SORTED)
kinds = st.sampled_from([LIST, TUPLE, DICT, SET, FROZENSET, KEYED])
Run = tuple[bytes, bytes, int]


def packed_locators(draw: st.DrawFn, count: int) -> bytes:
    return b"".join(varint(lsn) + varint(node) for lsn, node in (draw(locators) for _ in range(count)))


@st.composite
def runs(draw: st.DrawFn, kind: int, level: int = 0, min_size: int = 0, max_size: int = 24) -> Run:
    """(entries, locators, count) of well-formed entries; long runs repeat a few slots."""
    sizes = st.integers(min_size, max_size)
    if kind in SORTED:
        names = draw(st.sets(keys if kind == DICT else items, min_size=min_size, max_size=max_size))
        heads = sorted(names)
    else:
        heads = [b""] * draw(sizes)
    entries, locs = b"", b""
    for head in heads:
        if level > 0:
            covered = (
                draw(st.integers(1, 128) | st.just(2**40))
                if not (kind == KEYED and level == 1)
                else draw(st.integers(1, 9))
            )
            prints = (
                draw(st.binary(min_size=2 * covered, max_size=2 * covered)) if kind == KEYED and level == 1 else b""
            )
            entries += head + varint(covered) + draw(digests) + prints
            locs += packed_locators(draw, 1)
            continue
        slot = b"" if kind in (SET, FROZENSET) else draw(inline_slots | refs)
        fingerprint = draw(st.sampled_from([b"\0\0", b"\0\1", b"\xff\xff"])) if kind == KEYED else b""
        entries += head + fingerprint + slot
        locs += packed_locators(draw, slot[:1] in (b"\xfc", b"\xfd"))
    return entries, locs, len(heads)


@st.composite
def batches(draw: st.DrawFn, kind: int) -> Run:
    """A batch of tail_merge."""
    entries, locs = b"", b""
    names = sorted(draw(st.sets(keys if kind == DICT else items, max_size=8)))
    for name in names:
        slot = draw(st.just(DELETE) | (inline_slots | refs if kind == DICT else st.just(PUT)))
        entries += name + slot
        locs += packed_locators(draw, slot[:1] in (b"\xfc", b"\xfd"))
    return entries, locs, len(names)


@st.composite
def roots(draw: st.DrawFn, kind: int, max_levels: int = 3) -> tuple[bytes, int]:
    entries, locs, count = draw(runs(kind))
    levels = draw(st.lists(st.integers(0, 2**40), max_size=max_levels).filter(lambda found: not found or found[0] > 0))
    named = varint(2) + b"id" if kind == KEYED else b""
    spine = varint(len(levels)) + b"".join(varint(covered) + (draw(digests) if covered else b"") for covered in levels)
    content = bytes([kind]) + named + varint(sum(levels) + count) + spine + varint(count) + entries
    return content + packed_locators(draw, sum(covered > 0 for covered in levels)) + locs, len(content)


@st.composite
def chunks(draw: st.DrawFn, kind: int, level: int) -> tuple[bytes, int]:
    entries, locs, count = draw(runs(kind, level, min_size=1))
    content = bytes([kind, level]) + varint(count) + entries
    return content + locs, len(content)


node_contents = st.lists(st.tuples(st.binary(min_size=1, max_size=200), st.binary(max_size=20)), max_size=6)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    if draw(st.booleans()):
        return draw(short_records())
    body = draw(st.binary(max_size=30))
    rows, nodes = [], b""
    for content, locs in draw(node_contents):
        ends = len(nodes) + len(content), len(nodes) + len(content) + len(locs)
        rows.append(bytes([draw(st.integers(1, 4))]) + draw(digests) + struct.pack(">II", *ends))
        nodes += content + locs
    envelope = bytes(12) + struct.pack(">I", len(body)) + bytes(36) + struct.pack(">I", len(rows))
    return envelope + body + b"".join(rows) + nodes


@st.composite
def short_records(draw: st.DrawFn) -> bytes:
    is_chained = draw(st.booleans())
    numbered, nodes = [], b""
    number = -1
    for content, locs in draw(node_contents):
        number += draw(st.sampled_from([1, 1, 2, 255, 70_000]))
        ends = len(nodes) + len(content), len(nodes) + len(content) + len(locs)
        numbered.append((number, draw(st.integers(1, 4)), *ends))
        nodes += content + locs
    width = max(1, -(-max(number, len(nodes)).bit_length() // 8))
    rows = [
        each.to_bytes(width) + bytes([kind]) + content_end.to_bytes(width) + end.to_bytes(width)
        for each, kind, content_end, end in numbered
    ]
    head = bytes(11) + bytes([2 + 8 * is_chained]) + bytes(28 if is_chained else 8)
    return head + draw(items) + varint(len(rows) << 2 | width - 1) + b"".join(rows) + nodes


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Draw a copy with a few bytes changed, removed or inserted, or sometimes with no change."""
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        lost = draw(st.sampled_from([0, 1, 1, 1, 2, 21]))
        put = draw(st.binary(max_size=3) | st.sampled_from([b"\0", b"\x7f", b"\x80", b"\xfc", b"\xfe", b"\xff"]))
        data = data[:at] + put + data[at + lost :]
    return data
