"""Values as display JSON: bounded, and complete by paths."""

from __future__ import annotations

import datetime as dt
import decimal
import json

import pytest

import statelog
from statelog import errors
from statelog.inspector.values import AnswerLimits, descend, display, rest


def test_numbers_are_texts_and_keep_their_digits():
    assert display(2**70)["v"] == str(2**70)
    assert display(float("nan")) == {"t": "float", "v": "nan"}
    yes = True
    assert display(yes) == {"t": "bool", "v": True}


@pytest.mark.parametrize(
    "value",
    [None, 1, "a", b"\x00", [1], (1,), {1, 2}, frozenset([1]), {"a": 1}, {1: 2}, decimal.Decimal("1.5"),
     dt.date(2026, 1, 1), 10**6000],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_every_value_becomes_strict_json(value):
    json.dumps(display(value), allow_nan=False)


def test_an_answer_has_no_more_than_its_room():
    wide = {str(n): [list(range(100))] * 100 for n in range(100)}
    node = display(wide, AnswerLimits(nodes=200, items=20, characters=10, depth=9))
    assert len(json.dumps(node)) < 20_000
    assert node["size"] == 100


def test_a_deep_value_is_cut_at_its_depth():
    value = []
    for _ in range(90):
        value = [value]
    node = display(value, AnswerLimits(depth=2))
    assert node["items"][0]["items"][0] == {"t": "list", "size": 1}


def test_the_rest_of_a_stored_list_is_whole(path):
    with statelog.open(path) as store:
        store.thread("t").commit({"items": [{"n": n, "text": "x" * 5000} for n in range(130)]})
        state = store.thread("t").state
        at, seen = 0, []
        while at < 130:
            node = rest(state, [0], at, AnswerLimits(items=40))
            seen += [item["items"][0][1]["v"] for item in node["items"]]
            at += len(node["items"])
        assert seen == [str(n) for n in range(130)]
        text = rest(state, [0, 7, 1], 0, AnswerLimits(characters=10_000))
        assert (text["v"], text["size"]) == ("x" * 5000, 5000)


@pytest.mark.parametrize("steps", [[3], [0, 0], [0, 0, 9]])
def test_a_path_that_leads_nowhere_is_refused(steps):
    with pytest.raises(errors.NotFoundError):
        descend({"a": 1, "b": 2}, steps)


def test_keys_that_look_the_same_are_written_differently():
    node = display({1: "int", "1": "text", (2,): "tuple"})
    assert [name for name, _value in node["items"]] == ["1", "'1'", "(2,)"]
    assert node["has_other_keys"] is True
    assert "has_other_keys" not in display({"1": "text"})
