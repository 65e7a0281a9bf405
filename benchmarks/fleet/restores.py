"""Measures the time after a worker's death until another process, with an empty disk, has the last items."""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks import sqlite_peer
from benchmarks.children import started
from benchmarks.fleet import litestream
from benchmarks.fleet.texts import RANDOM, messages
from benchmarks.fleet.worker import TAKEN, FleetJob
from benchmarks.measure import Samples
from benchmarks.result import Result, at_most
from benchmarks.workload import SkipError

if TYPE_CHECKING:
    from benchmarks.fleet.setting import FleetSetting
    from benchmarks.result import Side

_WORKER = "benchmarks.fleet.worker"
_RESTORED = {5000: 1.2, 50_000: 0.7}
_MESSAGE_BYTES = 500
_SINGLE = 40
"""The number of commits at the end that are shipped one by one, as in an interactive session."""

_SYNC_MS = 100
_REPEATS_MAX = 5

_FETCHED_BYTES, _FETCHED_MESSAGE_BYTES, _FETCHED_MAX = 200_000_000, 16_384, 1.5


def measure_restore(setting: FleetSetting) -> Result:
    """Measure reading a store's last items on another machine, and restoring a database with Litestream."""
    litestream.program()
    checks, sides, notes = [], [], []
    for full, bound in _RESTORED.items():
        count = setting.bench.size(full, at_least=100)
        path = setting.folder() / "ours"
        job = FleetJob(
            "build", f"s3://restore-{full}", setting.buckets().options, str(path), count, _MESSAGE_BYTES, _SINGLE
        )
        built = _dead(job)
        replica = _shipped(setting, full, count)
        samples = {"ours": _unmeasured(), "theirs": _unmeasured(), "connect": _unmeasured()}
        for _ in range(min(setting.bench.repeats, _REPEATS_MAX)):
            told = _elsewhere(setting, job, "read")
            assert told["last"] == count - 1
            samples["ours"].durations_ns.append(told["took_ns"])
            samples["connect"].durations_ns.append(told["connected_ns"])
            samples["theirs"].durations_ns.append(_restored(setting, replica, count))
        what = f"dead worker -> last {TAKEN} items elsewhere, {count:,} messages"
        ratio = samples["ours"].p50_us / samples["theirs"].p50_us
        checks.append(at_most(f"{what}: relative to litestream restore and a select", ratio, bound))
        sides += [samples["ours"].side(f"statelog, {what}"), samples["theirs"].side(f"{litestream.NAME}, {what}")]
        sides.append(samples["connect"].side("statelog, fleet.connect, once a process"))
        sizes = built["file_bytes"] / 1e6, replica.database.stat().st_size / 1e6
        notes.append(f"restore, {count:,} messages: files of {sizes[0]:.1f} MB and {sizes[1]:.1f} MB")
    notes.append(f"restore: {_MESSAGE_BYTES} bytes of text each; {litestream.NAME} {litestream.version()}")
    return Result(checks=tuple(checks), sides=tuple(sides), notes=tuple(notes))


def measure_fetch(setting: FleetSetting) -> Result:
    """Measure reading a large store's last items on another machine, and merely fetching its objects."""
    count = max(setting.bench.size(_FETCHED_BYTES, at_least=2_000_000) // _FETCHED_MESSAGE_BYTES, 2 * _SINGLE)
    sides: list[Side] = []
    ratios, notes = [], []
    storages: dict[str, tuple[str, dict[str, str]]] = {
        "bucket": ("s3://fetch", setting.buckets().options),
        "folder": (f"file://{setting.folder()}", {}),
    }
    for name, (url, options) in storages.items():
        path = setting.folder()
        job = FleetJob("build", url, options, str(path), count, _FETCHED_MESSAGE_BYTES, _SINGLE, has_base=True)
        _dead(job)
        shutil.rmtree(path)
        samples = {"read": _unmeasured(), "fetch": _unmeasured()}
        for _ in range(min(setting.bench.repeats, _REPEATS_MAX)):
            for kind, taken in samples.items():
                told = _elsewhere(setting, job, kind)
                taken.durations_ns.append(told["took_ns"])
        ratios.append(samples["read"].p50_us / samples["fetch"].p50_us)
        notes.append(f"fetch, {name}: {told['objects']} objects of {told['bytes'] / 1e6:.0f} MB, {ratios[-1]:.2f}x")
        sides.append(samples["read"].side(f"statelog, dead worker -> last {TAKEN} items elsewhere, {name}"))
        sides.append(samples["fetch"].side(f"the same objects fetched side by side, {name}"))
    check = at_most("dead worker -> last items, 200 MB in a bucket: relative to fetching it", ratios[0], _FETCHED_MAX)
    return Result(checks=(check,), sides=tuple(sides), notes=tuple(notes))


def _dead(job: FleetJob) -> dict[str, Any]:
    """Make a worker do a job, and kill it. Return its results."""
    with started(_WORKER, 1) as (worker,):
        worker.say(job.line())
        line = worker.hear()
    if not line:
        message = f"the worker ended at its job {job.kind!r}"
        raise RuntimeError(message)
    told: dict[str, Any] = json.loads(line)
    return told


def _elsewhere(setting: FleetSetting, job: FleetJob, kind: str) -> dict[str, Any]:
    """Make a new process with an empty cache folder do a job, and kill it. Return its results."""
    cache = setting.folder()
    try:
        return _dead(replace(job, kind=kind, cache=str(cache)))
    finally:
        shutil.rmtree(cache)


def _shipped(setting: FleetSetting, full: int, count: int) -> litestream.Replica:
    """Write messages to a database, and ship all of it with Litestream."""
    path = setting.folder() / "theirs.sqlite"
    replica = litestream.Replica(path, f"restore-{full}-peer", setting.buckets().endpoint, _SYNC_MS)
    texts = messages(RANDOM, _MESSAGE_BYTES)
    with sqlite_peer.connected(path, synchronous=sqlite_peer.NORMAL) as peer, replica.shipping():
        for number in range(count):
            peer.append(next(texts))
            if number >= count - _SINGLE:
                time.sleep(2 * _SYNC_MS / 1000)
        time.sleep(1.0)
    return replica


def _restored(setting: FleetSetting, replica: litestream.Replica, count: int) -> int:
    """Return the time of a restore and a SELECT in nanoseconds."""
    target = setting.folder() / "restored.sqlite"
    began_ns = time.perf_counter_ns()
    replica.restore(target)
    with closing(sqlite3.connect(target)) as connection:
        found = connection.execute(
            "SELECT version, body FROM message WHERE thread = 'agent' ORDER BY version DESC LIMIT ?", (TAKEN,)
        ).fetchall()
    took_ns = time.perf_counter_ns() - began_ns
    if [number for number, _body in found[:1]] != [count - 1]:
        message = f"{litestream.NAME} has restored up to message {found[:1]}, not {count - 1}"
        raise SkipError(message)
    shutil.rmtree(target.parent)
    return took_ns


def _unmeasured() -> Samples:
    """Return samples for work in other processes, whose written bytes are unknown."""
    return Samples(handed_bytes=None, dirtied_bytes=None)
