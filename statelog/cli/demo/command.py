"""`statelog demo`: the story told to a person, or as one JSON document."""

from __future__ import annotations

import platform
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from statelog.cli.care import describe_verification
from statelog.cli.demo import story
from statelog.cli.demo.review import LONG_FUNCTION_LINES, THREAD_ID
from statelog.cli.demo.sources import STEPS
from statelog.cli.diffs import print_changes
from statelog.cli.documents import change_document, checkpoint_document
from statelog.cli.opening import open_for_writing
from statelog.cli.options import AS_JSON
from statelog.cli.output import Output
from statelog.cli.text import count, format_duration, format_size
from statelog.cli.threads import print_history
from statelog.cli.verifying import Verification, verify_in_child
from statelog.errors import AlreadyExistsError, CorruptionError

if TYPE_CHECKING:
    import statelog
    from statelog import Checkpoint

FILE_NAME = "demo.state"
_HISTORY_SHOWN = 6
_CHANGES_SHOWN = 8
_CHANGE_CHARACTERS_MAX = 100


@dataclass(frozen=True, slots=True)
class _Ending:
    """The file at the end."""

    file_size_bytes: int
    snapshots: story.Snapshots
    verification: Verification
    duration_s: float


@click.command(short_help="Watch an agent be killed, and carry on.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    help=f"Where {FILE_NAME} goes; a temporary directory if left out.",
)
@AS_JSON
def demo(*, directory: Path | None, as_json: bool) -> None:
    """Watch an agent be killed inside step 14 of 20, and carry on at step 14.

    It reviews packages of this Python's own library. Then: history, a rollback, a fork
    with another parameter, their difference, verification, and what the file cost. Every
    figure is measured as it runs. The file is kept, to try the other commands on.
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
        narrator.history(thread, history)
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
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / FILE_NAME
    if path.exists():
        message = f"{path} exists already: the demo begins with a new file"
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
    """Tells a person what happens, as it happens; silent where the output is JSON."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._act = 0

    def _title(self, text: str) -> None:
        self._act += 1
        self._line()
        self._line(f"{self._act}. {text}", style="bold")

    def _line(self, text: str = "", style: str = "") -> None:
        if not self._output.as_json:
            self._output.line(text, style=style)

    def opening(self, path: Path) -> None:
        self._line(f"An agent reviews {STEPS} packages of the library of Python {platform.python_version()},", "bold")
        self._line(f"one checkpoint per step, all of it in {path}", "bold")
        self._title(f"A process works, and is killed inside step {story.KILLED_IN_STEP}")

    def event(self, process: int, event: dict[str, Any]) -> None:
        """Tell one thing that a process of the agent said."""
        who = f"  [{process}] "
        if event["event"] == "opened" and event["next_step"] == 0:
            self._line(f"{who}opened a new file in {format_duration(event['duration_s'])}")
        elif event["event"] == "planned":
            self._line(f"{who}planned {len(event['plan'])} steps{'version':>44}{event['version']:>3}")
        elif event["event"] == "step":
            self._line(
                f"{who}step {event['step']:>2}  {event['package']:<15}{count(event['files'], 'file'):>9}"
                f"{event['lines']:>8,} lines{count(event['findings'], 'finding'):>13}  version{event['version']:>3}"
            )
        elif event["event"] == "inside":
            self._line(f"{who}step {event['step']:>2}  parsed {event['parsed']} of {count(event['files'], 'file')} ...")
            self._line(f"{who}killed: SIGKILL", "bold red")

    def resumed_event(self, process: int, event: dict[str, Any]) -> None:
        """Tell what the second process said; its first words are what this is about."""
        if event["event"] != "opened":
            self.event(process, event)
            return
        step = event["next_step"]
        self._title("Another process opens the file and carries on")
        self._line(
            f"  [{process}] opened in {format_duration(event['duration_s'])}: step {step - 1} is the last one committed"
        )
        self._line(f"  [{process}] resumes at step {step}, not at step 1", "bold green")

    def history(self, thread: statelog.Thread, checkpoints: list[Checkpoint]) -> None:
        if self._output.as_json:
            return
        self._title(f"Its history: {count(len(checkpoints), 'checkpoint')}, the newest {_HISTORY_SHOWN} of them")
        print_history(self._output, thread, checkpoints[:_HISTORY_SHOWN])

    def rollback(self, returned: story.Return) -> None:
        self._title(f"Rollback to step {story.ROLLBACK_TO_STEP}")
        self._line(
            f"  version {returned.made.version} is version {returned.target.version} again:"
            f" {format_duration(returned.duration_s)}, flushed to disk;"
            f" a record of {returned.record_size_bytes} bytes"
        )
        self._line(
            f"  for a state of {format_size(returned.state_size_bytes)}. Nothing is deleted:"
            f" version {returned.undone.version} undoes it, with the state of step {STEPS}"
        )

    def fork(self, fork: story.Fork) -> None:
        self._title(f"Fork at step {story.ROLLBACK_TO_STEP}, with another parameter")
        self._line(
            f"  branch {story.FORK_NAME}: functions are long from {story.FORK_LONG_FUNCTION_LINES} lines on,"
            f" not {LONG_FUNCTION_LINES}; forked in {format_duration(fork.duration_s)},"
        )
        first = fork.base_version + 1
        self._line(f"  then steps {first} to {STEPS} again ({format_duration(fork.steps_duration_s)})")
        self._title(f"What differs: main@{fork.old.version} and {story.FORK_NAME}@{fork.new.version}")
        by_channel = Counter(str(change.path[0]) for change in fork.changes)
        channels = ", ".join(f"{number} in {name}" for name, number in by_channel.items())
        self._line(f"  {count(len(fork.changes), 'change')} in {format_duration(fork.diff_duration_s)}: {channels}")
        if self._output.as_json:
            return
        shown = sorted(fork.changes, key=lambda change: len(change.path) > 1)  # whole channels first
        print_changes(self._output, islice(shown, _CHANGES_SHOWN), characters_max=_CHANGE_CHARACTERS_MAX, indent="  ")
        if len(shown) > _CHANGES_SHOWN:
            self._line(f"  ... and {len(shown) - _CHANGES_SHOWN} more", "dim")

    def ending(self, path: Path, ending: _Ending) -> None:
        found, snapshots = ending.verification, ending.snapshots
        self._title("Verify")
        self._line(f"  {'sound' if found.ok else 'damaged'}: {describe_verification(found)}")
        self._title("What it cost")
        times = snapshots.size_bytes / ending.file_size_bytes
        self._line(f"  the file, with free pages and index     {format_size(ending.file_size_bytes):>9}")
        self._line(
            f"  {snapshots.count} snapshots, one for each checkpoint  {format_size(snapshots.size_bytes):>9}"
            f"   {times:.1f} times as much (written and measured, without overhead)"
        )
        self._line()
        self._line(f"All of it took {format_duration(ending.duration_s)}. Look around:")
        for command in (
            f"statelog history {path} {THREAD_ID} --branch {story.FORK_NAME}",
            f"statelog show {path} {THREAD_ID} --at {story.ROLLBACK_TO_STEP} --path 'messages[-1].content'",
            f"statelog stat {path}",
        ):
            self._line(f"  {command}", "cyan")
