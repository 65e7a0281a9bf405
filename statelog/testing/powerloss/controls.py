"""Stores that break their promise on purpose: a harness that passes them finds nothing.

Each control is a recording of a process, or of a disk, that forgets a flush. `run_controls` tells which were caught.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statelog.limits import MAX_SIZE_BYTES_DEFAULT
from statelog.log.engine import Engine
from statelog.storage.environment import Environment
from statelog.store import Store
from statelog.testing.powerloss.campaign import examine_recordings
from statelog.testing.powerloss.recorder import Recording, log_directory, record
from statelog.testing.powerloss.trace import (
    Create,
    DirectoryFlushEnd,
    FlushEnd,
    Mark,
    Rename,
    Trace,
    WriteFlushed,
)
from statelog.testing.powerloss.workloads import Workload, standard_workloads

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.testing.powerloss.trace import Event


def open_without_flush(path: Path, **options: Any) -> Store:
    """Open a store that never flushes: LMDB with `sync=False`."""
    options["max_size_bytes"] = options.get("max_size_bytes") or MAX_SIZE_BYTES_DEFAULT
    return Store(Engine(Environment.open(path, _flush=False, **options)))


def forget(recording: Recording, forgotten: Callable[[Event], bool]) -> Recording:
    """Return the same recording on a disk that does not do what it says it did.

    Args:
        recording: of a good store.
        forgotten: picks the ends of flushes (`FlushEnd`, `WriteFlushed`, `DirectoryFlushEnd`) that are lies.

    """
    trace = recording.trace
    events = tuple(Mark(b"") if forgotten(event) else event for event in trace.events)
    return replace(recording, trace=Trace(trace.base, trace.files, events, trace.unspecified))


def forget_one_flush(recording: Recording, nth: int) -> Recording:
    """Return the recording without its `nth` flush of a file; 1 is the first."""
    flushes = [event for event in recording.trace.events if isinstance(event, FlushEnd | WriteFlushed)]
    return forget(recording, lambda event: event is flushes[nth - 1])


def forget_compaction_flush(recording: Recording) -> Recording:
    """Return the recording without the flushes of a compaction's new file before it takes the store's name."""
    made: set[int] = set()
    flushes: list[Event] = []
    for event in recording.trace.events:
        if isinstance(event, Create):
            made.add(event.file)
        elif isinstance(event, Rename):
            made.discard(event.file)
        elif isinstance(event, FlushEnd | WriteFlushed) and event.file in made:
            flushes.append(event)
    return forget(recording, lambda event: any(event is flush for flush in flushes))


def _named(name: str) -> Workload:
    return next(workload for workload in standard_workloads() if workload.name == name)


def _is_data_flush(event: Event) -> bool:
    return isinstance(event, FlushEnd)


def _is_meta_flush(event: Event) -> bool:
    return isinstance(event, WriteFlushed)


def _is_directory_flush(event: Event) -> bool:
    return isinstance(event, DirectoryFlushEnd)


def control_recordings(directory: Path) -> dict[str, Recording]:
    """Record every control; each must be found out."""

    def recorded(name: str, opener: str = "statelog:open") -> Recording:
        with tempfile.TemporaryDirectory(dir=directory) as temporary:
            return record(_named(name), Path(temporary), opener=opener)

    commit, creation, compaction = recorded("commit"), recorded("creation"), recorded("compaction")
    salvage, upgrade = recorded("salvage"), recorded("upgrade")
    made = {
        "data never flushed": forget(commit, _is_data_flush),
        "meta page never flushed": forget(commit, _is_meta_flush),
        "one flush dropped": forget_one_flush(commit, 3),
        "LMDB with sync=False": recorded("commit", f"{__name__}:open_without_flush"),
        "creation without directory sync": forget(creation, _is_directory_flush),
        "creation without data flush": forget(creation, _is_data_flush),
        "compaction without fsync": forget_compaction_flush(compaction),
        "compaction without directory sync": forget(compaction, _is_directory_flush),
        "salvage without directory sync": forget(salvage, _is_directory_flush),
        "upgrade without data flush": forget(upgrade, _is_data_flush),
    }
    return {name: renamed(recording, name) for name, recording in made.items()}


def renamed(recording: Recording, name: str) -> Recording:
    """Return the recording under another name, for reports."""
    return replace(recording, workload=replace(recording.workload, name=name))


def run_controls(
    directory: Path | None = None, *, progress: Callable[[int, int], None] | None = None
) -> dict[str, bool]:
    """Return for each control whether it was caught.

    Args:
        directory: on the disk to be tried; in memory if left out.
        progress: called with images done and wanted.

    """
    where = directory or log_directory()
    recordings = control_recordings(where or Path(tempfile.gettempdir()))
    report = examine_recordings(list(recordings.values()), images=1, thorough=False, directory=where, progress=progress)
    return {name: report.bad_by_workload[name] > 0 for name in recordings}
