"""Stores, and recoveries, that break their promise on purpose: the power-cut harness has to find each out.

What opens them, or sets a recovery up, is called by name in the processes that are recorded, or look at images.
"""

import time
from dataclasses import replace

import statelog
from statelog.limits import MAX_SIZE_BYTES_DEFAULT
from statelog.log.care.replay import open_engine
from statelog.storage import recovery
from statelog.storage.file.disk import flush_file
from statelog.storage.wal import dirty_flag, wal_format
from statelog.storage.wal.checkpointer import Checkpointer
from statelog.storage.wal.reader_slots import SnapshotPins
from statelog.storage.wal.wal import Wal
from statelog.store.store import Store
from statelog.testing.powerloss import examine_recordings, openings, record
from statelog.testing.powerloss.controls import named_workload, renamed

_FLUSH_S = 0.003
"""The duration of a flush, long enough to notice a caller that does not wait for it."""

_TIMES = {"no pin": 3, "flushed-up-to ahead of the flush": 8}
"""How often the lanes of some are repeated."""
_SHARES = {"no pin": 0.25}
"""Of the cuts of some: after four cuts in succession this one leaves some 75 bad images."""


def open_without_flush(path, **options):
    """Open a store that never flushes, and has no journal."""
    options["max_size_bytes"] = options.get("max_size_bytes") or MAX_SIZE_BYTES_DEFAULT
    return Store(open_engine(path, flush=False, **options))


class _NoPin:
    def abort(self):
        """Do nothing, because the transaction is gone."""


def open_without_pin(path, **options):
    """Open a store that lets LMDB reuse the pages of the durable snapshot, and does nothing to prevent it."""
    keep = SnapshotPins.keep

    def keep_nothing(self, transaction, epoch):
        transaction.abort()
        keep(self, _NoPin(), epoch)

    SnapshotPins.keep = keep_nothing
    return statelog.open(path, **options)


def open_slot_first(path, **options):
    """Open a store that writes the slot of a durable snapshot before it flushes the data file."""
    openings.be_small()
    finish = Checkpointer.finish

    def finish_early(self, *, is_awaited=False):
        finish(self, is_awaited=is_awaited)
        flush_file(self._file.locks.descriptor)

    Checkpointer._flush_data = lambda _self: None
    Checkpointer.finish = finish_early
    return statelog.open(path, **options)


def open_half_first(path, **options):
    """Open a store that takes a slot for flushed that is not written yet, and so reuses a half that is needed."""
    openings.be_slow()
    adopt = Checkpointer.adopt

    def adopt_early(self):
        shared = self._wal.shared()
        shared.done = shared.epoch
        return adopt(self)

    Checkpointer.adopt = adopt_early
    return statelog.open(path, **options)


def open_pin_dropped_first(path, **options):
    """Open a store that releases the pin of the durable snapshot as a checkpoint begins, before its slot is flushed."""
    openings.be_slow()
    begin = Checkpointer._begin

    def begin_and_drop(self):
        begin(self)
        self.pins.drop_before(self._wal.shared().epoch)

    Checkpointer._begin = begin_and_drop
    return statelog.open(path, **options)


def open_acknowledged_first(path, **options):
    """Open a store that acknowledges a commit, and flushes it before the next one."""
    flush, prepare = Wal.flush, Checkpointer.prepare

    def flush_nothing(self, lsn=None):
        del self, lsn

    def prepare_and_flush(self):
        flush(self._wal)
        prepare(self)

    Wal.flush = flush_nothing
    Checkpointer.prepare = prepare_and_flush
    return statelog.open(path, **options)


def open_flushed_first(path, **options):
    """Open a store that reports a flush of the journal as done when it begins, so that other processes believe it."""
    sync = Wal.sync

    def sync_late(self):
        shared = self.shared()
        time.sleep(_FLUSH_S)  # Others commit meanwhile,
        shared.note_flushed(shared.written)
        time.sleep(_FLUSH_S)  # and are woken.
        sync(self)

    Wal.sync = sync_late
    return statelog.open(path, **options)


def open_checking_readers(path, **options):
    """Open a store that makes LMDB forget dead processes before each commit, whoever holds the pin."""
    prepare = Checkpointer.prepare

    def prepare_and_check(self):
        prepare(self)
        self._file.handles.raw.reader_check()

    Checkpointer.prepare = prepare_and_check
    return statelog.open(path, **options)


def open_extent_first(path, **options):
    """Open a store that writes the end of its journal into the data file before the journal is on the disk."""
    openings.be_small()
    begin = Checkpointer._begin

    def begin_late(self):
        wal = self._wal
        if wal.is_flagged:
            extent = wal._extent._replace(epoch=wal.shared().epoch + 1)
            dirty_flag.write_extent(self._file.locks.descriptor, wal.session, extent)
        begin(self)

    Checkpointer._begin = begin_late
    return statelog.open(path, **options)


# --- recoveries: set up in the processes that look at images --------------------------


def restore_nothing():
    """Let this process, a worker, recover from whatever meta pages there are."""
    recovery.restore_meta = lambda _descriptor, _meta: None
    recovery.put_metas_back = lambda _descriptor, _meta, _before: None


def ask_no_epoch():
    """Let this process, a worker, take groups of any epoch for the present one's."""
    decode = wal_format._decode_group

    def decode_any(data, start, session, epoch):
        del epoch
        at = start + wal_format._GROUP_EPOCH_AT
        return decode(data, start, session, int.from_bytes(data[at : at + 8]))

    wal_format._decode_group = decode_any


# --- recordings -----------------------------------------------------------------------

STORES = {
    "slot written before the flush": ("epochs", open_slot_first),
    "extent written before the slot": ("epochs", open_extent_first),
    "no pin": ("commit", open_without_pin),
    "half reused while it is needed": ("checkpoints under way", open_half_first),
    "old pin dropped before the new slot is flushed": ("checkpoints under way", open_pin_dropped_first),
    "acknowledged before the flush": ("commit", open_acknowledged_first),
    "flushed-up-to ahead of the flush": ("three processes", open_flushed_first),
    "reader check before the sync": ("pin holder killed", open_checking_readers),
    "nothing ever flushed": ("commit", open_without_flush),
}
RECOVERIES = {
    "meta pages not restored": ("epochs", restore_nothing),
    "epoch not asked for": ("refused commits", ask_no_epoch),
}


def examine_broken(name, directory):
    """Return whether the harness finds it out. Each by itself: a recovery breaks the process that looks."""
    if name in STORES:
        of, opener = STORES[name]
        workload = named_workload(of)
        workload = replace(workload, lanes=tuple(lane * _TIMES.get(name, 1) for lane in workload.lanes))
        recording = record(workload, directory, opener=f"{__name__}:{opener.__name__}")
    else:
        of, setup = RECOVERIES[name]
        recording = record(named_workload(of), directory)
        recording = replace(recording, workload=replace(recording.workload, setup=f"{__name__}:{setup.__name__}"))
    recording, share = renamed(recording, name), _SHARES.get(name, 1.0)
    report = examine_recordings([recording], images=1, share=share, thorough=False, until_bad=True, workers=1)
    return report.bad_by_workload[name] > 0
