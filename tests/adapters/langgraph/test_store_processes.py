"""One store file used by many processes, OS threads and tasks, some of which are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("langgraph", reason="LangGraph is not installed")

from langgraph.store.base import PutOp

from statelog.adapters.langgraph import StatelogStore
from statelog.adapters.langgraph.memory.store import STORE_THREAD_ID

SPACE = ("shared",)
PUTS_APART = """
import sys
from langgraph.store.base import PutOp
from statelog.adapters.langgraph import StatelogStore
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with StatelogStore.open(path) as memory:
    for number in range(count):
        memory.batch([
            PutOp(("shared",), f"{name} {number}", {"n": number}),
            PutOp(("shared",), "common", {"by": name, "n": number}),
        ])
        if len(sys.argv) > 4:
            print(number, flush=True)
"""
COUNT = 40


def put_apart(path, name, count, *more, **options):
    return subprocess.Popen([sys.executable, "-c", PUTS_APART, str(path), name, str(count), *more], **options)


def assert_is_whole(memory):
    state = memory.store.thread(STORE_THREAD_ID).state.to_python()
    for namespace, entries in state["items"].items():
        recent = state["recent"][namespace]
        assert sorted(recent.values()) == sorted(entries)
    assert memory.store.verify().problems == []


def assert_nothing_is_lost(memory, told):
    found = {item.key: item.value["n"] for item in memory.search(SPACE, limit=100_000)}
    last = found.pop("common")
    assert last in (told, told + 1)  # The last one may have been in progress.
    assert found == {f"child {number}": number for number in range(last + 1)}
    assert_is_whole(memory)


def test_concurrent_processes_lose_no_put_in_one_namespace(path):
    with StatelogStore.open(path) as memory:
        memory.put(SPACE, "common", {"by": "first"})
        created = memory.get(SPACE, "common").created_at
        others = [put_apart(path, name, COUNT) for name in ("a", "b")]
        for number in range(COUNT):
            memory.put(SPACE, f"own {number}", {"n": number})
        assert [other.wait() for other in others] == [0, 0]
        found = {item.key for item in memory.search(SPACE, limit=1000)}
        assert found == {"common", *(f"{name} {number}" for name in ("a", "b", "own") for number in range(COUNT))}
        common = memory.get(SPACE, "common")
        assert common.created_at == created < common.updated_at
        assert common.value["n"] == COUNT - 1
        assert_is_whole(memory)


def test_os_threads_with_one_object_lose_no_put(path):
    def work(name):
        for number in range(COUNT):
            memory.put(SPACE, f"{name} {number}", {"n": number})
            assert memory.get(SPACE, f"{name} {number}").value == {"n": number}
            if number % 4 == 0:
                memory.delete(SPACE, f"{name} {number}")
            memory.search(SPACE, filter={"n": {"$gt": number}})

    with StatelogStore.open(path) as memory, ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, name) for name in range(8)]:
            done.result()
        assert len(memory.search(SPACE, limit=1000)) == 8 * COUNT * 3 // 4
        assert_is_whole(memory)


def test_fifty_tasks_share_the_store_without_blocking_the_loop(path):
    async def work(memory, name):
        for number in range(10):
            await memory.aput((f"{name % 5}",), f"{name} {number}", {"n": number})
            item = await memory.aget((f"{name % 5}",), f"{name} {number}")
            assert item.value == {"n": number}
        return len(await memory.asearch((f"{name % 5}",), filter={"n": 9}, limit=100))

    async def main():
        waits = []

        async def tick():
            while True:
                begun = time.perf_counter()
                await asyncio.sleep(0)
                waits.append(time.perf_counter() - begun)
                await asyncio.sleep(0.001)

        async with StatelogStore.open(path) as memory:
            ticking = asyncio.create_task(tick())
            async with asyncio.timeout(120):
                found = await asyncio.gather(*[work(memory, name) for name in range(50)])
            ticking.cancel()
            assert min(found) >= 1
            assert len(await memory.asearch((), limit=1000)) == 500
            assert len(waits) > 20  # The loop was not blocked.
            assert_is_whole(memory)

    asyncio.run(main())


def test_a_cancelled_task_leaves_a_sound_store(path):
    async def main():
        async with StatelogStore.open(path) as memory:
            tasks = [asyncio.create_task(memory.aput(SPACE, f"{number}", {"n": number})) for number in range(20)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert done[1::2] == [None] * 10
            for number in range(1, 20, 2):
                assert (await memory.aget(SPACE, f"{number}")).value == {"n": number}
            assert_is_whole(memory)

    asyncio.run(main())


@pytest.mark.parametrize("puts", [1, 7, 30])
def test_a_killed_process_loses_no_acknowledged_batch(path, puts):
    child = put_apart(path, "child", 100_000, "tell", stdout=subprocess.PIPE, text=True)
    with child:
        told = [int(child.stdout.readline()) for _ in range(puts)][-1]
        os.kill(child.pid, signal.SIGKILL)
        told = max([told, *map(int, child.stdout.read().split())])
    with StatelogStore.open(path) as memory:
        assert_nothing_is_lost(memory, told)
        with pytest.raises(AssertionError):  # Negative control: a batch that was acknowledged and does not exist.
            assert_nothing_is_lost(memory, told + 2)
        memory.delete(SPACE, f"child {told}")
        with pytest.raises(AssertionError):
            assert_nothing_is_lost(memory, told)
        memory.batch([PutOp(SPACE, "after", {"n": 1})])
        assert memory.search(SPACE, limit=1)[0].key == "after"
