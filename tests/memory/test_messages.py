"""Calls and answers stay together, in the shapes of OpenAI, Anthropic and LangChain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelog.memory.messages import blocks, cut_before, is_system, newest_that_fit, stored_message


def openai_call(*ids):
    return {"role": "assistant", "content": None, "tool_calls": [{"id": each, "type": "function"} for each in ids]}


def openai_answer(id):
    return {"role": "tool", "tool_call_id": id, "content": "x"}


def anthropic_call(*ids):
    return {"role": "assistant", "content": [{"type": "text"}, *({"type": "tool_use", "id": each} for each in ids)]}


def anthropic_answer(id):
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "x"}]}


def responses_call(id):
    return {"type": "function_call", "call_id": id, "id": "fc_1", "name": "f", "arguments": "{}"}


def responses_answer(id):
    return {"type": "function_call_output", "call_id": id, "output": "x"}


def langchain_call(*ids):
    return {
        "type": "ai",
        "data": {"content": "", "tool_calls": [{"id": each, "name": "f", "args": {}} for each in ids]},
    }


def langchain_answer(id):
    return {"type": "tool", "data": {"content": "x", "tool_call_id": id}}


USER = {"role": "user", "content": "hi"}
SHAPES = [
    (openai_call, openai_answer),
    (anthropic_call, anthropic_answer),
    (responses_call, responses_answer),
    (langchain_call, langchain_answer),
]


def ranges(messages):
    return [(block.start, block.stop) for block in blocks(messages)]


@pytest.mark.parametrize(("call", "answer"), SHAPES)
def test_a_call_and_its_answer_are_one_block(call, answer):
    messages = [USER, call("a"), answer("a"), USER]
    assert ranges(messages) == [(0, 1), (1, 3), (3, 4)]
    assert newest_that_fit(messages, 2, lambda _message: 1) == messages[3:]
    assert newest_that_fit(messages, 3, lambda _message: 1) == messages[1:]
    assert [cut_before(messages, keep_last) for keep_last in range(5)] == [3, 3, 1, 1, 0]


@pytest.mark.parametrize(("call", "answer"), [SHAPES[0], SHAPES[1], SHAPES[3]])
def test_parallel_calls_and_what_is_between_them_are_one_block(call, answer):
    assert ranges([call("a", "b"), answer("a"), USER, answer("b"), USER]) == [(0, 4), (4, 5)]


def test_a_call_without_an_answer_and_an_answer_without_a_call_stand_alone():
    assert ranges([openai_call("a"), USER, openai_answer("b")]) == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize(("call", "answer"), SHAPES)
def test_an_answer_belongs_to_the_last_call_with_its_id(call, answer):
    assert ranges([call("0"), answer("0"), USER, call("0"), answer("0")]) == [(0, 2), (2, 3), (3, 5)]


def test_a_reasoning_item_belongs_to_the_next_one():
    messages = [USER, {"type": "reasoning", "id": "rs_1"}, responses_call("a"), responses_answer("a")]
    assert ranges(messages) == [(0, 1), (1, 4)]


def test_messages_of_langchain_are_stored_as_langchain_stores_them():
    core = pytest.importorskip("langchain_core.messages")
    messages = [
        core.SystemMessage("be kind"),
        core.AIMessage("", tool_calls=[{"id": "a", "name": "f", "args": {}}]),
        core.ToolMessage("x", tool_call_id="a"),
    ]
    stored = [stored_message(each) for each in messages]
    assert ranges(stored) == [(0, 1), (1, 3)]
    assert [is_system(each) for each in stored] == [True, False, False]
    assert core.messages_from_dict(stored) == messages


def test_a_model_of_pydantic_is_stored_by_its_fields():
    pydantic = pytest.importorskip("pydantic")
    kind = pydantic.create_model("Message", role=(str, ...), content=(str | None, None))
    assert stored_message(kind(role="user")) == {"role": "user"}


_MESSAGE = st.one_of(
    st.just(USER),
    st.sampled_from("abc").map(openai_call),
    st.sampled_from("abc").map(openai_answer),
    st.sampled_from("abc").map(anthropic_call),
    st.sampled_from("abc").map(anthropic_answer),
)


def _ids(message):
    parts = message["content"] if isinstance(message.get("content"), list) else ()
    called = [each["id"] for each in (*message.get("tool_calls", ()), *parts) if "id" in each]
    answered = [message.get("tool_call_id"), *(each.get("tool_use_id") for each in parts)]
    return called, [each for each in answered if each]


@given(messages=st.lists(_MESSAGE, max_size=12), tokens=st.integers(0, 12))
def test_no_window_separates_a_call_from_its_answer(messages, tokens):
    window = newest_that_fit(messages, tokens, lambda _message: 1)
    assert len(window) <= tokens
    first = len(messages) - len(window)
    assert window == messages[first:]
    last_calls: dict[str, int] = {}
    answered: list[tuple[int, int]] = []
    for at, message in enumerate(messages):
        called, answers = _ids(message)
        answered += [(last_calls[each], at) for each in answers if each in last_calls]
        last_calls |= dict.fromkeys(called, at)
    assert [pair for pair in answered if pair[0] < first <= pair[1]] == []
    assert cut_before(messages, tokens) in {block.start for block in blocks(messages)} | {0}
    assert [at for block in blocks(messages) for at in block] == list(range(len(messages)))
