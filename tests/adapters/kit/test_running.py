"""Calls from tasks: off the loop's thread, and ended when a task that asked for them is cancelled."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from statelog.adapters.kit.running import run


def test_a_call_runs_on_another_thread_of_the_system():
    async def main():
        return await run(lambda number, *, more: (number, more, threading.get_ident()), 1, more=2)

    assert asyncio.run(main())[:2] == (1, 2)
    assert asyncio.run(main())[2] != threading.get_ident()


def test_what_a_call_raises_comes_back():
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
