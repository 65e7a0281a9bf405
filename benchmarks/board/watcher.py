"""A process that watches a board.

It reads jobs from stdin, one line of JSON each, and reports when it watches. Its further output depends on the kind of
the job. The job `pipe` waits for bytes on stdin instead, for comparison with a watcher.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

import statelog

if TYPE_CHECKING:
    from statelog.store.store import Store


@dataclass(frozen=True, slots=True)
class WatchJob:
    """A job of the process."""

    kind: Literal["tell", "idle", "beside", "pipe"]
    path: str = ""
    pattern: str = ""
    count: int = 0
    """For `tell` and `pipe`, the number of events. The process prints the time of each. For `beside`, the number of OS
    threads. In the pattern of each, its number replaces `{thread}`."""
    duration_s: float = 0.0
    """For `idle`, the duration. The process then prints the share of a processor that it has used."""

    def line(self) -> str:
        """Return the job as a line of stdin."""
        return json.dumps(asdict(self))


def _tell(job: WatchJob, store: Store) -> None:
    events = store.board().watch(job.pattern, follow=True)
    _say("there")
    for _, _event in zip(range(job.count), events, strict=False):
        _say(str(time.monotonic_ns()))


def _idle(job: WatchJob, store: Store) -> None:
    events = store.board().watch(job.pattern, follow=True, timeout_s=job.duration_s)
    _say("there")
    began_s, processor_began_s = time.monotonic(), time.process_time()
    for _event in events:
        pass
    _say(str((time.process_time() - processor_began_s) / (time.monotonic() - began_s)))


def _watch_for_ever(store: Store, pattern: str) -> None:
    for _event in store.board().watch(pattern, follow=True):
        pass


def _beside(job: WatchJob, store: Store) -> None:
    for number in range(job.count):
        pattern = job.pattern.format(thread=number)
        threading.Thread(target=_watch_for_ever, args=(store, pattern), daemon=True).start()
    _say("there")
    sys.stdin.readline()


def _pipe(job: WatchJob) -> None:
    _say("there")
    for _ in range(job.count):
        os.read(sys.stdin.fileno(), 1)
        _say(str(time.monotonic_ns()))


_WAYS = {"tell": _tell, "idle": _idle, "beside": _beside}


def main(_number: int) -> None:
    """Serve jobs until stdin ends."""
    for line in sys.stdin:
        job = WatchJob(**json.loads(line))
        if job.kind == "pipe":
            _pipe(job)
        else:
            with statelog.open(job.path) as store:
                _WAYS[job.kind](job, store)
        _say("done")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
