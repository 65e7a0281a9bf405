"""What an opening does about a store that was not closed: go back to the steady snapshot, and read the journal.

It makes no difference whether the process was killed or the power failed: everything acknowledged is in the snapshot
or in the journal, and nothing else is looked at. So nothing has to tell the two apart. Cut at any point, it is done
again from the beginning: the journal goes last.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import lmdb

from statelog.errors import CorruptionError, FormatError, NewerFormatError, StoreLockedError
from statelog.storage.commit.transaction import WriteTransaction
from statelog.storage.faults import point
from statelog.storage.file.checks import check_file, put_metas_back, restore_meta
from statelog.storage.file.creation import make_name_durable, sync_directory
from statelog.storage.file.descriptors import open_file
from statelog.storage.file.disk import flush_file
from statelog.storage.file.failures import translate_os
from statelog.storage.file.locks import FileLocks
from statelog.storage.file.moved import SUCCESSOR, read_word
from statelog.storage.file.neighbours import (
    journal_path,
    misfit_error,
    missing_error,
    older_error,
    open_journal,
    remove_journal,
    set_aside,
)
from statelog.storage.journal.journal import (
    Group,
    Groups,
    Slot,
    check_leftover,
    find_groups,
    find_records,
    is_of_older_build,
    read_slots,
)
from statelog.storage.journal.marker import clear_marker, read_marker, read_reach

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from statelog.storage.commit.journaled import JournaledFile

    Replay: TypeAlias = Callable[[WriteTransaction, int, Sequence[bytes]], bool]
    """Puts records, from an LSN on, into a transaction, with what follows from them. False: they do not continue the
    log, and nothing was put."""

_REPLAYED_SIZE_BYTES = 4 * 1024 * 1024
"""Records to a transaction of the recovery."""


class UnrecoveredError(Exception):
    """A reader has found a store that nobody has open, and that was not closed."""


def is_unclean(path: Path, descriptor: int) -> bool:
    """Tell whether a store is in use, or was not closed."""
    return read_marker(descriptor) is not None or os.path.lexists(journal_path(path))


def check_before_recovery(path: Path, descriptor: int) -> None:
    """Refuse what is no store, before anything is made beside it; what has a journal is recovered before it is judged.

    Raises:
        FormatError, CorruptionError: as `check_file`. Facts: path.
    """
    if not os.path.lexists(journal_path(path)):
        check_file(descriptor, path)


def waits_for_recovery(path: Path, descriptor: int) -> bool:
    """Tell whether a store was not closed, by anybody who is still there, or its compaction was cut."""
    is_unfinished = read_marker(descriptor) is not None or read_word(descriptor) == SUCCESSOR
    return is_unfinished and not FileLocks(descriptor, path).is_open_for_writing()


def recover(environment: JournaledFile, replay: Replay) -> None:
    """Open the handles of an environment; recover the store before, if nobody else has it open and it is not clean.

    The caller holds the lock of openings.

    Raises:
        JournalMissingError: it was not closed, and its journal is gone. Facts: path.
        CorruptionError: the journal is damaged where it must not be, or of an earlier moment. Both files are what they
            were. Facts: path, journal.
        FormatError: what has the journal's name is none of this store. Facts: path, journal.
        StorageError, ...: as for opening.
        UnrecoveredError: it is open read-only, and who was about to recover it is gone.
    """
    locks, path = environment.locks, environment.path
    if environment.read_only and waits_for_recovery(path, locks.descriptor):
        raise UnrecoveredError
    if environment.read_only or not is_unclean(path, locks.descriptor) or not locks.try_exclusive():
        environment.open_handles()
        if not is_unclean(path, locks.descriptor):
            environment.steady.believe_again()
        return
    try:
        environment.steady.forget_others()
        make_name_durable(path)
        journal = _read_journal(path, locks.descriptor)
        if journal is None:
            environment.open_handles()
            _remove_leftover(environment)
        else:
            _recover(environment, journal, replay)
        environment.steady.believe_again()
    except BaseException as error:
        if environment.handles is not None:
            environment.handles.close()
        if isinstance(error, OSError):
            raise translate_os(error, path=path) from error
        if isinstance(error, lmdb.Error):
            raise environment.translate(error) from error
        raise
    finally:
        locks.acquire_presence(0)


class Abandoned(NamedTuple):
    """What was done with a store's journal: it lies at `aside` now, if there was one."""

    aside: Path | None


