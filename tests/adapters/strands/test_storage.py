"""Storage of Strands: bytes come back as they were, and a kill leaves the old ones or the new ones."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
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


def test_a_key_whose_thread_somebody_has_deleted_has_nothing(store):
    storage = StatelogStorage(store)
    asyncio.run(storage.write(LATEST, snapshot(3)))
    store.delete_thread(f"strands:{FOLDER.replace('/', '%2F')}")
    assert asyncio.run(storage.read(LATEST)) is None
    asyncio.run(storage.write(LATEST, snapshot(3)))
    assert asyncio.run(storage.read(LATEST)) == snapshot(3)


def test_fifty_tasks_and_two_objects_write_whole_values(store):
    async def main():
        storages = [StatelogStorage(store), StatelogStorage(store)]
        await asyncio.gather(*(storages[n % 2].write(LATEST, snapshot(n % 7, seed=n)) for n in range(50)))
        calls = (storages[n % 2].write(f"{FOLDER}/immutable_history/{n}.json", snapshot(3, seed=n)) for n in range(50))
        await asyncio.gather(*calls)
        assert await storages[0].read(LATEST) in [snapshot(n % 7, seed=n) for n in range(50)]
        for n in range(50):
            assert await storages[n % 2].read(f"{FOLDER}/immutable_history/{n}.json") == snapshot(3, seed=n)

    asyncio.run(main())


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


def test_closed_read_only_and_full_stores_raise_the_framework_s_error(path):
    storage = StatelogStorage.open(path, max_size_bytes=1 << 20)

    async def fill():
        for number in range(40):
            await storage.write(f"k{number}", f"{number} ".encode() * 40_000)

    with pytest.raises(StorageError, match=r"room|quota|full"):
        asyncio.run(fill())
    assert asyncio.run(storage.read("k0")) == b"0 " * 40_000
    storage.store.close()
    with pytest.raises(StorageError, match="closed"):
        asyncio.run(storage.read("k0"))
    with statelog.open(path, read_only=True) as store:
        assert asyncio.run(StatelogStorage(store).read("k0")) == b"0 " * 40_000
        with pytest.raises(StorageError, match="read"):
            asyncio.run(StatelogStorage(store).write("k0", b""))


KILLED = """
import asyncio, json, sys
from statelog.adapters.strands import StatelogStorage
from statelog.adapters.strands.storage import point, thread_of
async def main():
    storage = StatelogStorage.open(sys.argv[1])
    for n in range(9):
        data = json.dumps({"messages": [{"text": str(each)} for each in range(n)], "n": n}).encode()
        await storage.write("session/s/snapshots/snapshot_latest.json", data)
        print(n, flush=True)
asyncio.run(main())
"""


@pytest.mark.parametrize("point", ["commit.between_works", "commit.before_lmdb_commit", "commit.after_lmdb_commit"])
def test_a_kill_leaves_the_snapshot_before_or_the_new_one(path, point):
    environment = {**os.environ, "STATELOG_FAULT": f"{point}:5:kill"}
    command = [sys.executable, "-W", "ignore", "-c", KILLED, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with statelog.open(path) as store:
        kept = json.loads(asyncio.run(StatelogStorage(store).read("session/s/snapshots/snapshot_latest.json")))
        assert store.verify().ok
    assert kept["n"] - len(done.stdout.split()) in (-1, 0)
    assert kept["messages"] == [{"text": str(each)} for each in range(kept["n"])]


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


def test_a_write_for_which_there_is_no_room_leaves_snapshots_and_lists_as_they_were(path):
    async def main(store):
        storage = StatelogStorage(store)
        await storage.write(LATEST, snapshot(2))
        await storage.write("plain", b"x")
        before = store.last_lsn
        for key in (LATEST, HISTORY[0], "plain", "new", "another/snapshots/snapshot_latest.json"):
            with pytest.raises(StorageError, match=r"room|quota|full"):
                await storage.write(key, bytes(number % 251 for number in range(1 << 21)))
        assert store.last_lsn == before
        return await storage.list(), await storage.read(LATEST), await storage.read("plain")

    with statelog.open(path, max_size_bytes=1 << 20) as store:
        assert asyncio.run(main(store)) == (["plain", LATEST], snapshot(2), b"x")
    closed = StatelogStorage(store)
    for call in (closed.write("plain", b""), closed.delete(LATEST), closed.list()):
        with pytest.raises(StorageError, match="closed"):
            asyncio.run(call)
    with statelog.open(path, read_only=True) as store:
        with pytest.raises(StorageError, match="read"):
            asyncio.run(StatelogStorage(store).delete(LATEST))
        assert asyncio.run(StatelogStorage(store).read(LATEST)) == snapshot(2)


def test_cached_values_are_not_used_after_another_storage_changed_them(path):
    """Two opened stores, as two processes have."""

    async def main(one, two):
        await one.write(LATEST, snapshot(2))
        seen = [await one.read(LATEST) == snapshot(2)]
        await two.write(LATEST, snapshot(3))
        seen.append(await one.read(LATEST) == snapshot(3))
        await two.delete(LATEST)
        seen.append(await one.read(LATEST) is None)
        await two.write(LATEST, snapshot(1))
        seen.append(await one.read(LATEST) == snapshot(1))
        two.store.delete_thread("strands-keys")
        seen.append(await one.read(LATEST) is None)
        await two.write(LATEST, snapshot(4))
        return [*seen, await one.read(LATEST) == snapshot(4)]

    with statelog.open(path) as first, statelog.open(path) as second:
        assert asyncio.run(main(StatelogStorage(first), StatelogStorage(second))) == [True] * 6


def test_a_snapshot_that_is_in_memory_is_read_without_a_thread(store, monkeypatch):
    async def main():
        storage = StatelogStorage(store)
        await storage.write(LATEST, snapshot(3))
        monkeypatch.setattr("statelog.adapters.strands.storage.run", None)
        return await storage.read(LATEST)

    assert asyncio.run(main()) == snapshot(3)
