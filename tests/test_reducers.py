"""Reducers: their algebra, what they do as functions, and what they are remembered as."""

from __future__ import annotations

import functools
import operator
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from naming import named

import statelog
from statelog import reducers
from statelog.errors import LimitError, ReducerTypeError, SchemaError, UsageError
from statelog.reducers import REMOVE_ALL, Overwrite, Reducer, Remove, from_annotation, from_spec
from statelog.testing import SCHEMA, check_reducer, identical, writes_to

BUILT_IN = [
    reducers.replace,
    reducers.add,
    reducers.append,
    reducers.extend,
    reducers.union,
    reducers.merge,
    reducers.deep_merge,
    reducers.max,
    reducers.min,
    reducers.upsert("id"),
    reducers.upsert("key"),
]
PROPERTIES = ("associative", "commutative", "idempotent")


@pytest.mark.slow
@pytest.mark.parametrize("reducer", BUILT_IN, ids=lambda reducer: reducer.spec)
def test_a_built_in_reducer_has_the_algebra_it_declares(reducer):
    check_reducer(reducer, max_examples=60)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reducer", "lacking"),
    [
        (reducers.replace, "commutative"),
        (reducers.add, "commutative"),
        (reducers.add, "idempotent"),
        (reducers.append, "associative"),
        (reducers.append, "commutative"),
        (reducers.append, "idempotent"),
        (reducers.extend, "commutative"),
        (reducers.extend, "idempotent"),
        (reducers.merge, "commutative"),
        (reducers.deep_merge, "associative"),
        (reducers.deep_merge, "commutative"),
        (reducers.upsert("id"), "commutative"),
    ],
    ids=lambda part: getattr(part, "spec", part),
)
def test_undeclared_algebra_of_a_reducer_does_not_hold(reducer, lacking):
    assert not getattr(reducer, lacking)
    boast = Reducer(reducer.name, reducer.parameter, **{lacking: True})
    with pytest.raises(AssertionError, match=lacking):
        check_reducer(boast, max_examples=600)


def test_every_reducer_is_either_declared_or_refuted():
    refuted = {("replace", 1), ("add", 2), ("append", 3), ("extend", 2), ("merge", 1), ("deep_merge", 2), ("upsert", 1)}
    found = {(each.name, sum(not getattr(each, name) for name in PROPERTIES)) for each in BUILT_IN}
    assert found == refuted | {("union", 0), ("max", 0), ("min", 0)}


@pytest.mark.parametrize("channel", sorted(SCHEMA))
@given(st.data())
def test_a_superstep_is_its_writes_one_after_the_other(shared_store, channel, data):
    steps = data.draw(st.lists(writes_to(channel), min_size=2, max_size=4))
    schema = {channel: SCHEMA[channel]}
    names = [f"{channel} {kind} {shared_store.last_lsn}" for kind in ("together", "alone")]
    together, alone = (shared_store.thread(name, schema=schema) for name in names)

    def commit_alone():
        for step in steps:
            alone.commit({channel: step})

    outcomes = []
    for act in (lambda: together.commit(*({channel: step} for step in steps)), commit_alone):
        try:
            act()
            outcomes.append(None)
        except ReducerTypeError as error:
            outcomes.append(type(error))
    assert outcomes[0] == outcomes[1]
    if outcomes[0] is None:
        assert identical(together.state, alone.state)
        assert together.head.state_digest == alone.head.state_digest


# --- as functions -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("reducer", "current", "write", "merged"),
    [
        (reducers.replace, 1, [2], [2]),
        (reducers.add, 1, 2.5, 3.5),
        (reducers.add, "a", "b", "ab"),
        (reducers.add, (1,), (2,), (1, 2)),
        (reducers.append, [1], [2], [1, [2]]),
        (reducers.extend, [1], (2, 3), [1, 2, 3]),
        (reducers.union, {1}, [1, 2], {1, 2}),
        (reducers.merge, {"a": {"x": 1}, "b": 1}, {"a": {"y": 2}}, {"a": {"y": 2}, "b": 1}),
        (reducers.deep_merge, {"a": {"x": 1}, "b": 1}, {"a": {"y": 2}}, {"a": {"x": 1, "y": 2}, "b": 1}),
        (reducers.max, 3, 3.5, 3.5),
        (reducers.min, "b", "a", "a"),
        (reducers.upsert("id"), [{"id": 1}], {"id": 1, "x": 2}, [{"id": 1, "x": 2}]),
        (reducers.upsert("id"), [{"id": 1}, {"id": 2}], [{"id": 3}, Remove(1)], [{"id": 2}, {"id": 3}]),
        (reducers.upsert("id"), [{"id": 1}], [REMOVE_ALL, {"id": 2}], [{"id": 2}]),
        (reducers.upsert("id"), [{"id": 1}, {"id": 2}], [Remove(1), {"id": 1}], [{"id": 2}, {"id": 1}]),
        (reducers.upsert("id"), [{"id": 1}], [{"id": 1.0}, {"id": True}], [{"id": 1}, {"id": 1.0}, {"id": True}]),
        (reducers.custom(lambda current, write: current * write), 3, 4, 12),
    ],
    ids=lambda part: getattr(part, "spec", None),
)
def test_reducers_called_as_functions_equal_the_engine(store, reducer, current, write, merged):
    assert identical(reducer(current, write), merged)
    thread = store.thread("t", schema={"c": reducer})
    thread.commit({"c": Overwrite(current)})
    thread.commit({"c": write})
    assert identical(thread.state["c"], merged)


