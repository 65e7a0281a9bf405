"""Two processes that write one transcript: every entry is stored once, whichever process appended it."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

pytest.importorskip("claude_agent_sdk", exc_type=ImportError)

from forked import Nursery, meet

import statelog
from statelog.adapters.claude_agent_sdk import StatelogSessionStore

KEY = {"project_key": "p", "session_id": "s"}
ROUNDS = 15


def entry(uuid, text):
    return {"type": "user", "uuid": uuid, "message": {"role": "user", "content": text}}


def appending(path, me, other, shared):
    """Append batches at the same time as the other process: an own entry between two common ones."""

    async def main():
        with statelog.open(path) as store:
            sessions = StatelogSessionStore(store)
            for number in range(ROUNDS):
                batch = [
                    entry(f"{shared or me}{number}-first", "first"),
                    entry(f"{me}{number}", me),
                    entry(f"{shared or me}{number}-last", "last"),
                ]
                meet(path, f"{me}{number}", [f"{other}{number}"])
                await sessions.append(KEY, batch)
                await sessions.append({**KEY, "subpath": f"agents/{me}{number}"}, batch)
                await sessions.append(KEY, batch)  # As after a lost answer.

    asyncio.run(main())


@pytest.fixture(scope="module")
def nursery():
    with Nursery(__file__) as forking:
        yield forking


def both(nursery, path, shared):
    """Run both processes. Return the entries, and the listed facts of the session."""

    async def look(store):
        sessions = StatelogSessionStore(store)
        subpaths = await sessions.list_subkeys(KEY)
        others = {each: await sessions.load({**KEY, "subpath": each}) for each in subpaths}
        [listed], [summary] = await sessions.list_sessions("p"), await sessions.list_session_summaries("p")
        assert (listed["session_id"], listed["mtime"]) == ("s", summary["mtime"])
        return await sessions.load(KEY), others

    calls = (("appending", path, *names, shared) for names in ("ab", "ba"))
    ended = nursery.together(*calls)
    assert [code for code, _told in ended] == [0, 0], ended
    with statelog.open(path) as store:
        assert store.verify().ok
        return asyncio.run(look(store))


def lost_and_doubled(entries):
    """Count the missing entries, and the entries that exist twice with the same text and round."""
    places = Counter((each["uuid"].lstrip("abx").partition("-")[0], each["message"]["content"]) for each in entries)
    written = {(str(number), text) for number in range(ROUNDS) for text in ("first", "last", "a", "b")}
    return len(written - places.keys()), places.total() - len(places)


def test_appends_of_both_processes_are_stored_once(nursery, path):
    entries, others = both(nursery, str(path), "x")
    assert lost_and_doubled(entries) == (0, 0)
    for me in "ab":
        assert [each["uuid"] for each in entries if each["message"]["content"] == me] == [
            f"{me}{number}" for number in range(ROUNDS)
        ]
    assert sorted(others) == sorted(f"agents/{me}{number}" for me in "ab" for number in range(ROUNDS))
    assert all(len(each) == 3 for each in others.values())


def test_entries_with_different_uuids_are_counted_twice(nursery, path):
    entries, _others = both(nursery, str(path), "")
    assert lost_and_doubled(entries) == (0, 2 * ROUNDS)
