"""Measures statelog for the rows of the table. Each row has a function."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import statelog
from benchmarks.children import started
from benchmarks.durable.parts import ID, QUEUE, RunJob, long, parked, short, timed
from benchmarks.measure import Samples
from statelog import durable

if TYPE_CHECKING:
    from pathlib import Path

_PARTS = "benchmarks.durable.parts"
_PAUSE_S = 0.05
"""The pause before a gate is answered, so that the waiting process sleeps."""

_GATE_WAIT_S = 30.0
_POLL_S = 0.001
_OPENINGS = 5


def steps(directory: Path, *, size: int, repeats: int) -> dict[str, Samples]:
    """Return the times of plain steps, and of steps with a commit, an event or an entry. The kinds take turns."""
    taken: dict[str, Samples] = {}
    with statelog.open(directory / "steps.state") as store:
        for repeat in range(-1, repeats):  # The first turn warms up.
            for kind in ("alone", "commit", "event", "board"):
                info = durable.run(store, timed, {"kind": kind, "steps": size}, id=f"{kind} {repeat}")
                if repeat >= 0:
                    taken.setdefault(kind, _unmeasured()).durations_ns += info.result()
    return taken


def replays(directory: Path, *, size: int, repeats: int) -> dict[str, Samples]:
    """Return the times to finish a run that died after its steps, with and without opening the file."""
    taken = {"recovery": _unmeasured(), "replay": _unmeasured()}
    for repeat in range(repeats):
        path = directory / f"replay {repeat}.state"
        _said(RunJob("die", str(path), size))
        for name, time_ns in json.loads(_said(RunJob("replay", str(path), size))).items():
            taken[name].durations_ns.append(time_ns)
    return taken


def forks(directory: Path, *, size: int, repeats: int) -> tuple[Samples, int]:
    """Return the times of forks at the last step, and the number of commits that one fork makes."""
    taken, commits = _unmeasured(), 0
    with statelog.open(directory / "fork.state") as store:
        durable.run(store, long, size, id=ID)
        for repeat in range(repeats):
            before = store.last_lsn
            taken.time(lambda: durable.fork(store, ID, at=size, id=f"fork {repeat}"))  # noqa: B023 - called at once
            commits = max(commits, sum(not record.continues for record in store.log(after=before)))
    return taken, commits


def answers(directory: Path, *, size: int) -> Samples:
    """Return the times from before a gate is answered until the next step begins in a process that waits for it."""
    path, taken = directory / "gates.state", _unmeasured()
    with started(_PARTS, 1) as (waiter,), statelog.open(path) as store:
        waiter.say(RunJob("wait", str(path), size).line())
        answered: set[str] = set()
        for _ in range(size):
            gate_id = _pending(store, answered)
            answered.add(gate_id)
            time.sleep(_PAUSE_S)
            began_ns = time.monotonic_ns()
            durable.answer(store, gate_id, approved=True, by="bench")
            taken.durations_ns.append(int(waiter.hear()) - began_ns)
    return taken


def _pending(store: statelog.Store, answered: set[str]) -> str:
    """Wait until the next gate exists, and return its id."""
    until_s = time.monotonic() + _GATE_WAIT_S
    while time.monotonic() < until_s:
        for gate in durable.gates(store, pending=True):
            if gate.id not in answered:
                return str(gate.id)
        time.sleep(_POLL_S)
    message = "the process that should wait for a gate does not"
    raise TimeoutError(message)


def idle(directory: Path, *, seconds: float) -> float:
    """Return the share of a core that a worker uses while its only run waits for a gate."""
    path = directory / "idle.state"
    with statelog.open(path) as store:
        durable.run(store, parked, None, id=ID, wait_s=0)
    return float(json.loads(_said(RunJob("idle", str(path), seconds=seconds)))["idle"])


def queued(directory: Path, *, size: int, repeats: int, concurrency: int) -> Samples:
    """Return the times of one worker for queued runs, from opening the file to the end of the last run."""
    taken = _unmeasured()
    for repeat in range(repeats):
        path = directory / f"queue {repeat}.state"
        with statelog.open(path) as store:
            for number in range(size):
                durable.start(store, short, number, id=f"run {number}", queue=QUEUE)
        taken.durations_ns.append(int(_said(RunJob("work", str(path), size, concurrency=concurrency))))
    return taken


@dataclass(frozen=True, slots=True)
class SuspendedCosts:
    """The costs of a worker while runs are suspended."""

    memory_bytes: int
    openings_ns: list[int]
    idle: float
    """The used share of a core."""


def suspended(directory: Path, *, size: int, seconds: float) -> SuspendedCosts:
    """Return the costs of a worker in a file with `size` runs that wait for a gate."""
    path = directory / f"{size} suspended.state"
    with statelog.open(path) as store:
        for number in range(size):
            durable.run(store, parked, None, id=f"run {number}", wait_s=0)
    found = [json.loads(_said(RunJob("idle", str(path), seconds=seconds / _OPENINGS))) for _ in range(_OPENINGS)]
    return SuspendedCosts(
        memory_bytes=max(each["memory_bytes"] for each in found),
        openings_ns=[each["opening_ns"] for each in found],
        idle=sum(each["idle"] for each in found) / _OPENINGS,
    )


def _said(job: RunJob) -> str:
    """Make a new process do a job, and return its output, which is empty if the process dies."""
    with started(_PARTS, 1) as (child,):
        child.say(job.line())
        return child.hear()


def _unmeasured() -> Samples:
    """Return samples for work in several processes, whose written bytes are unknown."""
    return Samples(handed_bytes=None, dirtied_bytes=None)
