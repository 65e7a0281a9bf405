"""The asyncio API: the same results, and a loop that is never blocked."""

from __future__ import annotations

import asyncio
import copy
import inspect
import io
import operator
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import statelog
from statelog import aio, reducers
from statelog.aio.bridge import WORKERS_MAX
from statelog.errors import ClosedError, ConflictError, RollbackError, ThreadDeletedError, UsageError
from statelog.store.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

SCHEMA = {"findings": operator.add, "notes": reducers.merge, "count": operator.add}


SESSION = {
    "is_final",
    "is_flushed_at_commit",
    "read",
    "workspace",
    "write",
    "act",
    "after_commit",
    "commit_writes",
    "finish",
    "abandon",
}
"""Names of stores and transactions that only threads use."""


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(main)


@pytest.fixture
def join_pool() -> Callable[[], None]:
    """Return a function that waits for the threads of the pools that a test has started."""
    before = set(threading.enumerate())  # Earlier tests have left stores open.

    def join() -> None:
        for thread in set(threading.enumerate()) - before:
            if thread.name.startswith("statelog_"):  # as a pool names them
                thread.join(timeout=10)

    return join


def test_a_closed_store_is_named(tmp_path: Path) -> None:
    async def main() -> None:
        store = await aio.open(tmp_path / "a.state")
        await store.close()
        with pytest.raises(ClosedError) as caught:
            await store.last_lsn()
        assert caught.value.facts == {"path": str(store.path)}

    run(main())


def test_the_async_surface_returns_the_same_as_the_sync_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.open(tmp_path / "a.state") as store:
            thread = store.thread("t", schema=SCHEMA)
            first = await thread.commit({"findings": ["a"], "count": 1}, metadata={"node": "plan"})
            second = await thread.commit({"findings": ["b"]}, {"count": 2}, id="mine")
            assert await thread.state["findings"] == ["a", "b"]
            assert await thread.state.get("nothing", 5) == 5
            assert await thread.state == {"findings": ["a", "b"], "count": 3}
            assert await thread.state.items_of("findings", -1) == ["b"]
            assert [c.version async for c in thread.history(limit=10)] == [1, 0]
            assert (await thread.at("mine")) == second
            assert [change.path for change in await aio.diff(first, second)] == [("count",), ("findings", 1)]
            assert await thread.state_of(first) == {"findings": ["a"], "count": 1}
            await thread.tag("here", 0)
            assert (await thread.tags())["here"] == first
            await thread.rollback(0)
            assert await thread.state["count"] == 1
            fork = await thread.fork("what-if", at=1, update={"count": 10})
            assert await fork.state["count"] == 13
            assert [info.id async for info in store.threads()] == ["t"]
            assert [r.lsn async for r in store.log(after=2)] == list(range(3, 8))
            assert (await store.verify()).ok

    run(main())


@pytest.mark.parametrize("name", ["Store", "Thread", "Transaction"])
def test_async_classes_have_the_public_names_of_the_sync_classes(name: str) -> None:
    """The async class has every public name of the sync class, except those for internal use."""
    ours = getattr(aio, name)
    theirs = {"Store": statelog.Store, "Thread": statelog.Thread, "Transaction": Transaction}[name]
    public = {attribute for attribute in dir(theirs) if not attribute.startswith("_")}
    internal = {each for each in public if "(internal)" in (inspect.getdoc(getattr(theirs, each)) or "")} | SESSION
    assert {each for each in public - internal if not hasattr(ours, each)} <= {"id", "branch"}, "attributes of Thread"


