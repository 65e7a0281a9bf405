"""The rows of the table: the compared figures of statelog and DBOS, and their targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.durable.peer import NAME
from benchmarks.measure import Samples, median
from benchmarks.result import Result, Side, TargetCheck, at_least, at_most

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.durable.peer import DbosPeer, PeerFigures
    from benchmarks.workload import Bench

    Row = Callable[[Bench, DbosPeer], Result]

_STEPS, _STEP_MAX = 200, 0.2
_BESIDE_MAX = {"commit": 1.3, "event": 2.0, "board": 2.0}
"""For each kind of step in `ours.steps`, its maximum time relative to a plain step."""

_LONG, _REPLAY_MAX, _FORK_MAX, _FORK_COMMITS = 2000, 0.1, 0.1, 1
_REPLAYS_MAX = 3
"""The maximum number of replays. Each one runs all steps first."""

_MESSAGES, _SHIPPED_MAX, _POLLING_MAX, _ANSWER_P99_MAX_MS, _IDLE_MAX = 200, 0.02, 0.5, 10.0, 0.5
_IDLE_S, _IDLE_S_MIN = 5.0, 0.3

_RUNS, _CONCURRENCY, _RATE_MIN = 300, 8, 20.0
_QUEUES_MAX = 3

_SUSPENDED, _FEW_SUSPENDED, _SUSPENDED_MAX = 1000, 10, 1.5


def measure_step(bench: Bench, peer: DbosPeer) -> Result:
    """Measure a recorded step, and steps of statelog with a commit, an event or an entry of the board."""
    from benchmarks.durable import ours

    size = bench.size(_STEPS, at_least=10)
    found = peer.ask("step", size=size, repeats=bench.repeats)
    taken = ours.steps(bench.directory, size=size, repeats=bench.repeats)
    theirs, alone = found.samples("step"), taken["alone"]
    checks = [_ratio("one recorded step: median", alone, theirs, _STEP_MAX)]
    sides = [alone.side("statelog, step"), theirs.side(f"{NAME}, step")]
    for name, bound in _BESIDE_MAX.items():
        checks.append(
            at_most(f"step with {name} too: median, relative to a step alone", taken[name].p50_us / alone.p50_us, bound)
        )
        sides.append(taken[name].side(f"statelog, step with {name} too"))
    return _result(checks, sides, found, f"step: a workflow of {size:,} steps, {bench.repeats} times")


def measure_replay(bench: Bench, peer: DbosPeer) -> Result:
    """Measure how fast a new process finishes a run whose process has died after the last step."""
    from benchmarks.durable import ours

    size, repeats = bench.size(_LONG, at_least=20), min(bench.repeats, _REPLAYS_MAX)
    found = peer.ask("replay", size=size, repeats=repeats)
    taken = ours.replays(bench.directory, size=size, repeats=repeats)
    sides: list[Side] = []
    checks: list[TargetCheck] = []
    for name, what in (("recovery", "from opening the file to the run's end"), ("replay", "the run alone")):
        mine, theirs = taken[name], found.samples(name)
        checks.append(_ratio(f"replay of {size:,} steps, {what}: median", mine, theirs, _REPLAY_MAX))
        sides += [mine.side(f"statelog, {name} of {size:,} steps"), theirs.side(f"{NAME}, {name} of {size:,} steps")]
    note = (
        f"recovery: without the start of the process and its imports; {NAME} polls its queue once a second."
        " replay: ours begins at the call of durable.run, theirs at the workflow's first line"
    )
    return _result(checks, sides, found, note)


def measure_fork(bench: Bench, peer: DbosPeer) -> Result:
    """Measure a fork at a late step."""
    from benchmarks.durable import ours

    size = bench.size(_LONG, at_least=20)
    found = peer.ask("fork", size=size, repeats=bench.repeats)
    taken, commits = ours.forks(bench.directory, size=size, repeats=bench.repeats)
    theirs = found.samples("fork")
    checks = [
        _ratio(f"fork at step {size:,}: median", taken, theirs, _FORK_MAX),
        at_most(f"fork at step {size:,}: commits", commits, _FORK_COMMITS, "commits"),
    ]
    sides = [taken.side(f"statelog, fork at step {size:,}"), theirs.side(f"{NAME}, fork at step {size:,}")]
    return _result(checks, sides, found, f"fork: the call alone, not the run that follows, {bench.repeats} times")


def measure_send(bench: Bench, peer: DbosPeer) -> Result:
    """Measure the time from answering a gate (in DBOS, a message) to the next step in another process, and waiting."""
    from benchmarks.durable import ours

    size, seconds = bench.size(_MESSAGES, at_least=5), _idle_s(bench)
    found = peer.ask("send", size=size, repeats=1, seconds=seconds)
    taken = ours.answers(bench.directory, size=size)
    idle = ours.idle(bench.directory, seconds=seconds)
    shipped, polling = found.samples("shipped"), found.samples("polling")
    what = "gate answered -> next step in another process"
    checks = [
        _ratio(f"{what}: median, send -> recv as shipped", taken, shipped, _SHIPPED_MAX),
        _ratio(f"{what}: median, send -> recv polling every 10 ms", taken, polling, _POLLING_MAX),
        at_most(f"{what}: p99", taken.side("").p99_us / 1000, _ANSWER_P99_MAX_MS, "ms"),
        at_most("share of a core that a process waiting for a gate uses", idle * 100, _IDLE_MAX, "%"),
    ]
    sides = [
        taken.side(f"statelog, {what}"),
        shipped.side(f"{NAME} as shipped, send -> next step in another process"),
        polling.side(f"{NAME} polling every 10 ms, send -> next step in another process"),
    ]
    waiting = (
        f"a waiting process takes {idle:.2%} of a core, {NAME}'s {found.figures['idle_shipped']:.2%} as shipped and"
        f" {found.figures['idle_polling']:.2%} polling every 10 ms"
    )
    return _result(checks, sides, found, waiting)


def measure_queue(bench: Bench, peer: DbosPeer) -> Result:
    """Measure one worker on queued runs of one step."""
    from benchmarks.durable import ours

    size, repeats = bench.size(_RUNS, at_least=_CONCURRENCY), min(bench.repeats, _QUEUES_MAX)
    found = peer.ask("queue", size=size, repeats=repeats)
    sides = []
    for name, taken in (
        ("statelog", ours.queued(bench.directory, size=size, repeats=repeats, concurrency=_CONCURRENCY)),
        (NAME, found.samples("queue")),
    ):
        each = Samples([time_ns // size for time_ns in taken.durations_ns], handed_bytes=None, dirtied_bytes=None)
        sides.append(each.side(f"{name}, a queued run of one step"))
    rate = sides[1].p50_us / sides[0].p50_us
    check = at_least(
        f"{size} queued runs, concurrency {_CONCURRENCY}: runs a second, relative to {NAME}'s", rate, _RATE_MIN
    )
    note = f"queue: from the worker's opening of the file to the end of the last run, by run, {repeats} times"
    return _result([check], sides, found, note)


def measure_suspended(bench: Bench, _peer: DbosPeer) -> Result:
    """Measure a worker with many suspended runs, and with few."""
    from benchmarks.durable import ours

    size, seconds = bench.size(_SUSPENDED, at_least=2 * _FEW_SUSPENDED), _idle_s(bench)
    many, few = (ours.suspended(bench.directory, size=count, seconds=seconds) for count in (size, _FEW_SUSPENDED))
    what = f"{size:,} suspended runs, relative to {_FEW_SUSPENDED}"
    checks = [
        at_most(f"{what}: memory of a worker", many.memory_bytes / few.memory_bytes, _SUSPENDED_MAX),
        at_most(f"{what}: opening", median(many.openings_ns) / median(few.openings_ns), _SUSPENDED_MAX),
        at_most(f"{what}: idle cost", many.idle / max(few.idle, 1e-6), _SUSPENDED_MAX),
    ]
    sides = [
        Samples(found.openings_ns, handed_bytes=None, dirtied_bytes=None).side(
            f"statelog, opening, {count:,} suspended"
        )
        for count, found in ((size, many), (_FEW_SUSPENDED, few))
    ]
    note = (
        f"suspended: memory {many.memory_bytes / 1e6:.1f} and {few.memory_bytes / 1e6:.1f} MB,"
        f" idle {many.idle:.2%} and {few.idle:.2%} of a core"
    )
    return Result(checks=tuple(checks), sides=tuple(sides), notes=(note,))


def _idle_s(bench: Bench) -> float:
    return max(_IDLE_S * min(bench.scale, 1.0), _IDLE_S_MIN)


def _ratio(what: str, mine: Samples, theirs: Samples, bound: float) -> TargetCheck:
    return at_most(f"{what}, relative to {NAME}'s", mine.p50_us / theirs.p50_us, bound)


def _result(checks: list[TargetCheck], sides: list[Side], found: PeerFigures, note: str) -> Result:
    return Result(
        checks=tuple(checks),
        sides=tuple(sides),
        notes=(f"{note} ({NAME} {found.version}, SQLite {found.sqlite})",),
    )


ROWS: dict[str, Row] = {
    "step": measure_step,
    "replay": measure_replay,
    "fork": measure_fork,
    "send": measure_send,
    "queue": measure_queue,
    "suspended": measure_suspended,
}
"""The rows, keyed by their names for `--row`."""
