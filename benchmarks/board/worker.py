"""A process that claims tasks.

It reads jobs from stdin, one line of JSON each. It reports when its file is open, waits for a line, claims and
completes tasks until none are left, and prints its results. After another line, when all have stopped, it closes.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import statelog
from benchmarks.board import table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PENDING, DONE = "tasks/pending/", "tasks/done/"
_LEASE_S = 60.0
_FIRST_WAIT_S, _WAIT_S = 60.0, 0.2
"""The longest waits for the first task, and for each further task. If no task comes in this time, the worker ends."""


@dataclass(frozen=True, slots=True)
class ClaimJob:
    """A job: claim and complete all tasks in a file."""

    path: str
    is_peer: bool
    work_s: float
    """The duration of the work on each task."""


class TaskTimes(NamedTuple):
    """The times of one task, by the clock that all processes share."""

    task: str
    began_ns: int
    claimed_ns: int
    worked_ns: int
    done_ns: int


class _ClaimedTask(NamedTuple):
    task: str
    complete: Callable[[], object]


if TYPE_CHECKING:
    _Claim = Callable[[float], _ClaimedTask | None]


@contextmanager
def _claiming(job: ClaimJob, number: int) -> Iterator[_Claim]:
    """Yield a function that claims a task. It waits up to the given number of seconds for a task."""
    agent = f"worker {number}"
    if job.is_peer:
        with table.connected(Path(job.path)) as peer:

            def claim_of_peer(wait_s: float) -> _ClaimedTask | None:
                found = peer.wait_for_claim(agent, _LEASE_S, wait_s)
                if found is None:
                    return None
                task = found[0]
                return _ClaimedTask(str(task), lambda: peer.complete(task, agent, {"worker": number}))

            yield claim_of_peer
        return
    with statelog.open(job.path) as store:
        board = store.board(agent=agent)

        def claim(wait_s: float) -> _ClaimedTask | None:
            found = board.claim(f"{PENDING}*", lease_s=_LEASE_S, wait_s=wait_s)
            if found is None:
                return None
            return _ClaimedTask(found.key, lambda: found.complete({"worker": number}, to=DONE))

        yield claim


def _work(job: ClaimJob, claim: _Claim) -> list[TaskTimes]:
    turns: list[TaskTimes] = []
    while True:
        began_ns = time.monotonic_ns()
        claimed = claim(_WAIT_S if turns else _FIRST_WAIT_S)
        if claimed is None:
            return turns
        claimed_ns = time.monotonic_ns()
        time.sleep(job.work_s)
        worked_ns = time.monotonic_ns()
        claimed.complete()
        turns.append(TaskTimes(claimed.task, began_ns, claimed_ns, worked_ns, time.monotonic_ns()))


def main(number: int) -> None:
    """Serve jobs until stdin ends."""
    for line in sys.stdin:
        job = ClaimJob(**json.loads(line))
        with _claiming(job, number) as claim:
            _say("there")
            sys.stdin.readline()
            _say("waiting")
            _say(json.dumps(_work(job, claim)))
            sys.stdin.readline()
        _say("closed")


def job_line(job: ClaimJob) -> str:
    """Return a job as a line of stdin."""
    return json.dumps(asdict(job))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