def test_care_of_a_store(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.open(tmp_path / "a.state") as store:
            thread = store.thread("t")
            made = [await thread.commit({"n": number}) for number in range(5)]
            assert (thread.id, thread.branch, await thread.version()) == ("t", "main", 4)
            assert await store.last_lsn() == made[-1].lsn
            assert await thread.parent_of(made[2]) == made[1]
            assert await thread.ancestor_of(made[4], 3) == made[1]
            assert await thread.common_ancestor_of(made[4], made[2]) == made[2]
            assert await thread.branch_of(made[0]) == "main"
            assert (store.path, store.closed, store.read_only, store.durability) == (
                tmp_path / "a.state", False, False, "commit"
            )  # fmt: skip
            seen: list[tuple[int, int]] = []
            stream = io.BytesIO()
            report = await store.export(stream, progress=lambda done, of: seen.append((done, of)))
            assert report.records == made[-1].lsn == seen[-1][0]
            async with aio.open(tmp_path / "b.state") as copy:
                stream.seek(0)
                await copy.import_(stream)
                assert await copy.thread("t").state == {"n": 4}
            assert (await store.expire([made[0]])).expired_versions == 1
            assert (await store.prune(keep_last=2)).expired_versions == 2
            assert [c.version async for c in thread.history()] == [4, 3]
            await store.delete_thread("t")
            with pytest.raises(ThreadDeletedError):
                await thread.commit({"n": 5})
            await store.compact()
            assert (await store.verify()).ok
            assert not await store.wait(await store.last_lsn(), 0.01)
        assert store.closed

    run(main())


def test_open_can_be_awaited(tmp_path: Path) -> None:
    async def main() -> None:
        store = await aio.open(tmp_path / "a.state")
        thread = await store.thread("t")
        await thread.commit({"x": 1})
        await store.close()
        with pytest.raises(ClosedError):
            await thread.commit({"x": 2})

    run(main())


def test_mount_commits_once_on_clean_exit_and_not_on_exception(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.open(tmp_path / "a.state") as store:
            thread = store.thread("t", schema=SCHEMA)
            async with thread.mount() as state:
                state["findings"] = ["a"]
                state["notes"] = {"k": {"n": [1]}}
            async with thread.mount() as state:
                state["findings"].append("b")
                state["notes"]["k"]["n"].append(2)
            with pytest.raises(KeyError):  # noqa: PT012 - the block is what raises
                async with thread.mount() as state:
                    state["findings"].clear()
                    raise KeyError
            assert await thread.state == {"findings": ["a", "b"], "notes": {"k": {"n": [1, 2]}}}
            head = await thread.head()
            assert head is not None
            assert head.version == 1

    run(main())


def test_a_declared_channel_never_written_is_empty_in_a_mount(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.open(tmp_path / "a.state") as store:
            schema = {"found": reducers.extend, "notes": reducers.merge, "query": reducers.replace}
            thread = store.thread("t", schema=schema)
            async with thread.mount() as state:
                assert state["found"] == []
                assert "found" not in list(store.sync.thread("t", schema=schema).state)
            assert await thread.head() is None
            async with thread.mount() as state:
                state["notes"]["k"] = 1
                with pytest.raises(KeyError):
                    state["query"]
            assert await thread.state == {"notes": {"k": 1}}
            async with thread.mount() as state:
                assert list(state) == ["notes"]
                assert copy.deepcopy(state) == {"notes": {"k": 1}}
                assert state.setdefault("found", [5]) == state.get("found") == []
                state["found"] = []
                state["query"] = None
                del state["notes"]
                with pytest.raises(KeyError):
                    state["notes"]
            assert await thread.state == {"found": [], "query": None}

    run(main())


def test_transaction_is_all_or_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.open(tmp_path / "a.state") as store:
            async with store.transaction() as tx:
                await tx.thread("a").commit({"x": 1})
                await tx.thread("b").commit({"x": 2})
            with pytest.raises(ConflictError):  # noqa: PT012 - its end is what raises
                async with store.transaction() as tx:
                    await tx.thread("a").commit({"x": 3})
                    await tx.thread("b").commit({"x": 4}, expected_version=7)
            assert await store.thread("a").state == {"x": 1}

    run(main())


def test_commits_of_many_tasks_all_arrive(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.open(tmp_path / "a.state") as store:
            thread = store.thread("t", schema=SCHEMA)
            await asyncio.gather(*(thread.commit({"count": 1, "findings": [i]}) for i in range(200)))
            assert await thread.state["count"] == 200
            assert sorted(await thread.state["findings"]) == list(range(200))

    run(main())


@pytest.mark.slow
def test_loop_is_not_blocked_while_the_disk_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Includes a negative control: the sync API blocks the loop."""

    async def longest_gap(work: Coroutine[Any, Any, Any]) -> float:
        task = asyncio.ensure_future(work)
        longest, last = 0.0, time.monotonic()
        while not task.done():
            await asyncio.sleep(0.001)
            now = time.monotonic()
            longest, last = max(longest, now - last), now
        await task
        return longest

    async def main() -> None:
        async with aio.open(tmp_path / "a.state") as store:
            thread = store.thread("t", schema=SCHEMA)
            await thread.commit({"count": 1})
            commit = statelog.Thread.commit

            def slow(self: statelog.Thread, *writes: Any, **options: Any) -> Any:
                time.sleep(0.8)
                return commit(self, *writes, **options)

            monkeypatch.setattr(statelog.Thread, "commit", slow)
            sync_thread = store.sync.thread("t", schema=SCHEMA)

            async def on_the_loop() -> None:
                sync_thread.commit({"count": 1})

            held_up_s = await longest_gap(on_the_loop())
            assert held_up_s >= 0.8
            assert await longest_gap(thread.commit({"count": 1})) < held_up_s / 2

    run(main())


@pytest.mark.slow
def test_follow_sees_concurrent_commits_and_stops_in_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.open(tmp_path / "a.state") as store:
            thread = store.thread("t")
            await thread.commit({"x": 0})

            async def later() -> None:
                await asyncio.sleep(0.05)
                await thread.commit({"x": 1})

            task = asyncio.ensure_future(later())
            seen = [r.lsn async for r in store.log(follow=True, timeout_s=1)]
            await task
            assert seen == [1, 2, 3]

    run(main())


@pytest.mark.parametrize("closings", [1, 2])
def test_a_store_can_be_closed_twice(tmp_path: Path, closings: int) -> None:
    async def main() -> None:
        async with aio.open(tmp_path / "a.state") as store:
            for _ in range(closings):
                await store.close()
            assert store.closed
            with pytest.raises(ClosedError):
                await store.last_lsn()
            with pytest.raises(ClosedError):
                await store.wait(0, 0.1)

    run(main())


def test_closings_at_once_are_one(tmp_path: Path) -> None:
    async def main() -> None:
        store = await aio.open(tmp_path / "a.state")
        await asyncio.gather(*(store.close() for _ in range(5)))
        assert store.closed

    run(main())


def test_a_cancelled_close_is_completed(tmp_path: Path, join_pool: Callable[[], None]) -> None:
    async def main() -> aio.Store:
        store = await aio.open(tmp_path / "a.state")
        goes_on = threading.Event()
        busy = [asyncio.ensure_future(store._runner.run(goes_on.wait)) for _ in range(WORKERS_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await store.close()
        goes_on.set()
        await asyncio.gather(*busy)
        return store

    store = run(main())
    join_pool()
    assert store.closed


@pytest.mark.slow
@pytest.mark.parametrize("limit_s", [0.0, 0.02])
def test_an_opening_that_is_cancelled_leaves_no_store_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, join_pool: Callable[[], None], limit_s: float
) -> None:
    opened: list[statelog.Store] = []
    begun = threading.Event()
    sync_open = statelog.open

    def slow_open(path: Path, **options: Any) -> statelog.Store:
        begun.set()
        time.sleep(0.5)
        opened.append(sync_open(path, **options))
        return opened[0]

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(limit_s), aio.open(tmp_path / "a.state"):
                pass

    monkeypatch.setattr(statelog, "open", slow_open)
    run(main())
    join_pool()
    assert [store.closed for store in opened] == [True] * begun.is_set()


def test_wrong_use_raises_when_it_is_awaited(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.open(tmp_path / "a.state") as store:
            with pytest.raises(UsageError):
                await store.thread("")

    run(main())


def test_a_store_is_opened_and_verified_with_its_anchor(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.open(tmp_path / "a.state") as store:
            await store.thread("t").commit({"n": 1})
            anchor = await store.anchor()
            image = io.BytesIO()
            await store.image(image)
            await store.thread("t").commit({"n": 2})
            later = await store.anchor()
        async with aio.open(tmp_path / "a.state", expect=later) as store:
            assert (await store.verify(expect=anchor)).ok
        (tmp_path / "a.state").write_bytes(image.getvalue())
        with pytest.raises(RollbackError):
            await aio.open(tmp_path / "a.state", expect=later)
        async with aio.open(tmp_path / "a.state", expect=anchor) as store:
            with pytest.raises(RollbackError):
                await store.verify(expect=later)

    run(main())
