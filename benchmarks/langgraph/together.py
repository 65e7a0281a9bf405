"""Measures steps of two processes on one file, each on its own thread. As a script, this module is one process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from langgraph.checkpoint.base import empty_checkpoint

from benchmarks.langgraph import savers
from benchmarks.measure import Samples
from benchmarks.result import Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.workload import Bench

_PROCESSES = 2
_STEPS = 400


def measure_together(bench: Bench) -> Result:
    """Measure steps while another process steps: `get_tuple`, `put` with one more item in a list, and `put_writes`."""
    count = bench.size(_STEPS, at_least=20)
    sides = []
    for name in savers.names():
        times = _times(name, bench.directory, count)
        samples = Samples(times, elapsed_ns=sum(times) // _PROCESSES, handed_bytes=None, dirtied_bytes=None)
        sides.append(samples.side(f"{name}: a step of each of {_PROCESSES} processes"))
    note = f"processes: {_PROCESSES} on one file, each on its own thread, {count} steps (get_tuple, put, put_writes)"
    return Result(checks=(), sides=tuple(sides), notes=(note,))


def _times(name: str, directory: Path, count: int) -> list[int]:
    """Return the nanoseconds of each step of all processes."""
    with savers.opened(name, directory, "together") as peer:  # SQLite fails if two processes create the file.
        peer.saver.get_tuple(peer.new_config())
    command = [sys.executable, "-m", __name__, name, str(directory), str(count)]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(_PROCESSES)
    ]
    try:
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        for process in started:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        return [took for process in started for took in json.loads(process.communicate()[0])]
    finally:
        for process in started:
            process.kill()


def _step_alone(arguments: Sequence[str]) -> None:
    """Run one of the processes: wait for a line, step, and print the times."""
    name, directory, count = arguments
    with savers.opened(name, Path(directory), "together") as peer:
        config, times = peer.new_config(), []
        last = empty_checkpoint()
        at = peer.saver.put(config, last, {"source": "input", "step": -1, "parents": {}}, {})
        sys.stdout.write("there\n")
        sys.stdout.flush()
        sys.stdin.readline()
        for step in range(int(count)):
            began_ns = time.perf_counter_ns()
            found = peer.saver.get_tuple(config)
            said = found.checkpoint["channel_values"].get("said", []) if found else []
            last, versions = savers.next_checkpoint(peer.saver, last, {"said": [*said, f"item {step}"]})
            at = peer.saver.put(at, last, {"source": "loop", "step": step, "parents": {}}, versions)
            peer.saver.put_writes(at, [("said", step)], f"task-{step}")
            times.append(time.perf_counter_ns() - began_ns)
        sys.stdout.write(json.dumps(times))


if __name__ == "__main__":
    _step_alone(sys.argv[1:])
