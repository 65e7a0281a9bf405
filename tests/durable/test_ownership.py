"""Ownership of runs: one of two workers wins, and the other one stops without writing anything."""

from __future__ import annotations

import gc
import random
import threading
from collections import Counter
from contextvars import Context
from datetime import UTC, datetime

import pytest
from executed import CALLS, note

import statelog
from statelog import durable
from statelog.durable import driver, task_claims
from statelog.durable.probes import probe
from statelog.durable.record import DONE
from statelog.durable.recorded import recorded_items
from statelog.errors import NondeterminismError
from statelog.reducers import add
from statelog.store.board import own_board


def lapse(store):
    """Let the claims of paused or killed processes expire."""
    board = own_board(store)
    for entry in board.list("durable/tasks/**"):
        if entry.claim is not None:
            board.claim_of(entry.key, entry.claim.token).renew(1e-6)


class Overtaking:
    """Lets another process drive the runs of a store once, while the caller is paused for longer than its lease."""

    def __init__(self, store):
        self.store, self.workflows, self.is_done = store, [], False

    def __call__(self):
        if not self.is_done:
            self.is_done = True
            lapse(self.store)
            Context().run(durable.run_worker, self.store, self.workflows, until_idle=True)


@pytest.fixture
def overtake(store):
    return Overtaking(store)


def test_a_run_that_another_process_has_ended_ends_here_too(store, overtake):
    @durable.workflow(name="w")
    def ends(run):
        run.step(note, 1)
        overtake()
        return "ended"

    overtake.workflows = [ends]
    assert durable.run(store, ends, id="evt-1").value == "ended"
    assert CALLS == [1]


def test_a_run_that_another_process_has_ended_is_not_suspended(store, overtake):
    @durable.workflow(name="w")
    def receives(run):
        overtake()
        return run.recv("chat")

    overtake.workflows = [receives]
    durable.start(store, receives, id="evt-1")
    durable.send(store, "evt-1", "hello", topic="chat")
    assert durable.run(store, receives, id="evt-1").value == "hello"


def test_a_parent_waits_for_a_child_that_another_process_drives_without_compensations(store, overtake):
    @durable.workflow(name="kid")
    def kid(run):
        run.step(note, "kid")
        overtake()
        return "grown"

    @durable.workflow(name="w")
    def parent(run):
        run.step_with(durable.StepOptions(compensate=lambda *_args: note("undone")), note, "parent")
        return run.child(kid)

    overtake.workflows = [kid]
    assert durable.run(store, parent, id="evt-1").value == "grown"
    assert CALLS == ["parent", "kid"]


def test_a_child_is_claimed_for_as_long_as_its_parent(store):
    def look(_tx):
        tasks = own_board(store).claims("durable/tasks/**")
        return max((each.claim.expires - datetime.now(UTC)).total_seconds() for each in tasks)

    @durable.workflow
    def child(run):
        assert run.transact(look) < 5

    @durable.workflow
    def parent(run):
        return run.child(child)

    assert durable.run(store, parent, id="evt-1", lease_s=5).status == "completed"


def test_a_child_with_changed_code_stops_and_its_parent_waits_without_compensations(store):
    @durable.workflow(name="kid")
    def old(run):
        run.step(note, 1)
        return run.recv("chat")

    @durable.workflow(name="kid")
    def new(run):
        run.step(note, 2)
        return run.recv("chat")

    def parent(kid):
        @durable.workflow(name="w")
        def made(run):
            run.step_with(durable.StepOptions(compensate=lambda *_args: note("undone")), note, "parent")
            return run.child(kid, id="kid")

        return made

    durable.run(store, parent(old), id="evt-1")
    durable.send(store, "kid", "hello", topic="chat")
    durable.resume(store, "evt-1")
    info = durable.run(store, parent(new), id="evt-1")
    assert (info.status, info.waiting_for) == ("suspended", ("run kid",))
    with pytest.raises(NondeterminismError):
        durable.run(store, new, id="kid") if durable.resume(store, "kid") else None
    durable.resume(store, "kid")
    assert durable.run(store, old, id="kid").value == "hello"
    assert durable.run(store, parent(old), id="evt-1").value == "hello"
    assert CALLS == ["parent", 1]


# --- two workers ---------------------------------------------------------------------------------------


def count_up(tx, name):
    tx.board().update(name, add, 1)


@durable.workflow
def several(run, name):
    for number in range(3):
        run.step(note, (name, number))
    run.transact(count_up, name)
    found = run.map(note, [(name, 3), (name, 4)])
    run.commit({"found": found})
    return run.step(note, (name, 5))


def recorded(store, run):
    """Return the places of the completed calls that a run has recorded."""
    items = recorded_items(store, run)
    return [item["p"] for item in items if item["s"] == DONE]


