"""Conversations, with the framework's own store as an oracle."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pydantic_ai.conversation_store")

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict, InMemoryConversationStore
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.test import TestModel

import statelog
from statelog.adapters.pydantic_ai import StatelogConversationStore


def request(text):
    return ModelRequest(parts=[UserPromptPart(text)])


def response(text):
    return ModelResponse(parts=[TextPart(text)])


def texts(conversation):
    return conversation and [str(each.parts[0].content) for each in conversation.messages]


@pytest.fixture
def held(tmp_path):
    with statelog.open(tmp_path / "a.state") as store:
        yield store


@pytest.fixture(params=["memory", "statelog"])
def kept(request, held):
    return InMemoryConversationStore() if request.param == "memory" else StatelogConversationStore(held)


async def talk(store, name="c", *, turns=3, scope=None):
    conversation = await store.load(name) or Conversation(conversation_id=name)
    for number in range(turns):
        conversation.messages += [request(f"ask {number}"), response(f"say {number}")]
    await store.save(conversation, scope=scope)
    return conversation


def test_an_agent_goes_on_where_it_was_saved(kept):
    async def work():
        agent, conversation = Agent(TestModel(custom_output_text="hi")), Conversation(conversation_id="c")
        for turn in range(3):
            result = await agent.run(f"turn {turn}", conversation=conversation)
            assert len(await kept.save(result, scope="me")) == 2
            conversation = await kept.load("c", scope="me")
        assert len(conversation.messages) == 6
        assert conversation.usage.requests == 3
        assert [len((await kept.load("c", limit=n)).messages) for n in (0, 1, 4, 99)] == [0, 1, 4, 6]
        assert await kept.load("c", scope="you") is None
        assert await kept.load("no") is None

    asyncio.run(work())


def test_a_stale_save_conflicts_and_leaves_nothing_behind(kept):
    async def work():
        await talk(kept)
        one, other = await kept.load("c"), await kept.load("c")
        one.messages.append(request("one"))
        other.messages.append(request("other"))
        await kept.save(one)
        for stale in (other, Conversation(conversation_id="c")):
            with pytest.raises(ConversationConflict):
                await kept.save(stale)
        assert texts(await kept.load("c"))[-1] == "one"

    asyncio.run(work())


def test_of_fifty_racing_saves_one_wins(kept):
    async def work():
        await talk(kept)
        copies = [await kept.load("c") for _ in range(50)]
        for number, copy in enumerate(copies):
            copy.messages.append(request(str(number)))
        done = await asyncio.gather(*(kept.save(copy) for copy in copies), return_exceptions=True)
        assert sum(isinstance(each, list) for each in done) == 1
        assert all(isinstance(each, list | ConversationConflict) for each in done)

    asyncio.run(work())


async def played(store, operation, number):
    op, name, other, pick = operation
    found = await store.load(name)
    if op == "save":
        conversation = found or Conversation(conversation_id=name)
        if pick < 0.2 and conversation.messages:  # rewritten
            half = conversation.messages[: len(conversation.messages) // 2]
            conversation = Conversation(conversation_id=name, messages=half, revision=conversation.revision)
        conversation.messages.append(request(f"m{number}"))
        return len(await store.save(conversation, scope="xy"[number % 2] if pick < 0.1 else None))
    if op == "branch":
        if found is None:
            return None
        at = int(pick * (len(found.messages) + 1))
        return texts(await store.branch(name, at=at, expected_revision=found.revision))
    if op == "fork":
        return texts(await store.fork(name, at=int(pick * 3), new_conversation_id=other))
    if op == "delete":
        return await store.delete(name)
    if op == "list":
        records = await store.list_conversations(limit=3)
        return [(each.conversation_id, each.scope, each.forked_from, len(each.branches)) for each in records]
    return texts(found) and texts(await store.load(name, limit=int(pick * 5)))


OPERATIONS = st.tuples(
    st.sampled_from([*["save"] * 5, "branch", "fork", "delete", "load", "list"]),
    st.sampled_from("abc"),
    st.sampled_from("abcde"),
    st.floats(0, 0.999),
)


@given(history=st.lists(OPERATIONS, min_size=10, max_size=40))
def test_histories_have_the_answers_of_the_store_in_memory(history, tmp_path_factory):
    async def answer(store, operation, number):
        try:
            return await played(store, operation, number)
        except UserError as error:
            return type(error).__name__

    async def work(held):
        stores = InMemoryConversationStore(), StatelogConversationStore(held)
        for number, operation in enumerate(history):
            theirs, ours = [await answer(store, operation, number) for store in stores]
            assert ours == theirs, operation

    with statelog.open(tmp_path_factory.mktemp("h") / "a.state", durability="interval") as held:
        asyncio.run(work(held))
        assert held.verify().problems == []


def test_a_branch_that_was_left_is_there_to_go_back_to(kept):
    async def work():
        first = await talk(kept)
        entries = await kept.load_entries("c")
        await kept.branch("c", at=2, expected_revision=first.revision)
        again = await kept.load("c")
        assert len(again.messages) == 2
        back = await kept.branch("c", from_entry=entries[-1].id, expected_revision=again.revision)
        assert texts(back) == texts(first)
        assert (await kept.read_entry(entries[1].id)).id == entries[1].id

    asyncio.run(work())


def test_a_fork_stays_whole_when_its_source_is_gone(held):
    async def work():
        store = StatelogConversationStore(held)
        await talk(store)
        await store.fork("c", at=4, new_conversation_id="d")
        await store.delete("c")
        fresh = StatelogConversationStore(held)
        assert texts(await fresh.load("d")) == ["ask 0", "say 0", "ask 1", "say 1"]
        assert await fresh.load("c") is None

    asyncio.run(work())


def test_a_deleted_conversation_is_gone_and_its_name_begins_anew(held):
    async def work():
        store = StatelogConversationStore(held)
        stale = await talk(store)
        await store.delete("c")
        assert [each.id for each in held.threads() if each.id.startswith("pydantic-ai:")] == []
        with pytest.raises(ConversationConflict):
            await store.save(stale)
        await talk(store, turns=1)
        assert len((await store.load("c")).messages) == 2
        await store.delete("c")
        assert await store.list_conversations() == []

    asyncio.run(work())


def test_two_stores_on_one_file_clobber_nothing(held, tmp_path):
    async def work(other):
        one, two = StatelogConversationStore(held), StatelogConversationStore(other)
        await talk(one)
        stale = await two.load("c")
        await talk(one)
        stale.messages.append(request("late"))
        with pytest.raises(ConversationConflict):
            await two.save(stale)
        assert len((await two.load("c")).messages) == 12

    with statelog.open(tmp_path / "a.state") as other:
        asyncio.run(work(other))
