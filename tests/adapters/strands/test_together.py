"""Two processes on one folder and one key: every snapshot is there, and the latest one is whole."""

from __future__ import annotations

import asyncio
import json

import pytest

pytest.importorskip("strands", exc_type=ImportError)

from forked import Nursery, meet

import statelog
from statelog.adapters.strands import StatelogStorage

FOLDER = "session/s/scopes/agent/a/snapshots"
LATEST = f"{FOLDER}/snapshot_latest.json"
ROUNDS = 15


def snapshot(me, number):
    messages = [{"role": "user", "content": [{"text": f"{me} {n} " * 20}]} for n in range(number)]
    return json.dumps({"z": me, "data": {"messages": messages}, "a": number}).encode()


def immutable(me, number):
    return f"{FOLDER}/immutable_history/{me}{number:03d}.json"


def writing(path, me, other, is_apart):
    """Write snapshots when the other does. `is_apart`: each under a key of its own."""

    async def main():
        with statelog.open(path) as store:
            storage = StatelogStorage(store)
            for number in range(ROUNDS):
                data = snapshot(me, number)
                meet(path, f"{me}{number}", [f"{other}{number}"])
                await storage.write(LATEST, data)
                await storage.write(immutable(me if is_apart else "same", number), data)
                await storage.write("plain", data)
                if number:
                    await storage.write(f"gone/{me}", data)
                    await storage.delete(f"gone/{me}")

    asyncio.run(main())


@pytest.fixture(scope="module")
def nursery():
    with Nursery(__file__) as forking:
        yield forking


def both(nursery, path, *, is_apart):
    """Run both processes; return what every key has."""

    async def look(store):
        storage = StatelogStorage(store)
        return {key: await storage.read(key) for key in await storage.list()}

    ended = nursery.together(*(("writing", path, *names, is_apart) for names in ("ab", "ba")))
    assert [code for code, _told in ended] == [0, 0], ended
    with statelog.open(path) as store:
        assert store.verify().ok
        return asyncio.run(look(store))


def count_lost(found):
    written = {snapshot(me, number) for me in "ab" for number in range(ROUNDS)}
    return len(written - {data for key, data in found.items() if "immutable_history" in key})


def test_two_processes_lose_no_snapshot_of_one_folder(nursery, path):
    found = both(nursery, str(path), is_apart=True)
    assert count_lost(found) == 0
    written = {immutable(me, number): snapshot(me, number) for me in "ab" for number in range(ROUNDS)}
    last = [snapshot(me, ROUNDS - 1) for me in "ab"]
    assert found.pop(LATEST) in last
    assert found.pop("plain") in last
    assert found == written


def test_processes_that_write_over_each_other_are_counted(nursery, path):
    found = both(nursery, str(path), is_apart=False)
    assert count_lost(found) == ROUNDS
    for number in range(ROUNDS):
        assert found[immutable("same", number)] in (snapshot("a", number), snapshot("b", number))
