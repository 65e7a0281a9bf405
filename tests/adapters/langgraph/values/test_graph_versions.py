"""What LangGraph keeps of a checkpoint, stored in few bytes: it comes back to the last character, or is not touched."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("langgraph.checkpoint.base", reason="needs langgraph")

from langgraph.checkpoint.base import empty_checkpoint

from statelog.adapters.langgraph import StatelogSaver
from statelog.adapters.langgraph.saver.checkpoint_reader import encode_kept, load_kept
from statelog.adapters.langgraph.values.msgpack_items import pack_id, unpack_id
from statelog.adapters.langgraph.values.own import Own, replace_own, split_kept
from statelog.display import graph_versions as versions

KEYS = ("v", "ts", "channel_versions", "versions_seen", "updated_channels")
names = st.text(max_size=9) | st.sampled_from(["messages", "__start__", "branch:to:model", "__input__"])
made_versions = st.builds(
    lambda number, chance: f"{number:032}.{chance:010x}", st.integers(0, 10**9), st.integers(0, (1 << 40) - 1)
)
odd_versions = st.sampled_from(
    ["", "1", "1.2", f"{7:032}", f"{7:031}.0123456789", f"{7:032}.012345678G", f"{-7:032}.{7:010x}"]
)
seen = st.dictionaries(names, made_versions, max_size=4)
kept = st.fixed_dictionaries(
    {
        "v": st.integers(0, 9),
        "ts": st.datetimes(timezones=st.just(UTC), min_value=datetime(1970, 1, 1)).map(datetime.isoformat),  # noqa: DTZ001
        "channel_versions": seen,
        "versions_seen": st.dictionaries(names, seen, max_size=4),
        "updated_channels": st.none() | st.lists(names, max_size=4),
    }
).map(lambda value: {key: value[key] for key in KEYS})


@given(kept)
def test_kept_items_are_returned_in_order(value):
    encoded = versions.encode(value)
    assert encoded is not None
    decoded = versions.decode(*encoded)
    assert decoded == value
    assert [*decoded["channel_versions"]] == [*value["channel_versions"]]
    assert [*decoded["versions_seen"]] == [*value["versions_seen"]]


@given(kept, st.sampled_from(KEYS), st.data())
def test_other_values_are_restored_or_left_unchanged(value, key, data):
    other = data.draw(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(max_size=40)
        | odd_versions
        | st.dictionaries(names | st.integers(), odd_versions | st.integers() | seen, max_size=3)
        | st.lists(names | st.integers(), max_size=3)
        | st.just(tuple("ab"))
    )
    changed = value | {key: other}
    encoded = versions.encode(changed)
    if encoded is not None:
        decoded = versions.decode(*encoded)
        assert decoded == changed
        assert [type(each) for each in decoded.values()] == [type(each) for each in changed.values()]


@pytest.mark.parametrize(
    "ts",
    [
        "2026-01-01",
        "2026-01-01T00:00:00",
        "2026-01-01T00:00:00+01:00",
        "2026-01-01T00:00:00Z",
        "1969-01-01T00:00:00+00:00",
    ],
)
def test_a_time_of_another_form_is_left(ts):
    value = {"v": 1, "ts": ts, "channel_versions": {}, "versions_seen": {}, "updated_channels": None}
    assert versions.encode(value) is None


def test_more_names_or_keys_than_it_has_room_for_are_left():
    value = {"v": 1, "ts": "2026-01-01T00:00:00+00:00", "versions_seen": {}, "updated_channels": None}
    many = {f"channel {number}": f"{1:032}.0123456789" for number in range(200)}
    assert versions.encode({**value, "channel_versions": many}) is None
    assert versions.encode({**value, "channel_versions": {}}) is None, "the keys are in another order"


def test_names_that_have_no_utf8_are_left():
    value = {"v": 1, "ts": "2026-01-01T00:00:00+00:00", "channel_versions": {"\ud800": f"{1:032}.0123456789"}}
    assert versions.encode({**value, "versions_seen": {}, "updated_channels": None}) is None


@given(st.none() | st.text() | st.uuids().map(str) | st.uuids().map(lambda each: str(each).upper()))
def test_an_id_comes_back(text):
    assert unpack_id(pack_id(text)) == text


def test_a_checkpoint_of_langgraphs_is_stored_in_few_bytes(tmp_path):
    version = f"{12:032}.0123456789"
    checkpoint = {
        **empty_checkpoint(),
        "channel_versions": {"messages": version, "branch:to:model": version},
        "versions_seen": {"__input__": {}, "model": {"branch:to:model": version}},
        "updated_channels": ["messages"],
    }
    checkpoint.pop("pending_sends", None)
    with StatelogSaver.open(tmp_path / "s") as saver:
        own = Own("", checkpoint["id"], None, checkpoint["id"])
        item = encode_kept(saver._codec, own, checkpoint)
        assert len(item) < 150
        found = split_kept(item)
        assert found.own == own
        without = {key: value for key, value in checkpoint.items() if key not in ("id", "channel_values")}
        assert load_kept(saver._codec, found) == without
        other = Own("inner", own.id, own.id, "latest")
        moved = split_kept(replace_own(item, other))
        assert moved.own == other
        assert load_kept(saver._codec, moved) == without
