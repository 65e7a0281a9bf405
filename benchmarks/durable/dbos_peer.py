"""A script that measures DBOS for the rows of the table. It is run by the Python of DBOS's own virtual environment.

It imports nothing of statelog, and prints one JSON object for `peer.py`. DBOS runs on SQLite with its default settings,
except where the milliseconds between two polls are given. It opens no socket, because it connects to its conductor only
with a key.

A part that needs its own process, because it is killed or waits, is this script again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from dbos import DBOS, DBOSClient, DBOSConfig, SetWorkflowID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Arguments = argparse.Namespace
    Found = dict[str, Any]

_ID, _TOPIC, _QUEUE = "long", "talk", "runs"
_CONCURRENCY = 8
_POLL_S = 0.01
"""The time between our polls for the end of a workflow. DBOS itself polls every second."""

_BETWEEN_POLLS_MS = 10
_PAUSE_S, _PAUSE_SHIPPED_S = (0.05, 0.10), (0.5, 1.5)
"""The bounds of the random pause before a message is sent, so that it arrives at any moment between two polls."""

_MESSAGES_SHIPPED_MAX = 20
_BEFORE_IDLE_S = 0.5
_DEADLINE_S = 600.0

# --- workflows ------------------------------------------------------------------

_dies = threading.Event()
"""If set, the long workflow ends its process when all its steps are recorded."""

_begun_ns: list[int] = []
_ended_ns: list[int] = []
_all_run = threading.Event()
_runs = {"left": 0}


@DBOS.step()
def trivial(number: int) -> int:
    """Do next to nothing."""
    return number


@DBOS.step()
def now() -> int:
    """Return the time at which this step began."""
    return time.monotonic_ns()


@DBOS.workflow()
def timed(steps: int) -> list[int]:
    """Return the time that each step took."""
    times = []
    for number in range(steps):
        began_ns = time.perf_counter_ns()
        trivial(number)
        times.append(time.perf_counter_ns() - began_ns)
    return times


@DBOS.workflow()
def long(steps: int) -> int:
    """Do steps, and record when the workflow began and ended in this process."""
    _begun_ns.append(time.monotonic_ns())
    total = sum(trivial(number) for number in range(steps))
    if _dies.is_set():
        os._exit(0)
    _ended_ns.append(time.monotonic_ns())
    return total


@DBOS.workflow()
def listen(messages: int) -> None:
    """Repeatedly say "waiting", receive a message, and print the time at which the next step began."""
    for _ in range(messages):
        _say("waiting")
        assert DBOS.recv(_TOPIC, timeout_seconds=_DEADLINE_S) is not None
        _say(str(now()))


@DBOS.workflow()
def short(number: int) -> int:
    """Do one step."""
    found = trivial(number)
    _runs["left"] -= 1
    if _runs["left"] == 0:
        _all_run.set()
    return found


# --- processes ------------------------------------------------------------------


def _url(path: Path) -> str:
    return f"sqlite:///{path}"


def _launch(path: Path, polling_ms: int = 0, *, works: bool = True) -> None:
    """Launch DBOS on a file. DBOS recovers pending workflows and, with `works`, runs queued ones."""
    config: DBOSConfig = {"name": "bench", "system_database_url": _url(path)}
    if polling_ms:
        config["notification_listener_polling_interval_sec"] = polling_ms / 1000
    DBOS(config=config)
    if not works:
        DBOS.listen_queues([])
    DBOS.launch()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _hear(stream: IO[str] | None) -> str:
    assert stream is not None
    line = stream.readline()
    assert line, "a part has ended early"
    return line.strip()


def _command(part: str, path: Path, *, size: int, polling_ms: int = 0, seconds: float = 0.0) -> list[str]:
    numbers = "--size", str(size), "--polling-ms", str(polling_ms), "--seconds", str(seconds)
    return [sys.executable, "-I", __file__, part, str(path), *numbers]


def _run_part(part: str, path: Path, *, size: int) -> str:
    """Run a part to its end, and return the last line of its output."""
    command = _command(part, path, size=size)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip().rpartition("\n")[2]


@contextmanager
def _started(part: str, path: Path, *, size: int, polling_ms: int, seconds: float = 0.0) -> Iterator[IO[str] | None]:
    """Start a part, yield its output, and end it."""
    command = _command(part, path, size=size, polling_ms=polling_ms, seconds=seconds)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout
        finally:
            process.kill()


# --- rows -----------------------------------------------------------------------


def measure_steps(given: Arguments) -> Found:
    """Measure the time of each of `size` recorded steps."""
    _launch(given.path / "step.sqlite")
    timed(given.size)  # Warm up.
    return {"times_ns": {"step": [each for _ in range(given.repeats) for each in timed(given.size)]}}


def measure_replay(given: Arguments) -> Found:
    """Measure the recovery of a workflow whose process has died, each time in a new process."""
    killed = given.path / "killed.sqlite"
    _run_part("part-die", killed, size=given.size)
    whole, alone = [], []
    for number in range(given.repeats):
        path = given.path / f"recovered {number}.sqlite"
        _copy(killed, path)
        found = json.loads(_run_part("part-recover", path, size=given.size))
        whole.append(found["whole_ns"])
        alone.append(found["alone_ns"])
    return {"times_ns": {"recovery": whole, "replay": alone}}


def _copy(path: Path, to: Path) -> None:
    """Copy a database with the WAL that a dead process may have left."""
    for suffix in ("", "-journal", "-wal"):
        if Path(f"{path}{suffix}").exists():
            shutil.copyfile(f"{path}{suffix}", f"{to}{suffix}")


def _die(given: Arguments) -> None:
    _dies.set()
    _launch(given.path)
    with SetWorkflowID(_ID):
        long(given.size)


def _recover(given: Arguments) -> None:
    began_ns = time.monotonic_ns()
    _launch(given.path)
    assert DBOS.retrieve_workflow(_ID).get_result(polling_interval_sec=_POLL_S) == sum(range(given.size))
    _say(json.dumps({"whole_ns": _ended_ns[-1] - began_ns, "alone_ns": _ended_ns[-1] - _begun_ns[-1]}))
    os._exit(0)


def measure_fork(given: Arguments) -> Found:
    """Measure forks at the last step. Each has ended before the next one begins."""
    _launch(given.path / "fork.sqlite")
    with SetWorkflowID(_ID):
        long(given.size)
    times = []
    for _ in range(given.repeats):
        began_ns = time.perf_counter_ns()
        fork = DBOS.fork_workflow(_ID, given.size)
        times.append(time.perf_counter_ns() - began_ns)
        assert fork.get_result(polling_interval_sec=_POLL_S) == sum(range(given.size))
    return {"times_ns": {"fork": times}}


def measure_send(given: Arguments) -> Found:
    """Measure the time from before a message is sent until the next step begins in a process that waits for it."""
    shipped = min(given.size, _MESSAGES_SHIPPED_MAX)
    return {
        "times_ns": {
            "shipped": _sent(given, messages=shipped, polling_ms=0),
            "polling": _sent(given, messages=given.size, polling_ms=_BETWEEN_POLLS_MS),
        },
        "figures": {
            "idle_shipped": _idle(given, polling_ms=0),
            "idle_polling": _idle(given, polling_ms=_BETWEEN_POLLS_MS),
        },
    }


def _sent(given: Arguments, *, messages: int, polling_ms: int) -> list[int]:
    path, times = given.path / f"sent {polling_ms}.sqlite", []
    moments = random.Random(1)
    with _started("part-listen", path, size=messages, polling_ms=polling_ms) as heard:
        assert _hear(heard) == "waiting"
        client = DBOSClient(system_database_url=_url(path))
        for number in range(messages):
            time.sleep(moments.uniform(*(_PAUSE_S if polling_ms else _PAUSE_SHIPPED_S)))
            began_ns = time.monotonic_ns()
            client.send(_ID, number, topic=_TOPIC)
            times.append(int(_hear(heard)) - began_ns)
            if number < messages - 1:
                assert _hear(heard) == "waiting"
        client.destroy()
    return times


def _listen(given: Arguments) -> None:
    _launch(given.path, given.polling_ms)
    with SetWorkflowID(_ID):
        listen(given.size)


def _idle(given: Arguments, *, polling_ms: int) -> float:
    path = given.path / f"idle {polling_ms}.sqlite"
    with _started("part-idle", path, size=1, polling_ms=polling_ms, seconds=given.seconds) as heard:
        assert _hear(heard) == "waiting"
        return float(_hear(heard))


def _wait_idle(given: Arguments) -> None:
    """Report the share of a core that is used while a workflow waits for a message that never comes."""
    _launch(given.path, given.polling_ms)
    DBOS.start_workflow(listen, 1)
    time.sleep(_BEFORE_IDLE_S)
    began_s, processor_began_s = time.monotonic(), time.process_time()
    time.sleep(given.seconds)
    _say(str((time.process_time() - processor_began_s) / (time.monotonic() - began_s)))
    os._exit(0)


def measure_queue(given: Arguments) -> Found:
    """Measure one worker on queued runs, from its launch to the end of the last run."""
    times = []
    for number in range(given.repeats):
        path = given.path / f"queue {number}.sqlite"
        _run_part("part-enqueue", path, size=given.size)
        times.append(int(_run_part("part-work", path, size=given.size)))
    return {"times_ns": {"queue": times}}


def _enqueue(given: Arguments) -> None:
    """Put runs into a queue."""
    _launch(given.path, works=False)
    DBOS.register_queue(_QUEUE, worker_concurrency=_CONCURRENCY)
    client = DBOSClient(system_database_url=_url(given.path))
    for number in range(given.size):
        client.enqueue({"queue_name": _QUEUE, "workflow_name": short.__qualname__}, number)
    os._exit(0)


def _work(given: Arguments) -> None:
    _runs["left"] = given.size
    began_ns = time.monotonic_ns()
    _launch(given.path)
    assert _all_run.wait(_DEADLINE_S)
    while DBOS.list_workflows(queue_name=_QUEUE, status=["ENQUEUED", "PENDING"]):
        time.sleep(_POLL_S)
    _say(str(time.monotonic_ns() - began_ns))
    os._exit(0)


_ROWS: dict[str, Callable[[Arguments], Found]] = {
    "step": measure_steps,
    "replay": measure_replay,
    "fork": measure_fork,
    "send": measure_send,
    "queue": measure_queue,
}
_PARTS: dict[str, Callable[[Arguments], None]] = {
    "part-die": _die,
    "part-recover": _recover,
    "part-listen": _listen,
    "part-idle": _wait_idle,
    "part-enqueue": _enqueue,
    "part-work": _work,
}


def main() -> None:
    """Measure a row in a folder, or run a part of a row with a file."""
    parser = argparse.ArgumentParser(description="Measure DBOS on SQLite; print JSON.")
    parser.add_argument("row", choices=[*_ROWS, *_PARTS])
    parser.add_argument("path", type=Path, help="a folder for files")
    parser.add_argument("--size", type=int, required=True, help="steps, messages or runs")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0, help="to watch a process that waits")
    parser.add_argument("--polling-ms", type=int, default=0, help="between two polls; 0: as shipped")
    given = parser.parse_args()
    if given.row in _PARTS:
        _PARTS[given.row](given)
        return
    found = _ROWS[given.row](given)
    _say(json.dumps({"row": given.row, "dbos": version("dbos"), "sqlite": sqlite3.sqlite_version, **found}))
    os._exit(0)  # Do not wait for DBOS's threads, which poll.


if __name__ == "__main__":
    main()