def test_an_item_without_identity_gets_one(store):
    thread = store.thread("t", schema={"m": reducers.upsert("id")})
    thread.commit({"m": [{"text": "a"}, {"text": "b"}, {"id": None, "text": "c"}]})
    items = thread.state["m"].to_python()
    assert [item["text"] for item in items] == ["a", "b", "c"]
    assert len({item["id"] for item in items}) == 3
    thread.commit({"m": {"id": items[1]["id"], "text": "changed"}})
    assert [item["text"] for item in thread.state["m"]] == ["a", "changed", "c"]


def test_an_upsert_keeps_places_and_appends_the_new(store):
    thread = store.thread("t", schema={"m": reducers.upsert("key")})
    thread.commit({"m": [{"key": name} for name in "abc"]})
    thread.commit({"m": [{"key": "b", "x": 1}, {"key": "d"}]}, {"m": {"key": "a", "x": 2}})
    assert thread.state["m"] == [{"key": "a", "x": 2}, {"key": "b", "x": 1}, {"key": "c"}, {"key": "d"}]


def test_an_overwrite_passes_by_the_reducer(store):
    thread = store.thread("t", schema={"n": reducers.add, "m": reducers.upsert("id")})
    thread.commit({"n": 5, "m": {"id": 1}})
    thread.commit({"n": Overwrite("text"), "m": Overwrite([{"id": 2}])}, {"n": " goes on"})
    assert thread.state == {"n": "text goes on", "m": [{"id": 2}]}


# --- what a schema makes of things -----------------------------------------------------


def one(value):
    return value


def two(current, write):
    return current + write


def three_with_default(current, write, _option=1):
    return current + write


def takes_keywords(*, current, write):
    return current + write


@pytest.mark.parametrize(
    ("candidate", "spec"),
    [
        (operator.add, "add"),
        (operator.concat, "add"),
        (max, "max"),
        (min, "min"),
        (reducers.merge, "merge"),
        (reducers.upsert, "upsert:id"),
        (reducers.upsert("key"), "upsert:key"),
        (two, f"python:{__name__}.two"),
        (three_with_default, f"python:{__name__}.three_with_default"),
        (functools.partial(three_with_default, _option=2), "python:functools.partial"),
    ],
    ids=named,
)
def test_every_reducer_is_known_by_its_spec(candidate, spec):
    assert from_annotation(candidate).spec == spec


@pytest.mark.parametrize("candidate", [one, len, int, list, "text", 5, None, [], dir, takes_keywords])
def test_annotations_without_a_reducer_yield_none(candidate):
    assert from_annotation(candidate) is None


@pytest.mark.parametrize("reducer", BUILT_IN, ids=lambda reducer: reducer.spec)
def test_a_built_in_reducer_comes_back_from_its_spec(reducer):
    assert from_spec(reducer.spec) == reducer


def test_a_users_function_comes_back_without_the_function():
    reducer = from_spec("python:module.name")
    assert (reducer.spec, reducer.function) == ("python:module.name", None)


def test_a_spec_of_a_later_version_is_refused():
    with pytest.raises(SchemaError, match="newer") as caught:
        from_spec("crdt")
    assert caught.value.stored == "crdt"


@pytest.mark.parametrize("key", ["", "k" * 256, 5, None])
def test_a_key_that_cannot_be_is_refused(key):
    with pytest.raises(UsageError):
        reducers.upsert(key)


@pytest.mark.parametrize(
    ("reducer", "write"),
    [(reducers.append, lambda item: item), (reducers.extend, lambda item: [item]), (reducers.add, lambda item: [item])],
    ids=["append", "extend", "add"],
)
def test_an_item_too_deep_for_its_list_is_refused_and_the_list_stays_readable(tmp_path, reducer, write):
    def nested(levels):
        return functools.reduce(lambda inside, _level: [inside], range(levels), 1)

    with statelog.open(tmp_path / "a.state") as store:
        thread = store.thread("t", schema={"items": Annotated[list, reducer]})
        thread.commit({"items": write(nested(127))})
        with pytest.raises(LimitError, match="nested deeper than 128"):
            thread.commit({"items": write(nested(128))})
        assert store.thread("t").state["items"] == [nested(127)]
