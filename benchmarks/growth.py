"""Measures the growth of the file, relative to the text, and the bytes that early and late commits write."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from benchmarks import sqlite_peer
from benchmarks.corpus import Corpus
from benchmarks.measure import Samples
from benchmarks.result import Result, Side, at_most
from benchmarks.stores import opened
from benchmarks.workload import Bench, BenchWorkload

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LARGE_MESSAGE_BYTES = 2048
_SMALL_MESSAGE_BYTES = 300
_WINDOW = 200
"""The number of commits over which written bytes are averaged. About every 24th commit closes a chunk."""


def _append_all(path: Path, windows: dict[str, range], size_bytes: int) -> dict[str, Samples]:
    """Append messages one by one, with flushes. Return the samples by window. `windows` must be in order."""
    samples = {}
    messages = Corpus().endless(size_bytes)
    with opened(path) as store:
        thread = store.thread("agent", schema={"messages": operator.add})
        done = 0
        for name, window in windows.items():
            for _ in range(done, window.start):
                thread.commit({"messages": [next(messages)]})
            samples[name] = Samples()
            samples[name].take(lambda: thread.commit({"messages": [next(messages)]}), len(window))
            done = window.stop
    return samples


def _append_to_sqlite(path: Path, count: int, size_bytes: int) -> Side:
    messages = Corpus().endless(size_bytes)
    samples = Samples()
    with sqlite_peer.connected(path) as peer:
        samples.take(lambda: peer.append(next(messages)), count)
    return samples.side(sqlite_peer.NAME, file_size_bytes=path.stat().st_size)


def _measure_large(bench: Bench) -> Result:
    count = bench.size(1000, at_least=50)
    path = bench.directory / "large.state"
    samples = _append_all(path, {"statelog": range(count)}, _LARGE_MESSAGE_BYTES)["statelog"]
    side = samples.side("statelog", file_size_bytes=path.stat().st_size)
    ratio = path.stat().st_size / (count * _LARGE_MESSAGE_BYTES)
    return Result(
        checks=(at_most("file, relative to the text", ratio, 2.7),),
        sides=(side, _append_to_sqlite(bench.directory / "large.sqlite", count, _LARGE_MESSAGE_BYTES)),
        notes=(f"{count} commits, each appending a message with {_LARGE_MESSAGE_BYTES} bytes of text",),
    )


def _measure_small(bench: Bench) -> Result:
    count = bench.size(20_000, at_least=500)
    path = bench.directory / "small.state"
    samples = _append_all(path, dict(_windows(count)), _SMALL_MESSAGE_BYTES)
    early, late = (
        samples[name].side(f"statelog, {name}", file_size_bytes=path.stat().st_size if name == "late" else None)
        for name in ("early", "late")
    )
    checks = [at_most("file, relative to the text", path.stat().st_size / (count * _SMALL_MESSAGE_BYTES), 6.0)]
    if early.written_bytes and late.written_bytes:
        checks.append(
            at_most("bytes written per commit, late relative to early", late.written_bytes / early.written_bytes, 1.3)
        )
    peer = _append_to_sqlite(bench.directory / "small.sqlite", bench.size(2000, at_least=50), _SMALL_MESSAGE_BYTES)
    return Result(
        checks=tuple(checks),
        sides=(early, late, peer),
        notes=(
            (
                f"{count} commits, each appending a message with {_SMALL_MESSAGE_BYTES} bytes of text;"
                f" early: the {_WINDOW} commits around item 200, late: the last {_WINDOW}"
                f" ({sqlite_peer.NAME}: {peer.operations} commits)"
            ),
        ),
    )


def _windows(count: int) -> Iterator[tuple[str, range]]:
    yield "early", range(200 - _WINDOW // 2, 200 + _WINDOW // 2)
    yield "late", range(count - _WINDOW, count)


_DURABILITY = f"commit; {sqlite_peer.NAME}: {sqlite_peer.DURABILITY}"

LARGE = BenchWorkload(
    "file-of-large-messages", "File after 1,000 durable commits of a 2 KB message", _DURABILITY, _measure_large
)
SMALL = BenchWorkload(
    "file-of-small-messages", "File after 20,000 durable commits of 300 B", _DURABILITY, _measure_small
)
