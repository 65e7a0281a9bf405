"""Calls of the session store whose process is killed at any fault point have their full effect or none."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("claude_agent_sdk", exc_type=ImportError)

from forked import Nursery

import statelog
from statelog.adapters.claude_agent_sdk import StatelogSessionStore

KEY = {"project_key": "p", "session_id": "s"}
OTHER = {"project_key": "p", "session_id": "t"}


def entries(*numbers):
    return [{"type": "user", "uuid": f"u{n}", "message": {"role": "user", "content": f"said {n}"}} for n in numbers]


async def append(sessions):
    await sessions.append(KEY, entries(1, 2, 3))


async def append_to_a_new_subpath(sessions):
    await sessions.append({**KEY, "subpath": "agents/new"}, entries(1, 2))


async def begin_anew(sessions):
    await sessions.append({**KEY, "session_id": "gone"}, entries(1, 2))


async def delete(sessions):
    await sessions.delete(KEY)


async def delete_a_subpath(sessions):
    await sessions.delete({**KEY, "subpath": "agents/a"})


async def append_in_two_commits(sessions):
    """Append the entries one by one, which a correct append must not do."""
    for each in entries(1, 2, 3):
        await sessions.append(KEY, [each])


WORK = (append, append_to_a_new_subpath, begin_anew, delete, delete_a_subpath)


def made(path):
    async def make(sessions):
        for key in (KEY, OTHER, {**KEY, "session_id": "gone"}):
            await sessions.append(key, entries(0, 1))
            for subpath in ("agents/a", "agents/b"):
                await sessions.append({**key, "subpath": subpath}, entries(0))
        await sessions.delete({**KEY, "session_id": "gone"})

    with statelog.open(path) as store:
        asyncio.run(make(StatelogSessionStore(store)))


def killed(path, name, begin, end):
    with statelog.open(path) as store:
        sessions = StatelogSessionStore(store)
        begin()
        asyncio.run(globals()[name](sessions))
        end()


def look(store):
    async def read(sessions):
        listed = {each["session_id"]: each["mtime"] for each in await sessions.list_sessions("p")}
        summaries = {each["session_id"]: each for each in await sessions.list_session_summaries("p")}
        assert {name: each["mtime"] for name, each in summaries.items()} == listed
        found = {}
        for name in ("s", "t", "gone"):
            key = {**KEY, "session_id": name}
            subpaths = sorted(await sessions.list_subkeys(key))
            keys = [key, *({**key, "subpath": each} for each in subpaths)]
            held = [await sessions.load(each) for each in keys]
            assert (held[0] is not None) == (name in listed)
            found[name] = subpaths, held, summaries.get(name, {}).get("data")
        return found

    return asyncio.run(read(StatelogSessionStore(store)))


@pytest.fixture(scope="module")
def nursery():
    with Nursery(__file__) as forking:
        yield forking


@pytest.mark.parametrize("name", [work.__name__ for work in WORK])
def test_a_killed_call_has_its_full_effect_or_none(nursery, tmp_path, name):
    counts = nursery.check_whole("killed", tmp_path, look, before="made", arguments=[name])
    assert all(count > 2 for count in counts), "killed before the commit, and after it"


def test_an_append_in_several_commits_is_detected(nursery, tmp_path):
    with pytest.raises(AssertionError, match="Death"):
        nursery.check_whole("killed", tmp_path, look, before="made", arguments=["append_in_two_commits"])
