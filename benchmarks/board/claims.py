"""Measures tasks that eight processes claim and complete, as with SQLite, and claims while many tasks wait."""

from __future__ import annotations

import itertools
import json
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks import sqlite_peer
from benchmarks.board import table
from benchmarks.board.large_boards import fill
from benchmarks.board.worker import DONE, PENDING, ClaimJob, TaskTimes, job_line
from benchmarks.children import ask, started
from benchmarks.committers import joined
from benchmarks.measure import Samples
from benchmarks.result import Result, at_least, at_most, exactly
from benchmarks.stores import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarks.children import ChildProcess
    from benchmarks.workload import Bench
    from statelog.store.board import Board
    from statelog.store.claims import Claim
    from statelog.store.store import Store

_OURS, _THEIRS = "statelog", sqlite_peer.NAME
_PROCESSES = 8
_WORK_S = 0.005
_TASKS = 1000
_PRIORITIES = 3
_ROUNDS_MAX = 3
_RATE_MIN, _LONGEST_MAX, _SHARE_MIN = 1.0, 0.2, 0.7
_BEFORE_S = 0.1
"""How long to wait until all processes wait for tasks, in seconds."""

_WAITING, _WAITING_FEW = 100_000, 100
_CLAIMS_PER_REPEAT, _WAITING_MAX = 40, 1.5


@dataclass(slots=True)
class _ClaimTimes:
    """The results of all processes of one side."""

    rounds: list[Samples] = field(default_factory=list)
    """For each task, the time of its claim and its completion, without the work."""
    least_share: float = 1.0
    doubled: int = 0
    """The number of claims of tasks that another process has also claimed."""
    missing: int = 0
    """The number of tasks that are not done."""

    def add(self, workers: Sequence[Sequence[TaskTimes]], put_ns: int, tasks: int, done: int) -> None:
        """Add a round: for each process, the times of its tasks. The tasks were set at `put_ns`."""
        turns = [turn for worker in workers for turn in worker]
        names = {turn.task for turn in turns}
        waits = [max(turn.claimed_ns - max(turn.began_ns, put_ns), 0) + turn.done_ns - turn.worked_ns for turn in turns]
        elapsed_ns = max(turn.done_ns for turn in turns) - put_ns
        self.rounds.append(Samples(waits, elapsed_ns=elapsed_ns, handed_bytes=None, dirtied_bytes=None))
        self.least_share = min(self.least_share, min(map(len, workers)) * len(workers) / len(turns))
        self.doubled += len(turns) - len(names)
        self.missing += tasks - min(len(names), done)

    @property
    def longest_ns(self) -> int:
        """The longest wait."""
        return max(max(taken.durations_ns) for taken in self.rounds)


def measure_claims(bench: Bench) -> Result:
    """Measure tasks for which eight processes wait. One of them claims each task."""
    processes = bench.size(_PROCESSES, at_least=2)
    tasks = bench.size(_TASKS, at_least=10 * processes)
    found = {_OURS: _ClaimTimes(), _THEIRS: _ClaimTimes()}
    with started("benchmarks.board.worker", processes) as workers:
        for number in range(min(bench.repeats, _ROUNDS_MAX)):
            for name in list(found) if number % 2 == 0 else reversed(list(found)):
                path = bench.directory / f"tasks of {name}, {number}"
                _run_round(found[name], workers, path, tasks, is_peer=name == _THEIRS)
    sides = [
        joined(f"{name}, claim and complete of {processes} processes", each.rounds) for name, each in found.items()
    ]
    ours, theirs = found[_OURS], found[_THEIRS]
    what = f"claim + complete by {processes} processes"
    return Result(
        checks=(
            at_least(
                f"{what}: tasks a second, relative to {_THEIRS}'s", sides[0].per_second / sides[1].per_second, _RATE_MIN
            ),
            at_most(
                f"{what}: longest wait, relative to {_THEIRS}'s", ours.longest_ns / theirs.longest_ns, _LONGEST_MAX
            ),
            at_least(f"{what}: smallest share of a process, relative to a fair share", ours.least_share, _SHARE_MIN),
            *(exactly(f"{what}: claimed twice, {name}", each.doubled, 0, "tasks") for name, each in found.items()),
            *(exactly(f"{what}: not done, {name}", each.missing, 0, "tasks") for name, each in found.items()),
        ),
        sides=tuple(sides),
        notes=(
            (
                f"{what}: {tasks:,} tasks of {_WORK_S * 1000:g} ms of sleep, added at once; {_THEIRS} looks for one"
                f" every {table.POLL_S * 1000:g} ms if there is none; longest waits {ours.longest_ns / 1e6:.1f} and"
                f" {theirs.longest_ns / 1e6:.1f} ms, least shares {ours.least_share:.2f} and {theirs.least_share:.2f}"
            ),
        ),
    )


