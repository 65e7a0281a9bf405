"""Timeouts and cancellations that a workflow sets around its calls are recorded, so a replay takes the same branch."""

from __future__ import annotations

import asyncio
import time

import pytest
from executed import CALLS

from statelog import aio
from statelog.aio import durable
from statelog.aio.durable import order
from statelog.durable.probes import probe
from statelog.errors import NondeterminismError
from statelog.testing.durable import crash_everywhere

S = 0.1


async def slow(name):
    CALLS.append(name)
    await asyncio.sleep(30 if CALLS.count(name) == 1 else 0)
    return name


def slow_in_a_thread(name):
    CALLS.append(name)
    time.sleep(3 * S if CALLS.count(name) == 1 else 0)
    return name


async def slow_to_its_end(name):
    """Take longer than the timeout, and end soon after it, because a run waits for branches that nothing cancels."""
    CALLS.append(name)
    await asyncio.sleep(3 * S if CALLS.count(name) == 1 else 0)
    return name


async def quick(name):
    CALLS.append(name)
    return name


async def failing(name):
    CALLS.append(name)
    raise ValueError(name)


async def timeout(run):
    async with asyncio.timeout(S):
        return await run.step(slow, "a")


async def thread(run):
    async with asyncio.timeout(S):
        return await run.step(slow_in_a_thread, "a")


async def several(run):
    async with asyncio.timeout(S):
        await run.step(quick, "b")
        return await run.step(slow, "a")


async def nested(run):
    async with asyncio.timeout(30):
        async with asyncio.timeout(S):
            return await run.step(slow, "a")


async def wait_for(run):
    return await asyncio.wait_for(run.step(slow, "a"), S)


async def gathered(run):
    async with asyncio.timeout(S):
        return await asyncio.gather(run.step(slow, "a"), run.step(quick, "b"))


async def mapped(run):
    async with asyncio.timeout(S):
        return await run.map(slow, ["a", "b"])


async def branch(run):
    async with asyncio.timeout(S):
        return await run.start(slow_to_its_end, "a")


async def branches(run):
    async with asyncio.timeout(S):
        return await run.gather(run.start(slow_to_its_end, "a"), run.start(quick, "b"))


async def first(run):
    async with asyncio.timeout(S):
        return await (await run.wait_any(run.start(slow_to_its_end, "a"), run.start(slow_to_its_end, "b")))


async def group(run):
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run.step(slow, "a"))
        await run.step(quick, "b")
        await run.step(failing, "c")


async def cancelled(run):
    task = asyncio.create_task(one(run, slow, "a"))
    await run.step(quick, "b")
    await asyncio.sleep(S)
    task.cancel()
    await task


async def one(run, step, name):
    return await run.step(step, name)


async def waited(run):
    _done, pending = await asyncio.wait([asyncio.create_task(one(run, slow, "a"))], timeout=S)
    for each in pending:
        each.cancel()
    await asyncio.gather(*pending)


async def cleaned_up(run):
    async with asyncio.timeout(S):
        try:
            return await run.step(slow, "a")
        finally:
            await run.step(quick, "clean up")


async def waiting(run):
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(one(run, quick, "b"))
        async with asyncio.timeout(S):
            branch = asyncio.create_task(sleeping(run))
            try:
                return await run.gate("never")
            finally:
                branch.cancel()


async def sleeping(run):
    return await run.step(slow, "a")


WAYS = [timeout, thread, several, nested, wait_for, gathered, mapped, branch, branches, first, group, cancelled, waited]
WAYS += [cleaned_up, waiting]


def workflow(way):
    @durable.workflow(name="go")
    async def go(run):
        try:
            found = await way(run)
        except (TimeoutError, ExceptionGroup, asyncio.CancelledError) as error:
            found = type(error).__name__
        said = await run.step(quick, "then")
        await run.recv()
        return [found, said]

    return go


@pytest.mark.parametrize("way", WAYS, ids=lambda each: each.__name__)
def test_a_cancelled_call_is_cancelled_on_replay_and_not_repeated(tmp_path, way):
    go = workflow(way)

    async def live():
        async with await aio.open(tmp_path / "a.state") as store:
            return await durable.run(store, go, id="a")

    async def again(message):
        async with await aio.open(tmp_path / "a.state") as store:
            assert await durable.check_replay(store, [go]) == {}
            if message:
                await durable.send(store, "a", 1)
            return await durable.run(store, go, id="a")

    assert asyncio.run(live()).waiting_for == ("mail default",)
    calls = list(CALLS)
    assert calls[-1] == "then"
    if way is not waiting:
        assert asyncio.run(again(message=False)).status == "suspended"
    info = asyncio.run(again(message=True))
    assert info.status == "completed"
    assert info.value[0] in ("TimeoutError", "ExceptionGroup", "CancelledError")
    assert calls == CALLS


def test_a_cancelled_step_is_shown_as_cut(tmp_path):
    async def main():
        async with await aio.open(tmp_path / "a.state") as store:
            await durable.run(store, workflow(timeout), id="a")
            return await durable.steps(store, "a")

    assert [each.status for each in asyncio.run(main())] == ["cut", "done"]


