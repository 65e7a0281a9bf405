"""What a checkpoint of plain values writes is found out in one call, as it is channel by channel."""

from __future__ import annotations

import gc
import sys

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="needs langgraph")

from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from statelog.adapters.langgraph.saver import putting
from statelog.adapters.langgraph.saver.putting import NO_TRAIL, Base, value_writes
from statelog.adapters.langgraph.values.codec import SPLIT_SIZE_BYTES_MIN, Codec
from statelog.adapters.langgraph.values.frozen import Frozen
from statelog.adapters.langgraph.values.names import Place, channel_name, store_names
from statelog.kernels import objects
from statelog.reducers import Removal, replace

CHANNELS = ["a", "b", "messages", "branch:to:x", "langgraph:odd", "é" * 10, "x" * 600, "\ud800"]
PLACE = Place("t", "", "id")
CODEC = Codec(JsonPlusSerializer())

plain = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text("aé€", max_size=8)
)
values = plain | st.lists(plain, max_size=3) | st.dictionaries(st.text(max_size=3), plain, max_size=2)
odd = st.sampled_from([b"bytes", (1, 2), {1: 2}, ["y" * 60] * 2, {"deep": [[{"x": b""}]]}, "z" * 20_000])
versions = st.sampled_from(["1", "2", "3", 1, 2, 1.5])


class Text(str):
    __slots__ = ()


def stored(value):
    encoded = CODEC.encode(value, "value")
    return encoded if isinstance(encoded, bytes) else b"\x80"


@st.composite
def steps(draw, value=values | values | values | odd):
    of_all = draw(st.dictionaries(st.sampled_from(CHANNELS), versions, max_size=6))
    known = {
        channel: version if draw(st.booleans()) else draw(versions)
        for channel, version in draw(st.permutations([*of_all.items(), *[("gone", "1")]]))
        if draw(st.integers(0, 3))
    }
    held = {channel_name(channel): stored(draw(values)) for channel in known if draw(st.integers(0, 4))}
    new = {
        channel: version for channel, version in of_all.items() if known.get(channel) != version or draw(st.booleans())
    }
    given = {channel: draw(value) for channel in of_all if draw(st.integers(0, 4))}
    return {"channel_versions": of_all, "channel_values": given}, new, Base(None, known, held, None, NO_TRAIL, b"")


def by_channel(writes):
    return {each.channel: None if isinstance(each, Removal) else each for each in writes}


class Nowhere:
    """In place of a lineage: nothing was changed elsewhere."""


def found_out(checkpoint, new, base):
    return value_writes(CODEC, Frozen(), Nowhere(), base, checkpoint, new, PLACE)


def after(held, writes):
    channels = dict(held)
    for channel, write in writes.items():
        if write is None:
            channels.pop(channel, None)
        else:
            channels[channel] = write.payload
    return channels


@settings(max_examples=600, deadline=None)
@given(steps())
def test_one_call_finds_out_what_channel_by_channel_does(step):
    checkpoint, new, base = step
    at_once = putting._plain_writes(CODEC, base, checkpoint, new)
    if at_once is None:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(putting, "_plain_writes", lambda *_arguments: None)
        one_by_one = found_out(checkpoint, new, base)
    assert by_channel(at_once.writes) == by_channel(one_by_one.writes)
    assert len(at_once.writes) == len(by_channel(at_once.writes))
    assert at_once.after == after(base.channels, by_channel(one_by_one.writes))
    assert at_once[1:4] == ({}, [], [])


def of(checkpoint_values, known=None, held=None, new=None):
    of_all = dict.fromkeys(checkpoint_values, "2")
    for channel in checkpoint_values:
        channel_name(channel)
    return objects.plain_values(
        b"P", b"NONE", SPLIT_SIZE_BYTES_MIN, store_names, replace, of_all, of_all if new is None else new,
        checkpoint_values, known or {}, held or {},
    )  # fmt: skip


