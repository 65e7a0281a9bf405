"""Kernels for what LangGraph writes: names that sort, and headers in msgpack."""

import base64
import hashlib
import re
import sys
import uuid

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from statelog.format import cbor
from statelog.kernels import objects

PREFIX = b"a codec's"
PERSON = b"anybody's sixtee"
BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
ORDERED = b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
OTHERS = {"__error__": -1, "__resume__": -4}
BOUNDS = [
    sign * (1 << bits) + by for bits in (5, 7, 8, 15, 16, 31, 32, 63, 64) for sign in (-1, 1) for by in (-1, 0, 1)
]
texts = st.text("aé€😀\ud800", max_size=40)


class Text(str):
    __slots__ = ()


class Number(int):
    pass


def spelled_in_python(head, parts):
    data = b"".join(len(part).to_bytes(4) + part.encode() for part in parts)
    digest = hashlib.blake2b(data, digest_size=8, person=PERSON).digest()
    return base64.b64encode(head + digest).translate(bytes.maketrans(BASE64, ORDERED)).decode()


def is_utf8(text):
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


@given(st.binary(min_size=7, max_size=7) | st.binary(min_size=1, max_size=1), st.lists(texts, max_size=3))
@example(b"\0", ["é" * 300, "x" * 1000])
def test_a_digest_is_spelled_as_in_python(head, parts):
    expected = spelled_in_python(head, parts) if all(map(is_utf8, parts)) else None
    assert objects.spell_digest(PERSON, head, tuple(parts)) == expected


@given(st.binary(min_size=7, max_size=7), st.binary(min_size=7, max_size=7))
def test_what_is_spelled_stands_in_the_order_of_its_head(one, other):
    first, second = (objects.spell_digest(PERSON, head, ("x",)) for head in (one, other))
    assert (first < second) == (one < other)


@pytest.mark.parametrize(
    "arguments",
    [(), (PERSON, b"\0"), (PERSON, b"\0", ["x"]), (b"", b"\0", ()), (PERSON, b"", ()), (PERSON, bytes(19), ())],
)
def test_wrong_arguments_of_spell_digest(arguments):
    with pytest.raises(TypeError):
        objects.spell_digest(*arguments)


@given(st.uuids().map(str), st.integers(0, 36), st.sampled_from("0gA-fé\ud800"), st.integers(0, 37))
def test_the_time_of_a_uuid_is_what_it_begins_with(id, at, letter, size):
    changed = (id[:at] + letter + id[at + 1 :])[:size]
    for text in (id, changed):
        is_one = re.match("[0-9a-f]{8}-[0-9a-f]{4}-", text)
        expected = bytes.fromhex(text[:8] + text[9:13]) if is_one else bytes(6)
        assert objects.uuid_time(text) == expected


def test_the_time_of_what_is_no_text():
    assert objects.uuid_time(None) == objects.uuid_time(b"1ef00000-0000-6000") == bytes(6)


NONE = ("null", b"\xc6\0\0\0\0")
SPLIT = 32
DEPTH_MAX = 16
numbers = st.integers(-(1 << 64), 1 << 65) | st.floats() | st.booleans()
values = st.recursive(
    numbers | texts | st.none(),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(texts, inner, max_size=18),
    max_leaves=40,
)


def nested(depth, make=lambda inner: [inner]):
    value = 7
    for _ in range(depth):
        value = make(value)
    return value


VALUES = [
    *BOUNDS[:-1],
    *("x" * size for size in (31, 32, 255, 256, 16_381, 16_382, 65_536)),
    None,
    [1],
    [],
    {},
    {"a": []},
    [None],
    [*range(16)],
    {str(number): number for number in range(16)},
    ["x" * 30, 1],
    ["x" * 31] * 2,
    ["x" * 32, 1],
    {"list": ["x" * 1000]},
    {1: 2},
    {"a": {"\ud800": 1}},
    {"a": 1 << 64},
    (1, 2),
    {"a": (1,)},
    [*range(8_000)],
    nested(DEPTH_MAX),
    nested(DEPTH_MAX + 1),
    nested(DEPTH_MAX, lambda inner: {"a": inner}),
    nested(DEPTH_MAX + 1, lambda inner: {"a": inner}),
    Text("a"),
    Number(1),
    [Text("a")],
]


