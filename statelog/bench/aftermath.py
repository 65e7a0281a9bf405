"""What the journal asks in return for the flush it saves: a replay after a cut, and pages held meanwhile."""

from __future__ import annotations

import operator
import shutil
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import statelog
from statelog.bench.corpus import Corpus
from statelog.bench.journals import look_into
from statelog.bench.measure import Samples
from statelog.bench.result import Result, at_most
from statelog.bench.stores import Opened, opened
from statelog.limits import INTERVAL_HELD_PAGES_MAX, JOURNAL_SIZE_BYTES_MAX
from statelog.storage.journal.journal import journal_path

if TYPE_CHECKING:
    from pathlib import Path

    from statelog.bench.workload import Bench

_RECOVERY_MS_MAX = 500.0
_BURST_S = 60.0
_LOOK_COMMITS = 50
_MESSAGE_BYTES = 300
_HELD_MAX = 1.25
"""What a commit takes is estimated, and it takes its pages before it is seen that they were too many."""

_FILE_OF_USED_MAX = 1.5


def measure_recovery(bench: Bench) -> Result:
    """Measure the opening of a store whose process was killed with a full journal."""
    path = bench.directory / "full.state"
    size_bytes = bench.size(JOURNAL_SIZE_BYTES_MAX, at_least=200_000)
    command = [sys.executable, "-m", "statelog.bench.victim", str(path), str(size_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as victim:  # noqa: S603 - ourselves
        assert victim.stdout is not None
        line = victim.stdout.readline()
        victim.kill()
    assert line == b"committing\n", line
    found = look_into(path)
    samples = Samples()
    for number in range(max(bench.repeats, 3)):
        cut = bench.directory / f"cut {number}.state"
        for source, copy in ((path, cut), (journal_path(path), journal_path(cut))):
            shutil.copyfile(source, copy)
        samples.take(partial(_open, cut), 1)
    side = samples.side(f"open, journal of {found.size_bytes / 1e6:.1f} MB")
    return Result(
        checks=(at_most("median opening after a cut, journal full", side.p50_us / 1000, _RECOVERY_MS_MAX, "ms"),),
        sides=(side,),
        notes=(f"the journal held {found.records} records in {found.groups} groups",),
    )


def _open(path: Path) -> None:
    statelog.open(path).close()


def measure_burst(bench: Bench) -> Result:
    """Measure how far the file grows beyond what is in use, while commits leave no time for anything else."""
    messages = Corpus().endless(_MESSAGE_BYTES)
    samples = Samples()
    looks: list[_Look] = []
    path = bench.directory / "burst.state"
    with opened(path, durability="interval") as store:
        thread = store.thread("agent")
        chat = store.thread("chat", schema={"messages": operator.add})
        until_s = time.monotonic() + _BURST_S * min(bench.scale, 1.0)
        while not looks or time.monotonic() < until_s:
            samples.take(lambda: thread.commit({"step": time.time_ns()}), _LOOK_COMMITS)
            samples.take(lambda: chat.commit({"messages": [next(messages)]}), _LOOK_COMMITS)
            looks.append(_look(store))
    last = looks[-1]
    late = looks[len(looks) // 2 :]
    return Result(
        checks=(
            at_most("burst: most pages held, of those allowed", max(look.of_allowed for look in looks), _HELD_MAX),
            at_most("burst: file, of what is in use", last.file_size_bytes / last.used_size_bytes, _FILE_OF_USED_MAX),
        ),
        sides=(samples.side("interval, burst", file_size_bytes=path.stat().st_size),),
        notes=(
            (
                f"burst: {bench.scale * _BURST_S:g} s of small commits; file {last.file_size_bytes / 1e6:.1f} MB,"
                f" in use {last.used_size_bytes / 1e6:.1f} MB; the file's largest share ever of what was in use"
                f" {max(map(_share, looks)):.2f}x, in the second half {max(map(_share, late)):.2f}x"
            ),
        ),
    )


class _Look(NamedTuple):
    """Sizes at one time; the pages free or held, of what `limits` lets the file grow for."""

    file_size_bytes: int
    used_size_bytes: int
    of_allowed: float


def _look(store: Opened) -> _Look:
    found = store.engine.environment.statistics()
    return _Look(
        found.file_size_bytes, found.pages_used * found.page_size_bytes, found.pages_free / INTERVAL_HELD_PAGES_MAX
    )


def _share(look: _Look) -> float:
    return look.file_size_bytes / look.used_size_bytes
