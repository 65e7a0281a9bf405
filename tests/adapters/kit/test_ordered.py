"""JSON in its original order, and without values that JSON lacks."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import statelog
from statelog import reducers
from statelog.adapters.kit import items
from statelog.adapters.kit.ordered import CODEC, Json, KnownList, of_all, read_list, read_value
from statelog.cli.values import to_json
from statelog.errors import ValueTypeError
from statelog.format import cbor
from statelog.kernels.objects import copy_plain, join_texts

SCHEMA = {"items": reducers.extend, "one": reducers.replace}
TEXTS = st.text(st.characters(exclude_categories=()), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture
def store(path):
    with statelog.open(path, durability="interval") as opened:
        yield opened
        assert opened.verify().ok


def text_of(value):
    """Return a text that shows the order of keys, and distinguishes 1 from 1.0 and True."""
    return json.dumps(value)


def test_the_order_of_keys_is_kept(store):
    value = {"z": 1, "a": {"y": [], "b": None}}
    store.thread("t", schema=SCHEMA).commit({"items": [Json.of(value)], "one": Json.of(value)})
    state = store.thread("t").state
    assert text_of(read_list(state, "items")) == text_of([value])
    assert text_of(read_value(state, "one")) == text_of(value)


@pytest.mark.slow
@given(values=st.lists(VALUES, max_size=6))
def test_any_json_is_restored(tmp_path_factory, values):
    with statelog.open(tmp_path_factory.mktemp("s") / "s", durability="interval") as store:
        store.thread("t", schema=SCHEMA).commit({"items": of_all(values)})
        assert text_of(read_list(store.thread("t").state, "items")) == text_of(values)


def test_a_part_of_a_long_list_can_be_read(store):
    values = [{"n": n, "text": "x" * (n % 300)} for n in range(2000)]
    store.thread("t", schema=SCHEMA).commit({"items": of_all(values)})
    state = store.thread("t").state
    for start, stop in [(0, None), (-5, None), (1990, 3000), (-3000, 3), (7, 7), (9, 4), (500, -400)]:
        assert read_list(state, "items", start, stop) == values[start:stop]


def test_a_missing_channel_is_empty(store):
    assert read_list(store.thread("t").state, "items") == []
    assert read_value(store.thread("t").state, "one") is None


def cycle():
    held = []
    held.append(held)
    return held


def test_a_nan_is_written_if_allowed_and_shown_by_the_command_line():
    kept = Json.of({"a": [math.nan, -math.inf]}, allow_nan=True)
    assert repr(kept.value) == repr({"a": [math.nan, -math.inf]})
    assert to_json(kept) == {"a": [{"$float": "nan"}, {"$float": "-inf"}]}


@pytest.mark.parametrize("value", [b"bytes", {1, 2}, object(), math.nan, math.inf, cycle(), {"a": [b""]}, {(): 1}])
def test_values_that_json_lacks_are_refused(value):
    with pytest.raises(ValueTypeError, match="cannot be stored as JSON"):
        Json.of(value)


def test_a_list_of_other_values_is_refused(store):
    store.thread("t").commit({"items": [Json.of(1), 2]})
    with pytest.raises(ValueTypeError, match="'items' is not a list of JSON texts: item 1"):
        read_list(store.thread("t").state, "items")


def test_the_command_line_shows_decoded_json():
    shown = to_json([Json.of({"z": 1, "a": 2})])
    assert text_of(shown) == '[{"z": 1, "a": 2}]'


PREFIX = items.codec_prefix(CODEC)


@pytest.mark.parametrize("size", [0, 1, 23, 24, 255, 256, 65535, 65536])
def test_texts_of_every_width_are_joined(size):
    item = cbor.encode(Json("x" * size))
    assert join_texts([item, item], PREFIX) == f"[{'x' * size},{'x' * size}]"


@pytest.mark.parametrize(
    "item",
    [b"", PREFIX, PREFIX[:-1], PREFIX + b"\x62a", PREFIX + b"\x61ab", PREFIX + b"\x41a", PREFIX + b"\x79\x00",
     PREFIX + b"\x7b" + b"\xff" * 8, PREFIX + b"\x7f\xff", PREFIX + b"\x7ca", "text"],
)  # fmt: skip
def test_an_item_that_is_not_a_text_is_refused(item):
    with pytest.raises(ValueError, match="item 0"):
        join_texts([item], PREFIX)


@pytest.mark.slow
@given(value=VALUES)
def test_a_copy_is_equal_and_shares_no_container(value):
    copied = copy_plain(value)
    assert text_of(copied) == text_of(value)
    pairs = [(value, copied)]
    while pairs:
        old, new = pairs.pop()
        if isinstance(old, dict):
            assert old is not new
            pairs += [(old[key], new[key]) for key in old]
        elif isinstance(old, list):
            assert old is not new
            pairs += zip(old, new, strict=True)


def test_a_value_that_contains_itself_is_not_copied():
    with pytest.raises(RecursionError):
        copy_plain(cycle())


def test_values_that_are_read_again_are_new_objects(store):
    thread, known = store.thread("t", schema=SCHEMA), KnownList("items")
    assert known.read(thread.state) == []
    thread.commit({"items": of_all([{"a": []}, 2])})
    first = known.read(thread.state)
    first[0]["a"].append("changed by who has read it")
    assert known.read(thread.state) == [{"a": []}, 2]
    thread.commit({"items": [Json.of(3)]})
    assert known.read(thread.state, 1) == [2, 3]
    assert known.read(thread.at(0).state) == [{"a": []}, 2]
