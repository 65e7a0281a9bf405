"""`statelog demo`: prints the story as text, or as one JSON document."""

from __future__ import annotations

import json
import platform
import shlex
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from statelog.cli.care import describe_verification
from statelog.cli.demo import story
from statelog.cli.demo.review import LONG_FUNCTION_LINES, THREAD_ID
from statelog.cli.demo.sources import STEPS
from statelog.cli.documents import change_document, checkpoint_document
from statelog.cli.opened_stores import open_for_writing
from statelog.cli.options import AS_JSON
from statelog.cli.output import Output
from statelog.cli.text import count, format_duration, format_size
from statelog.cli.verification import Verification, verify_in_child
from statelog.errors import AlreadyExistsError, CorruptionError

FILE_NAME = "demo.state"


@dataclass(frozen=True, slots=True)
class _Ending:
    """The sizes and the verification of the file at the end."""

    file_size_bytes: int
    snapshots: story.Snapshots
    verification: Verification
    duration_s: float


@click.command(short_help="Watch an agent be killed and resume.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False, exists=True, writable=True),
    help=f"Existing directory for {FILE_NAME}. Default: a temporary one.",
)
@AS_JSON
def demo(*, directory: Path | None, as_json: bool) -> None:
    """Watch an agent be killed in step 14 of 20 and resume at step 14.

    The agent reviews packages of Python's standard library. Then follow a rollback, a fork with
    a different parameter, a diff, a verification and the size of the file. Every figure is measured
    during the demo. The file is kept, and the demo prints three lines of Python to try on it.
    """
    output = Output(as_json=as_json)
    started = time.perf_counter()
    path = _prepare(directory)
    narrator = _Narrator(output)
    narrator.opening(path)
    runs = [
        story.run_agent(path, kill_in_step=story.KILLED_IN_STEP, narrate=narrator.event),
        story.run_agent(path, kill_in_step=0, narrate=narrator.resumed_event),
    ]
    with open_for_writing(path) as store:
        thread = store.thread(THREAD_ID)
        history = list(thread.history())
        returned = story.roll_back(store)
        narrator.rollback(returned)
        fork = story.fork_and_compare(store)
        narrator.fork(fork)
        snapshots = story.write_snapshots(store, path.with_suffix(".snapshots"))
        path.with_suffix(".snapshots").unlink()
        changes = [change_document(change) for change in fork.changes] if as_json else []
        sides = {"old": checkpoint_document(fork.old), "new": checkpoint_document(fork.new)}
        documents = [checkpoint_document(checkpoint) for checkpoint in history]
        rolled_back = _rollback_document(returned)
    verification = verify_in_child(path, deep=True, progress=lambda _done, _whole: None)
    ending = _Ending(path.stat().st_size, snapshots, verification, time.perf_counter() - started)
    narrator.ending(path, ending)
    if as_json:
        output.emit(
            {
                "python": platform.python_version(),
                "path": str(path),
                "thread": THREAD_ID,
                "killed_in_step": story.KILLED_IN_STEP,
                "resumed_at_step": runs[1].events[0]["next_step"],
                "processes": [{"process": run.process, "exit": run.returncode, "said": run.events} for run in runs],
                "history": documents,
                "rollback": rolled_back,
                "fork": {
                    "branch": story.FORK_NAME,
                    "base_version": fork.base_version,
                    "duration_s": round(fork.duration_s, 6),
                    "steps": fork.steps,
                },
                "diff": {**sides, "duration_s": round(fork.diff_duration_s, 6), "changes": changes},
                **_ending_document(ending),
            }
        )
    if not verification.ok:
        message = f"{path} is damaged: {verification.problems[0]['message']}"
        raise CorruptionError(message, path=str(path))


def _prepare(directory: Path | None) -> Path:
    if directory is None:
        directory = Path(tempfile.mkdtemp(prefix="statelog-demo-"))
    path = directory / FILE_NAME
    if path.exists():
        message = f"{path} already exists: the demo needs a new file"
        raise AlreadyExistsError(message, name=str(path))
    return path


def _rollback_document(returned: story.Return) -> dict[str, Any]:
    return {
        "target": checkpoint_document(returned.target),
        "checkpoint": checkpoint_document(returned.made),
        "duration_s": round(returned.duration_s, 6),
        "record_size_bytes": returned.record_size_bytes,
        "state_size_bytes": returned.state_size_bytes,
        "undone_by": checkpoint_document(returned.undone),
    }


