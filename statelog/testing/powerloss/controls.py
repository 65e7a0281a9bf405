"""Stores that break their promise on purpose: a harness that passes them finds nothing.

Each control is a recording of a process, or of a disk, that forgets a flush. `run_controls` tells which were caught.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import statelog
from statelog.limits import MAX_SIZE_BYTES_DEFAULT
from statelog.log.engine import Engine
from statelog.storage.commit import keeper
from statelog.storage.journal import journal, marker, recovery
from statelog.storage.journal.checkpointing import Steady
from statelog.storage.journal.held import HeldPages
from statelog.store.store import Store
from statelog.testing.powerloss import openings
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
    from collections.abc import Callable

    from statelog.testing.powerloss.campaign import PowerLossReport
    from statelog.testing.powerloss.trace import Event


_LONG_S = 3600.0

_SHARES = {"no pin": 0.25}
"""Of the cuts of some controls: after four cuts in succession this one leaves some 75 bad images."""


# --- stores: called by name in the processes that are recorded -----------------------


def open_without_flush(path: Path, **options: Any) -> Store:
    """Open a store that never flushes, and has no journal."""
    options["max_size_bytes"] = options.get("max_size_bytes") or MAX_SIZE_BYTES_DEFAULT
    return Store(Engine.open(path, flush=False, **options))


class _NoPin:
    def abort(self) -> None:
        """Do nothing: what this stands for is gone."""

    def id(self) -> int:
        """Return that of no transaction."""
        return 0


def open_without_pin(path: Path, **options: Any) -> Store:
    """Open a store that lets LMDB reuse the pages of the steady snapshot, and does nothing to prevent it."""
    HeldPages.is_half_taken = False  # type: ignore[assignment, method-assign]  # no snapshot becomes steady in a pause
    advance = Steady.advance

    def advance_and_let_go(self: Steady) -> None:
        advance(self)
        self.pin.give_back()
        self.pin._transaction = _NoPin()  # type: ignore[assignment]  # noqa: SLF001 - it is to be broken

    Steady.advance = advance_and_let_go  # type: ignore[method-assign]
    return statelog.open(path, **options)


class _Unflushed:
    """An LMDB environment whose flush does nothing."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def sync(self, _force: bool) -> None:  # noqa: FBT001 - as LMDB's
        """Do nothing."""


def open_slot_first(path: Path, **options: Any) -> Store:
    """Open a store that writes the slot of a steady snapshot before it flushes the data file."""
    openings.be_small()
    advance = Steady.advance

    def advance_early(self: Steady) -> None:
        environment = self._environment
        handles = environment.handles
        environment.handles = handles._replace(raw=_Unflushed(handles.raw))  # type: ignore[arg-type]
        try:
            advance(self)
        finally:
            environment.handles = handles
        handles.raw.sync(True)  # noqa: FBT003 - LMDB's

    Steady.advance = advance_early  # type: ignore[method-assign]
    return statelog.open(path, **options)


def open_reach_first(path: Path, **options: Any) -> Store:
    """Open a store that says in the data file how far its journal is before that is on the disk."""
    openings.be_small()
    advance = Steady.advance

    def advance_late(self: Steady) -> None:
        if self._is_marked:
            reach = self._reach._replace(epoch=self._epoch + 1)
            marker.write_reach(self._environment.locks.descriptor, self._session, reach)
        advance(self)

    Steady.advance = advance_late  # type: ignore[method-assign]
    return statelog.open(path, **options)


def open_without_following(path: Path, **options: Any) -> Store:
    """Open a store that goes on in another process's epoch without flushing its slot."""
    keeper.IDLE_S = _LONG_S  # at rest it goes on in no epoch
    flushed = os.fdatasync
    follow = Steady._follow  # noqa: SLF001 - it is to be broken

    def follow_at_once(self: Steady, epoch: int) -> None:
        setattr(os, "fdatasync", lambda _descriptor: None)  # noqa: B010 - mypy wants the names of its arguments
        try:
            follow(self, epoch)
        finally:
            os.fdatasync = flushed

    Steady._follow = follow_at_once  # type: ignore[method-assign]  # noqa: SLF001
    return statelog.open(path, **options)


# --- recoveries: set up in the processes that look at images --------------------------


def restore_nothing() -> None:
    """Let this process, a worker, recover from whatever meta pages there are."""
    setattr(recovery, "restore_meta", lambda _descriptor, _meta: None)  # noqa: B010 - as above
    setattr(recovery, "put_metas_back", lambda _descriptor, _meta, _before: None)  # noqa: B010


def ask_no_epoch() -> None:
    """Let this process, a worker, take groups of any epoch for the present one's."""
    decode = journal._decode_group  # noqa: SLF001 - it is to be broken

    def decode_any(data: bytes, start: int, session: bytes, epoch: int) -> Any:
        del epoch
        at = start + journal._GROUP_EPOCH_AT  # noqa: SLF001
        return decode(data, start, session, int.from_bytes(data[at : at + 8]))

    journal._decode_group = decode_any  # noqa: SLF001


