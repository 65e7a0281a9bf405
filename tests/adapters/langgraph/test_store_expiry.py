"""Items with a time to live: when they expire, and that they are removed completely."""

from __future__ import annotations

import asyncio
import threading

import pytest

pytest.importorskip("langgraph", reason="LangGraph is not installed")

from langgraph.store.base import PutOp

import statelog
from statelog.adapters.langgraph import StatelogStore
from statelog.adapters.langgraph.memory.store import STORE_THREAD_ID, SWEPT_AT_ONCE_MAX

SPACE = ("s",)
MINUTE = 60


@pytest.fixture
def memory(store, clock):
    return StatelogStore(store, ttl={"default_ttl": 10, "refresh_on_read": True}, clock=clock)


def state_of(memory):
    return memory.store.thread(STORE_THREAD_ID).state.to_python()


def test_expired_entries_are_never_returned(memory, clock):
    memory.put(SPACE, "a", {"n": 1})
    memory.put(SPACE, "b", {"n": 2}, ttl=None)
    memory.put(("t", "u"), "c", {"n": 3}, ttl=5)
    clock.now_s += 5 * MINUTE - 0.001
    assert memory.get(("t", "u"), "c", refresh_ttl=False).value == {"n": 3}
    clock.now_s += 0.001
    assert memory.get(("t", "u"), "c") is None
    assert memory.search(("t",)) == []
    assert memory.list_namespaces() == [SPACE]
    clock.now_s += 5 * MINUTE
    assert [item.key for item in memory.search(())] == ["b"]
    assert "c" in state_of(memory)["items"]["t.u"]  # Not swept yet.
    assert memory.sweep_ttl() == 2
    assert memory.sweep_ttl() == 0
    state = state_of(memory)
    assert (list(state["items"]), state["expiring"], list(state["namespaces"][""])) == (["s"], {}, ["s"])


def test_reading_extends_the_time_to_live(memory, clock):
    for key in ("got", "found", "seen", "left"):
        memory.put((key,), "k", {"n": 1})
    for is_alive in (True, False, False):
        clock.now_s += 9 * MINUTE
        assert memory.get(("got",), "k") is not None
        assert memory.search(("found",)) != []
        seen = asyncio.run(memory.aget(("seen",), "k", refresh_ttl=False))
        assert (seen is not None) == is_alive
    assert memory.list_namespaces() == [("found",), ("got",)]
    updated = memory.get(("got",), "k").updated_at.timestamp()
    assert updated == 1_700_000_000
    clock.now_s += 10 * MINUTE
    assert memory.search(()) == []


def test_refreshing_can_be_disabled(store, clock):
    memory = StatelogStore(store, ttl={"default_ttl": 10, "refresh_on_read": False}, clock=clock)
    memory.put(SPACE, "a", {"n": 1})
    memory.put(SPACE, "b", {"n": 1})
    clock.now_s += 9 * MINUTE
    assert memory.get(SPACE, "a").value == memory.get(SPACE, "b", refresh_ttl=True).value
    clock.now_s += 2 * MINUTE
    assert [item.key for item in memory.search(SPACE)] == ["b"]


def test_concurrent_reads_refresh_with_one_write(memory, clock):
    memory.put(SPACE, "a", {"n": 1})
    clock.now_s += MINUTE
    memory.get(SPACE, "a")
    lsn = memory.store.last_lsn
    for _ in range(5):
        clock.now_s += 1
        assert memory.get(SPACE, "a") is not None
    assert memory.store.last_lsn == lsn


def test_a_put_restarts_or_removes_the_time_to_live(memory, clock):
    memory.put(SPACE, "a", {"n": 1})
    memory.put(SPACE, "b", {"n": 1})
    clock.now_s += 9 * MINUTE
    memory.put(SPACE, "a", {"n": 2})
    memory.put(SPACE, "b", {"n": 2}, ttl=None)
    clock.now_s += 9 * MINUTE
    assert len(memory.search(SPACE)) == 2
    clock.now_s += 100 * MINUTE
    assert [item.key for item in memory.search(SPACE)] == ["b"]
    assert memory.sweep_ttl() == 1
    memory.delete(SPACE, "b")
    assert state_of(memory)["expiring"] == {}


def test_an_item_in_place_of_an_expired_one_is_new(memory, clock):
    memory.put(SPACE, "a", {"n": 1})
    clock.now_s += 11 * MINUTE
    memory.put(SPACE, "a", {"n": 2})
    item = memory.get(SPACE, "a")
    assert item.created_at == item.updated_at


