"""Compares many hosts that write one store with connections that increment a row."""

from __future__ import annotations

import json
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.children import ChildProcess, ask, started
from benchmarks.committers import joined
from benchmarks.fleet.sharer import NAME, NUMBER, TABLE, THREAD, ShareJob
from benchmarks.measure import Samples
from benchmarks.result import Result, at_least, exactly
from benchmarks.workload import SkipError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.fleet.setting import FleetSetting

_HOSTS, _TIMES, _MIN = 4, 200, 0.35
_REPEATS_MAX = 5
_AGENTS = 8


def measure_share(setting: FleetSetting) -> Result:
    """Measure hosts that add to one number at once. The total must be exact."""
    from statelog import fleet, reducers

    if not hasattr(fleet, "share"):
        message = "this release has no fleet.share"
        raise SkipError(message)
    import psycopg

    url = setting.postgres()
    with psycopg.connect(url) as connection:
        connection.execute(f"CREATE TABLE {TABLE} (n bigint NOT NULL)")
        connection.execute(f"INSERT INTO {TABLE} VALUES (0)")
    times, repeats = setting.bench.size(_TIMES, at_least=5), min(setting.bench.repeats, _REPEATS_MAX)
    caches = [str(setting.folder()) for _ in range(_HOSTS)]
    rounds: dict[bool, list[Samples]] = {False: [], True: []}
    with started("benchmarks.fleet.sharer", _HOSTS) as hosts:
        for _ in range(repeats):
            for is_peer, taken in rounds.items():
                jobs = [ShareJob(url, cache, times, is_peer) for cache in caches]
                taken.append(_at_once(hosts, jobs))
        many = [ShareJob(url, cache, times, is_peer=False, threads=_AGENTS) for cache in caches]
        together = [_at_once(hosts, many).per_second for _ in range(repeats)]
    with fleet.share(url, NAME, cache=setting.folder()) as store:
        ours = store.thread(THREAD, schema={NUMBER: reducers.add}).state[NUMBER]
    with psycopg.connect(url) as connection:
        row = connection.execute(f"SELECT n FROM {TABLE}").fetchone()
    theirs = 0 if row is None else row[0]
    sides = joined(f"share, {_HOSTS} hosts", rounds[False]), joined(f"UPDATE, {_HOSTS} connections", rounds[True])
    what = f"share: {_HOSTS} hosts add 1 to one number"
    theirs_expected = _HOSTS * times * repeats
    expected = theirs_expected * (1 + _AGENTS)
    by_many = median(together)
    of_update = by_many / sides[1].per_second
    return Result(
        checks=(
            at_least(
                f"{what}: commits a second, relative to UPDATE n = n + 1",
                sides[0].per_second / sides[1].per_second,
                _MIN,
            ),
            exactly(f"{what}: total", ours, expected, "commits"),
            exactly(f"{what}: total of UPDATE", theirs, theirs_expected, "commits"),
        ),
        sides=sides,
        notes=(
            f"share: {times} times each, {repeats} times, without a pause",
            f"share: {_AGENTS} threads a host make {by_many:,.0f} commits a second, {of_update:.2f}x of these UPDATEs",
        ),
    )


def _at_once(hosts: Sequence[ChildProcess], jobs: Sequence[ShareJob]) -> Samples:
    """Make all hosts count at the same time. Return a sample for each commit: the mean time on its host."""
    for host, job in zip(hosts, jobs, strict=True):
        host.say(job.line())
    if {host.hear() for host in hosts} != {"ready\n"}:
        message = "a host does not open the shared store"
        raise RuntimeError(message)
    found = [json.loads(line) for line in ask(hosts, "go")]
    assert set(ask(hosts, "close")) == {"closed\n"}
    elapsed_ns = max(end for _began, end in found) - min(began for began, _end in found)
    count = sum(job.count * job.threads for job in jobs)
    each_ns = [
        (end - began) // job.count
        for (began, end), job in zip(found, jobs, strict=True)
        for _ in range(job.count * job.threads)
    ]
    assert len(each_ns) == count
    return Samples(each_ns, elapsed_ns=elapsed_ns, handed_bytes=None, dirtied_bytes=None)