# --- disks ----------------------------------------------------------------------------


def forget(recording: Recording, forgotten: Callable[[Event], bool]) -> Recording:
    """Return the same recording on a disk that does not do what it says it did.

    Args:
        recording: of a good store.
        forgotten: picks the ends of flushes (`FlushEnd`, `WriteFlushed`, `DirectoryFlushEnd`) that are lies.

    """
    trace = recording.trace
    events = tuple(Mark(b"") if forgotten(event) else event for event in trace.events)
    return replace(recording, trace=Trace(trace.base, trace.files, events, trace.unspecified))


def flushes_of(recording: Recording, *, of_journal: bool) -> list[Event]:
    """Return the flushes of the data file, or those of the journal."""
    journals = {
        event.file
        for event in recording.trace.events
        if isinstance(event, Create) and event.name == f"{STORE_NAME}-journal"
    }
    flushes = (event for event in recording.trace.events if isinstance(event, FlushEnd))
    return [event for event in flushes if (event.file in journals) == of_journal]


def forget_flushes(recording: Recording, *, of_journal: bool) -> Recording:
    """Return the recording without flushes of the data file, or of the journal."""
    flushes = {id(event) for event in flushes_of(recording, of_journal=of_journal)}
    return forget(recording, lambda event: id(event) in flushes)


def forget_one_flush(recording: Recording, nth: int) -> Recording:
    """Return the recording without the `nth` flush of the journal; 1 is the first."""
    flush = flushes_of(recording, of_journal=True)[nth - 1]
    return forget(recording, lambda event: event is flush)


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


def _is_directory_flush(event: Event) -> bool:
    return isinstance(event, DirectoryFlushEnd)


def control_recordings(directory: Path) -> dict[str, Recording]:
    """Record every control; each must be found out."""

    def recorded(name: str, opener: str = "statelog:open", times: int = 1) -> Recording:
        workload = _named(name)
        workload = replace(workload, lanes=tuple(lane * times for lane in workload.lanes))
        with tempfile.TemporaryDirectory(dir=directory) as temporary:
            return record(workload, Path(temporary), opener=opener)

    def recovering(name: str, setup: Callable[[], None]) -> Recording:
        recording = recorded(name)
        return replace(recording, workload=replace(recording.workload, setup=f"{__name__}:{setup.__name__}"))

    commit, creation, compaction = recorded("commit"), recorded("creation"), recorded("compaction")
    epochs, salvage, upgrade = recorded("epochs"), recorded("salvage"), recorded("upgrade")
    made = {
        "journal never flushed": forget_flushes(commit, of_journal=True),
        "one flush of the journal dropped": forget_one_flush(commit, 6),
        "interval without its flushes": forget_flushes(recorded("interval"), of_journal=True),
        "data never flushed": forget_flushes(epochs, of_journal=False),
        "slot written before the flush": recorded("epochs", f"{__name__}:{open_slot_first.__name__}"),
        "reach written before the slot": recorded("epochs", f"{__name__}:{open_reach_first.__name__}"),
        "no pin": recorded("commit", f"{__name__}:{open_without_pin.__name__}", times=3),
        "slot of a killed process not flushed": recorded(
            "killed processes", f"{__name__}:{open_without_following.__name__}"
        ),
        "meta pages not restored": recovering("epochs", restore_nothing),
        "epoch not asked for": recovering("refused commits", ask_no_epoch),
        "nothing ever flushed": recorded("commit", f"{__name__}:{open_without_flush.__name__}"),
        "creation without directory sync": forget(creation, _is_directory_flush),
        "creation without data flush": forget(creation, _is_data_flush),
        "compaction without fsync": forget_compaction_flush(compaction),
        "compaction without directory sync": forget(compaction, _is_directory_flush),
        "salvage without directory sync": forget(salvage, _is_directory_flush),
        "upgrade without data flush": forget(upgrade, _is_data_flush),
    }
    return {name: renamed(recording, name) for name, recording in made.items()}


def examine_controls(recordings: dict[str, Recording], **options: Any) -> list[PowerLossReport]:
    """Look at controls until each is caught.

    One that breaks the recovery is looked at by itself: it breaks the process that does so. And so is one that is
    found out late, but then at several cuts on end: a share of the cuts finds it.
    """
    alone = {
        name: each for name, each in recordings.items() if name in _SHARES or each.workload.setup.startswith(__name__)
    }
    others = [each for name, each in recordings.items() if name not in alone]
    groups = [(others, 1.0), *(([each], _SHARES.get(name, 1.0)) for name, each in alone.items())]
    return [
        examine_recordings(group, images=1, share=share, thorough=False, until_bad=True, **options)
        for group, share in groups
    ]


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
    caught: dict[str, bool] = {}
    for report in examine_controls(recordings, directory=where, progress=progress):
        caught |= {name: bad > 0 for name, bad in report.bad_by_workload.items()}
    return {name: caught[name] for name in recordings}
