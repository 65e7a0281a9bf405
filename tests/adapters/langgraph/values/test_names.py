"""Names of pending writes: of one length, in the order of their checkpoints, and unique."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("langgraph.checkpoint.base", reason="needs langgraph")

from statelog.adapters.langgraph.values.names import (
    CheckpointName,
    channel_name,
    group_name,
    hidden_name,
    write_name,
    writes_prefix,
    writes_range,
)


class Text(str):
    __slots__ = ()


places = st.builds(
    CheckpointName, st.just("t"), st.text(max_size=3), st.text(min_size=1, max_size=5) | st.uuids().map(str)
)
indexes = st.integers(-(1 << 17), (1 << 17) - 1)
writes = st.tuples(places, st.text(max_size=5), indexes)


@given(st.lists(writes, unique=True, min_size=2, max_size=6))
def test_names_are_of_one_length_and_no_two_alike(several):
    names = [write_name(writes_prefix(place), task, index) for place, task, index in several]
    assert len(set(names)) == len(several)
    assert {len(name) for name in names} == {31}
    assert all(name.isascii() for name in names)


@given(writes, places)
def test_the_range_of_a_checkpoint_holds_its_writes_and_no_others(write, other):
    place, task, index = write
    prefix = writes_prefix(place)
    name = write_name(prefix, task, index)
    first, last = writes_range(prefix)
    assert first <= name < last
    assert not first <= hidden_name(prefix) < last
    assert len(first) == len(last) == len(name)
    if other != place:
        assert not first <= write_name(writes_prefix(other), task, index) < last


def test_later_checkpoints_come_behind():
    ids = ["1f0c6e10-0000-6000-8000-000000000000", "1f0c6e10-0001-6000-8000-000000000000", "2f0c6e10-0000-6fff-8000-0"]
    prefixes = [writes_prefix(CheckpointName("t", "", id)) for id in ids]
    assert prefixes == sorted(prefixes)
    assert writes_prefix(CheckpointName("t", "", "no time")) < prefixes[0]


@given(writes, st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 63) - 1))
def test_names_of_groups_are_in_the_range_of_their_checkpoint_in_order(write, time_us, later_us):
    place, task, index = write
    prefix = writes_prefix(place)
    first, last = writes_range(prefix)
    name = group_name(prefix, time_us)
    assert first <= name < last
    assert (name < group_name(prefix, later_us)) == (time_us < later_us)
    assert len(name) == len(first)
    assert index == 1 or name != write_name(prefix, task, index)


def test_a_channel_is_named_by_a_text():
    for channel in (Text("named"), "named"):
        assert type(channel_name(channel)) is str
        assert channel_name(channel) == "named"
