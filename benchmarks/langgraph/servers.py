"""Measures server processes that share one file, kills one every second, and counts lost turns.

As a script, this module starts and kills the processes of one saver. Each of them runs the main module of its parent
again, so the parent must not be the measuring process, whose main module is unknown.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.langgraph import savers
from benchmarks.langgraph.savers import ASYNC_SQLITE, OURS
from benchmarks.langgraph.server import ServerTurn, serve
from benchmarks.langgraph.short import question_id
from benchmarks.measure import Samples
from benchmarks.result import Result, at_least, at_most

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.workload import Bench

_PROCESSES, _CONVERSATIONS = 4, 50
_DURATION_S, _DURATION_S_MIN = 12.0, 0.5
_BETWEEN_KILLS_S = 1.0
_TURNS_MIN = 1.0
_BEFORE_AGAIN_S = 0.01
_KILLED = "killed"

_context = get_context("forkserver")
"""With a fork server, a new process need not import everything, which would dominate the measurement."""


@dataclass(slots=True)
class _Served:
    """The results of all conversations."""

    durations_ns: list[int] = field(default_factory=list)
    """The times of answered turns."""
    kills: int = 0
    refusals: int = 0
    """The number of turns that failed without a kill, and were requested again."""
    lost: int = 0
    """The number of answered turns that are missing in the file."""


class _Server:
    """A process, and its pending turns."""

    def __init__(self, name: str, directory: Path) -> None:
        self._connection, theirs = _context.Pipe()
        self._process = _context.Process(target=serve, args=(theirs, name, str(directory)), daemon=True)
        self._process.start()
        theirs.close()
        self._asked: dict[ServerTurn, asyncio.Future[ServerTurn]] = {}
        loop = asyncio.get_running_loop()
        self.there = loop.create_future()
        loop.add_reader(self._connection.fileno(), self._hear)

    async def turn(self, turn: ServerTurn) -> ServerTurn:
        """Send a turn to the process. Return it when it is done, with `error` if it failed."""
        await self.there
        self._asked[turn] = future = asyncio.get_running_loop().create_future()
        try:
            self._connection.send(turn)
        except OSError:  # The process was killed.
            self._end()
        return await future

    def _hear(self) -> None:
        try:
            turn = self._connection.recv()
        except (EOFError, OSError):
            self._end()
            return
        if turn is None:
            self.there.set_result(None)
        else:
            self._asked.pop(turn._replace(error="")).set_result(turn)

    def kill(self) -> None:
        """Kill the process, and end its pending turns."""
        self._process.kill()
        self._process.join()
        self._end()

    def _end(self) -> None:
        if not self._connection.closed:
            asyncio.get_running_loop().remove_reader(self._connection.fileno())
            self._connection.close()
        if not self.there.done():
            self.there.set_result(None)
        for turn, future in self._asked.items():
            future.set_result(turn._replace(error=_KILLED))
        self._asked.clear()


async def _serve_all(name: str, directory: Path, *, conversations: int, duration_s: float) -> _Served:
    """Run conversations as fast as they are served. The processes serve turns in rotation."""
    served = _Served()
    answered = {f"conversation {number}": 0 for number in range(conversations)}
    await _count_lost(name, directory, answered)  # Create the file: SQLite fails if several processes do.
    servers = [_Server(name, directory) for _ in range(_PROCESSES)]
    await asyncio.gather(*(server.there for server in servers))
    loop = asyncio.get_running_loop()
    rounds = itertools.cycle(range(_PROCESSES))
    ends_s = loop.time() + duration_s

    async def converse(thread_id: str) -> None:
        began_s = loop.time()
        while loop.time() < ends_s:
            turn = await servers[next(rounds)].turn(ServerTurn(thread_id, answered[thread_id]))
            if turn.error:
                served.refusals += turn.error != _KILLED
                await asyncio.sleep(_BEFORE_AGAIN_S)
                continue
            answered[thread_id] += 1
            now_s = loop.time()
            served.durations_ns.append(int((now_s - began_s) * 1e9))
            began_s = now_s

    async def kill() -> None:
        for number in itertools.cycle(range(_PROCESSES)):
            await asyncio.sleep(min(_BETWEEN_KILLS_S, duration_s / 2))
            servers[number].kill()
            servers[number] = _Server(name, directory)
            served.kills += 1

    killing = asyncio.ensure_future(kill())
    try:
        await asyncio.gather(*map(converse, answered))
    finally:
        killing.cancel()
        for server in servers:
            server.kill()
    served.lost = await _count_lost(name, directory, answered)
    return served


async def _count_lost(name: str, directory: Path, answered: dict[str, int]) -> int:
    """Return the number of answered turns whose question is missing in the file."""
    lost = 0
    async with savers.opened_async(name, directory, "served") as saver:
        for thread_id, count in answered.items():
            found = await saver.aget_tuple({"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}})
            messages = found.checkpoint["channel_values"]["messages"] if found else []
            lost += len({question_id(number) for number in range(count)} - {message.id for message in messages})
    return lost


def _measured(name: str, bench: Bench, duration_s: float) -> _Served:
    """Return the results of the servers of a saver."""
    conversations = bench.size(_CONVERSATIONS, at_least=2)
    command = [sys.executable, "-m", __name__, name, str(bench.directory), str(conversations), str(duration_s)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return _Served(**json.loads(done.stdout))


def measure_serving(bench: Bench) -> Result:
    """Measure turns of conversations that several processes serve, while they are killed."""
    duration_s = max(_DURATION_S * min(bench.scale, 1.0), _DURATION_S_MIN)
    served = {name: _measured(name, bench, duration_s) for name in (OURS, ASYNC_SQLITE)}
    turns = {name: len(found.durations_ns) for name, found in served.items()}
    what = f"{_PROCESSES} servers, {_CONVERSATIONS} conversations, a kill a second"
    sides, notes = [], []
    for name, found in served.items():
        taken = Samples(found.durations_ns, elapsed_ns=int(duration_s * 1e9), handed_bytes=None, dirtied_bytes=None)
        sides.append(taken.side(f"{name}: {what}"))
        notes.append(
            f"{name}: {turns[name]:,} turns answered, {found.kills} kills, {found.refusals} turns refused,"
            f" {found.lost} lost"
        )
    return Result(
        checks=(
            at_least(f"{what}: turns, relative to {ASYNC_SQLITE}'s", turns[OURS] / turns[ASYNC_SQLITE], _TURNS_MIN),
            at_most("{what}: answered turns that were lost", served[OURS].lost, 0, "turns"),
        ),
        sides=tuple(sides),
        notes=tuple(notes),
    )


def _serve_one(arguments: Sequence[str]) -> None:
    """Start and kill the servers of a saver, and print their results."""
    name, directory, conversations, duration_s = arguments
    _context.set_forkserver_preload([serve.__module__])
    work = _serve_all(name, Path(directory), conversations=int(conversations), duration_s=float(duration_s))
    sys.stdout.write(json.dumps(asdict(asyncio.run(work))))


if __name__ == "__main__":
    _serve_one(sys.argv[1:])
