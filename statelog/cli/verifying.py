"""Verification in a child process: a damaged file may kill whoever maps it (SIGBUS).

Run as a module, it is the child: it writes one JSON object per line to stdout,
`{"progress": [done, all]}` now and then, and at the end a report or an error.
"""

from __future__ import annotations

import contextlib
import json
import resource
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statelog.cli.exits import INTERNAL, ChildError
from statelog.cli.processes import last_line, signal_name, start_module
from statelog.cli.targets import open_for_reading
from statelog.errors import CorruptionError, StatelogError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping

_PROGRESS_INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True)
class Verification:
    """What a verification found. `problems` have invariant, lsn, node and message."""

    records: int
    nodes: int
    bytes: int
    problems: list[dict[str, Any]]
    duration_s: float

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def verify_in_child(path: Path, *, deep: bool, progress: Callable[[int, int], None]) -> Verification:
    """Verify a store in a process of its own.

    Raises:
        CorruptionError: the file killed the process.
        StatelogError: it could not be opened or read; with the exit code of the error there.

    """
    started = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        child = start_module(__name__, str(path), "deep" if deep else "shallow", errors=errors)
        try:
            last = _follow(child, progress)
        finally:
            child.kill()
            child.wait()
        if "report" in last:
            return Verification(**last["report"], duration_s=time.perf_counter() - started)
        if "error" in last:
            raise ChildError(last["error"], last["exit_code"])
        if child.returncode < 0:
            name = signal_name(child.returncode)
            message = f"{path} is damaged: reading it ended the verifying process with {name}"
            raise CorruptionError(message, path=str(path), signal=name)
        message = f"verification ended with {child.returncode}: {last_line(errors)}"
        raise ChildError(message, INTERNAL)


def _follow(child: subprocess.Popen[str], progress: Callable[[int, int], None]) -> Mapping[str, Any]:
    """Pass progress on until the child's output ends; return its last word, once it is gone."""
    last: Mapping[str, Any] = {}
    assert child.stdout is not None
    with child.stdout as lines:
        for line in lines:
            try:
                last = json.loads(line)
            except ValueError:  # cut off where it died
                break
            if "progress" in last:
                progress(*last["progress"])
    child.wait()
    return last


# --- the child --------------------------------------------------------------------


def _serve(path: Path, *, deep: bool) -> dict[str, Any]:
    last_s = 0.0

    def progress(done: int, whole: int) -> None:
        nonlocal last_s
        if time.monotonic() - last_s >= _PROGRESS_INTERVAL_S:
            last_s = time.monotonic()
            _say({"progress": [done, whole]})

    try:
        with open_for_reading(path) as store:
            report = store.verify(deep=deep, progress=progress)
    except StatelogError as error:
        return {"error": error.message, "exit_code": error.exit_code}
    problems = [asdict(problem) for problem in report.problems]
    return {"report": {"records": report.records, "nodes": report.nodes, "bytes": report.bytes, "problems": problems}}


def _say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # dying is expected here: no core dump
    with contextlib.suppress(BrokenPipeError):
        _say(_serve(Path(sys.argv[1]), deep=sys.argv[2] == "deep"))
