"""Branches that `wait_any` has abandoned are compensated, and make no calls after the end of their run."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from executed import CALLS, Crash, execute, note

from statelog import aio, durable
from statelog.aio import durable as aio_durable


def undo(result, value):
    CALLS.append(("undo", result, value))


def test_steps_of_an_abandoned_branch_are_compensated_even_if_its_replay_is_late(store):
    booked, is_decided = threading.Event(), threading.Event()

    def lose(run):
        time.sleep(0.02)
        run.step_with(durable.StepOptions(compensate=undo), note, "lost")
        booked.set()
        is_decided.wait(60)

    def body(run):
        loser = run.branch(lose)
        booked.wait(60)
        run.wait_any(loser, run.start(note, "won"))
        is_decided.set()
        if "crashed" not in CALLS:
            note("crashed")
            raise Crash
        raise durable.Abort

    with pytest.raises(Crash):
        execute(store, body)
    assert execute(store, body).status == "failed"
    assert CALLS == ["lost", "won", "crashed", ("undo", "lost", "lost")]


def test_steps_of_an_abandoned_async_branch_are_compensated_even_if_its_replay_is_late(path):
    async def book(value):
        return note(value)

    async def lose(run):
        for _ in range(20):
            await asyncio.sleep(0)
        await run.step_with(durable.StepOptions(compensate=undo), book, "lost")
        await asyncio.sleep(60)

    async def win():
        while "lost" not in CALLS:  # noqa: ASYNC110 - a step of another task
            await asyncio.sleep(0.001)

    @aio_durable.workflow(name="w")
    async def body(run):
        await run.wait_any(run.branch(lose), run.start(win))
        if "crashed" not in CALLS:
            await asyncio.sleep(0.05)
            note("crashed")
            raise Crash
        raise durable.Abort

    async def main():
        async with await aio.open(path) as store:
            with pytest.raises(Crash):
                await aio_durable.run(store, body, id="evt-1")
            assert (await aio_durable.run(store, body, id="evt-1")).status == "failed"

    asyncio.run(main())
    assert CALLS == ["lost", "crashed", ("undo", "lost", "lost")]


def test_an_abandoned_branch_makes_no_new_call_while_its_run_is_compensated(store):
    go, is_over = threading.Event(), threading.Event()

    def lose(run):
        try:
            run.step(go.wait, 60)
            run.step_with(durable.StepOptions(compensate=undo), note, "late")
        finally:
            is_over.set()

    def undo_late(_result, value):
        go.set()
        assert is_over.wait(60)
        note(("undo", value))

    def body(run):
        run.step_with(durable.StepOptions(compensate=undo_late), note, 1)
        run.wait_any(run.branch(lose), run.start(note, "won"))
        raise durable.Abort

    assert execute(store, body).status == "failed"
    assert CALLS == [1, "won", ("undo", 1)]


@pytest.mark.parametrize("waits", [False, True])
def test_an_abandoned_branch_makes_no_new_call_when_its_run_is_suspended(store, waits):
    go, is_over = threading.Event(), threading.Event()

    def lose(run):
        try:
            run.now()
            go.wait(60)
            run.step(note, "late")
        finally:
            is_over.set()

    def body(run):
        run.wait_any(run.branch(lose), run.start(note, "won"))
        if waits:
            run.gate("approve")

    assert execute(store, body).status == ("suspended" if waits else "completed")
    go.set()
    assert is_over.wait(60)
    assert CALLS == ["won"]


def test_a_call_of_an_abandoned_branch_is_not_counted_after_continue_as_new(store):
    go, is_over = threading.Event(), threading.Event()

    def slow():
        assert go.wait(60)
        return "slow"

    def lose(run):
        try:
            run.step(slow)
        finally:
            is_over.set()

    def let_end():
        go.set()
        assert is_over.wait(60)

    def body(run, number):
        if number == 0:
            run.wait_any(run.branch(lose), run.start(note, "won"))
            run.continue_as_new(1)
        run.branch(lambda run: run.step(note, "anew")).result()
        run.step(let_end)
        return run.recv()

    execute(store, body, 0)
    assert durable.steps(store, "evt-1")[0].place == "0.0"
    assert [each.result for each in durable.steps(store, "evt-1")] == ["anew", None]
    durable.send(store, "evt-1", "over")
    assert execute(store, body, 0).value == "over"