def race(store, number, chance):
    """Let a worker drive a run and stop somewhere, and another worker take over.

    Return the calls that were repeated wrongly.
    """
    name, at, waits = f"evt-{number}", chance.randrange(1, 17), chance.random() < 0.5
    durable.start(store, several, name, id=name)
    took_over, passed, late = threading.Event(), [], []

    def other():
        while not durable.run(store, several, name, id=name, wait_s=1).has_ended:
            pass

    second = threading.Thread(target=other)

    def stopped(moment, _run, _what):
        if moment == "call" and took_over.is_set():
            late.append(_what)
        elif moment != "call":
            passed.append(moment)
            if len(passed) == at:
                lapse(store)
                second.start()
                if waits:
                    second.join()
                    took_over.set()

    def first():
        probe.set(stopped)
        return durable.run(store, several, name, id=name)

    info = Context().run(first)
    if second.ident is None:
        second.start()
    second.join()
    info = durable.get_run(store, name)
    assert (info.status, info.value) == ("completed", (name, 5))
    places = recorded(store, name)
    assert sorted(places) == sorted(set(places)) == ["0", "1", "2", "3", "4.0", "4.1", "5", "6"]
    assert store.board().get(name).value == 1
    calls = Counter(value[1] for value in CALLS if value[0] == name)
    assert set(calls.values()) <= {1, 2}
    assert len(late) <= 2  # Calls before the next commit: a step, or the two steps of the map.
    return calls.total() - 6


def run_races(path, count):
    chance = random.Random(count)
    with statelog.open(path, durability="interval") as store:
        again = sum(race(store, number, chance) > 0 for number in range(count))
        assert store.verify().problems == []
    assert again > count // 10  # In some races, both workers were driving the run.


@pytest.mark.slow
def test_two_workers_never_commit_a_step_twice(path):
    """D3."""
    run_races(path, 30)


@pytest.mark.soak
def test_two_workers_never_commit_a_step_twice_in_a_thousand_races(path, soak_scale):
    run_races(path, round(1000 * soak_scale))


def test_a_paused_worker_continues_if_no_other_took_over(store):
    def pausing(value):
        lapse(store)
        return note(value)

    @durable.workflow(name="w")
    def paused(run):
        return [run.step(pausing, number) for number in range(3)]

    assert durable.run(store, paused, id="evt-1").value == [0, 1, 2]
    assert CALLS == [0, 1, 2]


def test_a_worker_that_lost_its_run_stops_at_its_next_commit(store, overtake):
    """D3, D13."""
    after = []

    @durable.workflow(name="w")
    def lost(run):
        run.step_with(durable.StepOptions(name="first"), lambda: (note("first"), overtake())[0])
        after.append(run.step(note, "second"))
        return after

    overtake.workflows = [lost]
    assert durable.run(store, lost, id="evt-1").value == ["second"]
    assert CALLS == ["first", "first", "second"]
    assert after == ["second"]


# --- mail -------------------------------------------------------------------------------------------------


@durable.workflow
def reads(run, count):
    return [run.recv("chat") for _ in range(count)]


@pytest.mark.slow
def test_a_message_is_never_lost_whenever_it_arrives(path):
    """D14, D15: a thousand messages arrive before the run, before the wait, during the suspension and after it."""
    with statelog.open(path, durability="interval") as store:
        for number in range(100):
            run, messages = f"evt-{number}", iter(range(10))
            durable.start(store, reads, 10, id=run)

            def send(run=run, messages=messages):
                for message in messages:
                    durable.send(store, run, message, topic="chat")
                    return

            def sends(moment, _run, what, number=number, send=send):
                if (moment, what) == ("before", "suspension") or (moment == "before" and number % 3 == 0):
                    send()

            def drive(run=run, sends=sends):
                probe.set(sends)
                return durable.run(store, reads, 10, id=run)

            for _ in range(min(4 + number % 9, 10)):
                send()
            info = Context().run(drive)
            while not info.has_ended:
                send()
                info = durable.run(store, reads, 10, id=run)
            assert info.value == list(range(10))


@pytest.mark.slow
def test_a_claim_that_an_interrupt_left_without_a_holder_expires(store, monkeypatch):
    """The interrupt comes where no code releases the claim any more, or not yet."""

    @durable.workflow(name="w")
    def ends(run):
        return run.step(note, 1)

    def interrupted(*_given, **_how):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(task_claims, "stop_renewing", interrupted)
        patched.setattr(driver, "put_back", interrupted)
        patched.setattr(driver, "Execution", interrupted)
        with pytest.raises(KeyboardInterrupt):
            durable.run(store, ends, id="evt-1", lease_s=0.1)
    gc.collect()
    assert durable.run(store, ends, id="evt-1", wait_s=60).value == 1
