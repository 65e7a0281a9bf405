"""Measures the speed and the memory of verifying, compacting, exporting and importing a large store."""

from __future__ import annotations

import operator
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.corpus import Corpus
from benchmarks.measure import Samples, median
from benchmarks.result import Result, Side, TargetCheck, at_least, at_most
from benchmarks.stores import opened
from benchmarks.workload import Bench, BenchWorkload
from statelog import reducers
from statelog.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_BIG_BYTES = 1_000_000_000
_SMALL_BYTES = 100_000_000
_THREADS = 8
_MESSAGES_PER_COMMIT = 4
_BLOB_EVERY = 64
_BLOB_BYTES = 200_000
_SCHEMA = {"messages": operator.add, "notes": reducers.merge, "files": reducers.merge}

_VERIFY_MB_PER_S_MIN = 200.0
_MEMORY_MB_MAX = 200.0
_FLAT_MAX = 1.25


def _build(path: Path, size_bytes: int) -> None:
    """Create a store with chats, notes and files. Half of its threads keep only their last ten versions."""
    corpus = Corpus()
    number = 0
    with opened(path, flush=False) as store:
        threads = [store.thread(f"agent {each}", schema=_SCHEMA) for each in range(_THREADS)]
        while path.stat().st_size < size_bytes:
            for thread in threads:
                messages = [
                    corpus.message(number + each, 500 + corpus.below(1500)) for each in range(_MESSAGES_PER_COMMIT)
                ]
                written: dict[str, object] = {"messages": messages, "notes": {f"note {corpus.below(2000)}": number}}
                if number % (_BLOB_EVERY * _MESSAGES_PER_COMMIT) == 0:
                    written["files"] = {f"file {corpus.below(200)}": corpus.text(_BLOB_BYTES)}
                thread.commit(written)
                number += _MESSAGES_PER_COMMIT
            if number == _THREADS * _MESSAGES_PER_COMMIT:
                store.set_retention(keep_last=10, threads="agent [0-3]")


@dataclass(frozen=True, slots=True)
class _CommandRun:
    """The duration and the peak memory of one run of a command. The memory includes mapped pages of the file."""

    duration_s: float
    memory_mb: float


_LAUNCH = """
import resource, subprocess, sys, time
began_s = time.perf_counter()
status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(status, time.perf_counter() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
"""Starts the command from a small process, because a forked process begins with the peak memory of its parent."""


def _run(arguments: Sequence[str | Path]) -> _CommandRun:
    """Run `statelog ...` in its own process."""
    command = [sys.executable, "-c", _LAUNCH, sys.executable, "-m", "statelog", *map(str, arguments)]
    said = subprocess.run(command, check=True, capture_output=True, text=True)
    status, duration_s, peak = said.stdout.split()
    if int(status):
        message = f"statelog {arguments[0]} ended with {status}: {said.stderr.strip()}"
        raise StorageError(message)
    unit = 1 if sys.platform == "darwin" else 1024
    return _CommandRun(float(duration_s), int(peak) * unit / 1e6)


def _sizes(bench: Bench) -> dict[str, int]:
    return {
        "small": bench.size(_SMALL_BYTES, at_least=2_000_000),
        "big": bench.size(_BIG_BYTES, at_least=4_000_000),
    }


def _side(name: str, runs: Sequence[_CommandRun], size_bytes: int) -> Side:
    samples = Samples(durations_ns=[int(run.duration_s * 1e9) for run in runs], handed_bytes=None, dirtied_bytes=None)
    return samples.side(name, file_size_bytes=size_bytes)


def _measure_verify(bench: Bench) -> Result:
    path = bench.directory / "big.state"
    _build(path, _sizes(bench)["big"])
    size_bytes = path.stat().st_size
    _run(("verify", path))
    runs = [_run(("verify", path)) for _ in range(min(bench.repeats, 3))]
    rate = size_bytes / 1e6 / median(run.duration_s for run in runs)
    return Result(
        checks=(
            at_least("bytes of the file verified a second", rate, _VERIFY_MB_PER_S_MIN, "MB/s"),
            at_most("peak memory", max(run.memory_mb for run in runs), _MEMORY_MB_MAX, "MB"),
        ),
        sides=(_side(f"verify {size_bytes / 1e6:.0f} MB", runs, size_bytes),),
        notes=("measured in its own process, including the start; the file is in the page cache",),
    )


def _measure_copies(bench: Bench) -> Result:
    peaks: dict[str, dict[str, float]] = {}
    sides = []
    for name, size_bytes in _sizes(bench).items():
        path, stream, copy = (bench.directory / f"{name}.{each}" for each in ("state", "stream", "copy"))
        _build(path, size_bytes)
        file_size = path.stat().st_size
        commands: list[tuple[str | Path, ...]] = [
            ("export", path, "-o", stream),
            ("import", copy, stream),
            ("compact", path),
        ]
        for command in commands:
            run = _run(command)
            peaks.setdefault(str(command[0]), {})[name] = run.memory_mb
            title = f"{command[0]} {file_size / 1e6:.0f} MB, in {run.memory_mb:.0f} MB of memory"
            sides.append(_side(title, [run], file_size))
        for each in (path, stream, copy):
            each.unlink()
    checks: list[TargetCheck] = []
    for title, peak in peaks.items():
        checks.append(
            at_most(f"{title}: peak memory, big store relative to small one", peak["big"] / peak["small"], _FLAT_MAX)
        )
        checks.append(at_most(f"{title}: peak memory of the big store", peak["big"], _MEMORY_MB_MAX, "MB"))
    return Result(checks=tuple(checks), sides=tuple(sides), notes=("each in its own process, including the start",))


_DURABILITY = "built without flush"
VERIFY = BenchWorkload("verify", "Verify a store of 1 GB", _DURABILITY, _measure_verify)
COPIES = BenchWorkload("copies", "Export, import and compact 1 GB, compared with 100 MB", _DURABILITY, _measure_copies)
