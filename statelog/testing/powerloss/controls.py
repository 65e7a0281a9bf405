"""Stores that break their promise on purpose: a harness that passes them finds nothing.

Each control is a recording of a process, or of a disk, that forgets a flush. `run_controls` tells which were caught.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import statelog
from statelog.limits import MAX_SIZE_BYTES_DEFAULT
from statelog.log.care.replay import open_engine
from statelog.storage.commit import recovery
from statelog.storage.file.disk import flush_file
from statelog.storage.journal import journal, marker
from statelog.storage.journal.checkpointing import Steady
from statelog.storage.journal.pin import Pins
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
    from collections.abc import Callable, Collection

    from statelog.testing.powerloss.campaign import PowerLossReport
    from statelog.testing.powerloss.trace import Event


_FLUSH_S = 0.003
"""So long a flush takes where it is to be seen that somebody did not wait for it."""

_SHARES = {"no pin": 0.25}
"""Of the cuts of some controls: after four cuts in succession this one leaves some 75 bad images."""


# --- stores: called by name in the processes that are recorded -----------------------


def open_without_flush(path: Path, **options: Any) -> Store:
    """Open a store that never flushes, and has no journal."""
    options["max_size_bytes"] = options.get("max_size_bytes") or MAX_SIZE_BYTES_DEFAULT
    return Store(open_engine(path, flush=False, **options))


class _NoPin:
    def abort(self) -> None:
        """Do nothing: what this stands for is gone."""


def open_without_pin(path: Path, **options: Any) -> Store:
    """Open a store that lets LMDB reuse the pages of the steady snapshot, and does nothing to prevent it."""
    keep = Pins.keep

    def keep_nothing(self: Pins, transaction: Any, epoch: int) -> None:
        transaction.abort()
        keep(self, _NoPin(), epoch)  # type: ignore[arg-type]

    Pins.keep = keep_nothing  # type: ignore[method-assign]
    return statelog.open(path, **options)


def open_slot_first(path: Path, **options: Any) -> Store:
    """Open a store that writes the slot of a steady snapshot before it flushes the data file."""
    openings.be_small()
    complete = Steady.complete

    def complete_early(self: Steady, *, is_awaited: bool = False) -> None:
        complete(self, is_awaited=is_awaited)
        flush_file(self._environment.locks.descriptor)

    setattr(Steady, "_flush_data", lambda _self: None)  # noqa: B010 - it is to be broken, and mypy would tell
    setattr(Steady, "complete", complete_early)  # noqa: B010
    return statelog.open(path, **options)


def open_half_first(path: Path, **options: Any) -> Store:
    """Open a store that takes a slot for flushed that is not written yet, and so reuses a half that is needed."""
    openings.be_slow()
    agree = Steady._agree  # noqa: SLF001

    def agree_early(self: Steady) -> bool:
        control = self.control
        if control is not None:
            control.done = control.epoch
        return agree(self)

    setattr(Steady, "_agree", agree_early)  # noqa: B010
    return statelog.open(path, **options)


def open_pin_dropped_first(path: Path, **options: Any) -> Store:
    """Open a store that lets go of the steady snapshot's pin as an advance begins, before its slot is flushed."""
    openings.be_slow()
    begin = Steady._begin_advance  # noqa: SLF001

    def begin_and_drop(self: Steady) -> None:
        begin(self)
        control = self.control
        if control is not None:
            self.pins.drop_before(control.epoch)

    setattr(Steady, "_begin_advance", begin_and_drop)  # noqa: B010
    return statelog.open(path, **options)


def open_acknowledged_first(path: Path, **options: Any) -> Store:
    """Open a store that acknowledges a commit, and flushes it before the next one."""
    flush, prepare = Steady.flush, Steady.prepare

    def flush_nothing(self: Steady, lsn: int | None = None) -> None:
        del self, lsn

    def prepare_and_flush(self: Steady) -> None:
        flush(self)
        prepare(self)

    setattr(Steady, "flush", flush_nothing)  # noqa: B010
    setattr(Steady, "prepare", prepare_and_flush)  # noqa: B010
    return statelog.open(path, **options)


