"""Runs on the event loop: as those in threads, and a loop that is never held up."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time

import pytest

import statelog
from statelog import aio
from statelog import durable as threaded
from statelog.aio import durable
from statelog.durable.execution import Execution
from statelog.store.board import Board
from statelog.errors import (
    ConflictError,
    RunCancelledError,
    RunNotFoundError,
    StepInterruptedError,
    StepTimeoutError,
    UsageError,
)

CALLS = []


@pytest.fixture(autouse=True)
def _no_calls():
    CALLS.clear()


def on_loop(path, body):
    """Run a body on a loop with a store, which must verify clean."""

    async def main():
        async with aio.open(path) as store:
            result = await asyncio.wait_for(body(store), 20)
            assert (await store.verify()).problems == []
            return result

    return asyncio.run(main())


async def note(value):
    CALLS.append(value)
    await asyncio.sleep(0)
    return value


def note_in_thread(value):
    CALLS.append((value, threading.current_thread() is threading.main_thread()))
    return value


@durable.workflow
async def three(run, first):
    return [await run.step(note, (first, number)) for number in range(3)]


@threaded.workflow
def plain(run, first):
    return [run.step(note_in_thread, first), run.recv()]


@durable.workflow
async def chat(run, name):
    said = await run.recv("chat")
    await run.commit({"messages": {name: said}})
    return said


async def execute(store, body, *args, id="evt-1", raises=(), **how):
    """Run a body as a workflow."""
    return await durable.run(store, durable.workflow(name="w", raises=raises)(body), *args, id=id, **how)


async def until(is_true):
    """Wait for something that happens soon."""
    for _ in range(2000):
        if is_true():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it has not happened")


# --- the same names -----------------------------------------------------------------------------


def test_the_names_are_those_of_the_other_room():
    assert durable.__all__ == threaded.__all__


def test_importing_statelog_imports_neither_room():
    code = "import statelog, sys; print([each for each in sys.modules if 'durable' in each or each == 'asyncio'])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_run_returns_what_its_steps_return_and_is_the_same_run_for_ever(path):
    async def body(store):
        info = await durable.run(store, three, "a", id="evt-1")
        assert (info.status, info.value) == ("completed", [("a", 0), ("a", 1), ("a", 2)])
        assert await durable.run(store, three, "a", id="evt-1") == info
        assert len(CALLS) == 3
        with pytest.raises(ConflictError):
            await durable.run(store, three, "b", id="evt-1")
        assert [each.place for each in await durable.steps(store, "evt-1")] == ["0", "1", "2"]

    on_loop(path, body)


def test_a_workflow_that_is_not_async_runs_in_a_thread(path):
    async def body(store):
        assert (await durable.run(store, plain, 1, id="evt-1")).status == "suspended"
        await durable.send(store, "evt-1", "hello")
        assert (await durable.run(store, plain, 1, id="evt-1")).value == [1, "hello"]
        assert CALLS == [(1, False)]

    on_loop(path, body)


def test_a_step_that_is_not_async_is_called_in_a_thread_with_its_context(path):
    async def body(store):
        def step():
            return threaded.current_step().idempotency_key, threading.current_thread() is threading.main_thread()

        assert (await execute(store, lambda_of(step))).value == ("evt-1/0", False)

    on_loop(path, body)


def lambda_of(step):
    """Return the body of a workflow that calls a step."""

    async def body(run):
        return await run.step(step)

    return body


def test_gates_mail_events_and_time(path):
    async def trip(run):
        answer = await run.gate("approve", {"total": 840})
        said = await run.recv("chat", timeout_s=60)
        await run.set_event("progress", 0.4)
        await run.sleep(0.001)
        await run.emit("trip/booked", 1)
        return [answer.by, said, await run.now() is not None, await run.random() < 1, str(await run.uuid()) != ""]

    async def body(store):
        assert (await execute(store, trip)).waiting_for == ("gate evt-1/0",)
        [gate] = await durable.gates(store, pending=True)
        await durable.answer(store, gate.id, approved=True, by="me")
        assert (await execute(store, trip)).waiting_for == ("mail chat",)
        await durable.send(store, "evt-1", "hello", topic="chat")
        assert (await execute(store, trip)).value == ["me", "hello", True, True, True]
        assert await durable.get_event(store, "evt-1", "progress") == 0.4
        assert [info.id for info in await durable.runs(store, status="completed")] == ["evt-1"]

    on_loop(path, body)


def test_handles_wait_fork_and_cancel(path):
    async def body(store):
        handle = await durable.start(store, three, "a", id="evt-1")
        with pytest.raises(TimeoutError):
            await handle.result(timeout_s=0.01)
        assert await durable.work(store, [three, chat], until_idle=True) == 1
        assert await handle.result(timeout_s=5) == (await handle.info()).value
        forked = await durable.fork(store, "evt-1", at="2", id="evt-1b")
        assert [info.id for info in await durable.resume_all(store, [three])] == ["evt-1b"]
        assert (await forked.result())[2] == ("a", 2)
        assert len(CALLS) == 4
        waiting = await durable.start(store, chat, "a", id="evt-2")
        await durable.resume_all(store, [chat])
        assert await waiting.cancel()
        await durable.resume_all(store, [chat])
        with pytest.raises(RunCancelledError):
            await waiting.result()
        await durable.purge(store, "evt-2")
        with pytest.raises(RunNotFoundError):
            await durable.get(store, "evt-2")

    on_loop(path, body)


def test_a_step_streams_and_beats(path):
    async def speak():
        step = durable.current_step()
        await step.heartbeat()
        for word in ("a", "b"):
            await step.stream(word)
        return [step.attempt, await step.is_cancelled()]

    async def body(store):
        assert (await execute(store, lambda_of(speak))).value == [1, False]
        assert [chunk.value async for chunk in durable.stream(store, "evt-1")] == ["a", "b"]
        with pytest.raises(UsageError):
            durable.current_step()

    on_loop(path, body)


def test_children_are_runs_of_their_own_async_or_not(path):
    @durable.workflow
    async def parent(run):
        return await asyncio.gather(run.child(three, "a", id="one"), run.child(plain, "b", id="two"))

    async def body(store):
        assert (await durable.run(store, parent, id="evt-1")).waiting_for == ("run two",)
        await durable.send(store, "two", "hello")
        await durable.resume_all(store, [parent, plain, three])
        info = await durable.run(store, parent, id="evt-1")
        assert info.value == [[("a", 0), ("a", 1), ("a", 2)], ["b", "hello"]]
        assert CALLS.count(("b", False)) == 1

    on_loop(path, body)


def test_a_loop_without_end_begins_anew(path):
    async def loop(run, count):
        await run.step(note, count)
        if count < 3:
            await run.continue_as_new(count + 1)
        return count

    async def body(store):
        assert (await execute(store, loop, 0)).value == 3

    on_loop(path, body)


# --- several at once ------------------------------------------------------------------------------


def test_branches_map_and_wait_any(path):
    async def part(run, start):
        return [await run.step(note, start + number) for number in range(2)]

    async def forever():
        await asyncio.sleep(60)

    async def trip(run):
        both = await run.gather(run.branch(part, 10), run.branch(part, 20))
        found = await run.map(note, [1, 2, 3], concurrency=2)
        slow, fast = run.start(forever), run.start(note, "fast")
        winner = await run.wait_any(slow, fast)
        return [both, found, await winner, await run.recv()]

    async def body(store):
        assert (await execute(store, trip)).status == "suspended"
        await durable.send(store, "evt-1", 1)
        assert (await execute(store, trip)).value == [[[10, 11], [20, 21]], [1, 2, 3], "fast", 1]
        assert len(CALLS) == 8

    on_loop(path, body)


@pytest.mark.parametrize("kind", ["gather", "group", "return_exceptions", "branches"])
def test_a_task_that_waits_for_long_lets_the_others_go_on(path, kind):
    async def ask(run):
        return (await run.gate("approve")).by

    async def work(run):
        for number in range(3):
            await run.step(note, number)
        return "worked"

    async def trip(run):
        if kind == "group":
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(ask(run)), group.create_task(work(run))]
            return [task.result() for task in tasks]
        if kind == "branches":
            return list(await run.gather(run.branch(ask), run.branch(work)))
        return await asyncio.gather(ask(run), work(run), return_exceptions=kind == "return_exceptions")

    async def body(store):
        info = await execute(store, trip)
        [gate] = await durable.gates(store)
        assert (info.status, info.waiting_for) == ("suspended", (f"gate {gate.id}",))
        assert CALLS == [0, 1, 2]
        await durable.answer(store, gate.id, approved=True, by="me")
        assert (await execute(store, trip)).value == ["me", "worked"]
        assert CALLS == [0, 1, 2]

    on_loop(path, body)


def test_a_run_waits_for_what_comes_first_of_all_that_its_tasks_wait_for(path):
    async def trip(run):
        async with asyncio.TaskGroup() as group:
            group.create_task(run.gate("approve"))
            group.create_task(run.sleep(3600))
            group.create_task(run.sleep(60))

    async def body(store):
        info = await execute(store, trip)
        assert sorted(info.waiting_for) == ["gate evt-1/0", "time"]
        assert (info.due - info.created).total_seconds() < 100

    on_loop(path, body)


def test_a_branch_that_fails_is_told_while_another_one_waits(path):
    async def ask(run):
        return await run.gate("approve")

    async def fail(run):
        await run.step(note, 1)
        raise OSError("no")

    async def trip(run):
        await run.gather(run.branch(ask), run.branch(fail))

    async def body(store):
        info = await execute(store, trip)
        assert (info.status, info.error) == ("failed", "OSError: no")

    on_loop(path, body)


def test_tasks_that_outlive_the_workflow_end_with_it(path):
    async def tick(run):
        while True:
            await run.step(note, "tick")

    async def trip(run):
        task = asyncio.create_task(tick(run))
        await run.step(note, "work")
        CALLS.append(task)
        return "done"

    async def body(store):
        assert (await execute(store, trip)).value == "done"
        task = CALLS.pop()
        assert task.cancelled()

    on_loop(path, body)


# --- failures, time and sagas -----------------------------------------------------------------------


def test_an_async_step_is_interrupted_when_its_time_is_up(path):
    async def slow():
        try:
            await asyncio.sleep(60)
        finally:
            CALLS.append("interrupted")

    async def trip(run):
        with pytest.raises(StepTimeoutError):
            await run.step(slow, timeout_s=0.01)
        return "late"

    async def body(store):
        assert (await execute(store, trip)).value == "late"
        assert CALLS == ["interrupted"]

    on_loop(path, body)


def test_compensations_run_last_first_async_or_not(path):
    async def undo(result, _value):
        await asyncio.sleep(0)
        CALLS.append(("undone", result))

    async def trip(run):
        await run.step(note, 1, compensate=undo)
        await run.step(note, 2, compensate=lambda result, _value: CALLS.append(("undone too", result)))
        raise durable.Abort("enough")

    async def body(store):
        assert (await execute(store, trip)).error == "Abort: enough"
        assert CALLS == [1, 2, ("undone too", 2), ("undone", 1)]

    on_loop(path, body)


def test_a_run_that_is_cancelled_has_its_async_step_interrupted_and_is_undone(path):
    async def charge():
        CALLS.append("charge")
        await asyncio.sleep(60)

    async def trip(run):
        async with asyncio.TaskGroup() as group:
            group.create_task(run.step(charge, compensate=CALLS.append))

    async def body(store):
        running = asyncio.create_task(execute(store, trip))
        await until(lambda: CALLS)
        assert await durable.cancel(store, "evt-1")
        assert (await running).status == "cancelled"
        assert CALLS == ["charge", durable.UNKNOWN]

    on_loop(path, body)


def test_a_workflow_that_cancels_itself_has_failed(path):
    async def trip(_run):
        task = asyncio.create_task(asyncio.sleep(60))
        task.cancel()
        await task

    async def body(store):
        assert (await execute(store, trip)).error == "RuntimeError: the workflow has cancelled itself"

    on_loop(path, body)


# --- stopping ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("semantics", ["at_least_once", "at_most_once"])
def test_cancelling_the_task_stops_the_run_and_undoes_nothing(path, semantics):
    async def charge():
        CALLS.append("charge")
        await asyncio.sleep(60 if len(CALLS) == 1 else 0)
        return "charged"

    async def trip(run):
        try:
            return await run.step(charge, compensate=lambda _result: CALLS.append("undone"), semantics=semantics)
        except StepInterruptedError:
            return "ask"

    async def body(store):
        running = asyncio.create_task(execute(store, trip))
        await until(lambda: CALLS)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await durable.get(store, "evt-1")).status == "queued"
        expected = "charged" if semantics == "at_least_once" else "ask"
        assert (await execute(store, trip)).value == expected
        assert "undone" not in CALLS

    on_loop(path, body)


def test_cancelling_the_task_stops_a_workflow_in_a_thread_at_its_next_operation(path):
    is_let_go = threading.Event()

    @threaded.workflow
    def slow(run):
        run.step(lambda: CALLS.append(1) or is_let_go.wait(5), name="slow")
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


def test_an_operation_that_is_cancelled_by_the_workflow_has_its_commit_end(path):
    async def trip(run):
        task = asyncio.create_task(run.commit({"a": 1}))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return await run.step(note, 1)

    async def body(store):
        assert (await execute(store, trip)).value == 1
        assert (await store.thread("evt-1").state["a"] if "a" in await store.thread("evt-1").state else 1) == 1

    on_loop(path, body)


# --- workers --------------------------------------------------------------------------------------------


def test_a_worker_drives_several_runs_at_once_async_or_not(path):
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
        assert await durable.work(store, [one, plain], until_idle=True, concurrency=3) == 7
        assert max(most) <= 3
        assert (await durable.get(store, "plain")).status == "suspended"
        assert len(await durable.runs(store, status="completed")) == 6

    on_loop(path, body)


def test_an_event_has_a_worker_return_when_its_runs_are_at_rest(path):
    is_let_go = asyncio.Event()

    async def wait():
        CALLS.append("begun")
        await is_let_go.wait()

    async def body(store):
        stop = asyncio.Event()
        workflow = durable.workflow(name="w")(lambda_of(wait))
        handle = await durable.start(store, workflow, id="evt-1")
        working = asyncio.create_task(durable.work(store, [workflow], stop=stop))
        await until(lambda: CALLS)
        stop.set()
        await asyncio.sleep(0.01)
        assert not working.done()
        is_let_go.set()
        assert await working == 1
        assert (await handle.info()).status == "completed"

    on_loop(path, body)


def test_cancelling_a_worker_gives_its_runs_back(path):
    async def wait():
        CALLS.append("begun")
        await asyncio.sleep(60)

    async def body(store):
        workflow = durable.workflow(name="w")(lambda_of(wait))
        handles = [await durable.start(store, workflow, id=f"evt-{number}") for number in range(2)]
        working = asyncio.create_task(durable.work(store, [workflow]))
        await until(lambda: len(CALLS) == 2)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert {(await handle.info()).status for handle in handles} == {"queued"}

    on_loop(path, body)


def test_a_worker_with_nothing_to_do_for_is_refused(path):
    async def body(store):
        for bad in ({"concurrency": 0}, {"queues": []}):
            with pytest.raises(UsageError):
                await durable.work(store, [three], **bad)

    on_loop(path, body)


# --- code that differs ------------------------------------------------------------------------------------


def test_check_replays_async_workflows_and_others(path):
    def workflow(step_name):
        @durable.workflow(name="w")
        async def made(run):
            async with asyncio.TaskGroup() as group:
                group.create_task(run.step(note, 1, name=step_name))
            return await run.recv()

        return made

    async def body(store):
        await durable.run(store, workflow("old"), id="evt-1")
        await durable.run(store, plain, 1, id="evt-2")
        await durable.start(store, chat, "a", id="evt-3")
        lsn = await store.last_lsn()
        assert list(await durable.check(store, [workflow("new"), plain])) == ["evt-3", "evt-1"]
        assert await durable.check(store, [workflow("old"), plain, chat]) == {}
        assert await store.last_lsn() == lsn
        assert CALLS == [1, (1, False)]

    on_loop(path, body)


def test_a_patch_counts_what_tasks_have_recorded(path):
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
    """Have what touches a store note that the main thread did, and return the notes."""
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


def test_the_loop_s_thread_touches_no_store(path, monkeypatch):
    touched = spied(monkeypatch)

    async def trip(run):
        await run.step(note, 1, commit=lambda result: {"a": result}, compensate=note)
        await run.map(note, [1, 2])
        await run.transact(lambda tx: tx.board().set("k", 1))
        await run.gather(run.branch(lambda run: run.step(note, 3)), run.start(note, 4))
        await run.child(three, "a")
        await run.emit("topic", await run.random())
        return await run.recv()

    async def main():
        async with aio.open(path) as store:
            await execute(store, trip)
            await durable.check(store, [durable.workflow(name="w")(trip)])
            await durable.send(store, "evt-1", "hello")
            assert (await execute(store, trip)).value == "hello"

    asyncio.run(main())
    assert touched == []


def test_the_spies_notice_who_touches_a_store(path, monkeypatch):
    touched = spied(monkeypatch)
    with statelog.open(path) as store:
        assert threaded.run(store, threaded.workflow(lambda run: run.step(abs, 1)), id="evt-1").value == 1
    assert {"commit", "get", "last_lsn", "__init__"} <= set(touched)


def test_a_long_replay_lets_others_have_their_turn(path):
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
