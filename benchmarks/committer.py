"""A process that commits while other processes do.

It reads jobs from stdin, one line of JSON each. It reports when its store is open and has a commit, waits for a line,
commits until the time is over, and prints its times. After another line, when all processes have stopped, it closes.
"""

from __future__ import annotations

import json
import operator
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import statelog
from benchmarks import sqlite_peer
from benchmarks.corpus import Corpus
from benchmarks.measure import Samples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measure import Operation
    from statelog.storage.options import Durability

MESSAGE_BYTES = 300


@dataclass(frozen=True, slots=True)
class CommitJob:
    """A job: commit messages to a file until the time is over, and at least once."""

    path: str
    durability: Durability
    is_peer: bool
    """Use SQLite, with the guarantee of `durability`."""
    duration_s: float
    pause_s: float
    """The pause between two commits."""


@contextmanager
def _appending(job: CommitJob, number: int) -> Iterator[Operation]:
    """Yield a function that appends a message to a thread that only this process uses."""
    messages = Corpus(number).endless(MESSAGE_BYTES)
    if job.is_peer:
        synchronous = sqlite_peer.FULL if job.durability == "commit" else sqlite_peer.NORMAL
        with sqlite_peer.connected(Path(job.path), f"agent {number}", synchronous=synchronous) as peer:
            yield lambda: peer.append(next(messages))
        return
    with statelog.open(job.path, durability=job.durability) as store:
        thread = store.thread(f"agent {number}", schema={"messages": operator.add})
        yield lambda: thread.commit({"messages": [next(messages)]})


def _commit(job: CommitJob, operation: Operation) -> Samples:
    samples = Samples()
    began_s = time.monotonic()
    while not samples.durations_ns or time.monotonic() < began_s + job.duration_s:
        samples.time(operation)
        if job.pause_s:
            time.sleep(job.pause_s)
    samples.elapsed_ns = int((time.monotonic() - began_s) * 1e9)
    return samples


def main(number: int) -> None:
    """Serve jobs until stdin ends."""
    for line in sys.stdin:
        job = CommitJob(**json.loads(line))
        with _appending(job, number) as operation:
            operation()  # Warm up.
            _say("there")
            sys.stdin.readline()
            _say(json.dumps(asdict(_commit(job, operation))))
            sys.stdin.readline()
        _say("closed")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
