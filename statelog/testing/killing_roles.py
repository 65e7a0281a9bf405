"""The roles of the processes of `kills`. Each process reports its actions on stdout, one per line.

w K LSN     the writer committed its version K
r N         the reader has read N times
k N         the keeper has removed N versions
! WORDS     a fault was found
"""

from __future__ import annotations

import os
import random
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import statelog
from statelog import reducers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog.store.checkpoint import Checkpoint
    from statelog.store.store import Store
    from statelog.store.thread import Thread

SCHEMA = {
    "n": reducers.replace,
    "twice": reducers.replace,
    "sum": reducers.add,
    "recent": reducers.merge,
}
PAIR_KEEPS = 20
_PAUSE_S_MAX = 0.004
_READS_PER_LINE = 50
_TOGETHER_OF = 5
"""One commit in this many also writes to the writer's second thread, in the same transaction."""


def thread_of(number: int) -> str:
    """Return the id of the writer's first thread, which keeps all versions."""
    return f"writer {number}"


def pair_of(number: int) -> str:
    """Return the id of the writer's second thread, from which the keeper removes old versions."""
    return f"pair {number}"


def write_of(n: int) -> dict[str, object]:
    """Return the update that a writer commits as version `n`."""
    return {"n": n, "twice": 2 * n, "sum": 1, "recent": {f"k{n % 10}": f"{n}" * (n % 50)}}


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def _write(store: Store, number: int, *, acknowledges_early: bool = False) -> None:
    """Commit forever. Version n contains n, so that every commit is identified."""
    generator = random.Random()  # noqa: S311 - each run should differ, but the numbers are not secrets
    thread = store.thread(thread_of(number), schema=SCHEMA)
    while True:
        n = thread.version + 1
        if acknowledges_early:
            _say(f"w {n} 0")
            time.sleep(_PAUSE_S_MAX)
        if n % _TOGETHER_OF:
            made = _commit(thread, number, n)
        else:
            with store.transaction() as together:
                together.thread(pair_of(number), schema=SCHEMA).commit(write_of(n))
                _commit(together.thread(thread_of(number), schema=SCHEMA), number, n)
            made = thread.at(n)
        if not acknowledges_early:
            _say(f"w {n} {made.lsn}")
        time.sleep(generator.random() * _PAUSE_S_MAX)


def _commit(thread: Thread, number: int, n: int) -> Checkpoint:
    return thread.commit(write_of(n), metadata={"n": n}, id=f"{number}-{n}", expected_version=n - 1)


def _read(store: Store, writers: int) -> None:
    """Check forever that each head is a whole commit and never goes back, and that the log is whole and in order."""
    seen: dict[str, int] = {}
    after, count = max(store.last_lsn - 100, 0), 0
    while True:
        for number in range(writers):
            for name in (thread_of(number), pair_of(number)):
                _look_at_head(store, name, seen)
        after = _look_at_log(store, after)
        count += 1
        if count % _READS_PER_LINE == 0:
            _say(f"r {_READS_PER_LINE}")


def _look_at_head(store: Store, name: str, seen: dict[str, int]) -> None:
    head = store.thread(name).head
    if head is None:
        if name in seen:
            _say(f"! {name}: its versions are gone")
        return
    state = head.state
    n = state["n"]
    if (
        state["twice"] != 2 * n
        or state["sum"] != head.version + 1
        or state["recent"][f"k{n % 10}"] != f"{n}" * (n % 50)
    ):
        _say(f"! {name}, version {head.version}: half a commit: {state}")
    if head.version < seen.get(name, -1):
        _say(f"! {name}: back to version {head.version} from {seen[name]}")
    seen[name] = head.version


def _look_at_log(store: Store, after: int) -> int:
    last = None
    for record in store.log(after):
        if record.lsn != after + 1:
            _say(f"! record {record.lsn} follows record {after}")
        if last is not None and record.previous_digest != last.digest:
            _say(f"! record {record.lsn} does not continue the chain")
        after, last = record.lsn, record
    if last is not None and last.continues:
        _say(f"! the log ends with record {last.lsn}, within a transaction")
    return after


def _keep(store: Store) -> Iterator[int]:
    """Remove old versions of the second threads, forever."""
    while True:
        yield store.prune(keep_last=PAIR_KEEPS, threads="pair *").expired_versions
        time.sleep(0.1)


def main(role: str, path: Path, number: int) -> None:
    """Play a role.

    Args:
        role: "writer", "reader", "keeper", or "early writer", which acknowledges a commit before doing it.
        path: the path of the store.
        number: for a writer, its number; for a reader, the number of writers.
    """
    with statelog.open(path) as store:
        if role in {"writer", "early writer"}:
            _write(store, number, acknowledges_early=role == "early writer")
        elif role == "reader":
            _read(store, number)
        else:
            for expired in _keep(store):
                _say(f"k {expired}")


def run(arguments: list[str]) -> None:
    """Play the role that the command line names, and report any exception."""
    role, path, number = arguments
    try:
        main(role, Path(path), int(number))
    except Exception:  # noqa: BLE001 - any error is reported as a fault
        words = traceback.format_exc().strip().replace("\n", " | ")
        _say(f"! {role} {number}: {words[-1500:]}")
        sys.exit(1)
