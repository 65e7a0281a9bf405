"""Storage of Strands: bytes come back as they were, and a kill leaves the old ones or the new ones."""

from __future__ import annotations

import asyncio
import json
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("strands", exc_type=ImportError)

from strands.storage import InMemoryStorage, LocalFileStorage
from strands.types.exceptions import StorageError

import statelog
from statelog.adapters.strands import StatelogStorage
from statelog.adapters.strands.storage import point, thread_of

FOLDER = "session/s/scopes/agent/a/snapshots"
LATEST = f"{FOLDER}/snapshot_latest.json"


@pytest.fixture
def store(path):
    with statelog.open(path, durability="interval") as opened:
        yield opened
        assert opened.verify().ok


def snapshot(count, seed=0, separators=None):
    messages = [{"role": "user", "content": [{"text": f"message {seed} {n} " * 40}]} for n in range(count)]
    return json.dumps({"z": 1, "data": {"messages": messages, "n": count}}, separators=separators).encode()


HISTORY = [f"{FOLDER}/immutable_history/{number}.json" for number in (1, 2)]
KEYS = st.sampled_from([LATEST, *HISTORY, "a/b", "a/b/c", "é"])
SNAPSHOTS = st.builds(snapshot, st.integers(0, 6), st.integers(0, 1), st.sampled_from([None, (",", ":")]))
DATA = st.binary(max_size=6) | SNAPSHOTS
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), KEYS, DATA),
        st.tuples(st.just("delete"), KEYS, st.none()),
        st.tuples(st.just("read"), KEYS, st.none()),
        st.tuples(st.just("list"), st.sampled_from(["", "a/b", FOLDER, "none"]), st.none()),
    ),
    max_size=14,
)


async def answers(storage, steps):
    found = []
    for step, key, data in steps:
        found.append(await getattr(storage, step)(*([key] if data is None else [key, data])))
        found += [await storage.read(each) for each in (LATEST, HISTORY[0])]
    return found


@settings(max_examples=20)
@given(steps=STEPS)
def test_it_answers_as_the_framework_s_storages(tmp_path_factory, steps):
    with statelog.open(tmp_path_factory.mktemp("s") / "s", durability="interval") as store:
        ours = asyncio.run(answers(StatelogStorage(store), steps))
        assert store.verify().ok
    assert ours == asyncio.run(answers(InMemoryStorage(), steps))


def test_snapshots_cost_only_new_values_and_stay(path, store):
    storage, files = StatelogStorage(store), LocalFileStorage(str(path.with_name("files")))

    async def main():
        for number in range(1, 60):
            for side in (storage, files):
                await side.write(LATEST, snapshot(number))
                await side.write(f"{FOLDER}/immutable_history/{number:03d}.json", snapshot(number))
        another = StatelogStorage(store)
        for number in range(1, 60):
            assert await another.read(f"{FOLDER}/immutable_history/{number:03d}.json") == snapshot(number)
        assert await another.list() == await files.list("")

    asyncio.run(main())
    assert store.thread(f"strands:{FOLDER.replace('/', '%2F')}").version == 58
    assert store.statistics().records_size_bytes < 59 * len(snapshot(59)) / 5


def test_deleted_items_are_gone(store):
    async def main():
        storage = StatelogStorage(store)
        for number in range(3):
            await storage.write(f"{FOLDER}/immutable_history/{number}.json", snapshot(number, seed=number))
        await storage.delete(f"{FOLDER}/immutable_history/1.json")
        assert await storage.read(f"{FOLDER}/immutable_history/1.json") is None
        assert await storage.read(f"{FOLDER}/immutable_history/0.json") == snapshot(0)
        versions = [made.version for made in store.thread(f"strands:{FOLDER.replace('/', '%2F')}").history()]
        assert versions == [2, 0]
        for number in (2, 0):
            await storage.delete(f"{FOLDER}/immutable_history/{number}.json")
        assert store.thread(f"strands:{FOLDER.replace('/', '%2F')}").version == -1
        await storage.write(LATEST, snapshot(2))
        assert await storage.read(LATEST) == snapshot(2)
        await storage.write("memory/facts.json", b"a secret")
        await storage.delete("memory/facts.json")
        assert (
            b"a secret"
            not in repr([made.state.to_python() for made in store.thread("strands-keys").history()]).encode()
        )

    asyncio.run(main())


def test_the_same_snapshot_written_beside_a_deletion_is_there(store):
    """What is the head already is pointed at only if it still is the head at the end."""
    storage, other = (StatelogStorage(store) for _ in range(2))
    asyncio.run(storage.write(LATEST, snapshot(3)))
    done = []

    def beside(tx, version):
        point(tx, LATEST, version)
        if not done:
            done.append(version)
            deletion = Thread(target=lambda: asyncio.run(other.delete(LATEST)))
            deletion.start()
            deletion.join()

    storage._pieces.write(store, thread_of(LATEST), snapshot(3), beside)
    assert asyncio.run(storage.read(LATEST)) == snapshot(3)


@pytest.mark.parametrize("key", ["", "/", "a/../b", "a\\b"])
def test_a_key_that_is_none_is_refused_as_the_framework_does(store, key):
    for storage in (StatelogStorage(store), InMemoryStorage()):
        with pytest.raises(StorageError):
            asyncio.run(storage.write(key, b""))


def test_keys_of_any_length_and_namespaces(store):
    async def main():
        storage = StatelogStorage(store).namespace("n")
        keys = ["x" * 5000, "漢" * 900, f"{'y' * 900}/snapshots/snapshot_latest.json"]
        for number, key in enumerate(keys):
            await storage.write(key, snapshot(number))
        assert [await storage.read(key) for key in keys] == [snapshot(number) for number in range(3)]
        assert await storage.list("") == sorted(keys)

    asyncio.run(main())


def test_deletions_and_writes_that_race_leave_whole_values_or_none(store):
    async def main():
        storages = [StatelogStorage(store), StatelogStorage(store)]
        keys = [LATEST, *HISTORY]
        for turn in range(5):
            written = [snapshot(3, seed=100 * turn + n) for n in range(24)]
            calls = [storages[n % 2].write(keys[n % 3], data) for n, data in enumerate(written)]
            calls[3::4] = [storages[n % 2].delete(keys[n % 3]) for n in range(6)]
            await asyncio.gather(*calls)
            listed = await storages[0].list()
            kept = {key: await storages[1].read(key) for key in keys}
            assert [key for key in sorted(keys) if kept[key] is not None] == listed
            assert all(kept[key] in written for key in listed)
            for key in keys:
                await storages[0].delete(key)

    asyncio.run(main())


def test_a_snapshot_that_is_in_memory_is_read_without_a_thread(store, monkeypatch):
    async def main():
        storage = StatelogStorage(store)
        await storage.write(LATEST, snapshot(3))
        monkeypatch.setattr("statelog.adapters.strands.storage.run", None)
        return await storage.read(LATEST)

    assert asyncio.run(main()) == snapshot(3)
