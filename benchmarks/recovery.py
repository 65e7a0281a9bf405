"""Measures the opening of a store after a SIGKILL, for a small and a large store."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import statelog
from benchmarks.corpus import Corpus
from benchmarks.measure import Samples
from benchmarks.result import Result, at_most
from benchmarks.stores import opened
from benchmarks.workload import Bench, BenchWorkload

if TYPE_CHECKING:
    from pathlib import Path

_SMALL_BYTES = 1_000_000
_BIG_BYTES = 1_000_000_000
_DOCUMENT_BYTES = 16_000
_COMMIT_BYTES = 8_000_000
_MS_MAX = 500.0


def _big_bytes(bench: Bench) -> int:
    return bench.size(_BIG_BYTES, at_least=2 * _SMALL_BYTES)


def _build(path: Path, size_bytes: int) -> None:
    corpus = Corpus()
    with opened(path, flush=False) as store:
        thread = store.thread("documents")
        number = 0
        for start in range(0, size_bytes, _COMMIT_BYTES):
            written = {}
            for _ in range(0, min(_COMMIT_BYTES, size_bytes - start), _DOCUMENT_BYTES):
                written[f"document {number}"] = corpus.text(_DOCUMENT_BYTES)
                number += 1
            thread.commit({f"documents {start}": written})


def _commit_and_kill(path: Path) -> None:
    """Start another process that commits to the store, and kill it while it commits."""
    command = [sys.executable, "-m", "benchmarks.victim", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as victim:
        assert victim.stdout is not None
        line = victim.stdout.readline()
        victim.kill()
    assert line == b"committing\n", line


def _open_and_read(path: Path) -> None:
    with statelog.open(path) as store:
        head = store.thread("victim").head
        assert head is not None
        assert head.state["step"] >= 0


def _measure(bench: Bench) -> Result:
    sizes = {"small": _SMALL_BYTES, "big": _big_bytes(bench)}
    paths = {name: bench.directory / f"{name}.state" for name in sizes}
    for name, size_bytes in sizes.items():
        _build(paths[name], size_bytes)
    samples = {name: Samples() for name in sizes}
    _commit_and_kill(paths["small"])
    _open_and_read(paths["small"])  # Warm up.
    for _ in range(max(bench.repeats, 3)):
        for name, path in paths.items():
            _commit_and_kill(path)
            samples[name].take(partial(_open_and_read, path), 1)
    ratio = samples["big"].p50_us / samples["small"].p50_us
    return Result(
        checks=(
            at_most("median open and first read, big file relative to small one", ratio, 2.0),
            at_most("median open and first read of the big file", samples["big"].p50_us / 1000, _MS_MAX, "ms"),
        ),
        sides=tuple(
            taken.side(f"open {sizes[name] / 1e6:g} MB", file_size_bytes=paths[name].stat().st_size)
            for name, taken in samples.items()
        ),
    )


OPEN = BenchWorkload("open-after-kill", "Open after SIGKILL: 1 GB file, compared with 1 MB file", "interval", _measure)
