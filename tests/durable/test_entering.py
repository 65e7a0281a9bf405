"""A run as an async block: entering the block begins, continues, ends or replays the run."""

import asyncio
import signal
import sys
from contextvars import Context

import forks
import pytest

from statelog import aio
from statelog.aio import durable
from statelog.errors import ConflictError, NondeterminismError, RunCancelledError, RunEndedError, UsageError


class Calls:
    """Steps that count their calls."""

    def __init__(self):
        self.made = []

    async def double(self, number):
        self.made.append(number)
        await asyncio.sleep(0)
        return number * 2

    async def fail(self):
        raise ValueError("no")


def in_store(tmp_path, work):
    async def main():
        async with await aio.open(tmp_path / "a.state") as store:
            return await work(store, Calls())

    return asyncio.run(main())


async def double_each(store, calls, *numbers):
    async with durable.entered(store, "r") as run:
        for number in numbers:
            await run.step(calls.double, number)


def test_a_block_that_ends_completes_its_run_and_entering_again_calls_nothing(tmp_path):
    async def work(store, calls):
        for _time in range(2):
            async with durable.entered(store, "r", name="agent") as run:
                assert await run.step(calls.double, 1) == 2
        info = await durable.get_run(store, "r")
        return info.status, info.workflow, calls.made

    assert in_store(tmp_path, work) == ("completed", "agent", [1])


def test_each_task_of_a_block_numbers_its_own_steps(tmp_path):
    async def work(store, calls):
        async def slow_first(run, number):
            await asyncio.sleep(0 if calls.made else 0.02 / number)
            return await run.step(calls.double, number)

        found = []
        for _time in range(2):
            async with durable.entered(store, "r") as run:
                found.append(await asyncio.gather(*(slow_first(run, number) for number in (1, 2, 3))))
        return found, sorted(calls.made)

    assert in_store(tmp_path, work) == ([[2, 4, 6], [2, 4, 6]], [1, 2, 3])


def test_an_exception_that_leaves_the_block_fails_the_run_and_is_raised_unchanged(tmp_path):
    async def work(store, _calls):
        with pytest.raises(KeyError):
            async with durable.entered(store, "r"):
                raise KeyError("mine")
        return (await durable.get_run(store, "r")).status

    assert in_store(tmp_path, work) == "failed"


def test_a_failed_step_fails_again_when_its_run_is_replayed(tmp_path):
    async def work(store, calls):
        for _time in range(2):
            with pytest.raises(ValueError, match="no"):
                async with durable.entered(store, "r") as run:
                    await run.step(calls.fail)

    in_store(tmp_path, work)


def test_a_cancelled_task_leaves_the_run_open_and_the_next_task_continues_it(tmp_path):
    async def work(store, calls):
        begun = asyncio.Event()

        async def cut():
            async with durable.entered(store, "r") as run:
                await run.step(calls.double, 1)
                begun.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(cut())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        status = (await durable.get_run(store, "r")).status
        async with durable.entered(store, "r") as run:
            found = [await run.step(calls.double, 1), await run.step(calls.double, 2)]
        return status, found, calls.made

    assert in_store(tmp_path, work) == ("queued", [2, 4], [1, 2])


def test_an_ended_run_refuses_calls_that_it_has_not_recorded(tmp_path):
    async def work(store, calls):
        await double_each(store, calls, 1)
        with pytest.raises(RunEndedError):
            await double_each(store, calls, 1, 2)
        return calls.made

    assert in_store(tmp_path, work) == [1]


def test_a_step_that_differs_from_the_record_stops_the_run(tmp_path):
    async def work(store, calls):
        await double_each(store, calls, 1)
        with pytest.raises(NondeterminismError):
            await double_each(store, calls, 7)

    in_store(tmp_path, work)


def test_only_one_block_at_a_time_can_be_in_a_run(tmp_path):
    async def work(store, _calls):
        async def other():
            async with durable.entered(store, "r"):
                raise AssertionError("two are in")

        async with durable.entered(store, "r"):
            with pytest.raises(ConflictError):
                await asyncio.get_running_loop().create_task(other(), context=Context())
            with pytest.raises(UsageError):
                await other()

    in_store(tmp_path, work)


def test_a_run_that_is_cancelled_ends_its_block(tmp_path):
    async def work(store, calls):
        async def cancelled_in_the_middle():
            async with durable.entered(store, "r") as run:
                await run.step(calls.double, 1)
                await durable.cancel(store, "r")
                await run.step(calls.double, 2)

        with pytest.raises(RunCancelledError):
            await cancelled_in_the_middle()
        return (await durable.get_run(store, "r")).status, calls.made

    assert in_store(tmp_path, work) == ("cancelled", [1])


def test_an_exception_is_raised_unchanged_with_a_note_if_the_run_cannot_record_it(tmp_path):
    async def work(store, calls):
        async def unrecordable():
            async with durable.entered(store, "r") as run:
                await run.step(calls.double, 1)
                await store.delete_thread("statelog:board")
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine") as caught:
            await unrecordable()
        assert "RunNotFoundError was also raised" in caught.value.__notes__[0]

    in_store(tmp_path, work)


def test_a_step_called_after_the_end_of_its_block_is_refused(tmp_path):
    async def work(store, calls):
        with pytest.raises(ValueError, match="no"):
            async with durable.entered(store, "r") as run:
                raise ValueError("no")
        with pytest.raises(UsageError, match="has ended: call its steps within the block"):
            await run.step(calls.double, 2)
        return calls.made

    assert in_store(tmp_path, work) == []


KILLED = """
import asyncio, os, sys
from pathlib import Path
from statelog import aio
from statelog.aio import durable

folder = Path(sys.argv[1])

async def step(number):
    with (folder / "calls").open("a") as file:
        file.write(f"{number} ")
    if number == 2 and not (folder / "killed").exists():
        (folder / "killed").touch()
        os.kill(os.getpid(), 9)

async def main():
    async with await aio.open(folder / "a.state") as store:
        async with durable.entered(store, "r") as run:
            for number in (1, 2, 3):
                await run.step(step, number)

asyncio.run(main())
"""


def test_after_a_kill_only_the_step_in_flight_is_repeated(tmp_path):
    codes = [
        forks.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, timeout=600).returncode
        for _time in range(2)
    ]
    assert codes == [-signal.SIGKILL, 0]
    assert (tmp_path / "calls").read_text().split() == ["1", "2", "2", "3"]
