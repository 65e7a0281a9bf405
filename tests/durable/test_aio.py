"""Runs on the event loop behave like runs in threads, and never block the loop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest
from executed import CALLS
from executed_on_loop import chat, execute, note, on_loop, plain, three

from statelog import durable as threaded
from statelog.aio import durable
from statelog.errors import (
    ConflictError,
    RunCancelledError,
    RunNotFoundError,
    StepTimeoutError,
    UsageError,
)


async def until(is_true):
    """Wait until a condition holds. It is expected to hold soon."""
    for _ in range(2000):
        if is_true():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it has not happened")


# --- the same names -----------------------------------------------------------------------------


@pytest.mark.slow
def test_importing_statelog_imports_neither_durable_nor_aio_durable():
    code = "import statelog, sys; print([each for each in sys.modules if 'durable' in each or each == 'asyncio'])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_repeated_id_returns_the_recorded_result_of_the_same_run(path):
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


def test_a_step_that_is_not_async_is_called_in_a_thread_with_the_context(path):
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


def test_gates_messages_events_and_sleeps_work_in_async_workflows(path):
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


def test_compare_shows_the_replaced_result_of_a_fork(path):
    async def body(store):
        await durable.run(store, three, "a", id="evt-1")
        CALLS.clear()
        forked = await durable.fork(store, "evt-1", at="1", id="evt-1b", replace={"2": "given"})
        await durable.resume_all(store, [three])
        assert (await forked.result())[2] == "given"
        assert len(CALLS) == 1
        found = await durable.compare_runs(store, "evt-1", "evt-1b")
        assert [(each.place, each.what) for each in found] == [("2", "outcome"), (None, "outcome")]

    on_loop(path, body)


def test_a_handle_can_wait_fork_and_cancel(path):
    async def body(store):
        handle = await durable.start(store, three, "a", id="evt-1")
        with pytest.raises(TimeoutError):
            await handle.result(timeout_s=0.01)
        assert await durable.run_worker(store, [three, chat], until_idle=True) == 1
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
        await durable.purge_run(store, "evt-2")
        with pytest.raises(RunNotFoundError):
            await durable.get_run(store, "evt-2")

    on_loop(path, body)


def test_a_step_can_stream_chunks_and_send_heartbeats(path):
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


def test_async_and_sync_children_are_separate_runs(path):
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


def test_continue_as_new_starts_an_endless_loop_again(path):
    async def loop(run, count):
        await run.step(note, count)
        if count < 3:
            await run.continue_as_new(count + 1)
        return count

    async def body(store):
        assert (await execute(store, loop, 0)).value == 3

    on_loop(path, body)


# --- several at once ------------------------------------------------------------------------------


def test_branches_map_and_wait_any_work_in_async_workflows(path):
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
def test_other_tasks_continue_while_one_task_waits(path, kind):
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


def test_a_run_wakes_for_the_earliest_event_that_any_of_its_tasks_waits_for(path):
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


def test_a_failed_branch_is_reported_while_another_branch_waits(path):
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


def test_tasks_still_running_when_the_workflow_ends_are_ended(path):
    tasks = []

    async def tick(run):
        while True:
            await run.step(note, "tick")

    async def trip(run):
        tasks.append(asyncio.create_task(tick(run)))
        return await run.step(note, "work")

    async def body(store):
        assert (await execute(store, trip)).value == "work"
        assert tasks[0].cancelled()

    on_loop(path, body)


def test_an_abandoned_branch_is_interrupted_and_compensated_as_unknown_even_after_a_replay(path):
    async def charge():
        CALLS.append("charge")
        try:
            await asyncio.sleep(60)
        finally:
            CALLS.append("interrupted")

    async def soon():
        await until(lambda: CALLS)

    async def trip(run):
        await run.wait_any(run.start_with(durable.StepOptions(compensate=CALLS.append), charge), run.start(soon))
        await run.recv()
        raise durable.Abort

    async def body(store):
        assert (await execute(store, trip)).status == "suspended"
        assert CALLS == ["charge", "interrupted"]
        await durable.send(store, "evt-1", 1)
        assert (await execute(store, trip)).status == "failed"
        assert CALLS == ["charge", "interrupted", durable.UNKNOWN]

    on_loop(path, body)


# --- failures, time and sagas -----------------------------------------------------------------------


def test_an_async_step_is_interrupted_at_its_timeout(path):
    async def slow():
        try:
            await asyncio.sleep(60)
        finally:
            CALLS.append("interrupted")

    async def trip(run):
        with pytest.raises(StepTimeoutError):
            await run.step_with(durable.StepOptions(timeout_s=0.01), slow)
        return "late"

    async def body(store):
        assert (await execute(store, trip)).value == "late"
        assert CALLS == ["interrupted"]

    on_loop(path, body)


def test_async_and_sync_compensations_run_in_reverse_order(path):
    async def undo(result, _value):
        await asyncio.sleep(0)
        CALLS.append(("undone", result))

    async def trip(run):
        await run.step_with(durable.StepOptions(compensate=undo), note, 1)
        await run.step_with(
            durable.StepOptions(compensate=lambda result, _value: CALLS.append(("undone too", result))), note, 2
        )
        raise durable.Abort("enough")

    async def body(store):
        assert (await execute(store, trip)).error == "Abort: enough"
        assert CALLS == [1, 2, ("undone too", 2), ("undone", 1)]

    on_loop(path, body)


def test_cancelling_a_run_interrupts_its_async_step_and_compensates_the_run(path):
    async def charge():
        CALLS.append("charge")
        await asyncio.sleep(60)

    async def trip(run):
        async with asyncio.TaskGroup() as group:
            group.create_task(run.step_with(durable.StepOptions(compensate=CALLS.append), charge))

    async def body(store):
        running = asyncio.create_task(execute(store, trip))
        await until(lambda: CALLS)
        assert await durable.cancel(store, "evt-1")
        assert (await running).status == "cancelled"
        assert CALLS == ["charge", durable.UNKNOWN]

    on_loop(path, body)


def test_a_workflow_that_cancels_itself_fails(path):
    async def trip(_run):
        task = asyncio.create_task(asyncio.sleep(60))
        task.cancel()
        await task

    async def body(store):
        assert (await execute(store, trip)).error == "RuntimeError: the workflow has cancelled itself"

    on_loop(path, body)


def test_an_operation_that_was_never_awaited_stops_the_run(path):
    async def forgets(run):
        run.step(note, 1)

    async def body(store):
        with pytest.raises(UsageError, match="at place 0 was called but never awaited"):
            await execute(store, forgets)
        return (await durable.get_run(store, "evt-1")).has_ended

    with pytest.warns(RuntimeWarning, match="never awaited"):
        assert not on_loop(path, body)