def packed(value):
    """What LangGraph's serialiser makes of a value that the kernel takes; None of others."""
    if not is_taken(value, 0):
        return None
    data = pytest.importorskip("ormsgpack", reason="needs langgraph").packb(value)
    is_split = type(value) is list and len(data) >= SPLIT * len(value)
    return None if is_split or len(data) > 16 * 1024 else data


def is_taken(value, depth):
    if type(value) is str:
        return is_utf8(value)
    if type(value) in (list, dict):
        members = value.values() if type(value) is dict else value
        keys = value if type(value) is dict else ()
        return (
            depth < DEPTH_MAX
            and all(type(key) is str and is_utf8(key) for key in keys)
            and all(member is None or is_taken(member, depth + 1) for member in members)
        )
    return type(value) in (bool, float) or (type(value) is int and -(1 << 63) <= value < 1 << 64)


def check_item(value):
    data = packed(value)
    item = objects.plain_item(PREFIX, value, SPLIT)
    assert item == (None if data is None else PREFIX + cbor.head(2, len(data)) + data)


@given(values)
def test_a_plain_value_is_packed_as_the_serialiser_packs_it(value):
    check_item(value)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_plain_value_at_a_bound_is_packed_as_the_serialiser_packs_it(value):
    check_item(value)


def test_a_list_that_holds_itself_is_left_to_the_serialiser():
    value = []
    value.append(value)
    assert objects.plain_item(PREFIX, value, SPLIT) is None


@given(st.lists(st.tuples(st.sampled_from(["a", "channel", "é"]), values), max_size=5))
@example([("a", 1), ("__error__", 1)])
@example([("a", 1), ["a", 1]])
@example([("a", 1, 2)])
@example([(1, 1)])
@example([("a", value) for value in VALUES if packed(value) is not None])
@example([("a", number) for number in range(256)])
@example([("a", number) for number in range(257)])
def test_the_header_of_plain_writes_is_what_the_serialiser_makes(writes):
    header = objects.plain_writes("task", "path", writes, OTHERS, NONE, SPLIT)
    if not 0 < len(writes) <= 256 or not all(is_plain(write) for write in writes):
        assert header is None
        return
    expected = ["task", "path", str(len(writes))]
    for number, (channel, value) in enumerate(writes):
        expected += [channel, str(number), *(NONE if value is None else (None, packed(value)))]
    assert header == expected


def is_plain(write):
    if type(write) is not tuple or len(write) != 2 or type(write[0]) is not str or write[0] in OTHERS:
        return False
    return write[1] is None or packed(write[1]) is not None


@pytest.mark.parametrize("arguments", [(), (PREFIX, 1), (PREFIX, 1, "1"), ("", 1, 1)])
def test_wrong_arguments_of_plain_item(arguments):
    with pytest.raises(TypeError):
        objects.plain_item(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("t", "p", [], {}),
        ("t", "p", (), {}, NONE, SPLIT),
        ("t", "p", [], [], NONE, SPLIT),
        ("t", "p", [], {}, [*NONE], SPLIT),
        ("t", "p", [], {}, NONE[:1], SPLIT),
        ("t", "p", [], {}, NONE, "1"),
    ],
)
def test_wrong_arguments_of_plain_writes(arguments):
    with pytest.raises(TypeError):
        objects.plain_writes(*arguments)


def test_nothing_is_kept_of_what_was_given():
    channel, text, task = str(uuid.uuid4()), "é" * 300, str(uuid.uuid4())
    before = [sys.getrefcount(each) for each in (channel, text, task)]
    for _ in range(100):
        for value in (7, None, [text], {channel: text}, {text: [task, object()]}):
            objects.plain_writes(task, task, [(channel, text), (channel, value)], OTHERS, NONE, SPLIT)
            objects.plain_item(PREFIX, value, SPLIT)
            del value
        objects.spell_digest(PERSON, b"\0", (channel, text))
        objects.spell_digest(PERSON, b"\0", (channel, text, "\ud800"))
        objects.uuid_time(task)
    assert [sys.getrefcount(each) for each in (channel, text, task)] == before
