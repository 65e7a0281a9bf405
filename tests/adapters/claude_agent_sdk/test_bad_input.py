"""Empty names, invalid entries, and stores that refuse a batch: no part of the batch is stored or listed."""

from __future__ import annotations

import asyncio
import json

import pytest

pytest.importorskip("claude_agent_sdk", exc_type=ImportError)

from claude_agent_sdk import InMemorySessionStore

import statelog
from statelog.adapters.claude_agent_sdk import StatelogSessionStore

KEY = {"project_key": "p", "session_id": "s"}
NESTED = {"z": 1, "a": {"y": [{"q": 1, "b": 2}], "b": 3}, "m": None}


@pytest.fixture
def store(path):
    with statelog.open(path, durability="interval") as opened:
        yield opened
        assert opened.verify().ok


def entry(n, **fields):
    return {"type": "user", "uuid": f"u{n}", "message": {"role": "user", "content": "x"}, **fields}


def test_entries_and_summaries_keep_the_order_of_keys(store):
    async def main(sessions):
        title = {"type": "summary", "summary": "t", "leafUuid": "u0", "customTitle": "c"}
        await sessions.append(KEY, [entry(0, cwd="/z", gitBranch="b", input=NESTED), title])
        await sessions.append({**KEY, "subpath": "z"}, [entry(1, input=NESTED)])
        [summary] = await sessions.list_session_summaries("p")
        return json.dumps([await sessions.load(KEY), await sessions.load({**KEY, "subpath": "z"}), summary["data"]])

    assert asyncio.run(main(StatelogSessionStore(store))) == asyncio.run(main(InMemorySessionStore()))


def test_a_session_without_a_name_is_accepted_as_in_memory(store):
    async def main(sessions):
        unnamed = {**KEY, "session_id": ""}
        for key in (KEY, unnamed):
            await sessions.append(key, [entry(0), entry(1)])
            await sessions.append({**key, "subpath": "a"}, [entry(2)])
        await sessions.delete(KEY)
        listed = await sessions.list_sessions("p")
        return await sessions.load(unnamed), await sessions.list_subkeys(unnamed), [e["session_id"] for e in listed]

    assert asyncio.run(main(StatelogSessionStore(store))) == asyncio.run(main(InMemorySessionStore()))
