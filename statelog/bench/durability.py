"""One flush, or none: commits beside SQLite with the same guarantee, and what the journal asks in return."""

from __future__ import annotations

import itertools
import operator
import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from statelog.bench import sqlite_peer
from statelog.bench.aftermath import measure_burst, measure_recovery
from statelog.bench.committers import joined, measure_sixteen
from statelog.bench.corpus import Corpus
from statelog.bench.least import LEAST, least
from statelog.bench.measure import Samples, interleave
from statelog.bench.result import Result, at_least, at_most
from statelog.bench.stores import Opened, opened
from statelog.bench.workload import Bench, Workload
from statelog.storage.journal.journal import encode_group

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from statelog.bench.measure import Operation

_MESSAGE_BYTES = 300
_COMMITS_PER_REPEAT = 100
_COMMITS_PER_ROUND = 2000
"""In `interval`, before the other side has its turn: enough for some steady snapshots, and for SQLite's checkpoints."""

_PREALLOCATED_BYTES = 8 * 1024 * 1024
_OURS, _RAW, _THEIRS = "commit", "pwrite + fdatasync", f"{sqlite_peer.NAME} {sqlite_peer.FULL}"


def _measure(bench: Bench) -> Result:
    parts = (
        _measure_commit(bench),
        measure_sixteen(bench, target=5.0),
        _measure_interval(bench),
        measure_recovery(bench),
        measure_burst(bench),
    )
    return Result(
        checks=tuple(check for part in parts for check in part.checks),
        sides=tuple(side for part in parts for side in part.sides),
        notes=tuple(note for part in parts for note in part.notes),
    )


# --- a flush --------------------------------------------------------------------


@contextmanager
def _appended(path: Path, data: bytes) -> Iterator[Operation]:
    """Yield an append to a file preallocated with zeros, and its flush: what the journal's should cost."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    places = itertools.cycle(range(0, _PREALLOCATED_BYTES - len(data), len(data)))

    def operation() -> None:
        os.pwrite(descriptor, data, next(places))
        os.fdatasync(descriptor)

    try:
        os.pwrite(descriptor, bytes(_PREALLOCATED_BYTES), 0)
        os.fsync(descriptor)
        yield operation
    finally:
        os.close(descriptor)


def _journaled(store: Opened) -> bytes:
    """Return what the journal got of the last commit."""
    with store.engine.read() as view:
        record = view.transaction.get_log(store.last_lsn)
        assert record is not None
        return encode_group(bytes(16), 1, store.last_lsn, [bytes(record)], flushed=0)


def _measure_commit(bench: Bench) -> Result:
    count = bench.repeats * _COMMITS_PER_REPEAT
    messages = Corpus().endless(_MESSAGE_BYTES, ahead=2 * count)
    path = bench.directory / "commit.state"
    with opened(path) as store, sqlite_peer.connected(bench.directory / "commit.sqlite") as peer:
        thread = store.thread("agent", schema={"messages": operator.add})
        thread.commit({"messages": [next(messages)]})
        data = _journaled(store)
        with _appended(bench.directory / "raw", data) as append, least(bench.directory, data, is_flushed=True) as bare:
            samples = interleave(
                {
                    _OURS: lambda: thread.commit({"messages": [next(messages)]}),
                    LEAST: bare,
                    _RAW: append,
                    _THEIRS: lambda: peer.append(next(messages)),
                },
                count=count,
            )
    left = [each.name for each in bench.directory.iterdir() if each.name.startswith(path.name)]
    ours, _least, raw, theirs = samples.values()
    return Result(
        checks=(
            at_most(f"median commit, of {_THEIRS}'s", ours.p50_us / theirs.p50_us, 0.95),
            at_most(f"the same, of {_RAW}", ours.p50_us / raw.p50_us, 1.35),
            at_most("files beside LMDB's lock file, once closed", len(left) - 1, 1, "files"),
        ),
        sides=tuple(taken.side(name) for name, taken in samples.items()),
        notes=(
            (
                f"one committer; each commit appends a message with {_MESSAGE_BYTES} bytes of text; {_RAW}: the same"
                f" {len(data)} bytes as the journal gets, into a file of zeros"
            ),
        ),
    )


# --- none -----------------------------------------------------------------------

_WRITES = ("an int", f"{_MESSAGE_BYTES} B")
_PROCESSOR_US_MAX = 35.0
_OF_NORMAL_MIN = 2.5


def _commits_per_round(bench: Bench) -> int:
    return bench.size(_COMMITS_PER_ROUND, at_least=50)


@contextmanager
def _unflushed(bench: Bench) -> Iterator[dict[str, tuple[Operation, Operation]]]:
    """Yield for each kind of write statelog's commit in `interval`, and SQLite's."""
    messages = Corpus().endless(_MESSAGE_BYTES, ahead=2 * bench.repeats * _commits_per_round(bench))
    numbers = itertools.count()
    with ExitStack() as stack:
        stores = [
            stack.enter_context(opened(bench.directory / f"{number}.state", durability="interval"))
            for number in range(len(_WRITES))
        ]
        peers = [
            stack.enter_context(
                sqlite_peer.connected(bench.directory / f"{number}.sqlite", synchronous=sqlite_peer.NORMAL)
            )
            for number in range(len(_WRITES))
        ]
        small = stores[0].thread("agent")
        growing = stores[1].thread("agent", schema={"messages": operator.add})
        yield dict(
            zip(
                _WRITES,
                (
                    (lambda: small.commit({"step": next(numbers)}), lambda: peers[0].write("step", next(numbers))),
                    (
                        lambda: growing.commit({"messages": [next(messages)]}),
                        lambda: peers[1].append(next(messages)),
                    ),
                ),
                strict=True,
            )
        )


def _measure_interval(bench: Bench) -> Result:
    checks, sides = [], []
    count = _commits_per_round(bench)
    theirs_name = f"{sqlite_peer.NAME} {sqlite_peer.NORMAL}"
    with _unflushed(bench) as writes:
        for write, (commit, commit_to_peer) in writes.items():
            rounds: dict[str, list[Samples]] = {}
            commit()
            commit_to_peer()
            for _ in range(bench.repeats):
                for name, operation in (("interval", commit), (theirs_name, commit_to_peer)):
                    taken = Samples()
                    taken.take(operation, count)
                    rounds.setdefault(name, []).append(taken)
            ours, theirs = (joined(f"{name}, {write}", taken) for name, taken in rounds.items())
            sides += [ours, theirs]
            checks.append(
                at_least(
                    f"interval, {write}: rate, of {theirs_name}'s",
                    ours.per_second / theirs.per_second,
                    _OF_NORMAL_MIN,
                )
            )
            if write == _WRITES[0]:
                assert ours.processor_p50_us is not None
                checks.append(
                    at_most("the same: median on the processor", ours.processor_p50_us, _PROCESSOR_US_MAX, "us")
                )
    with least(bench.directory, bytes(_MESSAGE_BYTES), is_flushed=False) as bare:
        taken = Samples()
        taken.take(bare, count)
        sides.append(joined(f"{LEAST}, not flushed", [taken]))
    note = f"interval: {bench.repeats} rounds of {count} commits each; the rate is that of the median round"
    return Result(checks=tuple(checks), sides=tuple(sides), notes=(note,))


DURABILITY = Workload(
    "durability",
    "Durable commits, beside SQLite with the same guarantee",
    f"commit ({sqlite_peer.NAME}: WAL, synchronous={sqlite_peer.FULL}) and interval"
    f" ({sqlite_peer.NAME}: synchronous={sqlite_peer.NORMAL})",
    _measure,
)
