"""Queues: limits hold for all workers together, and a crash frees the slots of its process."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import Counter

import forks
import pytest
from waiting import until

import statelog
from statelog import durable
from statelog.durable.clock import set_clock
from statelog.durable.queues import HeldSlots, QueueLimits
from statelog.errors import LimitError, UsageError
from statelog.store.board import own_board

WAIT_S = 60


class Gauge:
    """Counts the steps that run concurrently, by name."""

    def __init__(self):
        self.lock = threading.Lock()
        self.now, self.most = Counter(), Counter()
        self.order = []

    @contextlib.contextmanager
    def inside(self, *names):
        with self.lock:
            self.order += names
            for name in names:
                self.now[name] += 1
                self.most[name] = max(self.most[name], self.now[name])
        yield
        with self.lock:
            self.now.subtract(names)


GAUGE = Gauge()
BARRIERS = {}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.setattr(durable.workers, "_SLICE_S", 0.05)  # A stopped worker returns at once.
    GAUGE.__init__()
    BARRIERS.clear()


def measured(name):
    with GAUGE.inside("all", name):
        if name in BARRIERS:
            BARRIERS[name].wait(WAIT_S)
        time.sleep(0.002)
    return name


@durable.workflow
def job(run, name):
    return run.step(measured, name)


@durable.workflow
def chat(run):
    return run.recv()


class Still:
    """A clock that moves only when the test advances it."""

    def __init__(self):
        self.time_us = time.time_ns() // 1000

    def now_us(self):
        return self.time_us

    def sleep(self, seconds):
        self.time_us += round(seconds * 1e6)

    def is_short(self, seconds):
        return seconds <= 0


@pytest.fixture
def clock():
    made = Still()
    before = set_clock(made)
    yield made
    set_clock(before)


def work_together(store, queue, count=2, **how):
    """Let several workers, each with its own limits, work for a queue until it is empty."""
    workers = [
        threading.Thread(
            target=durable.run_worker, args=(store, [job, chat]), kwargs={"queues": {"trips": queue}, **how}
        )
        for _ in range(count)
    ]
    for each in workers:
        each.start()
    return workers


def until_done(store, queue, handles, **how):
    stop = threading.Event()
    workers = work_together(store, queue, stop=stop, **how)
    try:
        for each in handles:
            each.result(timeout_s=WAIT_S)
    finally:
        stop.set()
        for each in workers:
            each.join()


# --- limits ------------------------------------------------------------------------------------


def test_two_workers_never_drive_more_runs_than_the_limit_of_a_queue(store):
    handles = [durable.start(store, job, "a", queue="trips") for _ in range(12)]
    until_done(store, durable.Queue(concurrency=2), handles)
    assert GAUGE.most["all"] <= 2
    assert len(GAUGE.order) == 24


def test_without_a_limit_more_runs_are_driven_at_once(store):
    BARRIERS["a"] = threading.Barrier(3)
    handles = [durable.start(store, job, "a", queue="trips") for _ in range(3)]
    until_done(store, durable.Queue(), handles)
    assert GAUGE.most["all"] == 3


def test_as_many_runs_as_the_limit_of_a_queue_are_driven_at_once(store):
    BARRIERS["a"] = threading.Barrier(3)
    handles = [durable.start(store, job, "a", queue="trips") for _ in range(6)]
    until_done(store, durable.Queue(concurrency=3), handles)
    assert GAUGE.most["all"] == 3


def test_a_limit_per_worker_holds_for_each_worker(store):
    for _ in range(4):
        durable.start(store, job, "a", queue="trips")
    assert durable.run_worker(store, [job], queues={"trips": durable.Queue(per_worker=1)}, until_idle=True) == 4
    assert GAUGE.most["all"] == 1
    BARRIERS["a"] = threading.Barrier(2)
    until_done(store, durable.Queue(per_worker=1), [durable.start(store, job, "a", queue="trips") for _ in range(2)])
    assert GAUGE.most["all"] == 2


def test_each_partition_has_its_own_limit(store):
    BARRIERS["a"] = BARRIERS["b"] = threading.Barrier(2)  # One run of each partition at a time.
    handles = [durable.start(store, job, name, queue="trips", partition=name) for name in "aaabbb"]
    until_done(store, durable.Queue(per_partition=1), handles)
    assert (GAUGE.most["a"], GAUGE.most["b"]) == (1, 1)
    assert own_board(store).list("durable/slots/**") == []


def test_an_empty_partition_leaves_no_entries(store):
    BARRIERS["a"] = threading.Barrier(3)
    handles = [durable.start(store, job, "a", queue="trips", partition=f"p{number // 3}") for number in range(6)]
    until_done(store, durable.Queue(per_partition=3), handles)
    assert own_board(store).list("durable/slots/**") == []


@pytest.mark.slow
def test_all_limits_hold_at_once(store):
    handles = [durable.start(store, job, name, queue="trips", partition=name) for name in "aaabbbccc"]
    handles += [durable.start(store, job, "none", queue="trips") for _ in range(3)]
    until_done(store, durable.Queue(concurrency=2, per_worker=2, per_partition=1), handles)
    assert max(GAUGE.most[name] for name in "abc") == 1
    assert GAUGE.most["all"] <= 2


def test_names_of_queues_with_partitions_do_not_collide(store):
    durable.start(store, job, "a", queue="a@b")
    durable.start(store, job, "b", queue="a", partition="b")
    durable.start(store, job, "c", queue="a", partition="x/y*@%")
    assert durable.run_worker(store, [job], queues=["a@b"], until_idle=True) == 1
    assert durable.run_worker(store, [job], queues=["a"], until_idle=True) == 2
    with pytest.raises(LimitError):
        durable.start(store, job, "c", queue="a", partition="x" * 90)


def test_suspended_runs_do_not_count(store):
    queue = {"trips": durable.Queue(concurrency=1, per_worker=1)}
    chats = [durable.start(store, chat, queue="trips") for _ in range(3)]
    assert durable.run_worker(store, [chat], queues=queue, until_idle=True) == 3
    durable.send(store, chats[1].id, "hello")
    assert durable.run_worker(store, [chat], queues=queue, until_idle=True) == 1
    assert chats[1].result(timeout_s=1) == "hello"


def test_a_full_queue_does_not_delay_other_queues(store):
    slot = own_board(store)
    slot.create("durable/slots/trips/0", {})
    held = slot.claim("durable/slots/trips/*")
    waiting = durable.start(store, job, "a", queue="trips", priority=5)
    other = durable.start(store, job, "b", queue="other")
    queues = {"trips": durable.Queue(concurrency=1), "other": durable.Queue()}
    assert durable.run_worker(store, [job], queues=queues, until_idle=True) == 1
    assert other.info.status == "completed"
    assert (waiting.info.status, waiting.info.attempts) == ("queued", 0)
    held.release()
    assert durable.run_worker(store, [job], queues=queues, until_idle=True) == 1


def test_a_waiting_worker_is_woken_by_a_released_slot(store):
    board = own_board(store)
    board.create("durable/slots/trips/0", {})
    held = board.claim("durable/slots/trips/*")
    handle = durable.start(store, job, "a", queue="trips")
    stop = threading.Event()
    workers = work_together(store, durable.Queue(concurrency=1), count=1, stop=stop)
    held.release()
    assert handle.result(timeout_s=WAIT_S) == "a"
    stop.set()
    workers[0].join()


@pytest.mark.slow
def test_a_worker_with_an_endless_supply_of_runs_yields_its_slot_to_others(store, monkeypatch):
    monkeypatch.setitem(QueueLimits.release_old_slots.__globals__, "_TURN_S", 0.01)
    stop = threading.Event()

    def follow():
        if not stop.is_set():
            durable.start(store, endless, queue="trips", priority=1)

    @durable.workflow
    def endless(run):
        run.step(follow)

    for _ in range(3):
        durable.start(store, endless, queue="trips", priority=1)
    handle = durable.start(store, job, "a", queue="trips")
    how = {"queues": {"trips": durable.Queue(concurrency=1)}, "stop": stop}
    workers = [threading.Thread(target=durable.run_worker, args=(store, [each]), kwargs=how) for each in (endless, job)]
    for each in workers:
        each.start()
    assert handle.result(timeout_s=WAIT_S) == "a"
    stop.set()
    for each in workers:
        each.join()


@pytest.mark.slow
def test_a_lowered_limit_holds(store):
    handles = [durable.start(store, job, "a", queue="trips") for _ in range(8)]
    until_done(store, durable.Queue(concurrency=4), handles)
    GAUGE.__init__()
    handles = [durable.start(store, job, "a", queue="trips") for _ in range(8)]
    until_done(store, durable.Queue(concurrency=1), handles)
    assert GAUGE.most["all"] == 1


def test_a_paused_worker_does_not_continue_in_a_slot_that_another_holds(store):
    limits, held = QueueLimits(store, {"trips": durable.Queue(concurrency=1)}, 30.0), HeldSlots()
    for name in "ab":
        durable.start(store, job, name, queue="trips")
    board = own_board(store)
    assert limits.admit(board.claim("durable/tasks/**"), held)
    slot = held.slots[0]
    board.delete(slot.claim.key)  # As if the claim had expired and another worker held the slot.
    board.create(slot.claim.key, {})
    board.claim("durable/slots/trips/*")
    slot.checked_s -= 60
    second = board.claim("durable/tasks/**")
    assert not limits.admit(second, held)
    assert (held.slots, board.get(second.key).attempts) == ([], 0)


def test_an_unused_slot_is_released(store):
    durable.start(store, job, "a", queue="trips")
    durable.run_worker(store, [job], queues={"trips": durable.Queue(concurrency=2)}, until_idle=True)
    assert [entry.claim for entry in own_board(store).list("durable/slots/**")] == [None]


@pytest.mark.slow
def test_consecutive_runs_reuse_a_slot_without_further_records(store):
    def records(queue, count):
        for _ in range(count):
            durable.start(store, job, "a", queue="trips")
        before = store.last_lsn
        durable.run_worker(store, [job], queues={"trips": queue}, until_idle=True, concurrency=1)
        return store.last_lsn - before

    records(durable.Queue(concurrency=1), 1)
    assert records(durable.Queue(concurrency=1), 20) <= records(durable.Queue(), 20) + 4


# --- rate ----------------------------------------------------------------------------------------


def test_the_rate_limits_the_runs_that_begin_in_any_window(store, clock):
    for _ in range(6):
        durable.start(store, job, "a", queue="trips")
    queue = durable.Queue(rate=(2, 60))
    begun = []
    for seconds in (0, 59, 0.999, 0.001, 59.999, 0.001):
        clock.sleep(seconds)
        for each in work_together(store, queue, until_idle=True):
            each.join()
        begun.append(len(GAUGE.order) // 2)
    assert begun == [2, 2, 2, 4, 4, 6]


@pytest.mark.usefixtures("clock")
def test_a_continued_run_does_not_count_for_the_rate(store):
    queues = {"trips": durable.Queue(rate=(2, 60))}
    first = durable.start(store, chat, queue="trips")
    durable.run_worker(store, [chat], queues=queues, until_idle=True)
    durable.send(store, first.id, "hello")
    durable.start(store, chat, queue="trips")
    assert durable.run_worker(store, [chat], queues=queues, until_idle=True) == 2


def test_a_worker_continues_after_the_window(store):
    handles = [durable.start(store, job, "a", queue="trips") for _ in range(3)]
    until_done(store, durable.Queue(rate=(1, 0.03)), handles)
    assert len(GAUGE.order) == 6


# --- processes -------------------------------------------------------------------------------------

PROGRAM = """
import os, sys, time
import statelog
from statelog import durable

