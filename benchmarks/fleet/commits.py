"""Measures commits of a shipped store, and the number of requests when a store moves."""

from __future__ import annotations

import operator
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import statelog
from benchmarks.fleet.texts import RANDOM, messages
from benchmarks.measure import Samples, interleave
from benchmarks.result import Result, at_most
from benchmarks.workload import SkipError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from benchmarks.fleet.setting import FleetSetting
    from benchmarks.measure import Operation
    from benchmarks.result import Side
    from statelog import Store

MESSAGE_BYTES = 2048
SCHEMA = {"messages": operator.add}
"""The schema of the threads that get messages."""

_REMOTE_MAX, _REMOTE_PER_REPEAT = 1.3, 16
_LOCAL_MAX, _LOCAL_PER_REPEAT = 1.25, 40
_PAUSES_MS = (50, 10)
_REQUESTS_MAX = 4


# --- a commit that waits for the storage --------------------------------------------------------


def measure_remote(setting: FleetSetting) -> Result:
    """Measure a commit that returns when it is shipped, alternating with one put and one read of the head."""
    bucket = _remote_sides(setting, "bucket", "s3://remote", setting.buckets().options)
    sides = list(bucket)
    folder = setting.folder()
    sides += _remote_sides(setting, "folder", f"file://{folder}", {})
    notes = [f"remote: commits of {MESSAGE_BYTES} bytes of text, each alone; the put is of a segment's bytes"]
    try:
        sides += _remote_sides(setting, "Postgres", setting.postgres(), {})
    except SkipError as error:
        notes.append(f"remote, Postgres skipped: {error}")
    what = 'commit(durable="remote"), relative to one put and one head request'
    checks = [at_most(f"{what}: bucket", bucket[0].p50_us / bucket[1].p50_us, _REMOTE_MAX)]
    for ours, raw in zip(sides[2::2], sides[3::2], strict=True):
        notes.append(f"{ours.name}: {ours.p50_us / raw.p50_us:.2f}x of a put and a head request there")
    return Result(checks=tuple(checks), sides=tuple(sides), notes=tuple(notes))


def _remote_sides(setting: FleetSetting, name: str, url: str, options: dict[str, str]) -> tuple[Side, Side]:
    """Return a commit of statelog, and the plain requests to the storage."""
    from statelog.fleet import connect
    from statelog.fleet.storage_urls import open_archive

    texts = messages(RANDOM, MESSAGE_BYTES)
    with ExitStack() as stack:
        fleet = stack.enter_context(connect(url, cache=setting.folder(), **options))
        archive = open_archive(url, **options)
        stack.callback(archive.close)
        store = stack.enter_context(fleet.open("remote"))
        thread = store.thread("chat", schema=SCHEMA)
        thread.commit({"messages": [next(texts)]}, durable="remote")
        shipped = next(each for each in archive.names("remote/log/"))
        found = archive.read(shipped)
        assert found is not None
        size_bytes = len(found.data)
        raw = iter(range(1_000_000))

        def put_and_look() -> None:
            archive.create(f"raw/{next(raw)}", b"x" * size_bytes)
            archive.look("remote/head")

        operations: dict[str, Operation] = {
            "statelog": lambda: thread.commit({"messages": [next(texts)]}, durable="remote"),
            "put and head": put_and_look,
        }
        samples = interleave(
            operations, count=setting.bench.repeats * setting.bench.size(_REMOTE_PER_REPEAT, at_least=4)
        )
    return (
        samples["statelog"].side(f"statelog, remote commit, {name}"),
        samples["put and head"].side(f"one put and one head request, {name}"),
    )


# --- a commit that does not -----------------------------------------------------------------------


def measure_local(setting: FleetSetting) -> Result:
    """Measure commits with pauses to a store that is shipped in the background, and to one that is not shipped."""
    checks, sides = [], []
    for pause_ms in _PAUSES_MS:
        shipped, alone = _local_sides(setting, pause_ms)
        ratio = _mean(shipped) / _mean(alone)
        what = f"local commit while shipping, {pause_ms} ms between them: mean, relative to not shipping"
        if pause_ms == _PAUSES_MS[0]:
            checks.append(at_most(what, ratio, _LOCAL_MAX))
            notes = [f"local: medians {shipped.p50_us / alone.p50_us:.2f}x"]
        else:
            notes.append(f"{what} {ratio:.2f}x, medians {shipped.p50_us / alone.p50_us:.2f}x")
        sides += [
            shipped.side(f"statelog, commit while shipping, each {pause_ms} ms"),
            alone.side(f"statelog, commit, each {pause_ms} ms"),
        ]
    return Result(checks=tuple(checks), sides=tuple(sides), notes=tuple(notes))


def _local_sides(setting: FleetSetting, pause_ms: int) -> tuple[Samples, Samples]:
    """Commit in long rounds. In short rounds, shipping in the background would also slow down the other side."""
    texts = messages(RANDOM, MESSAGE_BYTES)
    samples = Samples(), Samples()
    count = setting.bench.size(_LOCAL_PER_REPEAT, at_least=4)
    with setting.fleet(f"local-{pause_ms}") as fleet, statelog.open(setting.folder() / "alone.state") as alone:
        for number in range(setting.bench.repeats + 1):
            with fleet.open("local") as shipped:
                _commit(shipped, texts, samples[0], count if number else 2, pause_ms)
            _commit(alone, texts, samples[1], count if number else 2, pause_ms)
            if not number:  # Warm up.
                samples = Samples(), Samples()
    return samples


def _commit(store: Store, texts: Iterator[dict[str, Any]], samples: Samples, count: int, pause_ms: int) -> None:
    thread = store.thread("chat", schema=SCHEMA)
    for _ in range(count):
        message = next(texts)
        samples.take(lambda message=message: thread.commit({"messages": [message]}), 1)  # type: ignore[misc]
        time.sleep(pause_ms / 1000)


def _mean(samples: Samples) -> float:
    return sum(samples.durations_ns) / len(samples.durations_ns)


# --- a store that moves -----------------------------------------------------------------------------


def measure_requests(setting: FleetSetting) -> Result:
    """Count the requests to close a store on one machine and open it on another that already has all its records."""
    here, there = setting.fleet("moved"), setting.fleet("moved")
    for fleet in (here, there):
        with fleet.open("moved") as store:
            store.thread("chat").commit({"said": "hello"})
    with there.open("moved"):
        pass
    ours = here.open("moved")
    ours.remote.wait()
    setting.buckets().told()
    ours.close()
    theirs = there.open("moved")
    asked = setting.buckets().told()
    theirs.close()
    for fleet in (here, there):
        fleet.close()
    told = ", ".join(f"{each.method} {each.path.partition('/')[2]}" for each in asked)
    check = at_most("closed here, opened there with a current copy", len(asked), _REQUESTS_MAX, "requests")
    return Result(checks=(check,), sides=(), notes=(f"requests: {told}",))
