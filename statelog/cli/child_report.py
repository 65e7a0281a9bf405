"""Runs a child process that reads a dangerous file, which may kill the child, and reports to its parent.

The child writes one JSON object per line to stdout: `{"progress": [done, all]}` at intervals, and at the end
`{"report": ...}` or `{"error": message, "kind": class, "exit_code": number, "facts": {...}}`.
"""

from __future__ import annotations

import contextlib
import json
import resource
import tempfile
import time
from typing import TYPE_CHECKING, Any

from statelog.cli.exits import INTERNAL, ChildError
from statelog.cli.processes import last_line, signal_name, start_module
from statelog.cli.values import to_json
from statelog.errors import CorruptionError, StatelogError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping
    from pathlib import Path

_PROGRESS_INTERVAL_S = 0.1


def report_of_child(
    module: str, *arguments: str, path: Path, work: str, progress: Callable[[int, int], None]
) -> dict[str, Any]:
    """Run a module that calls `report_to_parent`, forward its progress, and return its report.

    Args:
        module: the module to run.
        arguments: the command line of the module.
        path: the file that the child reads, for messages.
        work: the name of the work, such as "verifying", for messages.
        progress: called with (done, all).

    Raises:
        CorruptionError: the file killed the process.
        StatelogError: the process failed. The error has the exit code that the child reported.
    """
    with tempfile.TemporaryFile() as errors:
        child = start_module(module, *arguments, errors=errors)
        try:
            last = _follow(child, progress)
        finally:
            child.kill()
            child.wait()
        if "report" in last:
            report: dict[str, Any] = last["report"]
            return report
        if "error" in last:
            raise ChildError(last["error"], last["exit_code"], last["kind"], last["facts"])
        if child.returncode < 0:
            name = signal_name(child.returncode)
            message = f"{path} is damaged: {name} ended the {work} process while it read the file"
            raise CorruptionError(message, path=str(path), signal=name)
        message = f"the {work} process exited with status {child.returncode}: {last_line(errors)}"
        raise ChildError(message, INTERNAL)


def _follow(child: subprocess.Popen[str], progress: Callable[[int, int], None]) -> Mapping[str, Any]:
    """Forward progress until the child's output ends. Return its last document after it has exited."""
    last: Mapping[str, Any] = {}
    assert child.stdout is not None
    with child.stdout as lines:
        for line in lines:
            try:
                last = json.loads(line)
            except ValueError:  # The child died while writing this line.
                break
            if "progress" in last:
                progress(*last["progress"])
    child.wait()
    return last


# --- the child --------------------------------------------------------------------


def report_to_parent(work: Callable[[Callable[[int, int], None]], Mapping[str, Any]]) -> None:
    """Call `work` with a progress function, and write its result or error to stdout."""
    last_s = 0.0

    def progress(done: int, whole: int) -> None:
        nonlocal last_s
        if time.monotonic() - last_s >= _PROGRESS_INTERVAL_S:
            last_s = time.monotonic()
            _say({"progress": [done, whole]})

    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # A crash is expected here, so write no core dump.
    with contextlib.suppress(BrokenPipeError):
        try:
            _say({"report": work(progress)})
        except StatelogError as error:
            facts = to_json(error.facts)
            _say({"error": error.message, "kind": type(error).__name__, "exit_code": error.exit_code, "facts": facts})


def _say(message: Mapping[str, Any]) -> None:
    print(json.dumps(message), flush=True)
