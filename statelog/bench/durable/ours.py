"""What statelog takes for the rows of the table: a function for each."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import statelog
from statelog import durable
from statelog.bench.children import started
from statelog.bench.durable.parts import ID, QUEUE, Job, long, parked, short, timed
from statelog.bench.measure import Samples

if TYPE_CHECKING:
    from pathlib import Path

_PARTS = "statelog.bench.durable.parts"
_PAUSE_S = 0.05
"""Before a gate is answered: the process that waits sleeps again."""

_GATE_WAIT_S = 30.0
_POLL_S = 0.001
_OPENINGS = 5


def steps(directory: Path, *, size: int, repeats: int) -> dict[str, Samples]:
    """Return what steps take: alone, and with something else in each; the kinds take turns."""
    taken: dict[str, Samples] = {}
    with statelog.open(directory / "steps.state") as store:
        for repeat in range(-1, repeats):  # the first to warm up
            for kind in ("alone", "commit", "event", "board"):
                info = durable.run(store, timed, {"kind": kind, "steps": size}, id=f"{kind} {repeat}")
                if repeat >= 0:
                    taken.setdefault(kind, _unmeasured()).durations_ns += info.value
    return taken


def replays(directory: Path, *, size: int, repeats: int) -> dict[str, Samples]:
    """Return what it takes to run to its end what died after its steps: with the opening of the file, and without."""
    taken = {"recovery": _unmeasured(), "replay": _unmeasured()}
    for repeat in range(repeats):
        path = directory / f"replay {repeat}.state"
        _said(Job("die", str(path), size))
        for name, time_ns in json.loads(_said(Job("replay", str(path), size))).items():
            taken[name].durations_ns.append(time_ns)
    return taken


def forks(directory: Path, *, size: int, repeats: int) -> tuple[Samples, int]:
    """Return what a fork at the last step takes, and how many commits one is."""
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
        waiter.say(Job("wait", str(path), size).line())
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
    """Return the gate that is waited for, once it is there."""
    until_s = time.monotonic() + _GATE_WAIT_S
    while time.monotonic() < until_s:
        for gate in durable.gates(store, pending=True):
            if gate.id not in answered:
                return str(gate.id)
        time.sleep(_POLL_S)
    message = "the process that should wait for a gate does not"
    raise TimeoutError(message)


def idle(directory: Path, *, seconds: float) -> float:
    """Return which part of a core a worker takes whose one run waits for a gate."""
    path = directory / "idle.state"
    with statelog.open(path) as store:
        durable.run(store, parked, None, id=ID, wait_s=0)
    return float(json.loads(_said(Job("idle", str(path), seconds=seconds)))["idle"])


def queued(directory: Path, *, size: int, repeats: int, concurrency: int) -> Samples:
    """Return what one worker takes for runs that are queued by then, from its opening of the file to the last's end."""
    taken = _unmeasured()
    for repeat in range(repeats):
        path = directory / f"queue {repeat}.state"
        with statelog.open(path) as store:
            for number in range(size):
                durable.start(store, short, number, id=f"run {number}", queue=QUEUE)
        taken.durations_ns.append(int(_said(Job("work", str(path), size, concurrency=concurrency))))
    return taken


@dataclass(frozen=True, slots=True)
class Suspended:
    """What a worker takes while runs are suspended."""

    memory_bytes: int
    openings_ns: list[int]
    idle: float
    """Of a core."""


def suspended(directory: Path, *, size: int, seconds: float) -> Suspended:
    """Return what a worker takes in a file with so many runs that wait for a gate."""
    path = directory / f"{size} suspended.state"
    with statelog.open(path) as store:
        for number in range(size):
            durable.run(store, parked, None, id=f"run {number}", wait_s=0)
    found = [json.loads(_said(Job("idle", str(path), seconds=seconds / _OPENINGS))) for _ in range(_OPENINGS)]
    return Suspended(
        memory_bytes=max(each["memory_bytes"] for each in found),
        openings_ns=[each["opening_ns"] for each in found],
        idle=sum(each["idle"] for each in found) / _OPENINGS,
    )


def _said(job: Job) -> str:
    """Have a process of its own do a job; return what it says, which is nothing if it dies."""
    with started(_PARTS, 1) as (child,):
        child.say(job.line())
        return child.hear()


def _unmeasured() -> Samples:
    """Return samples of work in several processes, without the bytes that they write."""
    return Samples(handed_bytes=None, dirtied_bytes=None)
