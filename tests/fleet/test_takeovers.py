"""Takeovers: the cost stays bounded in a long row, and several concurrent ones end."""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress

import pytest
from hosts import said
from waiting import until

from statelog.errors import FencedError, RemoteError
from statelog.fleet.head import decode

SMALL = {"ship_ms": 1, "keep_s": 0, "grace_s": 0, "park_after_s": None}


def end(store, *, is_killed):
    """Close a store, or end its owner as if its process was killed."""
    if is_killed:
        store.remote._error = RemoteError("killed")
        store.remote._thread.join()
    with suppress(RemoteError):
        store.close()


def take_over_in_a_row(machine, memory, monkeypatch, rounds, *, is_collecting=True):
    """Let two machines take a store from each other repeatedly. Return its tokens, and the cost of each turn.

    The costs are requests, objects in the storage afterwards, and the bytes of the head.
    """
    monkeypatch.setattr("statelog.fleet.owner._SEGMENTS_MAX", 8 if is_collecting else 10**6)
    chosen = random.Random(1)
    machines = [machine("a"), machine("b")]
    costs = []
    for number in range(rounds):
        memory.requests.clear()
        store = machines[number % 2].open("t", takeover="now", **SMALL)
        store.thread("chat").commit({"token": number}, durable=chosen.choice(["remote", None]))
        store.remote.wait()
        if is_collecting:
            until(lambda store=store: not store.remote._is_base_due())
        end(store, is_killed=chosen.random() < 0.4)
        costs.append((len(memory.requests), len(memory.objects), len(memory.objects["t/head"].data)))
    with machine("last").open("t", takeover="now") as store:
        assert store.verify().problems == []
        return said(store), costs


def are_bounded(costs):
    """Return True if no turn of the second half costs notably more than the most expensive turn of the first half."""
    half = len(costs) // 2
    return all(
        max(each[kind] for each in costs[half:]) <= 1.2 * max(each[kind] for each in costs[:half]) + 2
        for kind in range(3)
    )


@pytest.mark.slow
def test_takeovers_in_a_row_keep_all_commits_in_order_at_constant_cost(machine, memory, monkeypatch):
    tokens, costs = take_over_in_a_row(machine, memory, monkeypatch, 16)
    assert tokens == [*range(16)]
    assert are_bounded(costs), costs


@pytest.mark.soak
def test_a_thousand_takeovers_in_a_row_have_constant_cost(machine, memory, monkeypatch, soak_scale):
    count = max(int(1000 * soak_scale), 100)
    tokens, costs = take_over_in_a_row(machine, memory, monkeypatch, count)
    assert tokens == [*range(count)]
    assert are_bounded(costs), costs
    assert max(objects for _requests, objects, _bytes in costs) < 40


@pytest.mark.slow
def test_uncollected_objects_of_takeovers_are_detected(machine, memory, monkeypatch):
    tokens, costs = take_over_in_a_row(machine, memory, monkeypatch, 12, is_collecting=False)
    assert tokens == [*range(12)]
    assert not are_bounded(costs)


@pytest.mark.slow
def test_several_concurrent_takeovers_all_end_and_one_owns_the_store(machine, memory):
    """They do not alternate for ever. Each owns the store once, or is stopped by a later one."""
    count = 5
    machine("first").open("t").close()
    memory.fail = lambda *_: time.sleep(random.random() / 100)
    stores, ended = {}, []

    def take(name):
        try:
            store = machine(name).open("t", takeover="now", timeout_s=20)
        except FencedError:
            ended.append(name)
        else:
            stores[name] = store

    takers = [threading.Thread(target=take, args=(f"{number}",)) for number in range(count)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join(30)
    assert len(stores) + len(ended) == count
    memory.fail = lambda *_: None
    acknowledged = []
    for name, store in stores.items():
        with suppress(FencedError):
            store.thread("chat").commit({"token": name}, durable="remote")
            acknowledged.append(name)
    owner = decode("t/head", memory.objects["t/head"].data).owner[0]
    assert len(acknowledged) == 1
    assert owner.endswith(f"/{acknowledged[0]}/t.state")
    for store in stores.values():
        with suppress(FencedError):
            store.close()
    with machine("last").open("t", takeover="now") as store:
        assert said(store) == acknowledged


@pytest.mark.slow
def test_a_takeover_that_ends_between_its_swaps_is_taken_over(machine, memory):
    """By an owner that waits for its heartbeat, and by one that does not."""
    store = machine("a").open("t")
    store.thread("chat").commit({"token": 1}, durable="remote")
    for name, how in (("b", {"takeover": "now"}), ("c", {"ttl_s": 0.2})):
        memory.fail = fail_second_swap()
        with pytest.raises(RemoteError):
            machine("dead").open("t", takeover="now")
        memory.fail = lambda *_: None
        assert decode("t/head", memory.objects["t/head"].data).state == "opening"
        taken = machine(name).open("t", **how)
        assert said(taken) == [1]
        end(taken, is_killed=True)
    store.thread("chat").commit({"token": 2})
    for go_on in (store.remote.wait, store.close):
        with pytest.raises(FencedError):
            go_on()


def fail_second_swap():
    swaps = []

    def fail(request, _name):
        swaps.extend([request] if request == "swap" else [])
        if len(swaps) > 1:
            raise RemoteError("away")

    return fail
