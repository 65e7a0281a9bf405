"""Tasks that wait for runs occupy no thread. Cancelling such a task loses no run and no message."""

# ruff: noqa: ASYNC110 - these tests look from outside at what sleeps

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from statelog import aio
from statelog.aio import durable
from statelog.durable import waits, workers
from statelog.errors import ClosedError, RunFailedError, RunNotFoundError
from statelog.store.session import session_of
from statelog.store.waiter_thread import waiter_thread_of

DEADLINE_S = 60


async def double(number):
    return 2 * number


@durable.workflow
async def doubled(run, number):
    return await run.step(double, number)


@durable.workflow
async def failing(_run, number):
    raise ValueError(number)


@durable.workflow
async def listening(run, topic):
    first = await run.recv(topic)
    return [first, await run.recv(topic)]


@durable.workflow
async def telling(run, name):
    await run.step(double, 1)
    await run.set_event(name, "told")
    return await run.recv("end")


@pytest.fixture
def run(tmp_path):
    """Run a coroutine function with an open store, in time."""

    def run(main, **options):
        async def in_time():
            async with asyncio.timeout(DEADLINE_S), aio.open(tmp_path / "a.state", **options) as store:
                return await main(store)

        return asyncio.run(in_time())

    return run


async def asleep(store, count):
    """Wait until `count` tasks sleep and the waiter thread has checked each of them."""
    thread = waiter_thread_of(session_of(store.sync))
    while True:
        sleepers = [each for line in tuple(thread._lines.values()) for each in tuple(line.sleepers)]
        if sum(each.was_looked_for and not each.is_awake for each in sleepers) >= count:
            return
        await asyncio.sleep(0.002)


async def held_up(monkeypatch, owner, name, *, is_behind):
    """Block a function in a thread.

    Return an awaitable that ends when the function is reached, and a function that unblocks it.
    """
    arrived, opened, original = threading.Event(), threading.Event(), getattr(owner, name)

    def gated(*args, **kwargs):
        result = original(*args, **kwargs) if is_behind else None
        arrived.set()
        assert opened.wait(DEADLINE_S)
        return result if is_behind else original(*args, **kwargs)

    monkeypatch.setattr(owner, name, gated)

    async def reached():
        while not arrived.is_set():
            await asyncio.sleep(0.001)

    return reached, opened.set


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["commit", "interval"])
def test_awaited_results_occupy_no_thread_and_all_arrive(run, durability):
    async def main(store):
        handles = [await durable.start(store, doubled, number, id=f"run {number}") for number in range(200)]
        before = threading.active_count()
        results = [asyncio.create_task(handle.result()) for handle in handles]
        await asleep(store, 200)
        assert threading.active_count() <= before + 4
        await durable.run_worker(store, [doubled], until_idle=True)
        assert await asyncio.gather(*results) == [2 * number for number in range(200)]

    run(main, durability=durability)


def test_an_awaited_result_ends_like_its_run(run):
    async def main(store):
        fails = await durable.start(store, failing, 7, id="fails")
        waits_long = await durable.start(store, listening, "x", id="waits")
        result = asyncio.create_task(fails.result())
        stop = asyncio.Event()
        worker = asyncio.create_task(durable.run_worker(store, [failing, listening], stop=stop))
        with pytest.raises(RunFailedError, match="7"):
            await result
        began_s = time.monotonic()
        with pytest.raises(TimeoutError):
            await waits_long.result(0.2)
        assert 0.15 < time.monotonic() - began_s < 10
        with pytest.raises(TimeoutError):
            await waits_long.result(0)
        for timeout_s in (0, 1, None):
            with pytest.raises(RunNotFoundError):
                await durable.Handle(store, "nothing").result(timeout_s)
        stop.set()
        await worker

    run(main)


