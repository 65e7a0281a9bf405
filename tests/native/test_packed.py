"""Kernels for what LangGraph writes: names that sort, and headers in msgpack."""

import base64
import hashlib
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

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
