"""What an opening does about a store that was not closed: go back to the steady snapshot, and read the journal.

It makes no difference whether the process was killed or the power failed: everything acknowledged is in the snapshot
or in the journal, and nothing else is looked at. So nothing has to tell the two apart. Cut at any point, it is done
again from the beginning: the journal goes last.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias

import lmdb

from statelog.errors import CorruptionError, StoreLockedError
from statelog.storage.checks import check_file, restore_meta
from statelog.storage.creation import sync_directory
from statelog.storage.disk import flush_file
from statelog.storage.failures import translate_os
from statelog.storage.faults import point
from statelog.storage.flushing import make_name_durable
from statelog.storage.journal import (
    RECORDS_AT,
    Groups,
    Slot,
    find_groups,
    journal_path,
    missing_error,
    read_slots,
)
from statelog.storage.locks import FileLocks
from statelog.storage.marker import clear_marker, read_marker
from statelog.storage.writing import WriteTransaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from statelog.storage.environment import Environment

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


def waits_for_recovery(path: Path, descriptor: int) -> bool:
    """Tell whether a store was not closed, by anybody who is still there."""
    return read_marker(descriptor) is not None and not FileLocks(descriptor, path).is_open_for_writing()


def recover(environment: Environment, replay: Replay) -> None:
    """Open the handles of an environment; recover the store before, if nobody else has it open and it is not clean.

    The caller holds the lock of openings.

    Raises:
        JournalMissingError: it was not closed, and its journal is gone. Facts: path.
        CorruptionError: the journal is damaged where it must not be. Facts: path.
        StorageError, ...: as for opening.
        UnrecoveredError: it is open read-only, and who was about to recover it is gone.
    """
    locks, path = environment.locks, environment.path
    if read_marker(locks.descriptor) is not None:
        locks.pass_writer(environment.lock_timeout_s)  # D2: whoever was alone knows by now that it is not
        if environment.read_only and not locks.is_open_for_writing():
            raise UnrecoveredError
    if environment.read_only or not is_unclean(path, locks.descriptor) or not locks.try_exclusive():
        environment.open_handles()
        return
    try:
        make_name_durable(path)
        source = _restore(environment)
        try:
            environment.open_handles()
            if source is not None:
                environment.set_map_size(environment.max_size_bytes)  # what was acknowledged may need the reserve
                _replay(environment, *source, replay)
                environment.set_map_size(environment.headroom.commit_size_bytes_max)
        except BaseException:
            if environment.handles is not None:
                environment.handles.raw.close()
            raise
        finally:
            if source is not None:
                os.close(source[0])
    except OSError as error:
        raise translate_os(error, path=path) from error
    except lmdb.Error as error:
        raise environment.translate(error) from error
    finally:
        locks.acquire_presence(0)


def abandon_journal(path: Path) -> bool:
    """Take a store for closed that was not: its journal, if there is one, is removed unread; tell whether it was so.

    Raises:
        StoreNotFoundError, AccessError, StorageError: the file cannot be opened for writing. Facts: path.
        StoreLockedError: another process has it open. Facts: path.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
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
                return False
            clear_marker(descriptor)
            flush_file(descriptor)
            journal_path(path).unlink(missing_ok=True)
            sync_directory(path.parent)
            return True
    except OSError as error:
        raise translate_os(error, path=path) from error
    finally:
        os.close(descriptor)


def put_records(transaction: WriteTransaction, lsn: int, records: Sequence[bytes]) -> bool:
    """Put records back, and nothing that would follow from them."""
    if lsn != transaction.last_lsn() + 1:
        return False
    for offset, record in enumerate(records):
        transaction.put_log(lsn + offset, record)
    return True


def _restore(environment: Environment) -> tuple[int, Slot] | None:
    """Put the steady snapshot's meta page into both slots; return the journal, open, and the snapshot's slot.

    None if the data file is complete by itself: it bears no mark. A journal is then left over, from a creation that
    was cut, or from a clean closing.
    """
    path, data = environment.path, environment.locks.descriptor
    session = read_marker(data)
    journal = journal_path(path)
    if session is None:
        if os.path.lexists(journal):
            # Whoever cleared the mark may have failed to flush it: a mark that came back would miss the journal.
            clear_marker(data)
            flush_file(data)
            journal.unlink(missing_ok=True)
        return None
    try:
        descriptor = os.open(journal, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        check_file(data, path)  # a file that never was a store bears anything there
        raise missing_error(path) from None
    try:
        slot = _steady_slot(path, descriptor, session)
        point("recovery.before_restore")
        restore_meta(data, slot.meta)
        point("recovery.after_restore")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, slot


def _steady_slot(path: Path, descriptor: int, session: bytes) -> Slot:
    """Return the newest slot.

    If one was torn as it was written, no group of its epoch had been (J3): if there is one, the slot was damaged, and
    to go back to the one before would lose what was acknowledged since.
    """
    slots = [slot for slot in read_slots(descriptor) if session in (slot.session, b"")]
    if not slots:
        raise _journal_error(path, f"{path} was not closed, and its journal is damaged, or of another time")
    slot = slots[0]
    if any(find_groups(descriptor, slot.session, slot.epoch + 1, RECORDS_AT)):
        raise _journal_error(path, f"{path} was not closed, and a slot of its journal is damaged")
    return slot


def _journal_error(path: Path, message: str) -> CorruptionError:
    journal = journal_path(path)
    message = f"{message}: {journal.name}; `statelog recover --without-journal` goes on with what is before that"
    return CorruptionError(message, path=str(path), journal=str(journal))


def _replay(environment: Environment, descriptor: int, slot: Slot, replay: Replay) -> None:
    """Commit what the journal holds again, make it steady, and remove the journal."""
    steady, path = environment.steady, environment.path
    groups = Groups(descriptor, slot)
    pin = environment.handles.begin(None, None, False, False)
    steady.is_off = True
    try:
        is_more = True
        while is_more:
            is_more = _replay_some(environment, groups, replay)
            point("recovery.between_transactions")
    finally:
        steady.is_off = not environment.options.flush
        pin.abort()
    # A group that was being written may be torn, and with "interval" any that was not flushed. But one of which a
    # later one tells that it had been flushed was acknowledged, and is damaged.
    if any(group.flushed > groups.lsn for group in find_groups(descriptor, slot.session, slot.epoch, groups.at)):
        message = f"{path} was not closed, and record {groups.lsn + 1} is damaged in its journal"
        raise _journal_error(path, message)
    _retire(environment)


def _retire(environment: Environment) -> None:
    """Flush what was replayed; then the journal may go, and its mark first."""
    data = environment.locks.descriptor
    if environment.options.flush:
        environment.handles.raw.sync(True)
    clear_marker(data)
    flush_file(data)
    point("recovery.before_unlink")
    journal_path(environment.path).unlink(missing_ok=True)
    sync_directory(environment.path.parent)


def _replay_some(environment: Environment, groups: Groups, replay: Replay) -> bool:
    """Replay one transaction's worth; tell whether there may be more."""
    transaction = WriteTransaction(environment)
    transaction.begin()
    size_bytes = 0
    try:
        for group in groups:
            if not replay(transaction, group.lsn, group.records):
                path = environment.path
                message = f"{path} was not closed, and record {group.lsn} of its journal does not continue the log"
                raise _journal_error(path, message)
            size_bytes += sum(map(len, group.records))
            environment.replayed += len(group.records)
            if size_bytes >= _REPLAYED_SIZE_BYTES:
                transaction.commit()
                return True
        if size_bytes:
            transaction.commit()
        return False
    finally:
        transaction.abort()
