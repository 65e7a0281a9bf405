"""Server processes that share one file and are killed, one a second: what they get done, and whether any of it is lost.

Run as a script, it is the process that starts and kills those of one saver: whose main module is started again with
each of them, and the measuring process's may be anybody's.
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

from statelog.bench.langgraph import savers
from statelog.bench.langgraph.savers import ASYNC_SQLITE, OURS
from statelog.bench.langgraph.server import Turn, serve
from statelog.bench.langgraph.short import question_id
from statelog.bench.measure import Samples
from statelog.bench.result import Result, at_least, at_most

if TYPE_CHECKING:
    from collections.abc import Sequence

    from statelog.bench.workload import Bench

_PROCESSES, _CONVERSATIONS = 4, 50
_DURATION_S, _DURATION_S_MIN = 12.0, 0.5
_BETWEEN_KILLS_S = 1.0
_TURNS_MIN = 1.0
_BEFORE_AGAIN_S = 0.01
_KILLED = "killed"

_context = get_context("forkserver")
"""A process that is started anew need not import everything anew: that would be most of what is measured."""


@dataclass(slots=True)
class _Served:
    """What was done for all conversations."""

    durations_ns: list[int] = field(default_factory=list)
    """Of turns that were answered."""
    kills: int = 0
    refusals: int = 0
    """Turns that no kill has ended, and that were to be asked for again."""
    lost: int = 0
    """Turns that were answered, and are not in the file."""


class _Server:
    """A process, and the turns it was asked for."""

    def __init__(self, name: str, directory: Path) -> None:
        self._connection, theirs = _context.Pipe()
        self._process = _context.Process(target=serve, args=(theirs, name, str(directory)), daemon=True)
        self._process.start()
        theirs.close()
        self._asked: dict[Turn, asyncio.Future[Turn]] = {}
        loop = asyncio.get_running_loop()
        self.there = loop.create_future()
        loop.add_reader(self._connection.fileno(), self._hear)

    async def turn(self, turn: Turn) -> Turn:
        """Return the turn once it is done; it has an error if it was not."""
        await self.there
        self._asked[turn] = future = asyncio.get_running_loop().create_future()
        try:
            self._connection.send(turn)
        except OSError:  # killed
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
        """Kill it: what it has not answered by now it never will."""
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
    """Have conversations as fast as they are served, each turn by whichever process comes next."""
    served = _Served()
    answered = {f"conversation {number}": 0 for number in range(conversations)}
    await _count_lost(name, directory, answered)  # makes the file: several that make SQLite's at once find it locked
    servers = [_Server(name, directory) for _ in range(_PROCESSES)]
    await asyncio.gather(*(server.there for server in servers))
    loop = asyncio.get_running_loop()
    rounds = itertools.cycle(range(_PROCESSES))
    ends_s = loop.time() + duration_s

    async def converse(thread_id: str) -> None:
        began_s = loop.time()
        while loop.time() < ends_s:
            turn = await servers[next(rounds)].turn(Turn(thread_id, answered[thread_id]))
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
    """Return how many turns were answered whose question is not in the file."""
    lost = 0
    async with savers.opened_async(name, directory, "served") as saver:
        for thread_id, count in answered.items():
            found = await saver.aget_tuple({"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}})
            messages = found.checkpoint["channel_values"]["messages"] if found else []
            lost += len({question_id(number) for number in range(count)} - {message.id for message in messages})
    return lost


def _measured(name: str, bench: Bench, duration_s: float) -> _Served:
    """Return what the servers of a saver did."""
    conversations = bench.size(_CONVERSATIONS, at_least=2)
    command = [sys.executable, "-m", __name__, name, str(bench.directory), str(conversations), str(duration_s)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 - ourselves
    return _Served(**json.loads(done.stdout))


def measure_serving(bench: Bench) -> Result:
    """Measure turns of conversations that any of some processes may serve, and be killed at."""
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
            at_least(f"{what}: turns, of {ASYNC_SQLITE}'s", turns[OURS] / turns[ASYNC_SQLITE], _TURNS_MIN),
            at_most("the same: answered turns that are lost", served[OURS].lost, 0, "turns"),
        ),
        sides=tuple(sides),
        notes=tuple(notes),
    )


def _serve_one(arguments: Sequence[str]) -> None:
    """Start and kill the servers of a saver, and print what they did."""
    name, directory, conversations, duration_s = arguments
    _context.set_forkserver_preload([serve.__module__])
    work = _serve_all(name, Path(directory), conversations=int(conversations), duration_s=float(duration_s))
    sys.stdout.write(json.dumps(asdict(asyncio.run(work))))


if __name__ == "__main__":
    _serve_one(sys.argv[1:])
