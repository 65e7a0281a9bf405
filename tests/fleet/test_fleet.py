"""Stores that machines own in turn. The next owner has every acknowledged commit."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

import forks
import pytest

import statelog
from statelog.errors import (
    CorruptionError,
    FencedError,
    RemoteError,
    RemoteLagError,
    StoreLockedError,
    StoreNotFoundError,
)
from statelog.fleet import connect
from statelog.fleet.archive import Outcome


def say(store, n, **how):
    return store.thread("chat").commit({"n": n}, **how)


def heard(store):
    return store.thread("chat").state.get("n")


@pytest.mark.slow
def test_another_machine_continues_from_shipped_records(archive, machine):
    with machine("a", archive).open("t/é") as store:
        for n in range(5):
            say(store, n)
        made = say(store, 5, durable="remote")
        assert store.remote.status().shipped_lsn >= made.lsn
        log = list(store.log())
    with machine("b", archive).open("t/é") as store:
        assert list(store.log()) == log
        say(store, 6)
        store.remote.base()
        say(store, 7)
    with machine("c", archive).open("t/é") as store:
        assert heard(store) == 7
        assert store.verify().problems == []
    assert machine("a", archive).check() == []


@pytest.mark.slow
def test_a_commit_is_shipped_in_the_background_also_if_another_process_made_it(machine):
    fleet = machine("a")
    with fleet.open("t", ship_ms=20) as store:
        code = f"import statelog; statelog.open({str(fleet.path('t'))!r}).thread('chat').commit({{'n': 'other'}})"
        forks.run([sys.executable, "-c", code], check=True)
        assert store.remote.wait(store.last_lsn, timeout_s=10)
    with machine("b").open("t") as store:
        assert heard(store) == "other"


def test_a_takeover_stops_the_owner_and_keeps_its_acknowledged_commits(machine):
    a, b = machine("a"), machine("b")
    first = a.open("t")
    say(first, 1, durable="remote")
    second = b.open("t", takeover="now")
    assert heard(second) == 1
    say(first, "lost")
    with pytest.raises(FencedError):
        say(first, 3, durable="remote")
    with pytest.raises(FencedError):
        say(first, 4)
    assert heard(first) == 3
    with pytest.raises(FencedError):
        first.close()
    say(second, 5)
    second.close()
    with a.open("t") as store:
        assert heard(store) == 5
    [stranded] = a.stranded()
    assert stranded.name == "t"
    with statelog.open(stranded.path) as store:
        assert heard(store) == 3


@pytest.mark.slow
def test_opening_a_current_copy_takes_at_most_four_requests(machine, memory):
    a, b = machine("a"), machine("b")
    for fleet in (a, b, a):
        with fleet.open("t") as store:
            say(store, 1)
    with b.open("t"):
        pass
    memory.requests.clear()
    a.open("t").close()
    assert len(memory.requests) <= 4


@pytest.mark.slow
def test_a_waiting_machine_takes_over_when_the_owner_shows_no_sign_of_life(machine):
    a = machine("a").open("t", ttl_s=0.3)
    say(a, 1, durable="remote")
    with pytest.raises(StoreLockedError, match="owns the store"):
        machine("b").open("t", ttl_s=30, timeout_s=0.5)
    began_s = time.monotonic()
    a.remote._performer.perform = lambda _asking: time.sleep(60)  # The owner is stopped.
    with machine("b").open("t", ttl_s=0.5) as store:
        assert heard(store) == 1
        assert time.monotonic() - began_s >= 0.5


@pytest.mark.slow
def test_a_live_owner_is_not_taken_over(machine):
    with machine("a").open("t", ttl_s=0.3), pytest.raises(StoreLockedError):
        machine("b").open("t", ttl_s=1, timeout_s=3)


OWNER = """
import os, statelog
from statelog.fleet import connect
store = connect("file://{bucket}", "{cache}").open("t", takeover="now")
n = store.thread("chat").state.get("n", 0)
while True:
    n += 1
    store.thread("chat").commit({{"n": n}}, durable="remote")
    print(n, flush=True)
