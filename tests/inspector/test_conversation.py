"""Messages of every framework become the same conversation."""

from __future__ import annotations

import json

import pytest

from statelog.adapters.kit.ordered import Json
from statelog.inspector.conversation import message_of

FORMS = {
    "openai chat": (
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "found"},
    ),
    "openai responses": (
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "c", "output": "found"},
    ),
    "anthropic": (
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "look", "input": {"a": 1}}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "found"}]}],
        },
    ),
    "strands": (
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "look", "input": {"a": 1}}}]},
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "c", "status": "success", "content": [{"text": "found"}]}}],
        },
    ),
    "pydantic-ai": (
        {
            "kind": "response",
            "parts": [{"part_kind": "tool-call", "tool_name": "look", "args": {"a": 1}, "tool_call_id": "c"}],
        },
        {
            "kind": "request",
            "parts": [{"part_kind": "tool-return", "tool_name": "look", "content": "found", "tool_call_id": "c"}],
        },
    ),
    "google-adk": (
        {
            "author": "agent",
            "content": {"role": "model", "parts": [{"function_call": {"id": "c", "name": "look", "args": {"a": 1}}}]},
        },
        {
            "author": "agent",
            "content": {
                "role": "user",
                "parts": [{"function_response": {"id": "c", "name": "look", "response": "found"}}],
            },
        },
    ),
    "agent-framework": (
        {
            "role": "assistant",
            "contents": [{"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"a":1}'}],
        },
        {"role": "tool", "contents": [{"type": "function_result", "call_id": "c", "result": "found"}]},
    ),
}


@pytest.mark.parametrize("framework", FORMS)
@pytest.mark.parametrize("stored", [lambda item: item, Json.of], ids=["plain", "json"])
def test_a_call_and_its_result_are_found_in_every_form(framework, stored):
    call, result = (message_of(stored(item)) for item in FORMS[framework])
    assert [(each["id"], each["name"], json.loads(each["arguments"])) for each in call["calls"]] == [
        ("c", "look", {"a": 1})
    ]
    assert result["results"] == [{"id": "c", "text": "found"}]


@pytest.mark.parametrize(
    ("item", "role", "text"),
    [
        (("user", "hi"), "user", "hi"),
        ({"role": "user", "content": "hi"}, "user", "hi"),
        ({"role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}, "assistant", "hi"),
        ({"role": "user", "content": [{"text": "hi"}]}, "user", "hi"),
        ({"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "hi"}]}, "user", "hi"),
        ({"kind": "request", "parts": [{"part_kind": "system-prompt", "content": "hi"}]}, "system", "hi"),
        ({"type": "TextMessage", "source": "user", "content": "hi"}, "user", "hi"),
        ({"type": "TextMessage", "source": "writer", "content": "hi"}, "assistant", "hi"),
        ({"type": "user", "message": {"role": "user", "content": "hi"}}, "user", "hi"),
    ],
)
def test_a_text_is_found_in_every_form(item, role, text):
    message = message_of(item)
    assert (message["role"], message["text"]) == (role, text)


@pytest.mark.parametrize("item", [None, 1, "text", b"", [], {}, {"a": 1}, ["a", "b", "c"], {"role": 3}, {"content": 1}])
def test_values_that_are_not_messages_yield_none(item):
    assert message_of(item) is None
