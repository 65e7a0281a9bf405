"""What a conversation cannot hold, ids of any kind, and stores that are closed, read-only or full."""

import asyncio
import json
import math

import pytest

pytest.importorskip("pydantic_ai.conversation_store")

from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import InMemoryConversationStore
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

import statelog
from statelog.adapters.pydantic_ai import StatelogConversationStore


@pytest.fixture
def held(tmp_path):
    with statelog.open(tmp_path / "a.state") as store:
        yield store


def asked(text):
    return ModelRequest(parts=[UserPromptPart(text)])


def returned(value):
    return ModelRequest(parts=[ToolReturnPart("tool", value, tool_call_id="1")])


def said(*messages, name="c"):
    return Conversation(conversation_id=name, messages=list(messages))


def holding_itself():
    value = {}
    value["self"] = value
    return value


def test_the_keys_of_a_message_keep_their_order(held):
    arguments = {"z": 1, "a": {"y": [{"q": 1, "b": 2}], "b": 3}, "m": None}
    message = ModelResponse(parts=[ToolCallPart("tool", arguments)])

    async def work():
        await StatelogConversationStore(held).save(said(message, returned(arguments)))
        return await StatelogConversationStore(held).load("c")

    call, result = [each.parts[0] for each in asyncio.run(work()).messages]
    assert json.dumps(call.args) == json.dumps(result.content) == json.dumps(arguments)


@pytest.mark.parametrize(
    "message",
    [
        returned({"z": math.nan, "a": math.inf}),
        returned({"z": b"text", "a": b"\xff\x00"}),
        asked("zero \0 and \U0001f600"),
        ModelRequest(parts=[UserPromptPart([BinaryContent(b"\xff\x00", media_type="image/png")])]),
        ModelResponse(parts=[ToolCallPart("tool", {"large": 1 << 200})]),
    ],
    ids=["not a number", "bytes", "text", "image", "large number"],
)
def test_a_message_comes_back_as_pydantic_ais_own_json_has_it(held, message):
    async def work():
        store = StatelogConversationStore(held)
        await store.save(said(message))
        return (await store.load("c")).messages

    theirs = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json([message]))
    assert asyncio.run(work()) == theirs


@pytest.mark.parametrize(
    ("conversation", "scope"),
    [
        (said(asked("x"), ModelResponse(parts=[ToolCallPart("tool", holding_itself())])), None),
        (said(asked("x"), asked("\ud800")), None),
        (said(asked("x")), "\ud800"),
    ],
    ids=["cycle in a call", "surrogate", "scope"],
)
def test_a_value_that_cannot_be_stored_is_a_users_error_and_nothing_is_written(held, conversation, scope):
    async def work():
        store = StatelogConversationStore(held)
        await store.save(said(asked("before"), name="other"))
        before = held.last_lsn
        with pytest.raises(UserError):
            await store.save(conversation, scope=scope)
        assert held.last_lsn == before
        assert len(await store.list_conversations()) == 1

    asyncio.run(work())


@pytest.mark.parametrize("name", ["x" * 5_000, "\u00e4" * 5_000, "a/b", "a\0", "~", " "])
def test_an_id_of_any_length_and_script_is_one_conversations(held, name):
    async def work():
        store, near = StatelogConversationStore(held), name + "."
        await store.save(said(asked("one"), name=name))
        await store.save(said(asked("two"), asked("two"), name=near))
        assert {each.conversation_id for each in await store.list_conversations()} == {name, near}
        await store.fork(name, new_conversation_id=f"fork of {name}")
        await store.delete(name)
        assert await store.load(name) is None
        assert len((await store.load(near)).messages) == 2
        await store.save(said(name=name))
        assert (await store.load(name)).messages == []
        assert (await store.load(f"fork of {name}")).conversation_id == f"fork of {name}"

    asyncio.run(work())


@pytest.mark.parametrize("is_ours", [False, True], ids=["memory", "statelog"])
def test_a_negative_limit_and_a_lost_head_are_errors_as_in_memory(held, is_ours):
    async def work():
        store = StatelogConversationStore(held) if is_ours else InMemoryConversationStore()
        for refused in (store.load("c", limit=-1), store.list_conversations(limit=-1), store.fork("c")):
            with pytest.raises(UserError):
                await refused
        for refused in (store.read_entry("no"), store.read_history("no")):
            with pytest.raises(KeyError):
                await refused

    asyncio.run(work())
