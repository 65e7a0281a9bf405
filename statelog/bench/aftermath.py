"""What the journal asks in return for the flush it saves: a replay after a cut."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import statelog
from statelog.bench.journals import look_into
from statelog.bench.measure import Samples
from statelog.bench.result import Result, at_most
from statelog.limits import JOURNAL_SIZE_BYTES_MAX
from statelog.storage.file.neighbours import journal_path

if TYPE_CHECKING:
    from pathlib import Path

    from statelog.bench.workload import Bench

_RECOVERY_MS_MAX = 500.0


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
