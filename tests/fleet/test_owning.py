"""Failures of an owner: lost answers, a storage that refuses writes, and the files that they leave."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from waiting import until

from statelog.errors import FencedError, RemoteError, RemoteLagError, StoreLockedError
from statelog.fleet import garbage, names, protocol, segments
from statelog.fleet.archive import Outcome
from statelog.fleet.fleet import Fleet
from statelog.fleet.requests import Performer


def say(store, n, **how):
    return store.thread("chat").commit({"n": n}, **how)


def heard(store):
    return store.thread("chat").state.get("n")


AWAY_REQUESTS = 3


def lose_the_next_answer(memory):
    """Let the next swap succeed but lose its answer, and let a few later requests fail.

    Return a list of the failed requests.
    """
    lost = []
    swap = memory.swap

    def losing(name, data, token):
        done = swap(name, data, token)
        if lost:
            return done
        lost.append("swap")
        return Outcome.UNKNOWN

    def fail(request, _name):
        if 0 < len(lost) <= AWAY_REQUESTS:
            lost.append(request)
            raise RemoteError("away")

    memory.swap, memory.fail = losing, fail
    return lost


@pytest.mark.slow
@pytest.mark.parametrize("change", ["beat", "base", "park", "take up", "free", "forget"])
def test_an_owner_is_not_fenced_by_its_own_change_whose_answer_was_lost(machine, memory, change):
    fleet = machine("a")
    store = fleet.open("t", ttl_s=0.3 if change == "beat" else 10, park_after_s={"park": 1, "take up": 0.1}.get(change))
    say(store, 1, durable="remote")
    if change == "take up":
        while not store.remote.status().parked:
            time.sleep(0.02)
    lost = lose_the_next_answer(memory)
    if change == "base":
        store.remote.base()
    elif change in ("free", "forget"):
        if change == "forget":
            store.remote.forget()
        with pytest.raises(RemoteError):
            store.close()
    elif change == "take up":
        say(store, 2, durable="remote")
    while not lost:
        time.sleep(0.01)
    if not store.closed:
        say(store, 3, durable="remote")
        memory.fail = lambda *_: None
        store.close()
    memory.fail = lambda *_: None
    with machine("b").open("t", takeover="now") as other:
        assert heard(other) == {"free": 1, "forget": None}.get(change, 3)


def test_an_owner_can_close_while_the_storage_refuses_writes(machine, memory):
    store = machine("a").open("t")
    say(store, 1, durable="remote")
    memory.fail = lambda request, _name: Outcome.UNKNOWN if request in ("create", "swap") else None
    say(store, 2)
    with pytest.raises(RemoteError, match="did not answer"):
        store.close()
    memory.fail = lambda *_: None
    with machine("a").open("t") as store:
        assert heard(store) == 2


@pytest.mark.slow
def test_a_base_is_made_once_for_64_segments(machine, memory):
    with machine("a").open("t", ttl_s=1000) as store:
        for n in range(100):
            say(store, n, durable="remote")
        made = lambda: {name.split("/")[2] for name in [*memory.objects] if "/base/" in name}  # noqa: E731
        until(made)
        time.sleep(0.5)
        assert len(made()) == 1
        assert len(memory.requests) < 250


def test_a_shipped_but_unreported_commit_counts_as_no_lag(machine):
    with machine("a").open("t", acknowledge="remote") as store:
        say(store, 1)
        store.remote.committed()  # A commit that was shipped but not reported.
        assert store.remote.status().lag_s == store.remote.status().lag_bytes == 0


@pytest.mark.slow
def test_unshipped_records_are_counted_and_bounded(machine, memory):
    store = machine("a").open("t", ship_ms=1, lag_max_bytes=290_000, ttl_s=0.3)
    memory.fail = lambda request, _name: Outcome.UNKNOWN if request in ("create", "swap") else None
    for n in range(10):
        say(store, os.urandom(20_000 + n))
    assert 200_000 < store.remote.status().lag_bytes < 220_000
    time.sleep(1.1)
    for n in range(5):
        say(store, os.urandom(20_000 + n))
    with pytest.raises(RemoteLagError) as caught:
        say(store, 1)
    assert 290_000 < caught.value.facts["lag_bytes"] < 340_000
    memory.fail = lambda *_: None
    assert store.remote.wait(timeout_s=20)
    assert store.remote.status().lag_bytes == 0
    store.close()


def test_a_collector_that_saw_an_opening_head_keeps_its_owners_objects(machine, memory):
    """Its head is old by the time it lists (F4, F5)."""
    with machine("a").open("t") as store:
        say(store, 1, durable="remote")
        performer = Performer(memory, "t/")
        seen = []
        swap = memory.swap

        def watched(name, data, token):
            done = swap(name, data, token)
            seen.append(protocol.heads.decode(name, memory.objects[name].data))
            return done

        memory.swap = watched
        taken = performer.perform(protocol.take(("b", b"b" * 16), segments.cut_of))
        opening = next(head for head in seen if head.state == "opening")
        performer.perform(protocol.append(taken, 1, b"acknowledged"))
        assert garbage.collect(performer, opening, keep_s=0, grace_s=0) == []
        assert performer.read(names.segment(2, 1)) is not None
        memory.swap = swap
        with pytest.raises(FencedError):
            store.remote.wait(say(store, 2).lsn)
        with pytest.raises(FencedError):
            store.close()


def test_opening_a_store_removes_the_copies_that_a_killed_process_left(machine, tmp_path):
    fleet = machine("a")
    for other in ("t.state.base", ".t"):  # Stores whose file names have the same prefix.
        fleet.open(other).close()
    kept = {path.name for path in (tmp_path / "a").iterdir()}
    left = [f".t.state.{what}{ending}" for what in ("base", "restored", "unfenced") for ending in ("", "-lock")]
    for name in left:
        (tmp_path / "a" / name).write_bytes(b"left")
    fleet.open("t").close()
    now = {path.name for path in (tmp_path / "a").iterdir()}
    assert kept <= now
    assert not now & set(left)


def end_at_once(store):
    """End an owner as if its process was killed. Its file is unlocked, and its head has not changed."""
    store.remote._error = RemoteError("killed")
    store.remote._thread.join()
    with pytest.raises(RemoteError):
        store.close()


@pytest.mark.slow
def test_an_opening_does_not_wait_for_a_former_owner_of_its_file(machine):
    a = machine("a")
    for n in range(3):
        store = a.open("t", ttl_s=1000, timeout_s=60)
        say(store, n, durable="remote")
        end_at_once(store)
    with pytest.raises(StoreLockedError):
        machine("b").open("t", ttl_s=1000, timeout_s=0.3)
    with a.open("t", ttl_s=1000, timeout_s=60) as store:
        assert heard(store) == 2


@pytest.mark.slow
def test_an_owner_on_a_machine_with_the_same_name_and_folders_is_waited_for(memory, tmp_path, monkeypatch):
    machines = [tmp_path / "1", tmp_path / "2"]  # Sandboxes of the same image.
    for folder in machines:
        (folder / "cache").mkdir(parents=True)
    monkeypatch.chdir(machines[0])
    with Fleet(memory, Path("cache")).open("t", ttl_s=1000) as store:
        monkeypatch.chdir(machines[1])
        with pytest.raises(StoreLockedError):
            Fleet(memory, Path("cache")).open("t", ttl_s=1000, timeout_s=0.3)
        say(store, 1, durable="remote")
