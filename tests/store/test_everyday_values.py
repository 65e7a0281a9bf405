"""Everyday values in a thread: committed, merged, read, changed in a mount, and compared."""

import datetime as dt
import pathlib

import numpy as np
import pytest

import statelog
from statelog import reducers
from statelog.errors import ReducerTypeError

LARGE = ["x" * 100] * 200
"""Large enough that the values beside it are in a tree."""


@pytest.mark.parametrize("padding", [[], LARGE], ids=["small", "large"])
def test_a_thread_without_a_schema_stores_and_returns_everyday_values(store, padding):
    values = [dt.date(2020, 2, 3), dt.timedelta(1), pathlib.Path("/a"), {1: {2: "x"}}, np.bool_(True), *padding]  # noqa: FBT003
    thread = store.thread("t")
    thread.commit({"values": values, "votes": {1: "x"}})
    assert thread.state["values"].to_python() == values
    assert type(thread.state["values"][4]) is np.bool_
    assert thread.state["votes"] == {1: "x"}
    assert thread.state["votes"][1] == "x"
    assert store.verify().ok


@pytest.mark.parametrize("padding", [[], LARGE], ids=["small", "large"])
def test_an_array_changed_in_a_mount_is_written(store, padding):
    thread = store.thread("t")
    thread.commit({"values": [np.zeros(3), *padding]})
    with thread.mount() as state:
        state["values"][0][1] = 7
    assert np.array_equal(thread.state["values"][0], [0, 7, 0])


def test_an_array_that_a_mount_only_reads_is_not_a_change(store):
    thread = store.thread("t")
    thread.commit({"values": np.zeros(3), "votes": {1: [2]}})
    with thread.mount() as state:
        assert state["values"].sum() == 0
        assert state["votes"][1] == [2]
    assert thread.version == 0


@pytest.mark.parametrize("name", ["merge", "deep_merge"])
@pytest.mark.parametrize(
    ("current", "write"),
    [
        ({1: "a", 2: "b"}, {2: "c", 3: "d"}),
        ({}, {1: "a"}),
        ({1: "a"}, {}),
        ({"k": 1}, {1: 2}),
        ({1: {"x": 1}}, {1: {"y": 2}}),
        ({"k": {1: 1}}, {"k": {"y": 2}}),
        ({"k": {"y": {}}}, {"k": {"y": {2: 2}}}),
        ({"k": {1: 1}, **{f"key{number}": "x" * 50 for number in range(200)}}, {"k": {2: 2}}),
        ({"k": {1: 1}, **{f"key{number}": "x" * 50 for number in range(200)}}, {"k": {"y": 2}}),
        ({f"key{number}": "x" * 50 for number in range(200)}, {1: 2}),
    ],
    ids=str,
)
def test_dicts_with_other_keys_merge_as_in_python(store, name, current, write):
    reducer = getattr(reducers, name)
    thread = store.thread("t", schema={"votes": reducer})
    thread.commit({"votes": current})
    thread.commit({"votes": write})
    assert thread.state["votes"].to_python() == reducer(current, write)


def test_a_dict_with_other_keys_does_not_merge_into_a_list(store):
    thread = store.thread("t", schema={"votes": reducers.merge})
    thread.commit({"votes": reducers.Overwrite([1])})
    with pytest.raises(ReducerTypeError, match="dicts are needed"):
        thread.commit({"votes": {1: 2}})


def test_a_diff_lists_changes_of_everyday_values(store):
    thread = store.thread("t")
    first = thread.commit({"born": dt.date(2020, 1, 1), "votes": {1: "a", None: 0, "k": 1}})
    second = thread.commit({"born": dt.date(2020, 1, 2), "votes": {1: "b", None: 0, "k": 1}})
    changes = {change.path: (change.old, change.new) for change in statelog.diff(first, second)}
    assert changes == {
        ("born",): (dt.date(2020, 1, 1), dt.date(2020, 1, 2)),
        ("votes", 1): ("a", "b"),
    }


@pytest.mark.parametrize("count", [1, 300])
def test_a_key_that_is_not_a_text_can_be_in_a_dict_of_any_size(store, count):
    thread = store.thread("t")
    held = {f"key {number}": "x" * 50 for number in range(count)}
    thread.commit({"outer": {"files": held}})
    with thread.mount() as state:
        state["outer"]["files"][1] = statelog.Encoded("y")
        state["outer"]["new"] = {2: statelog.Encoded("z")}
    assert thread.state["outer"].to_python() == {"files": {**held, 1: "y"}, "new": {2: "z"}}
    with thread.mount() as state:
        state["outer"]["files"][1] = "w"
    assert thread.state["outer"]["files"][1] == "w"
    assert store.verify().ok