def test_plain_values_are_found_out_in_one_call():
    """Negative control of the above: it does not leave everything to the other way."""
    writes, channels, removed = of(
        {"a": 1, "b": None, "c": "text", "d": [1, 2]}, held={"a": b"P\x41\x01", "z": b"\x01"}
    )
    assert [(each.channel, each.payload) for each in writes][:2] == [("b", b"NONE"), ("c", b"P\x45\xa4text")]
    assert channels == {"a": b"P\x41\x01", "b": b"NONE", "c": b"P\x45\xa4text", "d": b"P\x43\x92\x01\x02"}
    assert removed == ["z"]
    assert all(each.reducer is replace and each[3:] == (False, None) for each in writes)


def test_what_is_kept_by_its_version_is_neither_written_nor_removed():
    for held in ({}, {"a": b"\x01"}):
        assert of({"a": 1}, known={"a": "2"}, held=held, new={}) == ([], held, [])
    assert of({"a": 1}, known={"a": "1"}, held={"a": b"\x01"}, new={}) is None
    assert of({"a": 1}, held={"a": b"\x01"}, new={}) is None


@pytest.mark.parametrize("value", [b"x", (1,), {1: 2}, ["y" * 60] * 2, "\ud800", object(), Text("x"), "z" * 20_000])
def test_what_is_not_plain_is_left_to_python(value):
    assert of({"a": value}) is None


@pytest.mark.parametrize("part", [5, 6, 7])
def test_other_mappings_are_left_to_python(part):
    arguments = [b"P", b"N", 32, store_names, replace, {"a": "1"}, {"a": "1"}, {"a": 1}, {}, {}]
    channel_name("a")
    assert objects.plain_values(*arguments) is not None
    arguments[part] = Text("x")
    assert objects.plain_values(*arguments) is None


@pytest.mark.parametrize("part", [0, 1, 2, 3, 8, 9])
def test_wrong_arguments_are_refused(part):
    arguments = [b"P", b"N", 32, store_names, replace, {}, {}, {}, {}, {}]
    arguments[part] = None
    with pytest.raises(TypeError, match="plain_values"):
        objects.plain_values(*arguments)
    with pytest.raises(TypeError, match="plain_values"):
        objects.plain_values(*arguments[:-1])


class Odd:
    """A key that is none of a channel's, of the same hash."""

    def __init__(self, action):
        self.action = action

    def __hash__(self):
        return hash("a")

    def __eq__(self, _other):
        return self.action()


def test_a_key_that_cannot_be_compared_is_left_to_python():
    def refuse():
        raise LookupError

    arguments = [b"P", b"N", 32, store_names, replace, {"a": "1"}, {Odd(refuse): "1"}, {"a": 1}, {"a": "1"}, {}]
    assert objects.plain_values(*arguments) is None
    arguments[6], arguments[7] = {"a": "1"}, {Odd(refuse): 1}
    assert objects.plain_values(*arguments) is None


def test_a_comparison_that_names_other_channels_takes_nothing_away():
    def name_others():
        for number in range(3000):
            channel_name(f"another {number}")
        gc.collect()
        return False

    for _ in range(20):
        name = "a"
        channel_name(name)
        arguments = [
            b"P",
            b"N",
            32,
            store_names,
            replace,
            {name: "1"},
            {Odd(name_others): "1", name: "1"},
            {"a": 1},
            {},
            {},
        ]
        found = objects.plain_values(*arguments)
        assert found is None or [each.channel for each in found[0]] == ["a"]


def test_a_channel_is_named_once():
    store_names.clear()
    text = Text("named")
    assert type(channel_name(text)) is str
    assert channel_name("named") == channel_name(text) == "named"
    assert all(type(each) is str for pair in store_names.items() for each in pair)
    for number in range(3000):
        channel_name(f"channel {number}")
    assert len(store_names) <= 1024


def test_nothing_of_it_is_left_behind():
    value, version = "a text of its own" * 3, "a version of its own" * 3
    arguments = [
        ({"a": value, "b": [1, 2], "c": None}, {}, {"a": b"\x01", "z": b"\x02"}),
        ({"a": value, "b": object()}, {}, {}),
    ]

    def call(count):
        for _ in range(count):
            for values_given, known, held in arguments:
                of(values_given, known, held)
        gc.collect()
        return [sys.getrefcount(each) for each in (value, version, replace, store_names)], sys.getallocatedblocks()

    call(10)
    counts, blocks = call(10)
    more, more_blocks = call(2000)
    assert more == counts
    assert more_blocks - blocks < 100
