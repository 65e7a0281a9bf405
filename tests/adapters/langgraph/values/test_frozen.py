"""What a list was when it was serialised: told of many items at once as of each by itself."""

from __future__ import annotations

import random
from typing import Any

import pytest

pytest.importorskip("langgraph.checkpoint.base")

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from statelog.adapters.langgraph.values.frozen import Rows, Singles, begins, freeze, freeze_all, joined, still

VALUES: list[Any] = [
    None,
    "",
    "a",
    b"a",
    0,
    1,
    True,
    False,
    0.0,
    -0.0,
    1.0,
    [],
    (),
    {},
    [1],
    [True],
    {"a": 1},
    {"a": 1.0},
]


class Text(str):
    """Equal to a text, and none."""

    __slots__ = ()


class Undecided:
    """Has no truth, and equals all."""

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise AssertionError

    def __eq__(self, _other: object) -> bool:
        raise AssertionError


def a_message(chance: random.Random) -> Any:
    kind = chance.choice([AIMessage, AIMessage, HumanMessage])
    message = kind(chance.choice(["a", "b"]), id=chance.choice(["1", None]))
    message.additional_kwargs = chance.choice([{}, {}, {"a": chance.choice(VALUES)}])
    return message


def a_dict(chance: random.Random) -> Any:
    return {name: chance.choice(VALUES) for name in chance.sample("abc", 2)}


def is_same(a: list[Any], b: list[Any]) -> bool:
    return [freeze(item) for item in a] == [freeze(item) for item in b]


@pytest.mark.parametrize("make", [a_message, a_dict])
def test_rows_tell_what_freezing_each_item_tells(make: Any) -> None:
    chance = random.Random(1)
    seen = set()
    for _ in range(2000):
        some = [make(chance) for _ in range(chance.randint(1, 2))]
        more = [make(chance) for _ in range(chance.randint(1, 2))]
        known = joined(freeze_all(some), freeze_all(more))
        assert isinstance(known, Rows)
        assert len(known) == len(some) + len(more)
        assert known.items() == [freeze(item) for item in some + more]
        other = [make(chance) if chance.random() < 0.2 else item for item in some + more]
        assert begins(known, other) == is_same(some + more, other)
        assert begins(known, [*other, object()]) == begins(known, other)
        assert not begins(known, other[:-1])
        seen.add(begins(known, other))
    assert seen == {True, False}


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("other", VALUES, ids=repr)
def test_members_are_told_apart_by_type(value: Any, other: Any) -> None:
    assert begins(freeze_all([{"a": value}]), [{"a": other}]) == (freeze(value) == freeze(other))
    a, b = (AIMessage("x", additional_kwargs={"a": each}) for each in (value, other))
    assert begins(freeze_all([a]), [b]) == (freeze(value) == freeze(other))


def test_keys_count_and_their_order() -> None:
    known = freeze_all([{"a": 1, "b": 2}, {"c": 3}])
    assert begins(known, [{"a": 1, "b": 2}, {"c": 3}])
    assert not begins(known, [{"b": 2, "a": 1}, {"c": 3}])
    assert not begins(known, [{"a": 1}, {"b": 2, "c": 3}])
    assert not begins(known, [{Text("a"): 1, "b": 2}, {"c": 3}])


def test_what_is_no_text_is_not_told_to_be_one() -> None:
    known = freeze_all([{"a": "x"}])
    assert not begins(known, [{"a": Text("x")}])
    assert isinstance(freeze_all([{Text("a"): "x"}]), Singles)


def test_nobody_s_code_is_run() -> None:
    known = freeze_all([{"a": Undecided()}])
    assert not begins(known, [{"a": Undecided()}])
    message = AIMessage("x", additional_kwargs={"a": Undecided()})
    assert not begins(freeze_all([message]), [message])


def test_extra_fields_are_frozen_one_by_one() -> None:
    plain, more = AIMessage("x"), AIMessage("x", unknown=1)
    assert isinstance(freeze_all([more]), Singles)
    assert not begins(freeze_all([plain]), [more])


def test_what_changes_in_place_is_seen() -> None:
    message = ToolMessage("x", tool_call_id="1")
    known = freeze_all([message])
    assert begins(known, [message])
    message.additional_kwargs["a"] = 1
    assert not begins(known, [message])
    known = freeze_all([message])
    message.additional_kwargs["a"] = True
    assert not begins(known, [message])


def test_of_what_changes_while_it_is_serialised_nothing_is_known() -> None:
    messages = [AIMessage("a"), AIMessage("b"), AIMessage("c")]
    was = freeze_all(messages)
    assert still(was, messages) is was
    messages[1].content = "changed"
    known = still(was, messages).items()
    assert [known[at] == freeze(message) for at, message in enumerate(messages)] == [True, False, True]
    was = freeze_all(messages)
    messages[0].content = "not serialised"
    assert still(was, messages, 1).items()[0] == freeze(AIMessage("a"))


def test_lists_of_two_kinds_go_together_one_by_one() -> None:
    known = joined(freeze_all([AIMessage("a")]), freeze_all([{"a": 1}]))
    assert isinstance(known, Singles)
    assert known.items() == [freeze(AIMessage("a")), freeze({"a": 1})]
    assert joined(known, freeze_all([])) is known


def test_of_a_model_that_was_not_made_whole_nothing_is_known() -> None:
    bare = AIMessage.__new__(AIMessage)
    for values in ([bare], [{"a": bare}], ["a", bare]):
        known = freeze_all(values)
        assert len(known) == len(values)
        assert not begins(known, values)
    assert not begins(freeze_all([AIMessage("a")]), [bare])
