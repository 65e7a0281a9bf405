"""A process that commits beside others.

It takes jobs from stdin, a line of JSON each. It says so once its store is open and has a commit, waits for a line,
commits until the time is over, and prints its times. After one more line, when all others have stopped, it closes.
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
from statelog.bench import sqlite_peer
from statelog.bench.corpus import Corpus
from statelog.bench.measure import Samples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog.bench.measure import Operation
    from statelog.storage.options import Durability

MESSAGE_BYTES = 300


@dataclass(frozen=True, slots=True)
class Job:
    """Commit messages to a file until the time is over, and once at least."""

    path: str
    durability: Durability
    is_peer: bool
    """SQLite, with the guarantee that `durability` gives."""
    duration_s: float
    pause_s: float
    """Between two commits."""


@contextmanager
def _appending(job: Job, number: int) -> Iterator[Operation]:
    """Yield the append of a message, to a thread of this process alone."""
    messages = Corpus(number).endless(MESSAGE_BYTES)
    if job.is_peer:
        synchronous = sqlite_peer.FULL if job.durability == "commit" else sqlite_peer.NORMAL
        with sqlite_peer.connected(Path(job.path), f"agent {number}", synchronous=synchronous) as peer:
            yield lambda: peer.append(next(messages))
        return
    with statelog.open(job.path, durability=job.durability) as store:
        thread = store.thread(f"agent {number}", schema={"messages": operator.add})
        yield lambda: thread.commit({"messages": [next(messages)]})


def _commit(job: Job, operation: Operation) -> Samples:
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
        job = Job(**json.loads(line))
        with _appending(job, number) as operation:
            operation()  # what a process does once is done
            _say("there")
            sys.stdin.readline()
            _say(json.dumps(asdict(_commit(job, operation))))
            sys.stdin.readline()
        _say("closed")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
