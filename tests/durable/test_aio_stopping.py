"""Async runs that are stopped, async workers, and a loop that is never blocked."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from executed import CALLS
from executed_on_loop import chat, execute, note, on_loop, plain, three

import statelog
from statelog import aio
from statelog import durable as threaded
from statelog.aio import durable
from statelog.durable.execution import Execution
from statelog.errors import (
    StepInterruptedError,
    StoreFullError,
    UsageError,
)
from statelog.store.board import Board


def lambda_of(step):
    """Return the body of a workflow that calls a step."""

    async def body(run):
        return await run.step(step)

    return body


async def until(is_true):
    """Wait until a condition holds. It is expected to hold soon."""
    for _ in range(30_000):
        if is_true():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it has not happened")


# --- stopping ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("semantics", ["at_least_once", "at_most_once"])
def test_cancelling_the_task_stops_the_run_without_compensations(path, semantics):
    async def charge():
        CALLS.append("charge")
        await asyncio.sleep(60 if len(CALLS) == 1 else 0)
        return "charged"

    async def trip(run):
        try:
            return await run.step_with(
                durable.StepOptions(compensate=lambda _result: CALLS.append("undone"), semantics=semantics), charge
            )
        except StepInterruptedError:
            return "ask"

    async def body(store):
        running = asyncio.create_task(execute(store, trip))
        await until(lambda: CALLS)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await durable.get_run(store, "evt-1")).status == "queued"
        expected = "charged" if semantics == "at_least_once" else "ask"
        assert (await execute(store, trip)).value == expected
        assert "undone" not in CALLS

    on_loop(path, body)


def test_cancelling_the_task_stops_a_workflow_in_a_thread_at_its_next_operation(path):
    is_let_go = threading.Event()

    @threaded.workflow
    def slow(run):
        run.step_with(durable.StepOptions(name="slow"), lambda: CALLS.append(1) or is_let_go.wait(60))
        run.step(CALLS.append, 2)

    async def body(store):
        running = asyncio.create_task(durable.run(store, slow, id="evt-1"))
        await until(lambda: CALLS)
        running.cancel()
        await asyncio.sleep(0.01)
        assert not running.done()
        is_let_go.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert CALLS == [1]
        assert (await durable.run(store, slow, id="evt-1")).status == "completed"

    on_loop(path, body)


def test_a_commit_in_progress_ends_before_its_run_is_released(path, monkeypatch):
    has_begun, is_let_go, commit = threading.Event(), threading.Event(), statelog.Thread.commit

    def slow(*args, **how):
        has_begun.set()
        assert is_let_go.wait(60)
        return commit(*args, **how)

    async def trip(run):
        return [await run.step(note, number) for number in range(2)]

    async def body(store):
        monkeypatch.setattr(statelog.Thread, "commit", slow)
        running = asyncio.create_task(execute(store, trip))
        await until(has_begun.is_set)
        running.cancel()
        await asyncio.sleep(0.01)
        assert (await durable.get_run(store, "evt-1")).status == "running"
        is_let_go.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await durable.get_run(store, "evt-1")).status == "queued"
        assert [each.result for each in await durable.steps(store, "evt-1")] == [0]
        assert (await execute(store, trip)).value == [0, 1]
        assert CALLS == [0, 1]

    on_loop(path, body)


def test_a_workflow_can_set_its_own_timeout_for_an_operation(path):
    async def slow():
        await asyncio.sleep(60)

    async def trip(run):
        try:
            async with asyncio.timeout(0.01):
                await run.step(slow)
        except TimeoutError:
            return await run.step(note, "late")

    async def body(store):
        assert (await execute(store, trip)).value == "late"

    on_loop(path, body)


def test_a_cancelled_run_does_not_keep_waiting_for_another_process(path):
    async def body(store):
        assert (await execute(store, lambda run: run.recv())).status == "suspended"
        waiting = asyncio.create_task(execute(store, lambda run: run.recv(), wait_s=60))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await durable.get_run(store, "evt-1")).status == "suspended"

    on_loop(path, body)


# --- workers --------------------------------------------------------------------------------------------


def test_a_worker_drives_async_and_sync_runs_concurrently(path):
    at_work, most = set(), []

    async def busy(number):
        at_work.add(number)
        most.append(len(at_work))
        await asyncio.sleep(0.01)
        at_work.remove(number)

    @durable.workflow
    async def one(run, number):
        await run.step(busy, number)

    async def body(store):
        for number in range(6):
            await durable.start(store, one, number, id=f"evt-{number}")
        await durable.start(store, plain, 1, id="plain")
        assert await durable.run_worker(store, [one, plain], until_idle=True, concurrency=3) == 7
        assert max(most) <= 3
        assert (await durable.get_run(store, "plain")).status == "suspended"
        assert len(await durable.runs(store, status="completed")) == 6

    on_loop(path, body)


@pytest.mark.parametrize("is_async", [True, False])
def test_a_stopped_run_is_retried_later(path, monkeypatch, is_async):
    def full(execution, *_items, **_how):
        raise execution.stopped(StoreFullError("no room"))

    async def body(store):
        workflow = three if is_async else plain
        await durable.start(store, workflow, 1, id="evt-1")
        assert await asyncio.wait_for(durable.run_worker(store, [workflow], until_idle=True), 60) == 1
        assert (await durable.get_run(store, "evt-1")).due is not None

    monkeypatch.setattr(Execution, "commit", full)
    on_loop(path, body)


def test_a_stop_event_ends_a_worker_after_its_runs_are_suspended(path):
    is_let_go = asyncio.Event()

    async def wait():
        CALLS.append("begun")
        await is_let_go.wait()

    async def body(store):
        stop = asyncio.Event()
        workflow = durable.workflow(name="w")(lambda_of(wait))
        handle = await durable.start(store, workflow, id="evt-1")
        working = asyncio.create_task(durable.run_worker(store, [workflow], stop=stop))
        await until(lambda: CALLS)
        stop.set()
        await asyncio.sleep(0.01)
        assert not working.done()
        is_let_go.set()
        assert await working == 1
        assert (await handle.info()).status == "completed"

    on_loop(path, body)


def test_cancelling_a_worker_releases_its_runs(path):
    async def wait():
        CALLS.append("begun")
        await asyncio.sleep(60)

    async def body(store):
        workflow = durable.workflow(name="w")(lambda_of(wait))
        handles = [await durable.start(store, workflow, id=f"evt-{number}") for number in range(2)]
        working = asyncio.create_task(durable.run_worker(store, [workflow]))
        await until(lambda: len(CALLS) == 2)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert {(await handle.info()).status for handle in handles} == {"queued"}

    on_loop(path, body)


def test_a_worker_without_workflows_or_queues_is_refused(path):
    async def body(store):
        for bad in ({"concurrency": 0}, {"queues": []}):
            with pytest.raises(UsageError):
                await durable.run_worker(store, [three], **bad)

    on_loop(path, body)


# --- code that differs ------------------------------------------------------------------------------------


def test_check_replays_async_and_sync_workflows(path):
    def workflow(step_name):
        @durable.workflow(name="w")
        async def made(run):
            async with asyncio.TaskGroup() as group:
                group.create_task(run.step_with(durable.StepOptions(name=step_name), note, 1))
            return await run.recv()

        return made

    async def body(store):
        await durable.run(store, workflow("old"), id="evt-1")
        await durable.run(store, plain, 1, id="evt-2")
        await durable.start(store, chat, "a", id="evt-3")
        lsn = await store.last_lsn()
        assert list(await durable.check_replay(store, [workflow("new"), plain])) == ["evt-3", "evt-1"]
        assert await durable.check_replay(store, [workflow("old"), plain, chat]) == {}
        assert await store.last_lsn() == lsn
        assert CALLS == [1, (1, False)]

    on_loop(path, body)


def test_a_patch_considers_the_records_of_all_tasks(path):
    async def part(run, number):
        await run.step(note, number)

    def workflow(*, is_new):
        @durable.workflow(name="w")
        async def made(run):
            is_better = await run.patched("better") if is_new else False
            await asyncio.gather(part(run, 1), part(run, 2))
            return [is_better, await run.recv()]

        return made

    async def body(store):
        await durable.run(store, workflow(is_new=False), id="evt-1")
        for id in ("evt-1", "evt-2"):
            await durable.start(store, workflow(is_new=True), id=id)
            await durable.send(store, id, 1)
        assert (await durable.run(store, workflow(is_new=True), id="evt-1")).value == [False, 1]
        assert (await durable.run(store, workflow(is_new=True), id="evt-2")).value == [True, 1]

    on_loop(path, body)


# --- the loop ------------------------------------------------------------------------------------------------


def spied(monkeypatch):
    """Record each access of the main thread to a store. Return the list of accesses."""
    touched, main = [], threading.main_thread()

    def watched(name, real):
        def call(*args, **kwargs):
            if threading.current_thread() is main:
                touched.append(name)
            return real(*args, **kwargs)

        return call

    names = [(Board, each) for each in ("get", "list", "set", "create", "cas", "delete", "claim")]
    names += [(statelog.Thread, each) for each in ("commit", "fork", "at")]
    names += [(statelog.Store, "transaction"), (Execution, "__init__"), (Execution, "commit")]
    for owner, name in names:
        monkeypatch.setattr(owner, name, watched(name, getattr(owner, name)))
    monkeypatch.setattr(statelog.Store, "last_lsn", property(watched("last_lsn", statelog.Store.last_lsn.fget)))
    return touched


def test_the_thread_of_the_loop_never_touches_a_store(path, monkeypatch):
    touched = spied(monkeypatch)

    async def trip(run):
        await run.step_with(
            durable.StepOptions(commit=lambda result: {"a": result}, compensate=lambda _result, value: note(value)),
            note,
            1,
        )
        await run.map(note, [1, 2])
        await run.transact(lambda tx: tx.board().set("k", 1))
        await run.gather(run.branch(lambda run: run.step(note, 3)), run.start(note, 4))
        await run.child(three, "a")
        await run.emit("topic", await run.random())
        return await run.recv()

    async def main():
        async with aio.open(path) as store:
            await execute(store, trip)
            await durable.check_replay(store, [durable.workflow(name="w")(trip)])
            await durable.send(store, "evt-1", "hello")
            assert (await execute(store, trip)).value == "hello"

    asyncio.run(main())
    assert touched == []


def test_the_spies_detect_access_to_a_store(path, monkeypatch):
    touched = spied(monkeypatch)
    with statelog.open(path) as store:
        assert threaded.run(store, threaded.workflow(lambda run: run.step(abs, 1)), id="evt-1").value == 1
    assert {"commit", "get", "last_lsn", "__init__"} <= set(touched)


@pytest.mark.slow
def test_a_long_replay_yields_to_other_tasks(path):
    turns = []

    async def trip(run):
        for number in range(200):
            await run.set_event("n", number)
        before = len(turns)
        CALLS.append(before)
        return await run.recv()

    async def tick():
        while True:
            turns.append(time.monotonic())
            await asyncio.sleep(0)

    async def body(store):
        await execute(store, trip)
        await durable.send(store, "evt-1", 1)
        ticking = asyncio.create_task(tick())
        began = len(turns)
        assert (await execute(store, trip)).value == 1
        ticking.cancel()
        assert CALLS[1] - began >= 6

    on_loop(path, body)
