"""Transcripts of the Claude Agent SDK: idempotent, with their summaries, under asyncio and trio."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("claude_agent_sdk", exc_type=ImportError)

from claude_agent_sdk import InMemorySessionStore
from claude_agent_sdk.testing import run_session_store_conformance

import statelog
from statelog.adapters.claude_agent_sdk import StatelogSessionStore

KEY = {"project_key": "p", "session_id": "s"}


@pytest.fixture
def store(path):
    with statelog.open(path, durability="interval") as opened:
        yield opened
        assert opened.verify().ok


def entry(n, **fields):
    return {"type": "user", "uuid": f"u{n}", "timestamp": "2026-01-01T00:00:00Z", "message": {"z": n, "a": 1}, **fields}


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_the_sdk_s_conformance_suite_passes(tmp_path, loop):
    made = []

    def make():
        made.append(statelog.open(tmp_path / str(len(made)), durability="interval"))
        return StatelogSessionStore(made[-1])

    if loop == "asyncio":
        asyncio.run(run_session_store_conformance(make))
    else:
        pytest.importorskip("trio").run(run_session_store_conformance, make)
    for each in made:
        assert each.verify().ok
        each.close()


NAMES = st.sampled_from(["s", "t"])
BATCHES = st.lists(st.integers(0, 5).map(entry) | st.just({"type": "title", "title": "x"}), max_size=3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), NAMES, st.sampled_from(["", "a/b", "c"]), BATCHES),
        st.tuples(st.just("delete"), NAMES, st.sampled_from(["", "a/b"]), st.none()),
    ),
    max_size=10,
)


async def answers(store, steps):
    found, seen = [], set()
    for step, session, subpath, batch in steps:
        key = {"project_key": "p", "session_id": session, **({"subpath": subpath} if subpath else {})}
        if step == "append":
            # The SDK's in-memory store keeps repeated entries. The contract requires that they are left out.
            fresh = [each for each in batch if (session, subpath, each.get("uuid")) not in seen or "uuid" not in each]
            unique = {each.get("uuid", number): each for number, each in enumerate(fresh)}
            seen |= {(session, subpath, each["uuid"]) for each in fresh if "uuid" in each}
            if unique:  # For an empty batch, the SDK's store creates an empty session.
                await store.append(key, [*unique.values()])
        else:
            await store.delete(key)
            seen = {each for each in seen if each[0] != session or (subpath and each[1] != subpath)}
        for each in "st":
            found.append(json.dumps(await store.load({"project_key": "p", "session_id": each})))
            found.append(sorted(await store.list_subkeys({"project_key": "p", "session_id": each})))
        found.append(sorted(each["session_id"] for each in await store.list_sessions("p")))
        summaries = await store.list_session_summaries("p")
        found.append(sorted(json.dumps([each["session_id"], each["data"]]) for each in summaries))
    return found


@settings(max_examples=20)
@given(steps=STEPS)
def test_random_calls_get_the_same_answers_as_from_the_sdks_in_memory_store(tmp_path_factory, steps):
    with statelog.open(tmp_path_factory.mktemp("s") / "s", durability="interval") as store:
        ours = asyncio.run(answers(StatelogSessionStore(store), steps))
    assert ours == asyncio.run(answers(InMemorySessionStore(), steps))


def test_a_repeated_batch_adds_nothing(store):
    async def main():
        sessions = StatelogSessionStore(store)
        await sessions.append(KEY, [entry(0), entry(1), {"type": "title", "title": "a"}])
        await sessions.append(KEY, [entry(1), entry(2), entry(2)])
        listed = await sessions.list_sessions("p")
        await sessions.append(KEY, [entry(1), entry(2)])
        assert await sessions.list_sessions("p") == listed
        return await sessions.load(KEY)

    assert [each.get("uuid") for each in asyncio.run(main())] == ["u0", "u1", None, "u2"]


def test_a_deleted_session_can_be_created_again(store):
    async def main():
        sessions = StatelogSessionStore(store)
        await sessions.append(KEY, [entry(0)])
        await sessions.append({**KEY, "subpath": "agents/a"}, [entry(1)])
        await sessions.delete(KEY)
        assert await sessions.load(KEY) is None
        assert await sessions.load({**KEY, "subpath": "agents/a"}) is None
        assert await sessions.list_subkeys(KEY) == []
        await sessions.append(KEY, [entry(0)])
        return await sessions.load(KEY)

    assert asyncio.run(main()) == [entry(0)]


def test_threads_deleted_through_the_store_can_be_created_again(store):
    async def main():
        sessions = StatelogSessionStore(store)
        await sessions.append(KEY, [entry(0), {**entry(1), "uuid": 7}])
        store.delete_thread(f"claude:{KEY['project_key']}")
        await sessions.delete(KEY)
        assert await sessions.load(KEY) is None
        await sessions.append(KEY, [entry(2)])
        return await sessions.load(KEY)

    assert asyncio.run(main()) == [entry(2)]


def test_concurrent_deletions_and_appends_leave_no_partial_session(store):
    async def main():
        sessions = [StatelogSessionStore(store), StatelogSessionStore(store)]
        keys = [KEY, {**KEY, "subpath": "a"}, {**KEY, "subpath": "b"}]
        for turn in range(5):
            calls = [sessions[n % 2].append(keys[n % 3], [entry(100 * turn + n)]) for n in range(24)]
            calls[5::6] = [sessions[n % 2].delete(KEY) for n in range(4)]
            await asyncio.gather(*calls)
            kept = [key.get("subpath") for key in keys if await sessions[0].load(key) is not None]
            assert bool(await sessions[0].list_sessions("p")) == (None in kept)
            assert sorted(await sessions[0].list_subkeys(KEY)) == [each for each in kept if each]

    asyncio.run(main())
