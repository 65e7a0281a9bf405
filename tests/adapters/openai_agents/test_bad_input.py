"""What a conversation cannot hold, names and states of others, and turns on stores that refuse them."""

from __future__ import annotations

import asyncio
import math

import pytest

agents = pytest.importorskip("agents")

from agents import Agent, function_tool  # noqa: E402
from agents.testing import ScriptedModel  # noqa: E402
from openai.types.responses import (  # noqa: E402
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

import statelog  # noqa: E402
from statelog.adapters.kit.ordered import Json  # noqa: E402
from statelog.adapters.openai_agents import StatelogSession  # noqa: E402
from statelog.adapters.openai_agents.conversation import RUN  # noqa: E402
from statelog.errors import ClosedError, ReadOnlyError, StoreFullError, UsageError, ValueTypeError  # noqa: E402

agents.set_tracing_disabled(disabled=True)

CALL = ResponseFunctionToolCall(id="f", call_id="c", type="function_call", name="refund", arguments='{"order": 7}')
SAID = ResponseOutputText(text="hello", type="output_text", annotations=[])
ANSWER = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[SAID])


@pytest.fixture
def store(path):
    with statelog.open(path, durability="interval") as opened:
        yield opened
        assert opened.verify().ok


@function_tool(needs_approval=True)
def refund(order: int) -> str:
    return f"refunded {order}"


def agent(*steps):
    return Agent(name="a", model=ScriptedModel(steps=[list(step) for step in steps]), tools=[refund])


def user(content):
    return {"role": "user", "content": content}


@pytest.mark.parametrize("content", [math.nan, b"x"], ids=["not a number", "bytes"])
def test_a_turn_that_is_not_json_is_refused_and_keeps_the_conversation(store, content):
    async def main():
        session = StatelogSession("s", store)
        await session.run(agent([ANSWER]), "hi")
        before = await session.get_items()
        with pytest.raises(ValueTypeError, match="JSON"):
            await session.run(agent([ANSWER]), [user("first"), user(content)])
        assert await session.get_items() == before
        await session.run(agent([ANSWER]), "again")
        return await session.get_items()

    assert len(asyncio.run(main())) == 4


@pytest.mark.parametrize("name", ["b", "main"])
def test_a_branch_name_that_is_taken_is_refused_and_both_branches_stay(store, name):
    async def main():
        session = StatelogSession("s", store)
        for text in ("one", "two"):
            await session.add_items([user(text)])
        await session.create_branch_from_turn(2, "b")
        await session.add_items([user("of b")])
        await session.switch_to_branch("main")
        before = store.last_lsn
        with pytest.raises(ValueError, match=f"Branch '{name}' already exists"):
            await session.create_branch_from_turn(1, name)
        with pytest.raises(ValueError, match=f"Branch '{name}' already exists"):
            await session.create_branch_from_content("two", name)
        assert store.last_lsn == before
        return await session.get_items(), await session.get_items(branch_id="b")

    assert asyncio.run(main()) == ([user("one"), user("two")], [user("one"), user("of b")])


@pytest.mark.parametrize(
    "forge",
    [
        lambda state: {**state, "$schemaVersion": "99.0"},
        lambda state: {key: value for key, value in state.items() if key != "$schemaVersion"},
        lambda _state: {},
        lambda _state: [],
    ],
    ids=["later", "none", "empty", "list"],
)
def test_a_state_of_another_schema_is_refused_and_stays(store, forge):
    async def main():
        session = StatelogSession("s", store)
        result = await session.run(agent([CALL]), "refund order 7")
        forged = Json.of(forge(result.to_state().to_json()))
        store.thread(session.thread_id).commit({RUN: forged})
        with pytest.raises(agents.UserError):
            await session.pending(agent())
        assert store.thread(session.thread_id).state[RUN] == forged
        return await session.get_items()

    assert [item.get("type") or item["role"] for item in asyncio.run(main())] == ["user", "function_call"]


def test_a_turn_on_a_full_store_leaves_the_conversation(path):
    async def main():
        session = StatelogSession.open("s", path, max_size_bytes=1 << 20)
        await session.run(agent([ANSWER]), "hi")
        before = await session.get_items()
        with pytest.raises(StoreFullError):
            await session.run(agent([CALL]), "x" * (1 << 21))
        assert await session.get_items() == before
        assert await session.pending(agent()) is None
        await session.run(agent([CALL]), "refund order 7")
        assert await session.pending(agent()) is not None
        session.close()

    asyncio.run(main())


def test_a_turn_on_a_closed_or_read_only_store_calls_no_model(path):
    async def main():
        session = StatelogSession.open("s", path)
        await session.run(agent([ANSWER]), "hi")
        before = await session.get_items()
        session.store.close()
        with pytest.raises(ClosedError):
            await session.run(asked, "again")
        session.close()
        for start in (session.run, session.run_streamed):
            with pytest.raises(RuntimeError, match="closed"):
                await start(asked, "again")
        with statelog.open(path, read_only=True) as reading:
            session = StatelogSession("s", reading)
            for start in (session.run, session.run_streamed):
                with pytest.raises(ReadOnlyError):
                    await start(asked, "again")
            assert await session.get_items() == before

    asked = agent([ANSWER])
    asyncio.run(main())
    assert not asked.model.calls


def test_a_name_with_a_lone_surrogate_is_refused(store):
    with pytest.raises(UsageError, match="surrogate"):
        StatelogSession("\ud800", store)
