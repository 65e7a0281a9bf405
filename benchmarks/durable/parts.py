"""The workflows, and a process that runs them, for jobs in which a process dies, waits or works.

It reads jobs from stdin, one line of JSON each. Its output depends on the kind of the job.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import statelog
from statelog import durable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from statelog.store.store import Store
    from statelog.store.transaction import Transaction

ID, QUEUE = "long", "runs"
_BEFORE_IDLE_S = 0.5
_DEADLINE_S = 600.0
_BEFORE_GATE_STEPS = 10
"""The number of steps of a run before its gate. They are replayed after the gate."""

# --- workflows ------------------------------------------------------------------

_dies = threading.Event()
"""If set, the long workflow ends its process when all its steps are recorded."""

_all_run = threading.Event()
_runs = {"left": 0}


def trivial(number: int) -> int:
    """Do next to nothing."""
    return number


def _say_now() -> None:
    """Print the time at which this step began."""
    _say(str(time.monotonic_ns()))


def _reserve(transaction: Transaction, number: int) -> None:
    transaction.board().set("bench/reserved", number)


def _step(run: durable.Run, kind: str, number: int) -> None:
    """Do a step of the given kind."""
    more: dict[str, Any] = {
        "alone": {},
        "commit": {"commit": lambda result: {"number": result}},
        "event": {"emit": lambda result: ("bench/stepped", {"number": result})},
        "board": {"transact": _reserve},
    }
    run.step_with(durable.StepOptions(**more[kind]), trivial, number)


@durable.workflow
def timed(run: durable.Run, request: dict[str, Any]) -> list[int]:
    """Return the time that each step took."""
    times = []
    for number in range(request["steps"]):
        began_ns = time.perf_counter_ns()
        _step(run, request["kind"], number)
        times.append(time.perf_counter_ns() - began_ns)
    return times


@durable.workflow
def long(run: durable.Run, steps: int) -> int:
    """Do steps, and return the time at which the last one ended."""
    for number in range(steps):
        run.step(trivial, number)
    if _dies.is_set():
        os._exit(0)
    return time.monotonic_ns()


@durable.workflow
def waits(run: durable.Run, steps: int) -> None:
    """Do some steps, wait for a gate, and print the time at which the next step began."""
    for number in range(steps):
        run.step(trivial, number)
    run.gate("gate", payload={})
    run.step(_say_now)


@durable.workflow
def parked(run: durable.Run, _request: None) -> None:
    """Wait for a gate that nobody answers."""
    run.gate("never", payload={})


@durable.workflow
def short(run: durable.Run, number: int) -> int:
    """Do one step."""
    found = run.step(trivial, number)
    _runs["left"] -= 1
    if _runs["left"] == 0:
        _all_run.set()
    return int(found)


# --- the process ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunJob:
    """A job of the process."""

    kind: Literal["die", "replay", "wait", "idle", "work"]
    path: str
    size: int = 1
    """The number of steps, gates or runs."""
    seconds: float = 0.0
    concurrency: int = 1

    def line(self) -> str:
        """Return the job as a line of stdin."""
        return json.dumps(asdict(self))


def _die(job: RunJob) -> None:
    _dies.set()
    with statelog.open(job.path) as store:
        durable.run(store, long, job.size, id=ID)


def _replay(job: RunJob) -> None:
    """Report the time to finish a killed run, with and without the opening of the file."""
    began_ns = time.monotonic_ns()
    with statelog.open(job.path) as store:
        opened_ns = time.monotonic_ns()
        ended_ns = durable.run(store, long, job.size, id=ID).result()
    _say(json.dumps({"recovery": ended_ns - began_ns, "replay": ended_ns - opened_ns}))


def _wait(job: RunJob) -> None:
    with statelog.open(job.path) as store:
        for number in range(job.size):
            durable.run(store, waits, _BEFORE_GATE_STEPS, id=f"{ID} {number}", wait_s=_DEADLINE_S)


@contextmanager
def _working(store: Store, workflows: Sequence[Any], **options: Any) -> Iterator[None]:
    """Start an OS thread that works until the process ends."""
    work = threading.Thread(target=durable.run_worker, args=(store, workflows), kwargs=options, daemon=True)
    work.start()
    yield


def _idle(job: RunJob) -> None:
    """Print the costs of a worker whose runs all wait: its memory, the time to open the file, and its idle load."""
    began_ns = time.monotonic_ns()
    store = statelog.open(job.path)
    durable.resume_all(store, [parked])
    opening_ns = time.monotonic_ns() - began_ns
    with _working(store, [parked]):
        time.sleep(_BEFORE_IDLE_S)
        began_s, processor_began_s = time.monotonic(), time.process_time()
        time.sleep(job.seconds)
        idle = (time.process_time() - processor_began_s) / (time.monotonic() - began_s)
    _say(json.dumps({"memory_bytes": _memory_bytes(), "opening_ns": opening_ns, "idle": idle}))
    os._exit(0)


def _memory_bytes() -> int:
    """Return the private memory of this process, without pages of the file."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def _work(job: RunJob) -> None:
    """Print the time from opening the file until the last queued run has ended."""
    _runs["left"] = job.size
    began_ns = time.monotonic_ns()
    store = statelog.open(job.path)
    with _working(store, [short], queues={QUEUE: durable.Queue(concurrency=job.concurrency)}):
        assert _all_run.wait(_DEADLINE_S)
        for number in range(job.size):
            durable.start(store, short, number, id=f"run {number}", queue=QUEUE).result(timeout_s=_DEADLINE_S)
    _say(str(time.monotonic_ns() - began_ns))
    os._exit(0)


_WAYS = {"die": _die, "replay": _replay, "wait": _wait, "idle": _idle, "work": _work}


def main(_number: int) -> None:
    """Serve jobs until stdin ends."""
    for line in sys.stdin:
        job = RunJob(**json.loads(line))
        _WAYS[job.kind](job)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