def _run_round(found: _ClaimTimes, workers: Sequence[ChildProcess], path: Path, tasks: int, *, is_peer: bool) -> None:
    """Make the processes wait, set tasks, and collect the results of each process."""
    bodies = [(number % _PRIORITIES, {"number": number}) for number in range(tasks)]
    if is_peer:
        with table.connected(path) as peer:
            put_ns, turns = _served(workers, ClaimJob(str(path), is_peer, _WORK_S), lambda: peer.put_tasks(bodies))
            found.add(turns, put_ns, tasks, peer.count_done())
        return
    with opened(path) as store:
        put_ns, turns = _served(workers, ClaimJob(str(path), is_peer, _WORK_S), lambda: _put_tasks(store, bodies))
        found.add(turns, put_ns, tasks, len(store.board().list(f"{DONE}*")))


def _served(
    workers: Sequence[ChildProcess], job: ClaimJob, put: Callable[[], object]
) -> tuple[int, list[list[TaskTimes]]]:
    assert set(ask(workers, job_line(job))) == {"there\n"}
    assert set(ask(workers, "go")) == {"waiting\n"}
    time.sleep(_BEFORE_S)
    put()
    put_ns = time.monotonic_ns()
    turns = [[TaskTimes(*turn) for turn in json.loads(worker.hear())] for worker in workers]
    assert set(ask(workers, "close")) == {"closed\n"}
    return put_ns, turns


def _put_tasks(store: Store, bodies: Sequence[tuple[int, object]]) -> None:
    with store.transaction() as transaction:
        board = transaction.board()
        for number, (priority, body) in enumerate(bodies):
            board.set(f"{PENDING}{number:06d}", body, priority=priority)


# --- a long queue ---------------------------------------------------------------


def measure_waiting(bench: Bench) -> Result:
    """Measure a claim while many tasks wait, and while few do."""
    many = max(bench.size(min(bench.keys, _WAITING)), 2 * _WAITING_FEW)
    taken = {many: Samples(), _WAITING_FEW: Samples()}
    with ExitStack() as stack:
        boards: dict[int, Board] = {}
        for count in taken:
            store = stack.enter_context(opened(bench.directory / f"{count} waiting.state", durability="interval"))
            fill(store, ((f"{PENDING}{number:06d}", {"number": number}) for number in range(count)))
            boards[count] = store.board(agent="bench")
        numbers = itertools.count(many)
        for _ in range(bench.repeats * bench.size(_CLAIMS_PER_REPEAT, at_least=4)):
            for count, board in boards.items():
                _claim_one(board, taken[count], next(numbers))
    large, small = (samples.side(f"statelog, claim with {count:,} waiting") for count, samples in taken.items())
    what = f"claim with {many:,} waiting: median, relative to {_WAITING_FEW} waiting"
    return Result(checks=(at_most(what, large.p50_us / small.p50_us, _WAITING_MAX),), sides=(large, small))


def _claim_one(board: Board, samples: Samples, number: int) -> None:
    """Time a claim, and then add a task, so that the number of waiting tasks stays the same."""
    claims: list[Claim] = []

    def claim() -> None:
        found = board.claim(f"{PENDING}*", lease_s=60.0)
        assert found is not None
        claims.append(found)

    samples.take(claim, 1)
    claims[0].complete({}, to=DONE)
    board.set(f"{PENDING}{number:06d}", {"number": number})