def _ending_document(ending: _Ending) -> dict[str, Any]:
    found = ending.verification
    return {
        "verify": {"ok": found.ok, "records": found.records, "nodes": found.nodes, "problems": found.problems},
        "file_size_bytes": ending.file_size_bytes,
        "snapshots": {"count": ending.snapshots.count, "size_bytes": ending.snapshots.size_bytes},
        "duration_s": round(ending.duration_s, 3),
    }


class _Narrator:
    """Prints events as they happen, in 25 lines. Prints nothing if the output is JSON."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._told = 0

    def _line(self, text: str = "", style: str = "") -> None:
        if not self._output.as_json:
            self._output.line(text, style=style)

    def opening(self, path: Path) -> None:
        self._line(f"An agent reviews {STEPS} packages of Python's own library, one checkpoint a step.", "bold")
        self._line(f"All it knows is in {path}")

    def event(self, process: int, event: dict[str, Any]) -> None:
        """Print one event of the agent's process. Of its steps, print only the first and the last."""
        who = f"  [{process}] "
        if event["event"] == "step":
            self._told += 1
            is_end = event["step"] in (story.KILLED_IN_STEP - 1, STEPS)
            if self._told == 1 or is_end:
                self._line(
                    f"{who}step {event['step']:>2}  {event['package']:<15}{count(event['files'], 'file'):>9}"
                    f"{event['lines']:>8,} lines{count(event['findings'], 'finding'):>13}"
                )
            elif self._told == 2:
                self._line(f"{who}...")
        elif event["event"] == "inside":
            self._line(
                f"{who}step {event['step']:>2}  {event['parsed']} of {count(event['files'], 'file')} parsed, and then:"
                " SIGKILL",
                "bold red",
            )
            self._told = 0

    def resumed_event(self, process: int, event: dict[str, Any]) -> None:
        """Print one event of the second process. Its first event shows the step at which it resumes."""
        if event["event"] != "opened":
            self.event(process, event)
            return
        step = event["next_step"]
        took = format_duration(event["duration_s"])
        self._line(f"  [{process}] opens the file ({took}), resumes at step {step}, not at step 1", "bold green")

    def rollback(self, returned: story.Return) -> None:
        self._tell(
            "rollback",
            f"to step {story.ROLLBACK_TO_STEP} in {format_duration(returned.duration_s)}, and undone:"
            f" {returned.record_size_bytes} bytes for {format_size(returned.state_size_bytes)} of state",
        )

    def fork(self, fork: story.ForkedBranch) -> None:
        self._tell(
            "fork",
            f"steps {fork.base_version + 1} to {STEPS} again, functions are long from"
            f" {story.FORK_LONG_FUNCTION_LINES} lines on, not {LONG_FUNCTION_LINES}",
        )
        channels = len({change.path[0] for change in fork.changes})
        self._tell(
            "diff",
            f"{count(len(fork.changes), 'change')} in {count(channels, 'channel')}, found in"
            f" {format_duration(fork.diff_duration_s)}",
        )

    def ending(self, path: Path, ending: _Ending) -> None:
        found, snapshots = ending.verification, ending.snapshots
        self._tell("verify", f"{'sound' if found.ok else 'damaged'}: {describe_verification(found)}")
        times = snapshots.size_bytes / ending.file_size_bytes
        self._tell(
            "size",
            f"{format_size(ending.file_size_bytes)}; a snapshot a step would take"
            f" {format_size(snapshots.size_bytes)}, {times:.1f} times as much",
        )
        self._line()
        self._line(f"Look at it: statelog tree {shlex.quote(str(path))}")
        self._line("Your turn. To go back, paste this into Python:", "bold")
        self._line()
        for line in your_turn(path):
            self._line(line, "cyan")

    def _tell(self, what: str, text: str) -> None:
        self._line(f"  {what:<9}{text}")


def your_turn(path: Path) -> list[str]:
    """Return three lines of Python that roll back the demo's thread. They can be run repeatedly."""
    return [
        "import statelog",
        f"store = statelog.open({json.dumps(str(path))})",
        f'print(store.thread("{THREAD_ID}").rollback({story.ROLLBACK_TO_STEP}).state["findings"][-1])',
    ]
