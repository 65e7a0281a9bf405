"""Compares several processes that commit to one file with SQLite, in a loop and with pauses."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import TYPE_CHECKING

import statelog
from benchmarks import sqlite_peer
from benchmarks.children import ask, started
from benchmarks.committer import MESSAGE_BYTES, CommitJob
from benchmarks.committers import joined
from benchmarks.measure import Samples, percentile
from benchmarks.result import Result, Side, TargetCheck, at_least, at_most
from benchmarks.stores import opened
from benchmarks.workload import Bench, BenchWorkload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks.children import ChildProcess
    from statelog.storage.options import Durability

_COUNTS = (1, 2, 4, 8)
_DURABILITIES: tuple[Durability, ...] = ("commit", "interval")
_PAUSE_S = 0.01
_DURATION_S = 2.0
_DURATION_S_MIN = 0.02
_ROUNDS_MAX = 3

_RATE_MIN = 1.0
_LONGEST_MAX = 0.1
_SHARE_MIN = 0.7
_PAUSED_MAX = 1.2
_INTERVAL_RATE_MIN = 0.4
_BEYOND_MB_MAX = 32.0
_OPENINGS = 40
_OPENING_MAX = 2.0


@dataclass(frozen=True, slots=True)
class _ProcessCase:
    """A number of processes, and their work."""

    count: int
    durability: Durability
    pause_s: float

    def __str__(self) -> str:
        how = f"{self.pause_s * 1000:g} ms between commits" if self.pause_s else "in a loop"
        return f"{self.durability}, {how}, {self.count} process{'es' if self.count > 1 else ''}"


@dataclass(slots=True)
class _ProcessTimes:
    """The results of one side."""

    rounds: list[Samples] = field(default_factory=list)
    """For each round, the times of all processes together."""
    least_share: float = 1.0
    """The lowest number of commits of a process relative to a fair share. 1 is fair."""

    beyond_mb: float = 0.0
    """The size of the unused part at the end of the file, in MB."""

    def add(self, processes: Sequence[Samples]) -> None:
        """Add a round: the times of each process."""
        whole = Samples(handed_bytes=None, dirtied_bytes=None)
        for taken in processes:
            whole.durations_ns += taken.durations_ns
            whole.processor_ns += taken.processor_ns
            whole.elapsed_ns = max(whole.elapsed_ns, taken.elapsed_ns)
        self.rounds.append(whole)
        least = min(len(taken.durations_ns) for taken in processes)
        self.least_share = min(self.least_share, least * len(processes) / len(whole.durations_ns))

    def percentile_ns(self, percent: float) -> float:
        """Return a percentile of all commits; 100 is the longest wait."""
        return percentile([each for taken in self.rounds for each in taken.durations_ns], percent)


def _measure(bench: Bench) -> Result:
    checks: list[TargetCheck] = []
    sides: list[Side] = []
    notes = [
        f"each process appends messages with {MESSAGE_BYTES} bytes of text to a thread of its own; read the ratios"
    ]
    with started("benchmarks.committer", max(_COUNTS)) as processes:
        for durability, pause_s, count in product(_DURABILITIES, (0.0, _PAUSE_S), _COUNTS):
            case = _ProcessCase(count, durability, pause_s)
            ours, theirs = _compare(bench, case, processes[:count])
            our_side = joined(f"statelog, {case}", ours.rounds)
            their_side = joined(f"{sqlite_peer.NAME}, {case}", theirs.rounds)
            sides += [our_side, their_side]
            rate = our_side.per_second / their_side.per_second
            notes.append(_told(case, rate, ours, theirs))
            checks += _checks(case, rate, ours, theirs)
        opening = _measure_opening(bench, processes[:2])
    checks += opening.checks
    sides += opening.sides
    return Result(checks=tuple(checks), sides=tuple(sides), notes=tuple(notes))


def _ratio(ours: _ProcessTimes, theirs: _ProcessTimes, percent: float) -> float:
    return ours.percentile_ns(percent) / theirs.percentile_ns(percent)


def _checks(case: _ProcessCase, rate: float, ours: _ProcessTimes, theirs: _ProcessTimes) -> Iterator[TargetCheck]:
    """Yield the checks of a case, which may have none."""
    of = f"relative to {sqlite_peer.NAME}'s"
    if case.durability == "interval":
        if not case.pause_s:
            yield at_least(f"{case}: commits a second, {of}", rate, _INTERVAL_RATE_MIN)
    elif case.pause_s and case.count >= 4:
        yield at_most(f"{case}: median, {of}", _ratio(ours, theirs, 50), _PAUSED_MAX)
        yield at_most(f"{case}: p99, {of}", _ratio(ours, theirs, 99), _PAUSED_MAX)
    elif not case.pause_s and case.count >= 2:
        yield at_least(f"{case}: commits a second, {of}", rate, _RATE_MIN)
        yield at_most(f"{case}: longest wait, {of}", _ratio(ours, theirs, 100), _LONGEST_MAX)
        yield at_least(f"{case}: smallest share of a process, relative to a fair share", ours.least_share, _SHARE_MIN)
    if not case.pause_s and case.count == max(_COUNTS):
        yield at_most(f"{case}: file size beyond its contents", ours.beyond_mb, _BEYOND_MB_MAX, "MB")


def _told(case: _ProcessCase, rate: float, ours: _ProcessTimes, theirs: _ProcessTimes) -> str:
    longest = (found.percentile_ns(100) / 1e6 for found in (ours, theirs))
    return (
        f"{case}: relative to {sqlite_peer.NAME}: rate {rate:.2f}x, median {_ratio(ours, theirs, 50):.2f}x,"
        f" p99 {_ratio(ours, theirs, 99):.2f}x, longest wait {_ratio(ours, theirs, 100):.3f}x"
        f" ({' and '.join(f'{each:.1f}' for each in longest)} ms);"
        f" least share {ours.least_share:.2f} and {theirs.least_share:.2f}"
    )


# --- the processes --------------------------------------------------------------


def _compare(
    bench: Bench, case: _ProcessCase, processes: Sequence[ChildProcess]
) -> tuple[_ProcessTimes, _ProcessTimes]:
    """Return the results of statelog and SQLite. They take turns, each time with a new file."""
    found = {False: _ProcessTimes(), True: _ProcessTimes()}
    duration_s = max(_DURATION_S * min(bench.scale, 1.0), _DURATION_S_MIN)
    for number in range(min(bench.repeats, _ROUNDS_MAX)):
        for is_peer in (False, True) if number % 2 == 0 else (True, False):
            path = bench.directory / ("peer.sqlite" if is_peer else "agent.state")
            _make(path, is_peer=is_peer)
            job = CommitJob(str(path), case.durability, is_peer, duration_s, case.pause_s)
            found[is_peer].add(_run(job, processes))
            if not is_peer:
                found[is_peer].beyond_mb = max(found[is_peer].beyond_mb, _beyond_mb(path))
            for file in bench.directory.iterdir():
                file.unlink()
    return found[False], found[True]


def _beyond_mb(path: Path) -> float:
    with opened(path) as store:
        found = store.engine.store_file.statistics()
    return (found.file_size_bytes - found.pages_used * found.page_size_bytes) / 1e6


def _measure_opening(bench: Bench, processes: Sequence[ChildProcess]) -> Result:
    """Measure the opening of a store to which other processes write."""
    path = bench.directory / "agent.state"
    _make(path, is_peer=False)
    alone, beside = Samples(), Samples()
    alone.take(lambda: statelog.open(path).close(), _OPENINGS)
    job = CommitJob(str(path), "commit", is_peer=False, duration_s=max(_DURATION_S * bench.scale, 0.1), pause_s=0.0)
    ask(processes, json.dumps(asdict(job)))
    for process in processes:
        process.say("go")
    beside.take(lambda: statelog.open(path).close(), _OPENINGS)
    for process in processes:
        process.hear()
    ask(processes, "close")
    sides = alone.side("opening a store, alone"), beside.side("opening a store, two others write to it")
    ratio = sides[1].p50_us / sides[0].p50_us
    return Result(
        checks=(
            at_most(
                "opening a store that two others write to: median, relative to opening it alone", ratio, _OPENING_MAX
            ),
        ),
        sides=sides,
        notes=(),
    )


def _make(path: Path, *, is_peer: bool) -> None:
    if is_peer:
        sqlite_peer.create(path)
    else:
        statelog.open(path).close()


def _run(job: CommitJob, processes: Sequence[ChildProcess]) -> list[Samples]:
    """Make all processes do a job at the same time. Return the times of each process."""
    there = ask(processes, json.dumps(asdict(job)))
    assert set(there) == {"there\n"}, there
    taken = [Samples(**json.loads(line)) for line in ask(processes, "go")]
    closed = ask(processes, "close")
    assert set(closed) == {"closed\n"}, closed
    return taken


PROCESSES = BenchWorkload(
    "processes",
    "1, 2, 4 and 8 processes that commit to one file, compared with SQLite with the same guarantee",
    f"commit ({sqlite_peer.NAME}: WAL, synchronous={sqlite_peer.FULL}) and interval"
    f" ({sqlite_peer.NAME}: synchronous={sqlite_peer.NORMAL})",
    _measure,
)
