"""Runs on stores that are closed, read-only or full: no model is asked in vain, and what was recorded stays."""

import asyncio

import pytest

pytest.importorskip("pydantic_ai.conversation_store")

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

import statelog
from statelog import durable
from statelog.adapters.pydantic_ai import StatelogDurability
from statelog.errors import ClosedError, ReadOnlyError, StoreFullError, UsageError


def agent_of(store, calls, *, size=1):
    """Return an agent whose tool returns so many numbers, and a durability of it."""

    def model(messages, _info):
        calls.append("model")
        is_done = any(part.part_kind == "tool-return" for message in messages for part in message.parts)
        return ModelResponse(parts=[TextPart("done") if is_done else ToolCallPart("work", {})])

    durability = StatelogDurability(store)
    agent = Agent(FunctionModel(model), name="a", capabilities=[durability])

    @agent.tool_plain
    async def work() -> str:
        calls.append("tool")
        return " ".join(map(str, range(size)))

    return agent, durability


async def run(agent, durability, id="evt-1"):
    async with durability.run(id):
        return (await agent.run("go")).output


def test_a_result_for_which_there_is_no_room_ends_the_run_and_what_was_before_is_replayed(tmp_path):
    calls = []
    with statelog.open(tmp_path / "s", max_size_bytes=1 << 20) as store:
        with pytest.raises(StoreFullError):
            asyncio.run(run(*agent_of(store, calls, size=1 << 18)))
        assert calls == ["model", "tool"]
        assert store.verify().problems == []
    with statelog.open(tmp_path / "s") as store:
        assert asyncio.run(run(*agent_of(store, calls))) == "done"
        assert calls == ["model", "tool", "tool", "model"]
        assert durable.get_run(store, "evt-1").status == "completed"


def test_a_run_on_a_closed_or_read_only_store_calls_nothing(tmp_path):
    calls = []
    with statelog.open(tmp_path / "s") as store:
        closed = agent_of(store, calls)
    with pytest.raises(ClosedError):
        asyncio.run(run(*closed))
    with statelog.open(tmp_path / "s", read_only=True) as store, pytest.raises(ReadOnlyError):
        asyncio.run(run(*agent_of(store, calls)))
    assert calls == []


@pytest.mark.parametrize("id", ["", None, 7, "\ud800"])
def test_an_id_that_is_none_is_refused_and_nothing_written(tmp_path, id):
    calls = []
    with statelog.open(tmp_path / "s") as store:
        with pytest.raises(UsageError):
            asyncio.run(run(*agent_of(store, calls), id))
        assert store.last_lsn == 0
    assert calls == []
