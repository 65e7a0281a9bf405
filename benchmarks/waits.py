"""Measures waiting asyncio tasks: their OS threads, the time until a notified task continues, and their cost."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

from benchmarks.measure import median
from benchmarks.result import Result, at_most
from benchmarks.workload import BenchWorkload
from statelog import aio
from statelog.aio import durable

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.workload import Bench
    from statelog.aio.board import Board

FEW, MANY = 10, 1000
_RESULTS = 200
_WAIT_S = 600.0
_IDLE_S = 3.0
_SETTLE_S = 3.0
_CALLS_PER_REPEAT = 10
_THREADS_MORE_MAX, _CALLED_MAX, _RESULTS_MAX, _IDLE_MAX = 4, 2.0, 25.0, 0.5


class _Waiters:
    """Tasks that each wait for an entry with its own pattern."""

    def __init__(self, board: Board, name: str, count: int) -> None:
        self._board, self._name = board, name
        self._tasks = [self._begun(number) for number in range(count)]

    def _begun(self, number: int) -> asyncio.Task[int]:
        return asyncio.create_task(self._claim(f"{self._name}-{number}/*"))

    async def _claim(self, pattern: str) -> int:
        """Return the time at which the claim was made."""
        claim = await self._board.claim(pattern, wait_s=_WAIT_S)
        at_ns = time.monotonic_ns()
        assert claim is not None
        await claim.complete()
        return at_ns

    async def called_us(self, number: int) -> float:
        """Set the entry that task `number` waits for. Return the time from then until the task has claimed it."""
        began_ns = time.monotonic_ns()
        await self._board.set(f"{self._name}-{number}/job", number)
        took_us = (await self._tasks[number] - began_ns) / 1000
        self._tasks[number] = self._begun(number)
        return took_us

    async def end(self) -> None:
        """Cancel the tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _measure_waiters(path: Path, calls: int, many: int) -> Result:
    async with aio.open(path) as store:
        board = store.board(agent="bench")
        await board.set("warm", 1)
        took_us: dict[int, list[float]] = {FEW: [], many: []}
        threads: dict[int, int] = {}
        idle = 0.0
        for count, took in took_us.items():
            waiters = _Waiters(board, f"of-{count}", count)
            await asyncio.sleep(_SETTLE_S)
            threads[count] = threading.active_count()
            idle = await _idle_percent()
            took += [await waiters.called_us(number * 97 % count) for number in range(calls)]
            await waiters.end()
    few_us, many_us = median(took_us[FEW]), median(took_us[many])
    more = threads[many] - threads[FEW]
    return Result(
        checks=(
            at_most(f"{many} waiting tasks: threads more than for {FEW}", more, _THREADS_MORE_MAX, " threads"),
            at_most(
                "set to the claim of the task that waits for it: median, relative to few tasks'",
                many_us / few_us,
                _CALLED_MAX,
            ),
            at_most("share of a core that a process uses whose tasks wait without events", idle, _IDLE_MAX, "%"),
        ),
        sides=(),
        notes=(f"set to the claim: {few_us / 1000:.2f} ms of {FEW} tasks, {many_us / 1000:.2f} ms of {many}",),
    )


async def _idle_percent() -> float:
    began_s, processor_began_s = time.monotonic(), time.process_time()
    await asyncio.sleep(_IDLE_S)
    return 100 * (time.process_time() - processor_began_s) / (time.monotonic() - began_s)


async def _same(number: int) -> int:
    return number


@durable.workflow
async def short(run: durable.Run, number: int) -> int:
    """Do one step."""
    found: int = await run.step(_same, number)
    return found


async def _results_s(store: aio.Store, name: str, count: int) -> float:
    """Return the seconds that a worker takes for runs while other tasks await their results."""
    handles = [await durable.start(store, short, number, id=f"{name}-{number}") for number in range(count)]
    stop, began_s = asyncio.Event(), time.monotonic()
    worker = asyncio.create_task(durable.run_worker(store, [short], stop=stop))
    await asyncio.gather(*(handle.result() for handle in handles))
    took_s = time.monotonic() - began_s
    stop.set()
    await worker
    return took_s


async def _measure_results(path: Path, repeats: int) -> Result:
    async with aio.open(path) as store:
        await _results_s(store, "warm", FEW)
        few, many = [], []
        for repeat in range(repeats):
            few.append(await _results_s(store, f"few-{repeat}", FEW))
            many.append(await _results_s(store, f"many-{repeat}", _RESULTS))
    few_s, many_s = median(few), median(many)
    return Result(
        checks=(
            at_most(
                f"{_RESULTS} results awaited in the worker's process, relative to {FEW}", many_s / few_s, _RESULTS_MAX
            ),
        ),
        sides=(),
        notes=(f"results awaited in the worker's process: {few_s:.2f} s of {FEW}, {many_s:.2f} s of {_RESULTS}",),
    )


def _measure(bench: Bench) -> Result:
    calls, many = bench.repeats * _CALLS_PER_REPEAT, bench.size(MANY, at_least=4 * FEW)
    return Result.joined(
        [
            asyncio.run(_measure_waiters(bench.directory / "waiters.state", calls, many)),
            asyncio.run(_measure_results(bench.directory / "results.state", bench.repeats)),
        ]
    )


WAITING = BenchWorkload("waiting", "Tasks of asyncio that wait", "commit", _measure)
