"""Views beyond reading: their memory and lifetime. (Reading: properties/test_views.py)"""

from __future__ import annotations

import copy
import pickle
from enum import StrEnum
from itertools import islice

import pytest

from statelog import reducers
from statelog.errors import ValueTypeError
from statelog.testing import identical


class Channel(StrEnum):
    QUERY = "query"


@pytest.mark.slow
def test_a_view_keeps_showing_its_version(store):
    thread = store.thread("t", schema={"log": reducers.append, "notes": reducers.merge})
    for number in range(200):
        thread.commit({"log": number, "notes": {f"k{number}": number}})
    log, notes, state = thread.state["log"], thread.state["notes"], thread.state
    for number in range(200, 500):
        thread.commit({"log": number, "notes": {f"k{number}": number}})
    assert list(log) == list(range(200))
    assert len(notes) == 200
    assert state["log"] == log
    assert len(thread.state["log"]) == 500


def test_a_view_is_valid_after_its_nodes_left_the_cache(store):
    thread = store.thread("t")
    view = thread.commit({"x": [f"item {number} " * 10 for number in range(3000)]}).state["x"]
    store._engine.cache.clear()
    assert view[2999] == "item 2999 " * 10
    store._engine.cache.clear()
    assert len(list(view)) == 3000


def test_iteration_is_not_disturbed_by_concurrent_commits(store):
    thread = store.thread("t", schema={"log": reducers.append})
    thread.commit({"log": reducers.Overwrite(list(range(1000)))})
    seen = []
    for item in thread.state["log"]:
        seen.append(item)
        if item % 100 == 99:
            thread.commit({"log": -1})
    assert seen == list(range(1000))


def test_no_transaction_is_open_between_two_steps_of_an_iteration(store):
    view = store.thread("t").commit({"x": list(range(5000))}).state["x"]
    iterator = iter(view)
    assert list(islice(iterator, 100)) == list(range(100))
    assert not store._engine.store_file.lmdb_file.active_transactions
    assert list(iterator) == list(range(100, 5000))


def test_a_view_without_a_checkpoint_is_empty(store):
    state = store.thread("t").state
    assert (len(state), list(state), dict(state), state.get("x"), "x" in state) == (0, [], {}, None, False)
    assert repr(state) == "{}"
    assert state == {}


def test_state_shows_channels_as_a_dict_shows_values(store):
    thread = store.thread("t")
    thread.commit({"text": "x", "list": [1], "dict": {"a": 1}, "set": {1}, "none": None, "tuple": (1,)})
    assert repr(thread.state["list"]) == "[1]"
    assert eval(repr(thread.state)) == thread.state.to_python()
    kinds = {name: type(value).__name__ for name, value in thread.state.items()}
    assert kinds["list"] == "ListView"
    assert kinds["dict"] == "MapView"
    assert (kinds["set"], kinds["tuple"], kinds["none"]) == ("set", "tuple", "NoneType")


def test_a_channels_type_does_not_depend_on_its_size(store):
    thread = store.thread("t", schema={"list": reducers.extend, "dict": reducers.merge})
    for size in (0, 1, 10, 1000):
        thread.commit({"list": list(range(size)), "dict": {f"{n}": n for n in range(size)}})
        assert [type(thread.state[name]).__name__ for name in ("list", "dict")] == ["ListView", "MapView"]


def test_a_text_enum_is_a_key_like_its_text(store):
    thread = store.thread("t")
    thread.commit({Channel.QUERY: "x", "other": {f"{number}": number for number in range(100)}})
    assert thread.state[Channel.QUERY] == "x"
    assert Channel.QUERY in thread.state
    assert thread.state.get(Channel.QUERY) == "x"


def test_views_are_compared_without_reading_shared_nodes(store, monkeypatch):
    thread = store.thread("t")
    first = thread.commit({"x": list(range(5000))}).state["x"]
    second = store.thread("u").commit({"y": list(range(5000))}).state["y"]
    monkeypatch.setattr(type(first), "__iter__", None)
    assert first == second


@pytest.mark.parametrize("value", [list(range(5)), list(range(500)), {"a": 1}, {f"{n}": n for n in range(500)}])
def test_shown_values_can_be_committed_again(store, value):
    view = store.thread("t").commit({"x": value}).state["x"]
    thread = store.thread("u")
    thread.commit({"x": view.to_python()})
    assert identical(thread.state["x"], value)
    assert pickle.loads(pickle.dumps(view.to_python())) == value


def test_a_tuple_returned_by_a_view_cannot_change_it(store):
    view = store.thread("t").commit({"x": [([1],)]}).state["x"]
    view[0][0].append("mine")
    assert view == [([1],)]


def test_a_view_can_be_deep_copied_but_committing_it_is_refused_with_advice(store):
    thread = store.thread("t", schema={"log": reducers.append, "notes": reducers.merge})
    thread.commit({"log": {"a": [1]}, "notes": {"k": {"deep": [2]}}})
    state = thread.state
    for copied in (copy.deepcopy(state), state.to_python()):
        assert type(copied["log"]) is list
        assert copied == {"log": [{"a": [1]}], "notes": {"k": {"deep": [2]}}}
    assert type(copy.deepcopy(state["notes"])) is dict
    with pytest.raises(ValueTypeError, match="to_python"):
        thread.commit({"log": state["log"]})
    thread.commit({"log": state["log"].to_python()})
    assert thread.version == 1
