"""The acts of the demo, with measured figures."""

from __future__ import annotations

import json
import signal
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cbor2

import statelog
from statelog.cli.demo.review import THREAD_ID, Review, review_step
from statelog.cli.demo.sources import STEPS
from statelog.cli.exits import INTERNAL, ChildError
from statelog.cli.processes import last_line, start_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from statelog import Checkpoint, Diff, Store, Thread

    Narrate = Callable[[int, dict[str, Any]], None]

KILLED_IN_STEP = 14
ROLLBACK_TO_STEP = 7
FORK_NAME = "stricter"
FORK_LONG_FUNCTION_LINES = 40
_WORKER = "statelog.cli.demo.worker"


@dataclass(frozen=True, slots=True)
class AgentProcess:
    """One process of the agent: its events and its exit code."""

    process: int
    events: list[dict[str, Any]]
    returncode: int

    def said(self, event: str) -> list[dict[str, Any]]:
        """Return the events of one kind."""
        return [each for each in self.events if each["event"] == event]


def run_agent(path: Path, *, kill_in_step: int, narrate: Narrate) -> AgentProcess:
    """Run the agent in a child process until it is done, or until it is killed in a step.

    Args:
        path: the store.
        kill_in_step: send SIGKILL in this step; 0 means never.
        narrate: called with each event as it arrives.

    Raises:
        ChildError: the agent failed for a reason other than the deliberate kill.
    """
    events: list[dict[str, Any]] = []
    with tempfile.TemporaryFile() as errors:
        child = start_module(_WORKER, str(path), str(kill_in_step), errors=errors)
        try:
            assert child.stdout is not None
            with child.stdout as lines:
                for line in lines:
                    event = json.loads(line)
                    if event["event"] == "error":
                        raise ChildError(event["message"], event["exit_code"])
                    events.append(event)
                    narrate(child.pid, event)
                    if event["event"] == "inside":
                        child.send_signal(signal.SIGKILL)
            child.wait()
        finally:
            child.kill()
            child.wait()
        if child.returncode != (-signal.SIGKILL if kill_in_step else 0):
            message = f"the agent's process exited with status {child.returncode}: {last_line(errors)}"
            raise ChildError(message, INTERNAL)
    return AgentProcess(child.pid, events, child.returncode)


@dataclass(frozen=True, slots=True)
class Return:
    """A rollback and its cost."""

    target: Checkpoint
    made: Checkpoint
    duration_s: float
    record_size_bytes: int
    state_size_bytes: int
    undone: Checkpoint
    """The checkpoint that undoes the rollback."""


def roll_back(store: Store) -> Return:
    """Roll the thread back to an early step, then undo the rollback."""
    thread = store.thread(THREAD_ID, schema=Review)
    last = thread.head
    assert last is not None
    target = thread.at(ROLLBACK_TO_STEP)
    started = time.perf_counter()
    made = thread.rollback(target.version, metadata={"step": ROLLBACK_TO_STEP, "node": "rollback"})
    duration_s = time.perf_counter() - started
    record = next(store.log(after=made.lsn - 1))
    undone = thread.rollback(last.version, metadata={"step": STEPS, "node": "undo the rollback"})
    assert undone.state_digest == last.state_digest
    return Return(target, made, duration_s, record.size_bytes, len(snapshot(target)), undone)


@dataclass(frozen=True, slots=True)
class ForkedBranch:
    """A second branch of the thread and its differences from the first."""

    thread: Thread
    base_version: int
    duration_s: float
    steps: int
    steps_duration_s: float
    old: Checkpoint
    new: Checkpoint
    changes: Diff
    diff_duration_s: float


def fork_and_compare(store: Store) -> ForkedBranch:
    """Fork the thread at an early step, and repeat the later steps on the branch with a different parameter."""
    thread = store.thread(THREAD_ID, schema=Review)
    started = time.perf_counter()
    branch = thread.fork(
        FORK_NAME,
        at=ROLLBACK_TO_STEP,
        update={"long_function_lines": FORK_LONG_FUNCTION_LINES},
        metadata={"step": ROLLBACK_TO_STEP, "node": "fork"},
    )
    forked = time.perf_counter()
    for step in range(ROLLBACK_TO_STEP + 1, STEPS + 1):
        review_step(branch, step)
    stepped = time.perf_counter()
    old, new = thread.at(STEPS), branch.head
    assert new is not None
    started_diff = time.perf_counter()
    changes = statelog.diff(old, new)
    len(changes)  # `len` computes the lazy diff inside the measured time.
    diff_duration_s = time.perf_counter() - started_diff
    return ForkedBranch(
        thread=branch,
        base_version=ROLLBACK_TO_STEP,
        duration_s=forked - started,
        steps=STEPS - ROLLBACK_TO_STEP,
        steps_duration_s=stepped - forked,
        old=old,
        new=new,
        changes=changes,
        diff_duration_s=diff_duration_s,
    )


@dataclass(frozen=True, slots=True)
class Snapshots:
    """A file beside the store that has every checkpoint's whole state."""

    count: int
    size_bytes: int


def write_snapshots(store: Store, path: Path) -> Snapshots:
    """Write the whole state of every checkpoint to a file and return its size.

    The encoding is the store's (CBOR), without overhead for files or rows.
    """
    count = 0
    with path.open("wb") as file:
        for checkpoint in own_checkpoints(store):
            file.write(snapshot(checkpoint))
            count += 1
    return Snapshots(count, path.stat().st_size)


def snapshot(checkpoint: Checkpoint) -> bytes:
    """Return a checkpoint's whole state as bytes."""
    return cbor2.dumps(checkpoint.state.to_python())


def own_checkpoints(store: Store) -> Iterator[Checkpoint]:
    """Yield every checkpoint of the demo's thread once."""
    thread = store.thread(THREAD_ID)
    for branch in thread.branches():
        for checkpoint in thread.checkout(branch.name).history():
            if checkpoint.version > branch.base_version:
                yield checkpoint