def test_puts_also_remove_expired_items(memory, clock):
    memory.batch([PutOp(SPACE, f"{number}", {"n": number}, ttl=1) for number in range(50)])
    clock.now_s += 2 * MINUTE
    for _ in range(4):
        memory.put(("t",), "new", {"n": 1}, ttl=None)
    assert list(state_of(memory)["items"]) == ["t"]


def test_a_sweep_removes_many_items_in_several_commits(memory, clock):
    count = 2 * SWEPT_AT_ONCE_MAX + 5
    memory.batch([PutOp(SPACE, f"{number}", {"n": number}, ttl=1) for number in range(count)])
    clock.now_s += 2 * MINUTE
    assert memory.sweep_ttl() == count
    assert memory.search(()) == []


@pytest.mark.parametrize("ttl", [-1, float("nan"), float("inf"), "5", True, 10**12])
def test_invalid_times_to_live_are_refused(memory, ttl):
    with pytest.raises(ValueError, match="time to live"):
        memory.put(SPACE, "a", {"n": 1}, ttl=ttl)
    with pytest.raises(ValueError, match="time to live"):
        StatelogStore(memory.store, ttl={"default_ttl": ttl})


def test_a_time_to_live_of_zero_expires_at_once(memory):
    memory.put(SPACE, "a", {"n": 1}, ttl=0)
    assert memory.get(SPACE, "a") is None


@pytest.mark.parametrize("ends_by", ["delete", "expiry", "put"])
def test_the_bytes_of_expired_items_are_removed_from_the_file(path, clock, ends_by):
    secret = "a secret that nobody else has " * 3
    with StatelogStore.open(path, clock=clock) as memory:
        memory.put(("keep",), "k", {"text": "kept " * 30})
        memory.put(SPACE, secret[:40], {"text": secret}, ttl=1)
        clock.now_s += 2 * MINUTE
        if ends_by == "delete":
            memory.delete(SPACE, secret[:40])
        elif ends_by == "expiry":
            assert memory.sweep_ttl() == 1
        else:
            memory.put(SPACE, secret[:40], {"text": "other"})
            memory.delete(SPACE, secret[:40])
        memory.store.prune(keep_last=1, threads=STORE_THREAD_ID)
        memory.store.compact()
    data = path.read_bytes()
    assert secret[:40].encode() not in data
    assert b"kept kept" in data


def test_versions_do_not_accumulate(memory):
    for number in range(300):
        memory.put(SPACE, "a", {"n": number})
    thread = memory.store.thread(STORE_THREAD_ID)
    assert len(list(thread.history())) <= 65
    (info,) = [each for each in memory.store.threads() if each.id == STORE_THREAD_ID]
    assert info.policy["keep_last"] == 1


def test_a_policy_set_by_the_user_is_kept(store, clock):
    memory = StatelogStore(store, clock=clock)
    memory.put(SPACE, "a", {"n": 1})
    store.set_retention(keep_last=7, threads=STORE_THREAD_ID)
    StatelogStore(store, clock=clock).put(SPACE, "a", {"n": 2})
    assert [each.policy["keep_last"] for each in store.threads()] == [7]


def test_the_sweeper_sweeps_until_it_is_stopped(path):
    with StatelogStore.open(path, ttl={"sweep_interval_minutes": 0.001}) as memory:
        memory.put(SPACE, "a", {"n": 1}, ttl=0.0001)
        before = memory.store.last_lsn
        memory.start_ttl_sweeper()
        memory.start_ttl_sweeper()
        assert sum(thread.name == "statelog-ttl" for thread in threading.enumerate()) == 1
        swept = next(memory.store.log(after=before, follow=True, timeout_s=20))
        assert swept.thread_id == STORE_THREAD_ID
        assert memory.stop_ttl_sweeper()
        assert state_of(memory)["items"] == {}
        assert memory.stop_ttl_sweeper(timeout=1)
        memory.start_ttl_sweeper(5)
    assert not any(thread.name == "statelog-ttl" for thread in threading.enumerate())


def test_a_read_only_store_reads_without_refreshing(path, clock):
    with StatelogStore.open(path, clock=clock) as memory:
        memory.put(SPACE, "a", {"n": 1}, ttl=10)
    clock.now_s += 9 * MINUTE
    with statelog.open(path, read_only=True) as store:
        assert StatelogStore(store, clock=clock).get(SPACE, "a").value == {"n": 1}
