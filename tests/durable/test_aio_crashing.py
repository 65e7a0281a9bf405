"""Kills at every boundary of a workflow on the event loop. Its tasks keep their places."""

from __future__ import annotations

import asyncio

import pytest

from statelog import durable
from statelog.reducers import add
from statelog.testing.durable import crash_everywhere

SLOW = durable.Retry(attempts=2, first_delay_s=60, jitter=False)


async def book(what):
    await asyncio.sleep(0)
    return what


def book_in_a_thread(what):
    return what


async def undo(_result, _what):
    return None


async def flaky(what):
    if durable.current_step().attempt == 1:
        raise OSError("again")
    return what


def count_up(tx):
    tx.board().update("total", add, 1)


async def part(run, number):
    return [
        await run.step_with(durable.StepOptions(compensate=undo), book, number),
        await run.step(book_in_a_thread, number + 1),
    ]


@durable.workflow
async def trip(run):
    hotel = await run.step_with(
        durable.StepOptions(compensate=undo, commit=lambda hotel: {"hotel": hotel}), book, "hotel"
    )
    async with asyncio.TaskGroup() as group:
        one, two = group.create_task(part(run, 1)), group.create_task(part(run, 3))
    both = await run.gather(run.branch(part, 5), run.start(book, 7))
    late = await run.step_with(durable.StepOptions(retry=SLOW), flaky, "late")
    await run.transact(count_up)
    if not (await run.gate("pay", timeout_s=60)).approved:
        raise durable.Abort("declined")
    return hotel, one.result(), two.result(), both, late


@pytest.mark.slow
def test_an_async_workflow_survives_a_kill_at_every_boundary(tmp_path):
    crash_everywhere(trip, answers={"pay": True}, how=["kill"], directory=tmp_path)


@pytest.mark.slow
def test_an_async_workflow_is_compensated_wherever_it_is_taken_over_or_cancelled(tmp_path):
    crash_everywhere(trip, answers={"pay": False}, how=["overtake", "cancel"], directory=tmp_path)
