"""A host that adds to a number, while other hosts do the same. It reads a job from stdin, and then a line to begin."""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAME, THREAD, NUMBER = "shared", "counter", "n"
TABLE = "statelog_bench_counter"


@dataclass(frozen=True, slots=True)
class ShareJob:
    """Add 1 to a number several times, in each of several OS threads."""

    url: str
    cache: str
    count: int
    is_peer: bool
    threads: int = 1

    def line(self) -> str:
        """Return the job as a line."""
        return json.dumps(asdict(self))


def main(_number: int = 0) -> None:
    """Do jobs: report when ready, wait for a line, and print the times of the beginning and the end."""
    for line in sys.stdin:
        job = ShareJob(**json.loads(line))
        with (_counting_there if job.is_peer else _counting_here)(job) as add:
            _say("ready")
            sys.stdin.readline()
            began_ns = time.monotonic_ns()
            with ThreadPoolExecutor(job.threads) as agents:
                list(agents.map(partial(_add, add), [job.count] * job.threads))
            _say(json.dumps([began_ns, time.monotonic_ns()]))
            sys.stdin.readline()
        _say("closed")


def _add(add: Callable[[], object], count: int) -> None:
    for _ in range(count):
        add()


@contextmanager
def _counting_here(job: ShareJob) -> Iterator[Callable[[], object]]:
    from statelog import fleet, reducers

    with fleet.share(job.url, NAME, cache=job.cache) as store:  # type: ignore[attr-defined, unused-ignore]
        thread = store.thread(THREAD, schema={NUMBER: reducers.add})
        yield lambda: thread.commit({NUMBER: 1})


@contextmanager
def _counting_there(job: ShareJob) -> Iterator[Callable[[], object]]:
    import psycopg

    with psycopg.connect(job.url, autocommit=True) as connection:
        statement = f"UPDATE {TABLE} SET n = n + 1"
        yield lambda: connection.execute(statement)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