def test_waiting_for_an_event_ends_when_it_is_set_or_its_run_ends(run):
    async def main(store):
        handle = await durable.start(store, telling, "news", id="r")
        told = asyncio.create_task(durable.get_event(store, "r", "news", timeout_s=DEADLINE_S))
        never = asyncio.create_task(durable.get_event(store, "r", "other", timeout_s=DEADLINE_S))
        await asleep(store, 2)
        stop = asyncio.Event()
        worker = asyncio.create_task(durable.run_worker(store, [telling], stop=stop))
        assert await told == "told"
        assert await durable.get_event(store, "r", "other", timeout_s=0.1) is None
        await durable.send(store, "r", "bye", topic="end")
        assert await handle.result() == "bye"
        assert await never is None
        stop.set()
        await worker

    run(main)


@pytest.mark.parametrize("is_behind", [False, True])
def test_a_worker_cancelled_while_claiming_a_run_releases_it_without_counting_an_attempt(run, monkeypatch, is_behind):
    async def main(store):
        for _time in range(3):
            with monkeypatch.context() as patch:
                reached, go_on = await held_up(patch, workers.RunClaimer, "next", is_behind=is_behind)
                worker = asyncio.create_task(durable.run_worker(store, [doubled]))
                if _time == 0:
                    await durable.start(store, doubled, 4, id="r")
                await reached()
                worker.cancel()
                await asyncio.sleep(0.01)
                worker.cancel()
                go_on()
                with pytest.raises(asyncio.CancelledError):
                    await worker
            (task,) = await store.board().list("durable/tasks/**")
            assert (task.claim, task.attempts) == (None, 0)
        await durable.run_worker(store, [doubled], until_idle=True)
        assert (await durable.get_run(store, "r")).value == 8

    run(main)


def test_a_waiting_worker_is_woken_at_once_by_a_run_and_by_its_stop_event(run):
    async def main(store):
        stop = asyncio.Event()
        worker = asyncio.create_task(durable.run_worker(store, [doubled], stop=stop))
        await asleep(store, 1)
        assert await (await durable.start(store, doubled, 1, id="r")).result() == 2
        await asleep(store, 1)
        began_s = time.monotonic()
        stop.set()
        assert await worker == 1
        assert time.monotonic() - began_s < 1.5

    run(main)


def test_a_message_received_while_its_run_is_cancelled_is_not_lost(run, monkeypatch):
    """The task that drives the run is cancelled after the commit that takes the message, before that commit returns."""

    async def main(store):
        await durable.run(store, listening, "x", id="r")
        await durable.send(store, "r", "one", topic="x")
        with monkeypatch.context() as patch:
            reached, go_on = await held_up(patch, waits, "_take_message", is_behind=True)
            driving = asyncio.create_task(durable.run(store, listening, "x", id="r"))
            await reached()
            driving.cancel()
            await asyncio.sleep(0.02)
            go_on()
            with pytest.raises(asyncio.CancelledError):
                await driving
        await durable.send(store, "r", "two", topic="x")
        assert (await durable.run(store, listening, "x", id="r")).value == ["one", "two"]

    run(main)


def test_closing_the_store_ends_fifty_awaited_results(run):
    async def main(store):
        handles = [await durable.start(store, doubled, number, id=f"run {number}") for number in range(50)]
        results = [asyncio.create_task(handle.result()) for handle in handles]
        await asleep(store, 50)
        await store.close()
        ended = await asyncio.gather(*results, return_exceptions=True)
        assert [type(each) for each in ended] == [ClosedError] * 50

    run(main)


def test_running_an_id_that_another_task_drives_waits_for_its_result(run):
    async def main(store):
        first = asyncio.create_task(durable.run(store, doubled, 5, id="r", wait_s=DEADLINE_S))
        others = [asyncio.create_task(durable.run(store, doubled, 5, id="r", wait_s=DEADLINE_S)) for _ in range(20)]
        assert {info.value for info in await asyncio.gather(first, *others)} == {10}

    run(main)