"""


@pytest.mark.slow
def test_killed_owners_lose_no_acknowledged_commit(tmp_path):
    (tmp_path / "bucket").mkdir()
    last = 0
    for turn in range(4):
        code = OWNER.format(bucket=tmp_path / "bucket", cache=tmp_path / f"m{turn % 2}")
        with forks.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as owner:
            said = [int(owner.stdout.readline()) for _ in range(3 + turn)]
            owner.send_signal(signal.SIGKILL)
            said += [int(line) for line in owner.stdout if line.endswith("\n")]
        assert said[0] >= last + 1
        last = said[-1]
    with connect(f"file://{tmp_path}/bucket", tmp_path / "last").open("t", takeover="now") as store:
        assert heard(store) >= last
        assert store.verify().problems == []


@pytest.mark.slow
def test_commits_survive_lost_answers_and_an_unavailable_storage(machine, memory):
    count = [0]

    def sometimes(request, _name):
        count[0] += 1
        if request in ("create", "swap") and count[0] % 3 == 0:
            return Outcome.UNKNOWN
        if count[0] % 11 == 0:
            raise RemoteError("away")
        return None

    memory.fail = sometimes
    fleet = machine("a")
    for attempt in range(20):
        try:
            store = fleet.open("t")
            break
        except RemoteError:
            assert attempt < 19
    for n in range(20):
        say(store, n, durable="remote")
    memory.fail = lambda _request, _name: None
    store.close()
    with machine("b").open("t") as store:
        assert heard(store) == 19
        assert store.thread("chat").version == 19


@pytest.mark.slow
def test_commits_beyond_the_maximum_lag_wait_and_are_refused(machine, memory):
    store = machine("a").open("t", lag_max_s=0.3, ttl_s=0.5, ship_ms=1)

    def away(_request, _name):
        raise RemoteError("away")

    memory.fail = away
    say(store, 1)
    time.sleep(0.5)
    with pytest.raises(RemoteLagError) as caught:
        say(store, 2)
    assert caught.value.facts["lag_s"] > 0.3
    memory.fail = lambda _request, _name: None
    assert store.remote.wait(timeout_s=20)
    say(store, 9)
    store.close()


def test_acknowledge_remote_holds_for_every_commit(machine):
    with machine("a").open("t", acknowledge="remote") as store:
        say(store, 1)
        assert store.remote.status().shipped_lsn == store.last_lsn
        store.board().set("key", 1)
        assert store.remote.status().shipped_lsn == store.last_lsn
        with store.transaction() as tx:
            tx.thread("chat").commit({"n": 2})
        assert store.remote.status().shipped_lsn == store.last_lsn


@pytest.mark.slow
def test_an_idle_store_makes_no_requests_and_is_resumed(machine, memory):
    with machine("a").open("t", park_after_s=1, ttl_s=0.3) as store:
        say(store, 1, durable="remote")  # The store may have been parked before.
        while not store.remote.status().parked:
            time.sleep(0.05)
        memory.requests.clear()
        time.sleep(0.5)
        assert memory.requests == []
        assert machine("b").status("t").state == "free"
        say(store, 2, durable="remote")
        assert not store.remote.status().parked
    with machine("b").open("t") as store:
        assert heard(store) == 2


@pytest.mark.slow
def test_a_parked_store_uses_no_processor_time(machine):
    with machine("a").open("t", park_after_s=0.1, ttl_s=0.3) as store:
        say(store, 1)
        while not store.remote.status().parked:
            time.sleep(0.05)
        time.sleep(0.2)  # The next heartbeat would be due.
        began_s = time.process_time()
        time.sleep(1)
        assert time.process_time() - began_s < 0.3


def test_a_deletion_keeps_files_of_stores_with_a_similar_name(machine):
    fleet = machine("a")
    others = ("t.state2", "t.state-x", "t.state-stranded-1", "t.state")
    for name in ("t", *others):
        with fleet.open(name) as store:
            say(store, name)
    fleet.delete("t")
    assert not fleet.path("t").exists()
    for name in others:
        with statelog.open(fleet.path(name), create=False) as store:
            assert heard(store) == name


def test_a_parked_store_that_another_took_is_fenced(machine):
    store = machine("a").open("t", park_after_s=0.1)
    say(store, 1)
    while not store.remote.status().parked:
        time.sleep(0.05)
    with machine("b").open("t") as other:
        say(other, 2)
    with pytest.raises(FencedError):
        say(store, 3, durable="remote")
    with pytest.raises(FencedError):
        store.close()


@pytest.mark.slow
def test_a_second_base_shares_unchanged_pieces(machine, memory):
    with machine("a").open("t", durability="interval") as store:
        for n in range(8):
            store.thread(f"large {n}").commit({"data": os.urandom(900_000)})
        store.remote.base()
        first = {name: len(found.data) for name, found in memory.objects.items() if "/base/" in name}
        say(store, 1)
        store.remote.base()
        second = sum(
            len(found.data) for name, found in memory.objects.items() if "/base/" in name and name not in first
        )
        assert second < 0.5 * sum(first.values())
    with machine("b").open("t") as store:
        assert store.verify().problems == []


def test_an_owner_removes_unused_objects_with_its_next_base(machine, memory):
    with machine("a").open("t", keep_s=0, grace_s=0) as store:
        for n in range(3):
            say(store, n, durable="remote")
        first = set(memory.objects)
        store.remote.base()
        say(store, 3, durable="remote")
        store.remote.base()
        assert first & set(memory.objects) == {"t/head"}
    with machine("b").open("t") as store:
        assert heard(store) == 3


def everything(memory):
    import zstandard

    found = b""
    for each in memory.objects.values():
        at = each.data.find(b"\x28\xb5\x2f\xfd")
        found += each.data + (zstandard.decompress(each.data[at:], max_output_size=1 << 28) if at >= 0 else b"")
    return found


@pytest.mark.slow
def test_after_a_purge_and_a_deletion_no_removed_data_is_left(machine, memory):
    fleet = machine("a")
    with fleet.open("t") as store:
        store.thread("secret").commit({"said": "a secret nobody may keep"})
        say(store, 1)
        store.remote.base()
        assert b"nobody may keep" in everything(memory)
        store.delete_thread("secret")
    assert b"nobody may keep" in everything(memory)
    fleet.purge("t")
    assert b"nobody may keep" not in everything(memory)
    with fleet.open("t") as store:
        assert heard(store) == 1
        store.thread("more").commit({"said": "nor this one"})
    fleet.delete("t")
    assert list(memory.objects) == ["t/head"]
    assert b"nor this one" not in everything(memory)
    assert fleet.stores() == []
    with pytest.raises(StoreNotFoundError):
        fleet.status("t")
    with machine("b").open("t") as store:
        assert heard(store) is None


def test_a_name_deleted_by_another_machine_can_be_used_again(machine):
    a, b = machine("a"), machine("b")
    with a.open("t") as store:
        say(store, 1)
    b.delete("t")
    with a.open("t") as store:
        assert heard(store) is None
    assert [each.name for each in a.stranded()] == ["t"]


def test_missing_and_damaged_objects_are_named(machine, memory):
    with machine("a").open("t") as store:
        say(store, 1, durable="remote")
        say(store, 2, durable="remote")
    _first, second, _end = (name for name in memory.objects if "/log/" in name)
    held = memory.objects[second]
    damaged = bytearray(held.data)
    damaged[-20] ^= 1
    memory.objects[second] = held._replace(data=bytes(damaged))
    fleet = machine("b")
    with pytest.raises(CorruptionError, match="log/"):
        fleet.open("t")
    [problem] = fleet.check()
    assert problem.name == "t"
    del memory.objects[second]
    with pytest.raises(CorruptionError, match="missing") as caught:
        machine("c").open("t")
    assert second in caught.value.facts["object"]
    memory.objects[second] = held
    with fleet.open("t") as store:
        assert heard(store) == 2


@pytest.mark.slow
def test_the_async_fleet_has_the_same_calls(tmp_path):
    from statelog.aio import fleet as fleets

    async def main():
        (tmp_path / "bucket").mkdir()
        url = f"file://{tmp_path}/bucket"
        async with await fleets.connect(url, tmp_path / "a") as a, await fleets.connect(url, tmp_path / "b") as b:
            async with a.open("t") as store:
                made = await store.thread("chat").commit({"n": 1}, durable="remote")
                assert (await store.remote.status()).shipped_lsn == made.lsn
                async with b.follow("t", poll_s=0.05) as copy:
                    made = await store.thread("chat").commit({"n": 2})
                    assert await copy.remote.wait(made.lsn, 10)
            store = await b.open("t")
            assert (await store.thread("chat").state.to_python())["n"] == 2
            await store.close()
            await b.restore("t", tmp_path / "r.state", at=made.lsn)
            assert [each.name for each in await a.stores()] == ["t"]
            assert (await a.status("t")).state == "free"
            assert await a.check() == await a.stranded() == []
            assert await a.gc("t") == 0
            await a.purge("t")
            await a.delete("t")

    asyncio.run(main())


def test_the_shipped_lsn_follows_segments_bases_and_the_end(machine):
    fleet, other = machine("a"), machine("b")
    with fleet.open("t", ship_ms=60_000) as store:
        assert other.shipped_lsn("t") == 0
        say(store, 1, durable="remote")
        assert other.shipped_lsn("t") == store.last_lsn
        say(store, 2)
        assert other.shipped_lsn("t") == store.last_lsn - 1
        store.remote.base()
        assert other.shipped_lsn("t") == store.last_lsn
        say(store, 3)
        last = store.last_lsn
    assert other.shipped_lsn("t") == last
    with pytest.raises(StoreNotFoundError):
        other.shipped_lsn("nothing")
