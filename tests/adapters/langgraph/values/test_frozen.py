"""Frozen items of lists, and which items are still equal to them."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

pytest.importorskip("langgraph.checkpoint.base")

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from statelog.adapters.langgraph.values.frozen import common_ends, freeze, still

VALUES: list[Any] = [
    None,
    "",
    "a",
    b"a",
    0,
    1,
    2**70,
    True,
    False,
    0.0,
    -0.0,
    1.0,
    float("nan"),
    [],
    (),
    {},
    [1],
    (1,),
    [True],
    {"a": 1},
    {"a": 1.0},
    {1: "a"},
    {True: "a"},
]


class Text(str):
    """An object that equals a text but is not one."""

    __slots__ = ()


class Undecided:
    """Has no truth, and equals all."""

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise AssertionError

    def __eq__(self, _other: object) -> bool:
        raise AssertionError


def parts(value: Any) -> Any:
    """Return a value that is equal for values with the same types and members in the same order."""
    kind = type(value)
    if isinstance(value, float):
        return kind, struct.pack(">d", value)
    if isinstance(value, list | tuple):
        return kind, [parts(item) for item in value]
    if isinstance(value, dict):
        return kind, [(parts(key), parts(item)) for key, item in value.items()]
    if isinstance(value, AIMessage | HumanMessage | ToolMessage):
        return kind, parts(value.__dict__)
    return kind, value


def is_still(was: Any, value: Any) -> bool:
    return common_ends(freeze([was]), [value]) == (1, 0)


def a_message(chance: random.Random) -> Any:
    kind = chance.choice([AIMessage, AIMessage, HumanMessage])
    message = kind(chance.choice(["a", "b"]), id=chance.choice(["1", None]))
    message.additional_kwargs = chance.choice([{}, {}, {"a": chance.choice(VALUES)}])
    return message


def a_dict(chance: random.Random) -> Any:
    return {name: chance.choice(VALUES) for name in chance.sample("abc", 2)}


@pytest.mark.parametrize("make", [a_message, a_dict])
def test_the_ends_are_those_that_have_the_same_parts(make: Any) -> None:
    chance = random.Random(1)
    seen = set()
    for _ in range(2000):
        values = [make(chance) for _ in range(chance.randint(0, 6))]
        other = [make(chance) if chance.random() < 0.2 else item for item in values]
        for _ in range(chance.randint(0, 2)):
            other.insert(chance.randint(0, len(other)), make(chance))
        del other[len(other) - chance.randint(0, 1) * (len(other) > 0) :]
        first = last = 0
        shorter = min(len(values), len(other))
        while first < shorter and parts(values[first]) == parts(other[first]):
            first += 1
        while last < shorter - first and parts(values[-1 - last]) == parts(other[-1 - last]):
            last += 1
        assert common_ends(freeze(values), other) == (first, last)
        seen.add((first > 0, last > 0))
    assert len(seen) == 4


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("other", VALUES, ids=repr)
def test_members_are_told_apart_by_type(value: Any, other: Any) -> None:
    same = parts(value) == parts(other)
    assert is_still(value, other) == same
    assert is_still({"a": value}, {"a": other}) == same
    assert is_still([value], [other]) == same
    a, b = (AIMessage("x", additional_kwargs={"a": each}) for each in (value, other))
    assert is_still(a, b) == same


def test_keys_count_and_their_order() -> None:
    assert is_still({"a": 1, "b": 2}, {"a": 1, "b": 2})
    assert not is_still({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert not is_still({"a": 1, "b": 2}, {"a": 1})
    assert not is_still({"a": 1}, {"a": 1, "b": 2})
    assert not is_still({"a": 1}, {Text("a"): 1})


def test_values_that_are_not_texts_are_not_called_texts() -> None:
    assert not is_still({"a": "x"}, {"a": Text("x")})
    assert not is_still(Text("x"), Text("x"))


def test_nobody_s_code_is_run() -> None:
    thing = Undecided()
    message = AIMessage("x", additional_kwargs={"a": thing})
    for value in (thing, {"a": thing}, message):
        assert not is_still(value, value)


def test_extra_fields_count() -> None:
    assert not is_still(AIMessage("x"), AIMessage("x", unknown=1))
    assert not is_still(AIMessage("x", unknown=2), AIMessage("x", unknown=1))
    assert is_still(AIMessage("x", unknown=1), AIMessage("x", unknown=1))


def test_changes_in_place_are_seen() -> None:
    message = ToolMessage("x", tool_call_id="1")
    known = freeze([message])
    assert common_ends(known, [message]) == (1, 0)
    message.additional_kwargs["a"] = 1
    assert common_ends(known, [message]) == (0, 0)
    known = freeze([message])
    message.additional_kwargs["a"] = True
    assert common_ends(known, [message]) == (0, 0)


def test_nothing_is_remembered_of_a_value_that_changes_during_serialising() -> None:
    messages = [AIMessage("a"), AIMessage("b"), AIMessage("c")]
    was = freeze(messages)
    assert still(was, messages) is was
    messages[1].content = "changed"
    known = still(was, messages)
    assert [common_ends((one,), [message])[0] for one, message in zip(known, messages, strict=True)] == [1, 0, 1]


def test_of_a_model_that_was_not_made_whole_nothing_is_known() -> None:
    bare = AIMessage.__new__(AIMessage)
    for value in (bare, {"a": bare}):
        assert not is_still(value, value)
    assert not is_still(AIMessage("a"), bare)