def abandon_journal(path: Path) -> Abandoned | None:
    """Take a store for closed that was not, without its journal, if there is one; None if it was closed.

    Raises:
        StoreNotFoundError, AccessError, StorageError: the file cannot be opened for writing. Facts: path.
        StoreLockedError: another process has it open. Facts: path.
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
            if read_marker(descriptor) is None:
                return None
            aside = set_aside(path)
            sync_directory(path.parent)
            clear_marker(descriptor)
            flush_file(descriptor)
            return Abandoned(aside)
    except OSError as error:
        raise translate_os(error, path=path) from error
    finally:
        os.close(descriptor)


def count_beyond(journal: Path, lsn: int) -> int:
    """Return how many whole records behind one a journal has that was set aside."""
    with contextlib.suppress(OSError):
        descriptor = open_file(journal, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            for slot in read_slots(descriptor)[:1]:
                return sum(number > lsn for number in find_records(descriptor, slot))
        finally:
            os.close(descriptor)
    return 0


def put_records(transaction: WriteTransaction, lsn: int, records: Sequence[bytes]) -> bool:
    """Put records back, and nothing that would follow from them."""
    if lsn != transaction.last_lsn() + 1:
        return False
    for offset, record in enumerate(records):
        transaction.put_log(lsn + offset, record)
    return True


class _Journal(NamedTuple):
    """The steady snapshot, and what was committed since."""

    slot: Slot
    groups: list[Group]


def _read_journal(path: Path, data: int) -> _Journal | None:
    """Return what the journal of a store has; None if the data file is complete by itself: it bears no mark.

    Nothing is written before it is known to be sound, and that the data file was not further.
    """
    session = read_marker(data)
    if session is None:
        return None
    try:
        descriptor = open_journal(path)
    except FileNotFoundError:
        check_file(data, path)  # a file that never was a store bears anything there
        raise missing_error(path) from None
    try:
        slot = _steady_slot(path, descriptor, session)
        reach = read_reach(data, session)
        if slot.epoch < reach.epoch:
            what = f"its journal is of an earlier moment (epoch {slot.epoch}; the file is at {reach.epoch}), or damaged"
            raise misfit_error(path, what)
        size_bytes = os.fstat(descriptor).st_size
        if size_bytes < reach.size_bytes:
            what = f"its journal was cut off: it has {size_bytes} bytes, and had {reach.size_bytes}"
            raise misfit_error(path, what)
        return _Journal(slot, _read_groups(path, descriptor, slot, reach.lsn))
    finally:
        os.close(descriptor)


def _steady_slot(path: Path, descriptor: int, session: bytes) -> Slot:
    """Return the newest slot.

    If one was torn as it was written, no group of the epoch behind it had been (J3): if there is one, the slot was
    damaged, and to go back to the one before would lose what was acknowledged since.
    """
    slots = [slot for slot in read_slots(descriptor) if session in (slot.session, b"")]
    if not slots and is_of_older_build(descriptor):
        raise older_error(path)
    if not slots:
        raise misfit_error(path, "its journal is damaged, or of another time")
    slot = slots[0]
    if any(find_groups(descriptor, slot.session, slot.epoch + 2)):
        raise misfit_error(path, "a slot of its journal is damaged")
    return slot


def _read_groups(path: Path, descriptor: int, slot: Slot, flushed: int) -> list[Group]:
    """Return what was committed since a steady snapshot.

    A group that was being written may be torn, and with "interval" any that was not flushed. But one of which the
    reach, or a later one, tells that it had been flushed was acknowledged, and is damaged.
    """
    found: list[Group] = []
    behind: list[Group] = []
    lsn = slot.lsn
    for epoch in (slot.epoch, slot.epoch + 1):
        groups = Groups(descriptor, slot.session, epoch, lsn)
        found += groups
        behind += find_groups(descriptor, slot.session, epoch, groups.at)
        lsn = groups.lsn
    if lsn < flushed or any(group.flushed > lsn for group in behind):
        raise misfit_error(path, f"record {lsn + 1} is damaged in its journal, or was cut off")
    return found


def _remove_leftover(environment: JournaledFile) -> None:
    """Remove the journal of a store that is complete without: of a creation that was cut, or a closing."""
    path, data = environment.path, environment.locks.descriptor
    try:
        descriptor = open_journal(path)
    except FileNotFoundError:
        return
    try:
        check_leftover(path, descriptor, environment.store_id)
    finally:
        os.close(descriptor)
    # Whoever cleared the mark may have failed to flush it: a mark that came back would miss the journal.
    clear_marker(data)
    flush_file(data)
    remove_journal(path)


def _recover(environment: JournaledFile, journal: _Journal, replay: Replay) -> None:
    """Put the steady snapshot's meta page into both slots, and commit again what the journal holds.

    If the data file turns out to be another than the journal's, it is what it was.
    """
    data, slot = environment.locks.descriptor, journal.slot
    point("recovery.before_restore")
    before = restore_meta(data, slot.meta)
    point("recovery.after_restore")
    try:
        _open_restored(environment, slot)
        environment.set_map_size(environment.max_size_bytes)  # what was acknowledged may need the reserve
        _replay(environment, journal.groups, replay)
        environment.set_map_size(environment.headroom.commit_size_bytes_max)
    except BaseException as error:
        if not environment.replayed and read_marker(data) is not None:
            with contextlib.suppress(OSError):  # nothing is lost: the mark and the journal are there
                put_metas_back(data, slot.meta, before)
        found = environment.translate(error) if isinstance(error, lmdb.Error) else error
        if isinstance(found, CorruptionError) and "journal" not in found.facts:
            raise misfit_error(environment.path, f"to go on from its journal fails: {found.message}") from error
        raise


def _open_restored(environment: JournaledFile, slot: Slot) -> None:
    path = environment.path
    try:
        environment.open_handles()
    except NewerFormatError:
        raise
    except (CorruptionError, FormatError) as error:
        what = f"what its journal goes back to is not in the file ({error.message})"
        raise misfit_error(path, what) from error
    if slot.store_id != environment.store_id:
        raise misfit_error(path, "its journal is another store's")


def _replay(environment: JournaledFile, groups: Sequence[Group], replay: Replay) -> None:
    """Commit what the journal holds again, make it steady, and remove the journal."""
    steady = environment.steady
    pin = environment.handles.begin_read()
    steady.is_off = True
    try:
        done = 0
        while done < len(groups):
            done += _replay_some(environment, groups[done:], replay)
            point("recovery.between_transactions")
    finally:
        steady.is_off = not environment.options.flush
        pin.abort()
    _retire(environment)


def _retire(environment: JournaledFile) -> None:
    """Flush what was replayed; then the journal may go, and its mark first."""
    data = environment.locks.descriptor
    if environment.options.flush:
        environment.handles.raw.sync(True)
    clear_marker(data)
    flush_file(data)
    point("recovery.before_unlink")
    remove_journal(environment.path)
    sync_directory(environment.path.parent)


def _replay_some(environment: JournaledFile, groups: Sequence[Group], replay: Replay) -> int:
    """Replay one transaction's worth of groups; return how many."""
    transaction = WriteTransaction(environment)
    transaction.begin()
    done = count = size_bytes = 0
    try:
        for group in groups:
            if not replay(transaction, group.lsn, group.records):
                raise misfit_error(environment.path, f"record {group.lsn} of its journal does not continue the log")
            done += 1
            count += len(group.records)
            size_bytes += sum(map(len, group.records))
            if size_bytes >= _REPLAYED_SIZE_BYTES:
                break
        environment.replayed += count  # before: a commit that fails may have written over what is not steady
        transaction.commit()
        return done
    finally:
        transaction.abort()
