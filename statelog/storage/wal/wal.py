"""The write-ahead log (WAL) as opened by one process: appends and flushes. DESIGN.md section 6."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, NamedTuple

from statelog.limits import JOURNALED_SIZE_BYTES_MAX
from statelog.storage.faults import armed, point
from statelog.storage.file.disk import flush_file, write_all, write_zeros
from statelog.storage.file.failures import DISK_FULL_ERRNOS, is_of_system, translate_os
from statelog.storage.file.file_identity import replaced_error
from statelog.storage.file.locks import is_same_file
from statelog.storage.file.sidecar_files import (
    broken_error,
    journal_path,
    missing_error,
    older_error,
    open_journal,
    removed_error,
)
from statelog.storage.wal.dirty_flag import NO_EXTENT, FlushedExtent, clear_dirty_flag, write_extent
from statelog.storage.wal.shared_state import (
    AT,
    EPOCH,
    FILLED,
    FLUSHED,
    LSN,
    PATH_PAGES,
    TAKEN,
    UNKNOWN,
    WRITTEN,
    SharedState,
)
from statelog.storage.wal.wal_format import (
    HALF_SIZE_BYTES,
    HALVES_AT,
    RECORDS_AT,
    check_leftover,
    encode_group,
    fill,
    is_of_older_build,
    read_slots,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from statelog.errors import JournalMissingError, StorageError
    from statelog.storage.lmdb_file import LmdbFile

_PAGE_SIZE_BYTES = 4096
_SESSION_SIZE_BYTES = 16
_FLUSH_SLICE_S = 0.05
_SLICES_MAX = 5
"""How many times a flush waits `_FLUSH_SLICE_S` for the flush of another process, which may have been stopped."""


class DetachedWal(NamedTuple):
    """The open files of a WAL that a process no longer uses. See `Wal.detach`."""

    shared_state: SharedState | None
    descriptor: int
    is_flagged: bool

    def close(self) -> None:
        """Close the shared state and the WAL."""
        if self.shared_state is not None:
            self.shared_state.close()
        if self.descriptor >= 0:
            os.close(self.descriptor)


class Wal:
    """The WAL of one store. Unless a method says that it needs no lock, only the owner of the writer lock may call it.

    Attributes:
        shared_state: the state that writing processes share; None if the store is open for reading only.
        flushing: the lock that a thread holds while it flushes, so that other threads wait for its flush. It is also
            held while the WAL or the data file is replaced.
        descriptor: the descriptor of the WAL; -1 while it is not open.
        session: 16 bytes that name the session of the WAL.
        end: the offset after the last appended group.
        is_off: whether nothing is appended or flushed, for measurements and while recovery replays the WAL.
        is_flagged: whether the data file has the dirty flag of this session.
        is_broken: whether a flush has failed, so the page cache cannot be trusted, and nothing may be written.
        is_gone: whether the WAL or the data file was removed, so that nothing may be written. The page cache still has
            all commits.
    """

    def __init__(self, file: LmdbFile, *, is_off: bool) -> None:
        self.shared_state: SharedState | None = None
        self.flushing = threading.RLock()
        self.descriptor = -1
        self.session = b""
        self.end = 0
        self.is_off = is_off
        self.is_broken = self.is_gone = self.is_flagged = False
        self._file = file
        self._extent = NO_EXTENT

    def shared(self) -> SharedState:
        """Return the shared state of a store that is open for writing."""
        assert self.shared_state is not None, "a store that is open read-only cannot be written to"
        return self.shared_state

    def open_shared_state(self, *, is_first: bool) -> None:
        """Map the shared state, and use its writer lock. The caller holds the opening lock (`FileLocks.opening`)."""
        locks = self._file.locks
        shared = SharedState(self._file.path, os.fstat(locks.descriptor), is_first=is_first)
        self.shared_state = shared
        locks.writer = shared.lock

    def close_shared_state(self, *, is_last: bool) -> None:
        """Unmap the shared state, and remove it if no other process has the store open."""
        shared, self.shared_state = self.shared_state, None
        if shared is None:
            return
        if is_last and not shared.is_broken and is_same_file(shared.path, shared.descriptor):
            with contextlib.suppress(OSError):
                shared.path.unlink()
        shared.close()

    # --- appending and flushing -----------------------------------------------------

    def append(self, lsn: int, records: Sequence[bytes], size_bytes: int) -> bool:
        """Append the records of a commit. Return False if the WAL cannot take them (J4).

        Raises:
            StorageError: the operating system reports an error. Facts: path (of the WAL).
        """
        shared = self.shared_state
        assert shared is not None
        words = shared.words
        if size_bytes > JOURNALED_SIZE_BYTES_MAX or words[LSN] + 1 != lsn:
            return False
        at, epoch = words[AT], words[EPOCH]
        half = epoch & 1
        group = encode_group(self.session, epoch, lsn, records, flushed=words[FLUSHED])
        self.end = at + len(group)
        if self.end > HALVES_AT[half] + HALF_SIZE_BYTES:
            return False
        # From here on, the WAL may have a group that LMDB has not committed. So set the LSN to UNKNOWN, which keeps the
        # next commit from appending. A process that determines the outcome of this commit first makes a checkpoint.
        words[LSN] = UNKNOWN
        try:
            filled = max(words[FILLED + half], HALVES_AT[half])
            if self.end > filled:
                shared.note_filled(half, fill(self.descriptor, HALVES_AT[half], self.end, filled))
            if armed:
                point("journal.before_append")
            written = os.pwrite(self.descriptor, group, at)
            if written < len(group):
                write_all(self.descriptor, group[written:], at + written)
            if armed:
                point("journal.after_append")
        except OSError as error:
            if error.errno in DISK_FULL_ERRNOS:
                return False
            raise translate_os(error, path=journal_path(self._file.path)) from error
        return True

    def note_committed(self, last_lsn: int, changes: int, size_bytes: int) -> None:
        """Record that LMDB has committed the group that was appended last."""
        shared = self.shared_state
        assert shared is not None
        words = shared.words
        words[AT] = self.end
        words[LSN] = words[WRITTEN] = last_lsn
        words[TAKEN] += words[PATH_PAGES] + changes + size_bytes // _PAGE_SIZE_BYTES

    def note_unappended(self, *, rewrites: bool) -> None:
        """Record that LMDB is about to commit without a group in the WAL, so that a checkpoint follows.

        `rewrites` is True if the commit does more than append records.
        """
        shared = self.shared()
        shared.rewritten += rewrites
        shared.lsn = UNKNOWN

    def flush(self, lsn: int | None = None) -> None:
        """Make commits durable up to the record `lsn`, or all commits by default. Needs no lock.

        If another thread or process is already flushing, wait for its flush.

        Raises:
            StorageError: a flush failed, here or in another process. Facts: path.
            JournalMissingError, StoreReplacedError: the WAL or the data file was removed.
        """
        shared = self.shared_state
        if self.is_off or shared is None or self.descriptor < 0:
            return
        lsn = shared.written if lsn is None else lsn
        slices = 0
        while shared.flushed < lsn:
            sequence = shared.flush_sequence()
            with self.flushing:
                if shared.flushed >= lsn or self.descriptor < 0 or shared is not self.shared_state:
                    break  # Another flush reached `lsn`, or the WAL was closed after the data file got all commits.
                try:
                    # If a stopped process seems to own the lock, flush without it, because two flushes at once are
                    # harmless.
                    if shared.flush_lock.try_acquire() or slices >= _SLICES_MAX:
                        # Refuse to flush after a failed flush, because this flush might succeed without writing.
                        self.refuse_if_broken()
                        # Read `written` before the flush, because the flush may miss later commits (J7).
                        written = shared.written
                        self.sync()
                        if written > shared.flushed:
                            shared.note_flushed(written)
                        continue
                finally:
                    try:
                        shared.flush_lock.release()
                    except BaseException:  # An interrupt may have come as the release began, so release the lock again.
                        shared.flush_lock.release()
                        raise
            shared.await_flush(sequence, _FLUSH_SLICE_S)
            slices = slices + 1 if shared.flush_sequence() == sequence else 0
        if self.is_broken or shared.is_broken:
            raise self._broken_error()
        self.check_file()
        if armed:
            point("journal.after_flush")

    def sync(self) -> None:
        """Flush the WAL file. If the flush fails, keep all processes from writing, and raise StorageError."""
        try:
            flush_file(self.descriptor)
        except BaseException as error:
            if not is_of_system(error):
                raise
            raise self.fail() from error

    # --- how far it is flushed ------------------------------------------------------

    @property
    def is_dirty(self) -> bool:
        """Whether the WAL has commits that are not flushed."""
        return self.unflushed_to() > 0

    def unflushed_to(self) -> int:
        """Return the LSN of the last unflushed record, or 0 if all records are flushed."""
        shared = self.shared_state
        return shared.written if shared is not None and shared.written > shared.flushed else 0

    def flushed_to(self) -> int:
        """Return the LSN up to which the log is flushed, or `UNKNOWN` if no commit is waiting for a flush."""
        shared = self.shared_state
        if self.is_off or shared is None or not shared.words[EPOCH]:
            return UNKNOWN
        return shared.words[FLUSHED]

    def size_bytes(self) -> int:
        """Return the size of the WAL file."""
        return os.fstat(self.descriptor).st_size

    def note_flushed(self) -> None:
        """Record in the data file how much of the WAL is flushed. Needs no lock."""
        shared = self.shared_state
        if shared is not None and self.is_flagged and shared.flushed > self._extent.lsn and not shared.is_broken:
            self.note_extent(FlushedExtent(shared.done, shared.size_bytes, shared.flushed))

    def note_extent(self, extent: FlushedExtent) -> None:
        """Record an extent in the data file. Ignore OSError, because recovery uses the extent only to detect damage."""
        with self.flushing, contextlib.suppress(OSError):
            if self.is_flagged and self.descriptor >= 0:
                write_extent(self._file.locks.descriptor, self.session, extent)
            self._extent = extent

    # --- the file -------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether this process has the WAL open."""
        return self.descriptor >= 0

    def open(self, flagged: bytes | None) -> int:
        """Open the WAL, or create it. Return the epoch of its session, or 0 if the session is new.

        Args:
            flagged: the session that the dirty flag names; None if the flag is not set.

        Raises:
            FileNotFoundError: the flag is set, and there is no WAL.
            JournalMissingError: the WAL does not belong to the session that the flag names. Facts: path, journal.
            FormatError: the file is not a WAL of this store. Facts: path, journal.
            OSError: the operating system reports an error.
        """
        file = self._file
        store = os.fstat(file.locks.descriptor) if flagged is None else None
        self.descriptor = descriptor = open_journal(file.path, store=store)
        if flagged is not None:
            newest = next((slot for slot in read_slots(descriptor) if slot.session == flagged), None)
            if newest is None:
                raise older_error(file.path) if is_of_older_build(descriptor) else missing_error(file.path)
            self.session = newest.session
            return newest.epoch
        check_leftover(file.path, descriptor, file.store_id)
        # Before a leftover WAL is truncated, make sure that the cleared flag is on the disk.
        if os.fstat(descriptor).st_size:
            clear_dirty_flag(file.locks.descriptor)
            flush_file(file.locks.descriptor)
        os.ftruncate(descriptor, 0)
        write_zeros(descriptor, 0, RECORDS_AT)
        self.session = os.urandom(_SESSION_SIZE_BYTES)
        return 0

    def fill_first_half(self) -> int:
        """Fill the beginning of the half that a new WAL uses first with zeros. Return the offset at which they end.

        The first extent in the data file then includes space for groups, so that recovery detects a WAL that was
        truncated before its first group. On a full disk, fill nothing.
        """
        start = HALVES_AT[1]
        try:
            return fill(self.descriptor, start, start + 1, start)
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise
        os.ftruncate(self.descriptor, RECORDS_AT)
        return start

    def is_kept(self) -> bool:
        """Return True if the WAL's path leads to the open file."""
        return is_same_file(journal_path(self._file.path), self.descriptor)

    def look_for_file(self) -> None:
        """If the WAL was removed, keep this process from writing, because no recovery could read it. Needs no lock."""
        with self.flushing:
            if self.descriptor >= 0 and not self.is_broken and self._is_removed():
                self.is_broken = self.is_gone = not self._file.has_moved

    def _is_removed(self) -> bool:
        """Return True if somebody has removed or replaced the open WAL, or the data file."""
        file = self._file
        if not file.locks.file.is_kept():
            return True
        if self.is_kept():
            return False
        # If the directory was renamed, neither path leads to its file, but nothing was removed. So the WAL counts as
        # removed only if it has no name, or if the data file is still at its path.
        return not os.fstat(self.descriptor).st_nlink or is_same_file(file.path, file.locks.descriptor)

    def check_file(self) -> None:
        """Raise StoreReplacedError instead of acknowledging a commit if the path no longer leads to the data file."""
        with self.flushing:
            if not (self._file.locks.file.is_kept() or self._file.has_moved):
                self.is_broken = self.is_gone = True
                raise self._broken_error()

    def close(self) -> None:
        """Close the WAL. If it was removed, the next writer may create a WAL, unless the dirty flag is still set."""
        with self.flushing:
            descriptor, self.descriptor = self.descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)
        self.is_flagged = False
        self._extent = NO_EXTENT
        if self.is_gone:
            self.is_broken = self.is_gone = False

    def detach(self) -> DetachedWal:
        """Stop using the WAL of this data file, and return its open files. The caller holds `flushing`."""
        former = DetachedWal(self.shared_state, self.descriptor, self.is_flagged)
        self.shared_state, self.descriptor, self.is_flagged = None, -1, False
        return former

    def attach(self, former: DetachedWal) -> None:
        """Undo `detach`."""
        self.shared_state, self.descriptor, self.is_flagged = former

    def begin_anew(self) -> None:
        """Forget the failures and the flushed extent of the previous WAL, which was detached."""
        self.is_broken = self.is_gone = False
        self._extent = NO_EXTENT

    # --- failures -------------------------------------------------------------------

    def fail(self) -> StorageError | JournalMissingError:
        """Keep all processes from writing after a failed flush, because the next flush might hide the failure.

        Return the error to raise.
        """
        self.is_broken, self.is_gone = True, False
        if self.shared_state is not None:
            self.shared_state.is_broken = 1
        return self._broken_error()

    def clear_failure(self) -> None:
        """Clear the mark of a failed flush. The store was recovered or closed, so the page cache matches the disk."""
        if self.shared_state is not None:
            self.shared_state.is_broken = 0

    def refuse_if_broken(self) -> None:
        """Raise an error if nothing may be written. Needs no lock."""
        if self.is_broken or self.shared().is_broken:
            raise self._broken_error()

    def _broken_error(self) -> StorageError | JournalMissingError:
        path = self._file.path
        if self._file.locks.file.is_lost:
            return replaced_error(path)
        return removed_error(path) if self.is_gone else broken_error(path)