@pytest.mark.slow
def test_a_call_that_ends_at_its_timeout_keeps_its_result_and_the_next_call_is_cancelled(tmp_path):
    """The timeout runs out while the result of the step is being committed."""

    @durable.workflow(name="go")
    async def go(run):
        found = []
        try:
            async with asyncio.timeout(S):
                found.append(await run.step(quick, "a"))
                found.append(await run.step(slow, "b"))
        except TimeoutError:
            found.append("late")
        found.append(await run.step(quick, "c"))
        await run.recv()
        return found

    @durable.workflow(name="alone")
    async def alone(run):
        async with asyncio.timeout(S):
            found = await run.step(quick, "a")
        found += await run.step(quick, "b")
        await run.recv()
        return found

    def stall(moment, _run, what):
        if moment == "before" and not isinstance(what, str) and what[-1]["p"] == "0":
            time.sleep(3 * S)

    async def main(made, id):
        async with await aio.open(tmp_path / "a.state") as store:
            probe.set(stall)
            await durable.run(store, made, id=id)
            first = list(CALLS)
            CALLS.clear()
            await durable.send(store, id, 1)
            return first, list(CALLS), (await durable.run(store, made, id=id)).value

    first, second, value = asyncio.run(main(go, "a"))
    assert value == ["a", "late", "c"]
    assert first in (["a", "c"], ["a", "b", "c"])
    assert second == []
    CALLS.clear()
    assert asyncio.run(main(alone, "b")) == (["a", "b"], [], "ab")


@pytest.mark.slow
def test_code_that_no_longer_cancels_a_call_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(order, "LATE_S", 0.1)

    async def patient(run):
        return await run.step(slow, "a")

    async def main():
        async with await aio.open(tmp_path / "a.state") as store:
            await durable.run(store, workflow(timeout), id="a")
            differs = await durable.check_replay(store, [workflow(patient)])
            assert type(differs["a"]) is NondeterminismError
            await durable.send(store, "a", 1)
            with pytest.raises(NondeterminismError, match="place 0 was cancelled"):
                await durable.run(store, workflow(patient), id="a")
            return (await durable.run(store, workflow(timeout), id="a")).value

    assert asyncio.run(main()) == ["TimeoutError", "then"]
    assert CALLS == ["a", "then"]


def test_a_different_step_at_the_place_of_a_cancelled_one_is_reported(tmp_path):
    async def other(run):
        async with asyncio.timeout(S):
            return await run.step(quick, "a")

    async def main():
        async with await aio.open(tmp_path / "a.state") as store:
            await durable.run(store, workflow(timeout), id="a")
            await durable.send(store, "a", 1)
            with pytest.raises(NondeterminismError, match=r"step 'slow' at place 0 where the code calls step 'quick'"):
                await durable.run(store, workflow(other), id="a")

    asyncio.run(main())


async def cancelled_when_called(coroutine, name):
    """Cancel a call after a step has called a function with that name."""
    task = asyncio.ensure_future(coroutine)
    while name not in CALLS:  # noqa: ASYNC110 - the function also runs in workflows, which have no event
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_cancelling_the_task_of_a_run_records_no_cut_step(tmp_path):
    @durable.workflow
    async def go(run):
        return await run.step(slow, "a")

    async def main():
        async with await aio.open(tmp_path / "a.state") as store:
            await cancelled_when_called(durable.run(store, go, id="a"), "a")
            assert await durable.steps(store, "a") == []
            async with durable.entered(store, "b") as run:
                await cancelled_when_called(run.step(slow, "b"), "b")
            return (await durable.run(store, go, id="a")).value

    assert asyncio.run(main()) == "a"
    assert CALLS == ["a", "b", "a"]


def test_a_run_that_failed_by_a_timeout_is_retried_from_that_call(tmp_path):
    @durable.workflow
    async def go(run):
        await run.step(quick, "b")
        return await timeout(run)

    async def main():
        async with await aio.open(tmp_path / "a.state") as store:
            assert (await durable.run(store, go, id="a")).status == "failed"
            await durable.retry(store, "a")
            return (await durable.run(store, go, id="a")).value

    assert asyncio.run(main()) == "a"
    assert CALLS == ["b", "a", "a"]


def test_a_cancelled_step_is_compensated_if_the_run_fails(tmp_path):
    undone = []

    @durable.workflow
    async def go(run):
        try:
            async with asyncio.timeout(S):
                await run.step_with(
                    durable.StepOptions(compensate=lambda result, name: undone.append((result, name))), slow, "a"
                )
        except TimeoutError:
            await run.recv()
            raise

    async def main():
        async with await aio.open(tmp_path / "a.state") as store:
            await durable.run(store, go, id="a")
            await durable.send(store, "a", 1)
            return await durable.run(store, go, id="a")

    assert asyncio.run(main()).status == "failed"
    assert undone == [(durable.UNKNOWN, "a")]


@pytest.mark.slow
def test_timeouts_survive_a_kill_at_every_boundary():
    async def never(_name):
        await asyncio.sleep(30)

    @durable.workflow
    async def go(run):
        try:
            async with asyncio.timeout(S):
                await run.step(never, "a")
        except TimeoutError:
            said = await run.step(quick, "then")
        await run.gate("approve")
        return said

    assert len(crash_everywhere(go, answers={"approve": True}, how=["kill", "overtake"])) >= 8