def note(text):
    with open(sys.argv[2], "a") as file:
        file.write(text)

def noted(pause_s):
    note("(")
    time.sleep(pause_s)
    note(")")

@durable.workflow
def slow(run, pause_s):
    run.step(noted, pause_s)

with statelog.open(sys.argv[1]) as store:
    queues = {"trips": durable.Queue(concurrency=1)}
    durable.run_worker(store, [slow], queues=queues, until_idle=sys.argv[3] == "idle", lease_s=float(sys.argv[4]))
"""


def noted(pause_s):
    return pause_s


@durable.workflow
def slow(run, pause_s):
    return run.step(noted, pause_s)


def begin(path, notes, how, lease_s):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROGRAM, str(path), str(notes), how, str(lease_s)]
    return forks.Popen(command, env=environment)


@pytest.mark.slow
def test_two_processes_never_drive_more_runs_than_the_limit_of_a_queue(path, tmp_path):
    notes = tmp_path / "notes"
    with statelog.open(path) as store:
        handles = [durable.start(store, slow, 0.002, id=f"evt-{number}", queue="trips") for number in range(10)]
        workers = [begin(path, notes, "on", 30) for _ in range(2)]
        try:
            for each in handles:
                each.result(timeout_s=WAIT_S)
        finally:
            for each in workers:
                each.kill()
                each.wait()
    assert notes.read_text() == "()" * 10


def test_slots_of_a_killed_worker_are_free_after_their_leases(path, tmp_path):
    notes = tmp_path / "notes"
    with statelog.open(path) as store:
        durable.start(store, slow, 60, id="evt-1", queue="trips")
        worker = begin(path, notes, "on", 1.5)
        until(notes.exists)
        handle = durable.start(store, slow, 0, id="evt-2", queue="trips")
        queues = {"trips": durable.Queue(concurrency=1)}
        assert durable.run_worker(store, [slow], queues=queues, until_idle=True) == 0
        worker.kill()
        worker.wait()
        stop = threading.Event()
        other = threading.Thread(
            target=durable.run_worker, args=(store, [slow]), kwargs={"queues": queues, "stop": stop}
        )
        other.start()
        assert handle.result(timeout_s=WAIT_S) == 0
        assert durable.Handle(store, "evt-1").result(timeout_s=WAIT_S) == 60
        stop.set()
        other.join()


# --- order, and stopped runs -----------------------------------------------------------------


def test_the_highest_priority_begins_first_across_queues_and_limits(store):
    for number, (queue, priority) in enumerate([("a", 0), ("b", 5), ("a", 9), ("b", 0), ("a", 5)]):
        durable.start(store, job, str(number), queue=queue, priority=priority)
    queues = {"a": durable.Queue(concurrency=1), "b": durable.Queue(concurrency=1)}
    durable.run_worker(store, [job], queues=queues, until_idle=True, concurrency=1)
    assert GAUGE.order[1::2] == ["2", "1", "4", "0", "3"]


def test_runs_that_waited_for_a_slot_keep_their_order(store):
    board = own_board(store)
    board.create("durable/slots/trips/0", {})
    held = board.claim("durable/slots/trips/*")
    for name in "abc":
        durable.start(store, job, name, queue="trips")
    queues = {"trips": durable.Queue(concurrency=1)}
    assert durable.run_worker(store, [job], queues=queues, until_idle=True) == 0
    held.release()
    durable.run_worker(store, [job], queues=queues, until_idle=True, concurrency=1)
    assert GAUGE.order[1::2] == ["a", "b", "c"]


def test_a_stopped_run_is_retried_after_growing_delays(store, clock):
    @durable.workflow
    async def awaited(run):
        return run.id

    durable.start(store, awaited, id="evt-1")
    delays = []
    for _ in range(8):
        assert durable.run_worker(store, [awaited], until_idle=True) == 1
        delays.append(durable.get_run(store, "evt-1").due.timestamp() - clock.now_us() / 1e6)
        durable.resume(store, "evt-1")
    assert [round(each) for each in delays] == [1, 2, 4, 8, 16, 32, 60, 60]


# --- statistics and refusals -----------------------------------------------------------


def test_queues_reports_the_runs_and_limits_of_each_queue(store):
    board = own_board(store)
    durable.start(store, chat, id="evt-1", queue="trips")
    durable.run_worker(store, [chat], until_idle=True)
    durable.start(store, job, "a", id="evt-2", queue="trips", partition="x/y", priority=1)
    durable.start(store, job, "a", id="evt-3", queue="trips")
    durable.start(store, job, "a", id="evt-4", queue="trips", delay_s=60)
    durable.start(store, job, "a", id="evt-5", queue="a@b")
    board.claim("durable/tasks/trips/job/evt-3")
    found = durable.queues(store)
    assert found == [durable.QueueInfo("a@b", 1, 0, 0, 0), durable.QueueInfo("trips", 1, 1, 1, 1)]


@pytest.mark.parametrize(
    "limits",
    [
        {"concurrency": 0},
        {"concurrency": True},
        {"per_worker": 1.5},
        {"per_partition": -1},
        {"rate": 5},
        {"rate": (0, 60)},
        {"rate": (5, 0)},
        {"rate": (5, "60")},
        {"rate": (1.5, 60)},
        {"rate": (10_001, 60)},
        {"rate": [5, 60]},
    ],
    ids=str,
)
def test_invalid_limits_are_refused(limits):
    with pytest.raises(UsageError) as caught:
        durable.Queue(**limits)
    assert caught.value.argument == next(iter(limits))


def test_an_invalid_queue_is_refused(store):
    for queues in ("trips", {"trips": 4}, {"trips": None}, {"": durable.Queue()}, [3], []):
        with pytest.raises(UsageError):
            durable.run_worker(store, [job], queues=queues, until_idle=True)
    for options in ({"partition": ""}, {"partition": 3}, {"queue": ""}):
        with pytest.raises(UsageError):
            durable.start(store, job, "a", **options)
    assert durable.runs(store) == []
