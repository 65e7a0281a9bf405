"""Measures a short process, such as a hook or a cron job, which imports statelog and makes one commit."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from benchmarks.measure import Samples
from benchmarks.result import Result, at_most
from benchmarks.workload import Bench, BenchWorkload

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROUNDS_PER_REPEAT = 3
_IMPORT_MS_MAX = 50.0
_RATIO_MAX = 3.0

_INTERPRETER, _IMPORT, _OURS, _SQLITE = "an interpreter", "import statelog", "open, commit, close", "the same, sqlite3"

_PROGRAMS = {
    _INTERPRETER: "pass",
    _IMPORT: "import statelog",
    _OURS: """
import sys, statelog
with statelog.open(sys.argv[1] + ".state") as store:
    store.thread("t").commit({"step": 1})
""",
    _SQLITE: """
import sys, sqlite3
database = sqlite3.connect(sys.argv[1] + ".sqlite")
database.execute("PRAGMA journal_mode=WAL")
database.execute("PRAGMA synchronous=FULL")
database.execute("CREATE TABLE IF NOT EXISTS steps (id INTEGER PRIMARY KEY, step INTEGER)")
database.execute("INSERT INTO steps (step) VALUES (1)")
database.commit()
database.close()
""",
}


def _run(samples: Samples, command: Sequence[str], environment: dict[str, str]) -> None:
    """Run a process. Record its elapsed time and its processor time."""
    began_ns = time.perf_counter_ns()
    process = subprocess.Popen(command, env=environment)
    _pid, status, usage = os.wait4(process.pid, 0)
    samples.durations_ns.append(time.perf_counter_ns() - began_ns)
    samples.processor_ns.append(int((usage.ru_utime + usage.ru_stime) * 1e9))
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def _measure(bench: Bench) -> Result:
    # Allow cached bytecode. Without it, every process would compile the modules that it imports.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    path = str(bench.directory / "short")
    samples = {name: Samples(handed_bytes=None, dirtied_bytes=None) for name in _PROGRAMS}
    for number in range(1 + bench.size(_ROUNDS_PER_REPEAT) * bench.repeats):
        for name, program in _PROGRAMS.items():
            taken = samples[name] if number else Samples()  # The first round creates files and bytecode.
            _run(taken, [sys.executable, "-c", program, path], environment)
    processor_us = {name: taken.processor_p50_us for name, taken in samples.items()}
    import_ms = (processor_us[_IMPORT] - processor_us[_INTERPRETER]) / 1000
    return Result(
        checks=(
            at_most("processor of `import statelog`, without that of the interpreter", import_ms, _IMPORT_MS_MAX, "ms"),
            at_most(
                "processor of a process that opens, commits and closes, relative to SQLite's",
                processor_us[_OURS] / processor_us[_SQLITE],
                _RATIO_MAX,
            ),
            at_most(
                "median time of that process, relative to SQLite's",
                samples[_OURS].p50_us / samples[_SQLITE].p50_us,
                _RATIO_MAX,
            ),
        ),
        sides=tuple(taken.side(name) for name, taken in samples.items()),
    )


START = BenchWorkload("start", "Short processes", "commit; SQLite: WAL, synchronous=FULL", _measure)
