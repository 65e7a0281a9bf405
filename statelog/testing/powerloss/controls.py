"""Negative controls: disks that break their promise on purpose. The harness must detect each of them.

Each control is a recording whose disk forgets flushes. `run_controls` returns which ones were detected. Faulty stores
and recoveries are in `tests/shared/broken_stores.py`.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

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
from statelog.testing.powerloss.workloads import STORE_NAME, Workload, standard_workloads

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from statelog.testing.powerloss.trace import Event


# --- disks ----------------------------------------------------------------------------


def forget(recording: Recording, forgotten: Callable[[Event], bool]) -> Recording:
    """Return the recording as if made on a disk that reports some flushes as done but does not do them.

    Args:
        recording: the recording of a good store.
        forgotten: returns True for an end of a flush (`FlushEnd`, `WriteFlushed`, `DirectoryFlushEnd`) to forget.
    """
    trace = recording.trace
    events = tuple(Mark(b"") if forgotten(event) else event for event in trace.events)
    return replace(recording, trace=Trace(trace.base, trace.files, events, trace.unspecified))


def flushes_of(recording: Recording, *, of_journal: bool) -> list[Event]:
    """Return the flushes of the data file, or with `of_journal` the flushes of the WAL."""
    journals = {
        event.file
        for event in recording.trace.events
        if isinstance(event, Create) and event.name == f"{STORE_NAME}-journal"
    }
    flushes = (event for event in recording.trace.events if isinstance(event, FlushEnd))
    return [event for event in flushes if (event.file in journals) == of_journal]


def forget_flushes(recording: Recording, *, of_journal: bool) -> Recording:
    """Return the recording without flushes of the data file, or with `of_journal` without flushes of the WAL."""
    flushes = {id(event) for event in flushes_of(recording, of_journal=of_journal)}
    return forget(recording, lambda event: id(event) in flushes)


def forget_one_flush(recording: Recording, nth: int) -> Recording:
    """Return the recording without the `nth` flush of the WAL. 1 is the first."""
    flush = flushes_of(recording, of_journal=True)[nth - 1]
    return forget(recording, lambda event: event is flush)


def forget_compaction_flush(recording: Recording) -> Recording:
    """Return the recording without the flushes of a compaction's new file before its rename."""
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


def named_workload(name: str) -> Workload:
    """Return the standard workload called `name`."""
    return next(workload for workload in standard_workloads() if workload.name == name)


def _is_data_flush(event: Event) -> bool:
    return isinstance(event, FlushEnd)


def _is_directory_flush(event: Event) -> bool:
    return isinstance(event, DirectoryFlushEnd)


def control_recordings(directory: Path, names: Collection[str] = ()) -> dict[str, Recording]:
    """Record the negative controls called `names`, or all of them. The checks must fail for each recording."""

    @cache
    def recorded(name: str) -> Recording:
        with tempfile.TemporaryDirectory(dir=directory) as temporary:
            return record(named_workload(name), Path(temporary))

    makers: dict[str, Callable[[], Recording]] = {
        "journal never flushed": lambda: forget_flushes(recorded("commit"), of_journal=True),
        "one flush of the journal dropped": lambda: forget_one_flush(recorded("commit"), 6),
        "interval durability without its flushes": lambda: forget_flushes(recorded("interval"), of_journal=True),
        "data never flushed": lambda: forget_flushes(recorded("epochs"), of_journal=False),
        "creation without directory sync": lambda: forget(recorded("creation"), _is_directory_flush),
        "creation without data flush": lambda: forget(recorded("creation"), _is_data_flush),
        "compaction without fsync": lambda: forget_compaction_flush(recorded("compaction")),
        "compaction without directory sync": lambda: forget(recorded("compaction"), _is_directory_flush),
        "salvage without directory sync": lambda: forget(recorded("salvage"), _is_directory_flush),
        "upgrade without data flush": lambda: forget(recorded("upgrade"), _is_data_flush),
    }
    return {name: renamed(make(), name) for name, make in makers.items() if not names or name in names}


def renamed(recording: Recording, name: str) -> Recording:
    """Return the recording under a different name, for reports."""
    return replace(recording, workload=replace(recording.workload, name=name))


def run_controls(
    directory: Path | None = None, *, progress: Callable[[int, int], None] | None = None
) -> dict[str, bool]:
    """Return for each control whether it was detected.

    Args:
        directory: a directory on the disk to test. By default, the images are in memory.
        progress: called with (images done, images wanted).
    """
    where = directory or log_directory()
    recordings = control_recordings(where or Path(tempfile.gettempdir()))
    report = examine_recordings(
        [*recordings.values()], images=1, thorough=False, until_bad=True, directory=where, progress=progress
    )
    return {name: report.bad_by_workload[name] > 0 for name in recordings}
