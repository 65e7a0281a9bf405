"""Empty names, invalid entries, and stores that refuse a batch: no part of the batch is stored or listed."""

from __future__ import annotations

import asyncio
import json

import pytest

pytest.importorskip("claude_agent_sdk", exc_type=ImportError)

from claude_agent_sdk import InMemorySessionStore

import statelog
from statelog.adapters.claude_agent_sdk import StatelogSessionStore
from statelog.errors import ClosedError, ReadOnlyError, StoreFullError, UsageError, ValueTypeError

KEY = {"project_key": "p", "session_id": "s"}
NESTED = {"z": 1, "a": {"y": [{"q": 1, "b": 2}], "b": 3}, "m": None}


@pytest.fixture
def store(path):
    with statelog.open(path, durability="interval") as opened:
        yield opened
        assert opened.verify().ok


def entry(n, **fields):
    return {"type": "user", "uuid": f"u{n}", "message": {"role": "user", "content": "x"}, **fields}


def holding_itself():
    value = {}
    value["self"] = value
    return value


async def all_of(sessions):
    return (
        await sessions.load(KEY),
        await sessions.list_sessions("p"),
        await sessions.list_session_summaries("p"),
        await sessions.list_subkeys(KEY),
    )


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


@pytest.mark.parametrize(
    "fields", [{"project_key": ""}, {"session_id": None}, {"session_id": 7}, {"session_id": "\ud800"}, {"subpath": 7}]
)
def test_a_key_that_is_not_a_text_is_refused_and_nothing_is_written(store, fields):
    with pytest.raises(UsageError, match="name"):
        asyncio.run(StatelogSessionStore(store).append({**KEY, **fields}, [entry(0)]))
    assert store.last_lsn == 0


def test_an_entry_that_contains_itself_is_refused_with_its_batch(store):
    async def main():
        sessions = StatelogSessionStore(store)
        await sessions.append(KEY, [entry(0)])
        before = await all_of(sessions)
        with pytest.raises(ValueTypeError, match="JSON"):
            await sessions.append(KEY, [entry(1), entry(2, message=holding_itself())])
        assert await all_of(sessions) == before

    asyncio.run(main())


def test_a_refused_batch_or_deletion_changes_nothing(path):
    async def main():
        with statelog.open(path, max_size_bytes=1 << 20) as store:
            sessions = StatelogSessionStore(store)
            await sessions.append(KEY, [entry(0)])
            before = await all_of(sessions), store.last_lsn
            for key in (KEY, {**KEY, "subpath": "new"}, {**KEY, "session_id": "new"}):
                with pytest.raises(StoreFullError):
                    await sessions.append(key, [entry(1), entry(2, text="x" * (1 << 21))])
            assert (await all_of(sessions), store.last_lsn) == before
        for call in (sessions.append(KEY, [entry(1)]), sessions.delete(KEY), sessions.list_sessions("p")):
            with pytest.raises(ClosedError):
                await call
        with statelog.open(path, read_only=True) as store:
            sessions = StatelogSessionStore(store)
            for call in (sessions.append({**KEY, "subpath": "new"}, [entry(1)]), sessions.delete(KEY)):
                with pytest.raises(ReadOnlyError):
                    await call
            assert await all_of(sessions) == before[0]

    asyncio.run(main())
