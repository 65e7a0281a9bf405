"""Kernels for what LangGraph writes: names that sort, and headers in msgpack."""

import base64
import hashlib
import re
import sys
import uuid

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from statelog.kernels import objects

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


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "channel", "é"]),
            st.integers(-(1 << 64), 1 << 65) | st.floats() | st.booleans() | texts,
        ),
        max_size=5,
    )
)
@example([("a", bound) for bound in BOUNDS[:-1]])
@example([("a", "x" * size) for size in (31, 32, 255, 256, 16_384)])
@example([("a", "x" * 65_536)])
@example([("a", None)])
@example([("a", [1])])
@example([("a", Text("a"))])
@example([("a", Number(1))])
@example([("a", 1), ("__error__", 1)])
@example([("a", 1), ["a", 1]])
@example([("a", 1, 2)])
@example([(1, 1)])
@example([("a", number) for number in range(256)])
@example([("a", number) for number in range(257)])
def test_the_header_of_plain_writes_is_what_the_serialiser_makes(writes):
    ormsgpack = pytest.importorskip("ormsgpack", reason="needs langgraph")
    header = objects.plain_writes("task", "path", writes, OTHERS)
    if header is None:
        assert not 0 < len(writes) <= 256 or not all(is_plain(write) for write in writes)
        return
    assert all(is_plain(write) for write in writes)
    expected = ["task", "path", str(len(writes))]
    for number, (channel, value) in enumerate(writes):
        expected += [channel, str(number), None, ormsgpack.packb(value)]
    assert header == expected


def is_plain(write):
    if type(write) is not tuple or len(write) != 2 or type(write[0]) is not str or write[0] in OTHERS:
        return False
    value = write[1]
    if type(value) is str:
        return is_utf8(value) and len(value) <= 16 * 1024
    return type(value) in (bool, float) or (type(value) is int and -(1 << 63) <= value < 1 << 64)


@pytest.mark.parametrize("arguments", [(), ("t", "p", (), {}), ("t", "p", [], []), ("t", "p", [])])
def test_wrong_arguments_of_plain_writes(arguments):
    with pytest.raises(TypeError):
        objects.plain_writes(*arguments)


def test_nothing_is_kept_of_what_was_given():
    channel, text, task = str(uuid.uuid4()), "é" * 300, str(uuid.uuid4())
    before = [sys.getrefcount(each) for each in (channel, text, task)]
    for _ in range(100):
        objects.plain_writes(task, task, [(channel, text), (channel, 7)], OTHERS)
        objects.plain_writes(task, task, [(channel, text), (channel, None)], OTHERS)
        objects.spell_digest(PERSON, b"\0", (channel, text))
        objects.spell_digest(PERSON, b"\0", (channel, text, "\ud800"))
        objects.uuid_time(task)
    assert [sys.getrefcount(each) for each in (channel, text, task)] == before