def open_flushed_first(path: Path, **options: Any) -> Store:
    """Open a store that says how far the journal is flushed as it begins to: other processes believe it."""
    flush = Steady._flush_journal  # noqa: SLF001

    def flush_late(self: Steady) -> None:
        control = self.control
        if control is not None:
            control.note_flushed(control.written)
        time.sleep(_FLUSH_S)
        flush(self)

    setattr(Steady, "_flush_journal", flush_late)  # noqa: B010
    return statelog.open(path, **options)


def open_checking_readers(path: Path, **options: Any) -> Store:
    """Open a store that has LMDB forget dead processes before each commit, whoever holds the pin."""
    prepare = Steady.prepare

    def prepare_and_check(self: Steady) -> None:
        prepare(self)
        self._environment.handles.raw.reader_check()

    setattr(Steady, "prepare", prepare_and_check)  # noqa: B010
    return statelog.open(path, **options)


def open_reach_first(path: Path, **options: Any) -> Store:
    """Open a store that says in the data file how far its journal is before that is on the disk."""
    openings.be_small()
    begin = Steady._begin_advance  # noqa: SLF001

    def begin_late(self: Steady) -> None:
        control = self.control
        if self._is_marked and control is not None:
            reach = self._reach._replace(epoch=control.epoch + 1)
            marker.write_reach(self._environment.locks.descriptor, self._session, reach)
        begin(self)

    Steady._begin_advance = begin_late  # type: ignore[method-assign]  # noqa: SLF001
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


def control_recordings(directory: Path, names: Collection[str] = ()) -> dict[str, Recording]:
    """Record the controls of these names, all if none is given; each must be found out."""

    @cache
    def recorded(name: str, opener: str = "statelog:open", times: int = 1) -> Recording:
        workload = _named(name)
        workload = replace(workload, lanes=tuple(lane * times for lane in workload.lanes))
        with tempfile.TemporaryDirectory(dir=directory) as temporary:
            return record(workload, Path(temporary), opener=opener)

    def recovering(name: str, setup: Callable[[], None]) -> Recording:
        recording = recorded(name)
        return replace(recording, workload=replace(recording.workload, setup=f"{__name__}:{setup.__name__}"))

    makers: dict[str, Callable[[], Recording]] = {
        "journal never flushed": lambda: forget_flushes(recorded("commit"), of_journal=True),
        "one flush of the journal dropped": lambda: forget_one_flush(recorded("commit"), 6),
        "interval without its flushes": lambda: forget_flushes(recorded("interval"), of_journal=True),
        "data never flushed": lambda: forget_flushes(recorded("epochs"), of_journal=False),
        "slot written before the flush": lambda: recorded("epochs", f"{__name__}:{open_slot_first.__name__}"),
        "reach written before the slot": lambda: recorded("epochs", f"{__name__}:{open_reach_first.__name__}"),
        "no pin": lambda: recorded("commit", f"{__name__}:{open_without_pin.__name__}", times=3),
        "half reused while it is needed": lambda: recorded(
            "advances under way", f"{__name__}:{open_half_first.__name__}"
        ),
        "old pin dropped before the new slot is flushed": lambda: recorded(
            "advances under way", f"{__name__}:{open_pin_dropped_first.__name__}"
        ),
        "acknowledged before the flush": lambda: recorded("commit", f"{__name__}:{open_acknowledged_first.__name__}"),
        "flushed-up-to ahead of the flush": lambda: recorded(
            "three processes", f"{__name__}:{open_flushed_first.__name__}"
        ),
        "reader check before the sync": lambda: recorded(
            "pin holder killed", f"{__name__}:{open_checking_readers.__name__}"
        ),
        "meta pages not restored": lambda: recovering("epochs", restore_nothing),
        "epoch not asked for": lambda: recovering("refused commits", ask_no_epoch),
        "nothing ever flushed": lambda: recorded("commit", f"{__name__}:{open_without_flush.__name__}"),
        "creation without directory sync": lambda: forget(recorded("creation"), _is_directory_flush),
        "creation without data flush": lambda: forget(recorded("creation"), _is_data_flush),
        "compaction without fsync": lambda: forget_compaction_flush(recorded("compaction")),
        "compaction without directory sync": lambda: forget(recorded("compaction"), _is_directory_flush),
        "salvage without directory sync": lambda: forget(recorded("salvage"), _is_directory_flush),
        "upgrade without data flush": lambda: forget(recorded("upgrade"), _is_data_flush),
    }
    return {name: renamed(make(), name) for name, make in makers.items() if not names or name in names}


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
