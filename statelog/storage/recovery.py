"""Recovers a store that was not closed: the next opening restores its durable snapshot, and replays the WAL.

Recovery does the same after a killed process and after a power failure. Every acknowledged commit is in the snapshot or
in the WAL, and recovery uses nothing else. If recovery is interrupted, the next opening starts it again, because
recovery removes the WAL last.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import lmdb

from statelog.errors import CorruptionError, ForgeryError, FormatError, NewerFormatError, StoreLockedError
from statelog.storage.faults import point
from statelog.storage.file.creation import make_name_durable, sync_directory
from statelog.storage.file.descriptors import open_file
from statelog.storage.file.disk import flush_file
from statelog.storage.file.failures import translate_os
from statelog.storage.file.locks import FileLocks
from statelog.storage.file.moved import SUCCESSOR, read_word
from statelog.storage.file.preopen_checks import check_file, put_metas_back, restore_meta
from statelog.storage.file.sidecar_files import (
    journal_path,
    misfit_error,
    missing_error,
    older_error,
    open_journal,
    remove_journal,
    set_aside,
)
from statelog.storage.wal.dirty_flag import clear_dirty_flag, read_dirty_flag, read_extent
from statelog.storage.wal.wal_format import (
    CommitGroup,
    Groups,
    SnapshotSlot,
    check_leftover,
    find_groups,
    find_records,
    is_of_older_build,
    read_slots,
)
from statelog.storage.write_transaction import WriteTransaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from statelog.storage.lmdb_file import LmdbFile
    from statelog.storage.write_transaction import StoreWriter

    Replay: TypeAlias = Callable[[WriteTransaction, int, Sequence[bytes]], bool]
    """A function that writes records, from an LSN on, into a transaction, with the index rows derived from the records.

    It returns False, and writes nothing, if the records do not continue the log.
    """

_REPLAYED_SIZE_BYTES = 4 * 1024 * 1024
"""The size of the records after which a replay begins a new transaction."""


class UnrecoveredError(Exception):
    """Raised if a read-only opening finds that the store was not closed and that no writing process has it open."""


def is_unclean(path: Path, descriptor: int) -> bool:
    """Return True if a store is in use, or was not closed."""
    return read_dirty_flag(descriptor) is not None or os.path.lexists(journal_path(path))


def check_before_recovery(path: Path, descriptor: int) -> None:
    """Raise an error if the file is not a store, before sidecar files are created. If it has a WAL, recovery checks it.

    Raises:
        FormatError, CorruptionError: the errors of `check_file`. Facts: path.
    """
    if not os.path.lexists(journal_path(path)):
        check_file(descriptor, path)


def waits_for_recovery(path: Path, descriptor: int) -> bool:
    """Return True if a store was not closed, or its compaction was interrupted, and no writing process has it open."""
    is_unfinished = read_dirty_flag(descriptor) is not None or read_word(descriptor) == SUCCESSOR
    return is_unfinished and not FileLocks(descriptor, path).is_open_for_writing()


def recover(writer: StoreWriter, replay: Replay) -> int:
    """Open LMDB on the data file, and recover it first if it was not closed. Return the number of replayed records.

    The caller holds the opening lock (`FileLocks.opening`).

    Raises:
        JournalMissingError: the store was not closed, and its WAL is missing. Facts: path.
        CorruptionError: a flushed part of the WAL is damaged, or the WAL is an older copy. Both files are unchanged.
            Facts: path, journal.
        FormatError: the file with the name of the WAL is not a WAL of this store. Facts: path, journal.
        ForgeryError: the store has a key, and the MAC of a record in the WAL does not match. Both files are unchanged.
            Facts: path, lsn.
        StorageError, ...: the errors of an opening.
        UnrecoveredError: the store is opened read-only, and the process that was about to recover it has ended.
    """
    file = writer.file
    locks, path = file.locks, file.path
    if file.read_only and waits_for_recovery(path, locks.descriptor):
        raise UnrecoveredError
    if file.read_only or not is_unclean(path, locks.descriptor) or not locks.try_exclusive():
        file.open()
        if not is_unclean(path, locks.descriptor):
            writer.wal.clear_failure()
        return 0
    try:
        with file.translating():
            writer.wal.shared().reset()
            make_name_durable(path)
            content = _read_wal(path, locks.descriptor)
            replayed = 0
            if content is None:
                file.open()
                _remove_leftover(file)
            else:
                replayed = _Recovery(writer, content, replay).run()
            writer.wal.clear_failure()
    except BaseException:
        if file.handles is not None:
            file.handles.close()
        raise
    finally:
        locks.acquire_presence(0)
    return replayed


class Abandoned(NamedTuple):
    """The result of `abandon_journal`: the new path of the WAL, or None if there was none."""

    aside: Path | None


def abandon_journal(path: Path) -> Abandoned | None:
    """Make a store usable without its WAL, and set the WAL aside. Return None if the store was closed.

    Raises:
        StoreNotFoundError, AccessError, StorageError: the file cannot be opened for writing. Facts: path.
        StoreLockedError: another process has the store open. Facts: path.
    """
    try:
        descriptor = open_file(path, os.O_RDWR)
    except OSError as error:
        raise translate_os(error, path=path) from error
    try:
        locks = FileLocks(descriptor, path)
        with locks.opening(0.0, read_only=False):
            if not locks.try_exclusive():
                message = f"{path} is open in another process: close it there first"
                raise StoreLockedError(message, path=str(path))
            check_file(descriptor, path)
            if read_dirty_flag(descriptor) is None:
                return None
            aside = set_aside(path)
            sync_directory(path.parent)
            clear_dirty_flag(descriptor)
            flush_file(descriptor)
            return Abandoned(aside)
    except OSError as error:
        raise translate_os(error, path=path) from error
    finally:
        os.close(descriptor)


def count_beyond(journal: Path, lsn: int) -> int:
    """Return the number of complete records after `lsn` in a WAL that was set aside."""
    with contextlib.suppress(OSError):
        descriptor = open_file(journal, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            for slot in read_slots(descriptor)[:1]:
                return sum(number > lsn for number in find_records(descriptor, slot))
        finally:
            os.close(descriptor)
    return 0


def put_records(transaction: WriteTransaction, lsn: int, records: Sequence[bytes]) -> bool:
    """Write records into a transaction, without index rows. Return False if they do not continue the log."""
    if lsn != transaction.last_lsn() + 1:
        return False
    for offset, record in enumerate(records):
        transaction.put_log(lsn + offset, record)
    return True


class _Content(NamedTuple):
    """The content of a WAL: the durable snapshot, and the groups of later commits."""

    slot: SnapshotSlot
    groups: list[CommitGroup]


def _read_wal(path: Path, data: int) -> _Content | None:
    """Return the content of a store's WAL, or None if the dirty flag is not set, so that the data file is complete.

    Recovery writes nothing before this function has checked that the WAL is undamaged and belongs to the data file.
    """
    session = read_dirty_flag(data)
    if session is None:
        return None
    try:
        descriptor = open_journal(path)
    except FileNotFoundError:
        check_file(data, path)  # First make sure that the file is a store, because otherwise the flag means nothing.
        raise missing_error(path) from None
    try:
        slot = _newest_slot(path, descriptor, session)
        extent = read_extent(data, session)
        if slot.epoch < extent.epoch:
            what = f"its journal is older than the file (epoch {slot.epoch}; the file is at {extent.epoch}), or damaged"
            raise misfit_error(path, what)
        size_bytes = os.fstat(descriptor).st_size
        if size_bytes < extent.size_bytes:
            what = f"its journal was cut off: it has {size_bytes} bytes, and had {extent.size_bytes}"
            raise misfit_error(path, what)
        return _Content(slot, _read_groups(path, descriptor, slot, extent.lsn))
    finally:
        os.close(descriptor)


def _newest_slot(path: Path, descriptor: int, session: bytes) -> SnapshotSlot:
    """Return the newest slot of the session.

    An epoch begins only after the slot of the previous epoch was flushed (J3). So if the slot of epoch n is unreadable,
    and the WAL has a group of epoch n + 1, the slot was damaged, not torn. Using the older slot would lose acknowledged
    commits, so raise CorruptionError.
    """
    slots = [slot for slot in read_slots(descriptor) if session in (slot.session, b"")]
    if not slots and is_of_older_build(descriptor):
        raise older_error(path)
    if not slots:
        raise misfit_error(path, "its journal is damaged, or belongs to a different session")
    slot = slots[0]
    if any(find_groups(descriptor, slot.session, slot.epoch + 2)):
        raise misfit_error(path, "a slot of its journal is damaged")
    return slot


def _read_groups(path: Path, descriptor: int, slot: SnapshotSlot, flushed: int) -> list[CommitGroup]:
    """Return the groups of the commits since the snapshot of `slot`.

    An unflushed group may be torn. But if the flushed extent or a later group says that a group was flushed, its commit
    may have been acknowledged. If that group is incomplete, it was damaged, so raise CorruptionError.
    """
    found: list[CommitGroup] = []
    behind: list[CommitGroup] = []
    lsn = slot.lsn
    for epoch in (slot.epoch, slot.epoch + 1):
        groups = Groups(descriptor, slot.session, epoch, lsn)
        found += groups
        behind += find_groups(descriptor, slot.session, epoch, groups.at)
        lsn = groups.lsn
    if lsn < flushed or any(group.flushed > lsn for group in behind):
        raise misfit_error(path, f"record {lsn + 1} is damaged in its journal, or was cut off")
    return found


def _remove_leftover(file: LmdbFile) -> None:
    """Remove the leftover WAL of a complete store, whose creation or closing was interrupted."""
    path, data = file.path, file.locks.descriptor
    try:
        descriptor = open_journal(path)
    except FileNotFoundError:
        return
    try:
        check_leftover(path, descriptor, file.store_id)
    finally:
        os.close(descriptor)
    # Clear the flag again and flush it, because the process that cleared it may have died before its flush. Otherwise a
    # power failure could restore the flag after the WAL was removed.
    clear_dirty_flag(data)
    flush_file(data)
    remove_journal(path)


class _Recovery:
    """One recovery of a store from its WAL."""

    def __init__(self, writer: StoreWriter, content: _Content, replay: Replay) -> None:
        self._writer = writer
        self._file = writer.file
        self._slot = content.slot
        self._groups = content.groups
        self._put = replay
        self._replayed = 0
        """The number of replayed records, including records of a failed commit, which may have overwritten pages."""

    def run(self) -> int:
        """Write the meta page of the durable snapshot over both meta pages, and replay the groups.

        If recovery fails before it has replayed a record, restore the previous meta pages.
        """
        file, slot = self._file, self._slot
        data = file.locks.descriptor
        point("recovery.before_restore")
        before = restore_meta(data, slot.meta)
        point("recovery.after_restore")
        try:
            self._open_restored()
            self._open_records()
            # Let the map grow to the whole quota, because acknowledged commits may need the reserve.
            file.set_map_size(file.max_size_bytes)
            self._replay()
            file.set_map_size(self._writer.disk_reserve.commit_size_bytes_max)
        except BaseException as error:
            if not self._replayed and read_dirty_flag(data) is not None:
                # A failure here loses nothing, because the flag and the WAL remain.
                with contextlib.suppress(OSError):
                    put_metas_back(data, slot.meta, before)
            found = file.translate(error) if isinstance(error, lmdb.Error) else error
            if isinstance(found, ForgeryError):
                message = f"the journal of {file.path}: {found.message}"
                raise ForgeryError(message, **{"path": str(file.path), **found.facts}) from error
            if isinstance(found, CorruptionError) and "journal" not in found.facts:
                raise misfit_error(file.path, f"recovery from its journal fails: {found.message}") from error
            raise
        return self._replayed

    def _open_restored(self) -> None:
        file = self._file
        try:
            file.open()
        except (NewerFormatError, ForgeryError):
            raise
        except (CorruptionError, FormatError) as error:
            what = f"the state that its journal starts from is not in the file ({error.message})"
            raise misfit_error(file.path, what) from error
        if self._slot.store_id != file.store_id:
            raise misfit_error(file.path, "its journal belongs to a different store")

    def _open_records(self) -> None:
        """If the store has a key, check the MACs of the records in all groups, and remove the MACs from the groups."""
        mac = self._file.handles.mac
        if mac is not None:
            self._groups = [
                group._replace(records=mac.open_records(group.lsn, group.records)) for group in self._groups
            ]

    def _replay(self) -> None:
        """Commit the records of all groups again, flush the data file, and remove the WAL."""
        wal, was_off = self._writer.wal, self._writer.wal.is_off
        pin = self._file.handles.begin_read()
        wal.is_off = True
        try:
            done = 0
            while done < len(self._groups):
                done += self._replay_some(self._groups[done:])
                point("recovery.between_transactions")
        finally:
            wal.is_off = was_off
            pin.abort()
        self._remove_wal(is_flushed=not was_off)

    def _replay_some(self, groups: Sequence[CommitGroup]) -> int:
        """Replay as many groups as one transaction takes, and return their number."""
        transaction = WriteTransaction(self._writer)
        transaction.begin()
        done = count = size_bytes = 0
        try:
            for group in groups:
                if not self._put(transaction, group.lsn, group.records):
                    raise misfit_error(self._file.path, f"record {group.lsn} of its journal does not continue the log")
                done += 1
                count += len(group.records)
                size_bytes += sum(map(len, group.records))
                if size_bytes >= _REPLAYED_SIZE_BYTES:
                    break
            self._replayed += count
            transaction.commit()
            return done
        finally:
            transaction.abort()

    def _remove_wal(self, *, is_flushed: bool) -> None:
        """Flush the replayed commits, clear the dirty flag, and then remove the WAL."""
        path, data = self._file.path, self._file.locks.descriptor
        if is_flushed:
            self._file.handles.raw.sync(True)
        clear_dirty_flag(data)
        flush_file(data)
        point("recovery.before_unlink")
        remove_journal(path)
        sync_directory(path.parent)
