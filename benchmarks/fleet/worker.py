"""A process that owns a store of a fleet until it is killed. It reads jobs from stdin, one line of JSON each."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING

from benchmarks.fleet.commits import SCHEMA
from benchmarks.fleet.texts import RANDOM, messages

if TYPE_CHECKING:
    from statelog.fleet import Fleet

NAME = "ticket"
TAKEN = 20
"""The number of items that are read from the end."""


@dataclass(frozen=True, slots=True)
class FleetJob:
    """One job.

    Attributes:
        kind: "build" writes messages. "read" takes over the store, reads the last messages, and then writes some again,
            so that the next process finds the same. "fetch" only fetches all objects that a restore needs, in parallel.
        url: the URL of the fleet.
        options: the options of the fleet's storage.
        cache: the cache folder of this machine.
        count: the number of messages to write.
        size_bytes: the size of the text in each message.
        single: the number of messages at the end that are shipped one by one.
        has_base: whether a base is made before these messages.
    """

    kind: str
    url: str
    options: dict[str, str]
    cache: str
    count: int = 0
    size_bytes: int = 0
    single: int = 0
    has_base: bool = False

    def line(self) -> str:
        """Return the job as a line."""
        return json.dumps(asdict(self))


def main(_number: int = 0) -> None:
    """Do jobs, and print the nanoseconds and the results of each."""
    from statelog.fleet import connect

    for line in sys.stdin:
        job = FleetJob(**json.loads(line))
        began_ns = time.perf_counter_ns()
        fleet = connect(job.url, cache=job.cache, **job.options)
        connected_ns = time.perf_counter_ns() - began_ns
        told = {"build": _build, "read": _read, "fetch": _fetch}[job.kind](fleet, job)
        sys.stdout.write(json.dumps({**told, "connected_ns": connected_ns}) + "\n")
        sys.stdout.flush()


_OPEN: list[object] = []
"""The stores that stay open until the process dies."""


def _build(fleet: Fleet, job: FleetJob) -> dict[str, int]:
    began_ns = time.perf_counter_ns()
    texts = messages(RANDOM, job.size_bytes)
    store = fleet.open(NAME, lag_max_bytes=1 << 40, lag_max_s=1e6)
    _OPEN.append(store)
    thread = store.thread("chat", schema=SCHEMA)
    for _ in range(job.count - job.single):
        thread.commit({"messages": [next(texts)]})
    store.remote.wait()
    if job.has_base:
        store.remote.base()
    for _ in range(job.single):
        thread.commit({"messages": [next(texts)]}, durable="remote")
    return {"took_ns": time.perf_counter_ns() - began_ns, "file_bytes": fleet.path(NAME).stat().st_size}


def _read(fleet: Fleet, job: FleetJob) -> dict[str, int]:
    began_ns = time.perf_counter_ns()
    store = fleet.open(NAME, takeover="now")
    thread = store.thread("chat", schema=SCHEMA)
    found = [dict(each) for each in thread.state["messages"][-TAKEN:]]
    took_ns = time.perf_counter_ns() - began_ns
    _OPEN.append(store)
    assert len(found) == TAKEN
    last = int(found[-1]["id"][1:])
    for message in islice(messages(RANDOM, job.size_bytes), job.single):
        thread.commit({"messages": [{**message, "id": f"m{last}"}]}, durable="remote")
    return {"took_ns": took_ns, "last": last}


def _fetch(fleet: Fleet, job: FleetJob) -> dict[str, int]:
    from statelog.fleet import bases, names
    from statelog.fleet.requests import Performer
    from statelog.fleet.restores import head_to_read, segments_of
    from statelog.fleet.storage_urls import open_archive

    fleet.close()
    archive = open_archive(job.url, **job.options)
    performer = Performer(archive, names.folder(NAME))
    head = head_to_read(performer)
    assert head is not None
    wanted = segments_of(head)
    if head.base is not None:
        [data] = performer.read_all([bases.list_name(head.base)])
        wanted += [piece.name for piece in bases.decode("list", data).pieces]
    began_ns = time.perf_counter_ns()
    size_bytes = sum(len(data) for data in performer.read_all(wanted))
    return {"took_ns": time.perf_counter_ns() - began_ns, "bytes": size_bytes, "objects": len(wanted)}
