"""Calls from tasks run outside the loop's thread, and end when their task is cancelled."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import time

import pytest

from statelog import aio
from statelog.aio.bridge import Runner, in_thread, run, stream
from statelog.errors import ClosedError, ForkedError


def test_a_call_runs_on_another_thread_of_the_system():
    async def main():
        return await run(lambda number, *, more: (number, more, threading.get_ident()), 1, more=2)

    assert asyncio.run(main())[:2] == (1, 2)
    assert asyncio.run(main())[2] != threading.get_ident()


def test_an_exception_of_a_call_is_returned():
    async def main():
        await run(lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(main())


@pytest.mark.parametrize("times", [1, 3])
def test_a_cancelled_task_waits_for_its_call(times):
    ended = []

    def call():
        time.sleep(0.2)
        ended.append(True)

    async def main():
        task = asyncio.ensure_future(run(call))
        for _ in range(times):
            await asyncio.sleep(0.02)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return list(ended)

    assert asyncio.run(main()) == [True]


def test_under_trio_a_cancelled_task_waits_too():
    trio = pytest.importorskip("trio")
    ended = []

    def call():
        time.sleep(0.1)
        ended.append(True)

    async def main():
        with trio.move_on_after(0.02):
            await run(call)
        return list(ended)

    assert trio.run(main) == [True]


class Stop(StopIteration):
    pass


async def drawn(call):
    def items():
        call()
        yield 1

    return [item async for item in stream(Runner(), items)]


WAYS = {
    "run": lambda call: Runner().run(call),
    "finish": lambda call: Runner().finish(call),
    "shared": run,
    "win": lambda call: Runner().win(call, lambda _taken: None),
    "thread": in_thread,
    "stream": drawn,
}
KINDS = [
    StopIteration,
    Stop,
    StopAsyncIteration,
    GeneratorExit,
    asyncio.CancelledError,
    concurrent.futures.CancelledError,
    TimeoutError,
    RuntimeError,
    BaseException,
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_of_any_type_ends_the_await(way, kind):
    def call():
        raise kind("why")

    async def main():
        task = asyncio.ensure_future(WAYS[way](call))
        await asyncio.wait([task], timeout=30)
        assert task.done(), "it hangs"
        return None if task.cancelled() else task.exception()

    raised = asyncio.run(main())
    if issubclass(kind, StopIteration):
        assert type(raised) is RuntimeError
        assert type(raised.__cause__) is kind
    elif issubclass(kind, (asyncio.CancelledError, concurrent.futures.CancelledError)):
        assert raised is None or isinstance(raised, (asyncio.CancelledError, concurrent.futures.CancelledError))
    elif way == "stream" and kind is StopAsyncIteration:
        assert type(raised) is RuntimeError, "Python's own, of an async generator"
    else:
        assert type(raised) is kind


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_cancelled_task_releases_its_claim_before_it_ends(count):
    """It is cancelled once, and again while the claim is released."""
    runner, begun, back = Runner(), threading.Event(), []

    def take():
        begun.set()
        time.sleep(0.05)
        return "won"

    def give_back(taken):
        time.sleep(0.05)
        back.append(taken)
        raise OSError

    async def main():
        task = asyncio.ensure_future(runner.win(take, give_back))
        await asyncio.sleep(0)
        begun.wait(10)
        for _ in range(count):
            task.cancel()
            await asyncio.sleep(0.02)
        with pytest.raises(asyncio.CancelledError):
            await task
        return list(back)

    assert asyncio.run(main()) == ["won"]


def test_a_claim_is_released_even_if_the_pool_is_closed_in_the_meantime():
    runner, begun, back = Runner("a.state"), threading.Event(), []

    def take():
        begun.set()
        time.sleep(0.1)
        return "won"

    async def main():
        task = asyncio.ensure_future(runner.win(take, back.append))
        await asyncio.sleep(0)
        begun.wait(10)
        runner.close(lambda: None)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(ClosedError):
            await runner.run(int)

    asyncio.run(main())
    assert back == ["won"]


def test_a_pool_without_a_store_begins_again_after_it_was_closed():
    runner = Runner()

    async def main():
        first = await runner.run(threading.get_ident)
        runner.close().result(10)
        assert await runner.run(int) == 0
        return first

    assert asyncio.run(main()) != threading.get_ident()


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_store_of_the_parent_is_refused_in_a_forked_child(tmp_path):
    store = asyncio.run(_opened(tmp_path / "a.state"))
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            asyncio.run(store.last_lsn())
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer
            os.write(writing, type(error).__name__.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        assert answers.read() == ForkedError.__name__
    os.wait()
    asyncio.run(store.close())


async def _opened(path):
    return await aio.open(path)
