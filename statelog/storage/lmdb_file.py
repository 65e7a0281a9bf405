"""The LMDB file: LMDB opened on the data file, its map, and the gate that every transaction passes.

LMDB cannot change its map while a transaction is open, must not be used across `fork`, and refuses every call after a
failed write of a meta page. To resize the map, to fork, or to reopen LMDB, the gate is shut, and no transaction may
begin. This module does not import the write-ahead log or the disk reserve. It calls them through `Hooks`.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import lmdb

from statelog.errors import (
    ClosedError,
    CorruptionError,
    FencedError,
    ForkedError,
    FormatError,
    ReadOnlyError,
    StorageError,
    StoreKeyError,
    StoreLockedError,
    UsageError,
)
from statelog.format.header import HEADER_KEY, check_key, decode_header
from statelog.kernels import new_seen
from statelog.limits import READER_SLOTS
from statelog.storage.file.creation import (
    INDEX_TABLE,
    LOG_TABLE,
    META_TABLE,
    TABLES_MAX,
    finish_leftovers,
    make_name_durable,
)
from statelog.storage.file.descriptors import SHARED_MODE, keep_standard_streams, maps_of
from statelog.storage.file.failures import error_code, translate_lmdb, translate_os
from statelog.storage.file.file_identity import replaced_error
from statelog.storage.file.lock_file import UNLOCKED, LockFile
from statelog.storage.file.locks import FileLocks, is_owned, is_same_file
from statelog.storage.file.moved import FENCED, MOVED, NOT_MOVED, PURGED, map_word
from statelog.storage.file.orphaned_transactions import end_orphaned
from statelog.storage.file.preopen_checks import check_file
from statelog.storage.file.sidecar_files import open_lock_file
from statelog.storage.file.upgrade import is_older, upgrade

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from statelog.errors import StatelogError
    from statelog.format.mac import StoreKey, StoreMac
    from statelog.storage.file.orphaned_transactions import Ending
    from statelog.storage.options import Options

_BEGIN_ATTEMPTS = 3
_PAGE_SIZE_BYTES = 4096

_OPENINGS_MAX = 10
"""The maximum number of attempts to open LMDB. An attempt fails if another thread closes LMDB's lock file during it."""

_SPARE_READS = 0
"""The number of ended read transactions that LMDB's Python binding keeps for reuse. Keeping one would save 80 ns for
each read. But an exiting forked child would free the slot of the parent's kept transaction in the reader table, and
then the parent could not read.
"""


class LmdbHandles:
    """The handles of one opening of LMDB. A reopening replaces the whole object.

    Attributes:
        descriptor: a descriptor of the data file.
        lock_file: the lock file, or None if LMDB has none open because it may not write.
        reader_lock: one word. While it is not 0, a process is taking a slot of the reader table. Call
            `await_reader_lock` before taking one.
        map_address: the address of LMDB's map. It is 0 until it is needed, because the map can move.
        seen: the pages of the index that are known to be in use; see `kernels.page_in_use`.
        mac: computes the MACs of the records and rows. None if the store has no key.
    """

    def __init__(
        self,
        raw: lmdb.Environment,
        begin: Callable[..., lmdb.Transaction],
        page_size_bytes: int,
        descriptor: int,
        lock_file: LockFile | None = None,
        reader_lock: memoryview = UNLOCKED,
    ) -> None:
        self.raw = raw
        self.begin = begin
        self.meta: Any = None
        self.log: Any = None
        self.index: Any = None
        self.page_size_bytes = page_size_bytes
        self.descriptor = descriptor
        self.lock_file = lock_file
        self.reader_lock = reader_lock
        self.map_address = 0
        self.seen: Any = new_seen()
        self.mac: StoreMac | None = None

    @property
    def tables(self) -> dict[bytes, Any]:
        """LMDB's tables by name, in the order in which a new file is filled."""
        return {META_TABLE: self.meta, LOG_TABLE: self.log, INDEX_TABLE: self.index}

    def find_map(self, address: int) -> None:
        """Set `map_address` to the start of the map that contains `address`, or to 0 if the system does not list it."""
        starts = (each.start - each.offset for each in maps_of(self.descriptor) if each.start <= address < each.stop)
        self.map_address = next(starts, 0)

    def await_reader_lock(self) -> None:
        """Wait until LMDB can take a slot of its reader table. Raises StoreLockedError. Facts: path, timeout_s."""
        if self.lock_file is not None:
            self.lock_file.await_reader_lock()

    def begin_read(self, *, buffers: bool = False) -> lmdb.Transaction:
        """Begin a read transaction of LMDB.

        Raises:
            StoreLockedError: another process was stopped while it took a slot of the reader table. Facts: path,
                timeout_s.
            lmdb.Error: LMDB cannot begin a transaction.
        """
        if self.reader_lock[0]:
            self.await_reader_lock()
        return self.begin(None, None, False, buffers)

    def check_readers(self) -> int:
        """Free the reader slots of dead processes, and return their number. Do nothing while a process acquires one."""
        if self.reader_lock[0]:
            return 0
        cleared: int = self.raw.reader_check()
        return cleared

    def close(self) -> None:
        """Close LMDB, and then its lock file. In a forked child, close only the child's copies of both."""
        self.reader_lock = UNLOCKED
        self.raw.close()
        if self.lock_file is not None:
            self.lock_file.close()


class _Unopened:
    """A stand-in for LMDB's environment while a file is being opened."""

    def begin(self, *_arguments: Any) -> lmdb.Transaction:
        raise lmdb.Error("it is being opened")  # The error has no code, so `begin_again` waits at the gate.

    def close(self) -> None:
        """Close nothing."""


_unopened: Any = _Unopened()

NO_HANDLES = LmdbHandles(_unopened, _unopened.begin, 0, -1)
"""Stand-in handles for ended transactions, and for a file whose successor is being opened."""


class Hooks(NamedTuple):
    """The functions of the store file that an LMDB file calls.

    Attributes:
        follow: opens the file that has replaced this one in a compaction. See `StoreFile.follow`.
        release_pins: ends the snapshot pins. The argument is a timeout in seconds.
        release_dead_readers: frees reader slots of dead processes.
        note_opened: is called after LMDB was opened and before any transaction begins.
        map_size_bytes: returns the size of the map for the next opening.
    """

    follow: Callable[[], None]
    release_pins: Callable[[float], None]
    release_dead_readers: Callable[[], object]
    note_opened: Callable[[], None]
    map_size_bytes: Callable[[], int]


class LmdbFile:
    """The data file as opened by LMDB, with the checks that precede every transaction.

    Attributes:
        store_id: 16 bytes, from the header.
        header: the fields of the header. FORMAT.md section 2.
        key: the key of the store, or None if it has no key. `rekey` replaces it.
        locks: the locks between processes, and the descriptor of the data file. A compaction replaces them.
        handles: the handles of LMDB; None while the gate is shut after a failed reopening.
        active_transactions: the transactions that are open, or about to begin.
        is_shut: whether transactions must not begin, because LMDB is closed, or is being reopened or resized.
        is_forked: whether this object is a forked child's copy of its parent's object.
        gate: the lock that a thread holds while it shuts the gate. A thread that needs both locks takes `write_lock`
            first.
        write_lock: the lock that the writing thread holds, from before its transaction begins until the outcome of its
            commit is recorded.
        writer_thread: the id of the thread that has a write transaction open, or 0.
        moved: the mapped word of the file (`file/moved.py`). It is `MOVED` if a compaction in any process has replaced
            this file or is about to do so.
        follows_purge: whether this process itself has purged the file, so that it may continue with the new file.
        fence: the error that commits of this process raise, if this process has fenced the file.
        drain_timeout_s: how long a thread that shuts the gate waits for transactions to end. Reads are short by
            contract.
    """

    drain_timeout_s = 5.0

    def __init__(self, path: Path, descriptor: int, options: Options) -> None:
        self.path = path
        self.read_only = options.read_only
        self.max_size_bytes = options.max_size_bytes
        self.lock_timeout_s = options.lock_timeout_s
        self.process_id = os.getpid()
        self.store_id = b""
        self.header: dict[str, Any] = {}
        self.key = options.key
        self.locks = FileLocks(descriptor, path)
        self.handles: LmdbHandles = None  # type: ignore[assignment]  # `open` sets it before the gate opens.
        self.active_transactions: set[Ending] = set()
        self.is_shut = True
        self.is_forked = False
        self.gate = threading.RLock()
        self.write_lock = threading.RLock()
        self.writer_thread = 0
        self.moved = map_word(descriptor)
        self.follows_purge = False
        self.fence: FencedError | None = None
        self.closed = False
        self._is_name_durable = False
        """Whether this process has flushed the directory. It does so before its first write (C4), because a creation or
        compaction may have been killed before flushing it.
        """

    def connect(self, hooks: Hooks) -> None:
        """Set the hooks. Call this before `open`."""
        self._hooks = hooks
        self.follow = hooks.follow

    # --- what transactions check ----------------------------------------------------

    def translate(self, error: lmdb.Error) -> StatelogError:
        """Return the statelog exception for an error raised by LMDB."""
        return translate_lmdb(error, path=self.path, max_size_bytes=self.max_size_bytes)

    @contextlib.contextmanager
    def translating(self) -> Iterator[None]:
        """Translate errors that LMDB or the operating system raises in the `with` block into statelog's exceptions."""
        try:
            yield
        except lmdb.Error as error:
            raise self.translate(error) from error
        except OSError as error:
            raise translate_os(error, path=self.path) from error

    def forked_error(self) -> ForkedError:
        """Return the error for a forked child that uses its parent's store."""
        message = f"{self.path} was opened before this process was forked: open it again in the child"
        return ForkedError(message, path=str(self.path))

    def check_open(self) -> None:
        """Raise ClosedError if the store is closed, or StoreReplacedError if its file was removed or replaced."""
        if self.closed and self.locks.file.is_lost:
            raise replaced_error(self.path)
        if self.closed:
            message = f"{self.path} is closed"
            raise ClosedError(message, path=str(self.path))

    def check_writable(self) -> None:
        """Raise ReadOnlyError if the store is open read-only."""
        if self.read_only:
            message = f"{self.path} is open read-only"
            raise ReadOnlyError(message, path=str(self.path))

    @property
    def is_fenced(self) -> bool:
        """Whether any process has fenced the file."""
        return self.moved[0] == FENCED

    def check_fence(self) -> None:
        """Raise FencedError if any process has fenced the file."""
        if not self.is_fenced:
            return
        message = f"{self.path} was fenced: another owner has taken over this store"
        error = FencedError(message, path=str(self.path)) if self.fence is None else self.fence
        raise type(error)(error.message, **error.facts)

    @property
    def has_moved(self) -> bool:
        """Whether a compaction has replaced this file, so that `follow` has to be called."""
        word = self.moved[0]
        return (word == MOVED or (word == PURGED and self.follows_purge)) and not self.locks.file.is_kept()

    @property
    def is_purged(self) -> bool:
        """Whether another process has replaced this file by a purge. This process must not follow to the new file."""
        return self.moved[0] == PURGED and not self.follows_purge and not self.locks.file.is_kept()

    def is_writing(self) -> bool:
        """Return True if the calling thread has a write transaction open."""
        return self.writer_thread == threading.get_ident()

    def pass_gate(self, transaction: Ending) -> None:
        """Wait until transactions may begin, and add `transaction` to the active ones.

        Raises:
            ClosedError: the store is closed.
            UsageError: the calling thread has shut the gate, and a signal handler has interrupted it.
            StorageError: an earlier reopening failed, and so does the new attempt.
        """
        active = self.active_transactions
        while True:
            active.discard(transaction)
            if self.is_shut and is_owned(self.gate):  # Raise an error, because this thread would wait for itself.
                message = f"{self.path} cannot be used by a signal handler that interrupted its opening or closing"
                raise UsageError(message, path=str(self.path))
            with self.gate:
                self.check_open()
                if self.handles is None:
                    self.open()
            active.add(transaction)
            if not self.is_shut:
                return

    def begin_again(
        self, transaction: Ending, error: lmdb.Error, begin: Callable[[], lmdb.Transaction]
    ) -> lmdb.Transaction:
        """Begin LMDB's transaction again after `error` if its cause can be removed. Otherwise raise `error`."""
        for _ in range(_BEGIN_ATTEMPTS):
            self.active_transactions.discard(transaction)
            if isinstance(error, lmdb.MapResizedError):
                self.set_map_size(0)  # Adopt the map size of the process that has extended the file.
            elif isinstance(error, lmdb.ReadersFullError):
                with contextlib.suppress(StoreLockedError):
                    self._hooks.release_dead_readers()
            elif isinstance(error, lmdb.PanicError):
                self.reopen()
            elif error_code(error) != 0:  # The code 0 means that the file was reopened, so try again.
                raise self.translate(error) from error
            self.pass_gate(transaction)
            try:
                return begin()
            except lmdb.Error as again:
                error = again
        self.active_transactions.discard(transaction)
        raise self.translate(error) from error

    # --- opening, reopening and resizing ---------------------------------------------

    def open(self) -> None:
        """Open LMDB, and open the gate. The caller holds `gate`.

        Raises:
            StoreReplacedError: the file was replaced. Facts: path.
            StorageError: the file now contains a different store. Facts: path.
            ...: the errors of `StoreFile.open`.
        """
        if not self.read_only:
            if not self._is_name_durable:
                make_name_durable(self.path)
                self._is_name_durable = True
            finish_leftovers(self.path)
        handles, header = _open_handles(self, self._hooks.map_size_bytes())
        if self.store_id not in {b"", header["store_id"]}:
            handles.close()
            message = f"{self.path} is not the store that was opened"
            raise StorageError(message, path=str(self.path))
        self.handles, self.header, self.store_id = handles, header, header["store_id"]
        self._hooks.note_opened()
        self.is_shut = False

    def check_key(self, key: StoreKey | None) -> None:
        """Check the key that was given for one more opening of the store in this process.

        Raises:
            StoreKeyError, ForgeryError: the errors of `statelog.format.header.check_key`. Facts: path.
        """
        _check_key(self.header, key, self.path)

    def reopen(self) -> None:
        """Close LMDB's environment and open it again, which is the only cure after a failed write of a meta page.

        Raises:
            StorageError, CorruptionError, ...: the errors of `open`. The next transaction tries to reopen the file.
        """
        with self.gate:
            self.check_open()
            self.shut_gate()
            try:
                self._hooks.release_pins(self.lock_timeout_s)
                # With None, the gate stays shut if the reopening fails.
                handles, self.handles = self.handles, None  # type: ignore[assignment]
                if handles is not None:
                    handles.close()
                self.open()
            finally:
                self.is_shut = self.handles is None

    def set_map_size(self, size_bytes: int) -> None:
        """Make LMDB's map end at `size_bytes`, or after the last used page, whichever is later.

        This ends all transactions, including the snapshot pin, so the next writer makes a checkpoint (J2).

        Raises:
            ClosedError: the store is closed.
            UsageError: a transaction of this process stayed open too long.
        """
        with self.gate:
            self.check_open()
            self.shut_gate()
            if self.handles is None:
                return
            try:
                self._hooks.release_pins(self.lock_timeout_s)
                self.handles.map_address = 0
                self.handles.raw.set_mapsize(size_bytes // _PAGE_SIZE_BYTES * _PAGE_SIZE_BYTES)
            finally:
                self.is_shut = False

    def shut_gate(self, timeout_s: float | None = None) -> None:
        """Keep transactions from beginning, and wait until none is open. The caller holds `gate`.

        Raises:
            UsageError: a transaction did not end in time.
        """
        is_drained = False
        try:
            self.is_shut = True
            end_orphaned(self.active_transactions)
            deadline = time.monotonic() + (self.drain_timeout_s if timeout_s is None else timeout_s)
            while self.active_transactions and time.monotonic() < deadline:
                time.sleep(0.0001)
            is_drained = not self.active_transactions
        finally:
            if not is_drained:
                self.is_shut = self.handles is None
        if not is_drained:
            raise UsageError(f"{self.path}: a transaction is still open", path=str(self.path))

    def forget_mapped(self) -> None:
        """Drop the mapped word, because its map keeps a descriptor of the file open."""
        self.moved = NOT_MOVED

    def close(self) -> None:
        """Close LMDB and the data file."""
        if self.handles is not None:
            self.handles.close()
        descriptor = self.locks.descriptor
        # Close the descriptor right after LMDB: a process that opens the store assumes that every process with the data
        # file open also has LMDB open.
        if descriptor >= 0:
            self.locks.descriptor = -1
            os.close(descriptor)


def _open_handles(file: LmdbFile, max_size_bytes: int) -> tuple[LmdbHandles, dict[str, Any]]:
    """Check the file, and open LMDB and the tables. Return the handles and the fields of the header.

    Raises the errors of `LmdbFile.open`.
    """
    locks, path, read_only = file.locks, file.path, file.read_only
    _check_path(locks, path)  # Check before opening, because LMDB would create a missing file.
    handles = _open_lmdb(file, max_size_bytes, sync=False)
    try:
        _check_path(locks, path)  # Check again, because LMDB opens a path and may have opened another file.
        header = _read_header(handles)
        if is_older(header, read_only=read_only):
            # Check the key before the upgrade. A header that this release cannot read counts as one without a key.
            fields = {} if is_older(header, read_only=True) else _decode_header(header, path)
            mac = _check_key(fields, file.key, path)
            # Let LMDB itself flush the upgrade (`sync=True`), because an older format has no WAL.
            handles.close()
            handles = _open_lmdb(file, max_size_bytes, sync=True)
            raw, tables = handles.raw, handles.tables
            upgrade(raw, tables, header, mac, locks, path, read_only=read_only, lock_timeout_s=file.lock_timeout_s)
            handles.close()
            handles = _open_lmdb(file, max_size_bytes, sync=False)
            header = _read_header(handles)
        fields = _decode_header(header, path)
        handles.mac = _check_key(fields, file.key, path)
    except BaseException as error:
        handles.close()
        if isinstance(error, lmdb.Error):
            raise translate_lmdb(error, path=path, max_size_bytes=max_size_bytes) from error
        raise
    return handles, fields


def _check_path(locks: FileLocks, path: Path) -> None:
    if not is_same_file(path, locks.descriptor):
        raise replaced_error(path)


def _open_lmdb(file: LmdbFile, max_size_bytes: int, *, sync: bool) -> LmdbHandles:
    for _attempt in range(_OPENINGS_MAX):
        handles = _open_locked(file, max_size_bytes, sync=sync)
        if handles is not None:
            break
    else:
        message = f"{file.path}-lock is opened and closed repeatedly in this process, so LMDB loses its locks"
        raise StorageError(message, path=str(file.path))
    try:
        # In an environment for writing, LMDB needs a write transaction even to open an existing table.
        with contextlib.nullcontext() if file.read_only else file.locks.writing(file.lock_timeout_s):
            return _open_tables(handles, file.path)
    except BaseException as error:
        handles.close()
        if isinstance(error, lmdb.Error):
            raise translate_lmdb(error, path=file.path, max_size_bytes=max_size_bytes) from error
        raise


def _open_locked(file: LmdbFile, max_size_bytes: int, *, sync: bool) -> LmdbHandles | None:
    """Open LMDB, and hold its locks. Return None if another thread has closed LMDB's lock file."""
    locks, path = file.locks, file.path
    page_size_bytes = check_file(locks.descriptor, path).page_size_bytes
    descriptor = open_lock_file(path, locks, read_only=file.read_only)
    lock_file: LockFile | None = None
    raw: lmdb.Environment | None = None
    handles: LmdbHandles | None = None
    keep_standard_streams()
    try:
        if descriptor is None:
            locks.note_untabled()
        else:
            lock_file = LockFile(descriptor, path, file.lock_timeout_s, has_locks=locks.supported)
            lock_file.await_opening()
        raw = lmdb.open(
            os.fsencode(path),
            map_size=max_size_bytes // page_size_bytes * page_size_bytes,
            subdir=False,
            readonly=file.read_only,
            create=False,
            # LMDB uses this mode only if it creates a lock file, because somebody has just removed ours.
            mode=os.fstat(locks.descriptor).st_mode & SHARED_MODE,
            sync=sync,  # LMDB flushes nothing by itself: see `wal/checkpointer.py`.
            max_readers=READER_SLOTS,
            max_dbs=TABLES_MAX,
            max_spare_txns=_SPARE_READS,
        )
        if lock_file is None or lock_file.hold():
            reader_lock = UNLOCKED if lock_file is None else lock_file.reader_lock
            page_size = raw.stat()["psize"]
            handles = LmdbHandles(raw, raw.begin, page_size, locks.descriptor, lock_file, reader_lock)
    except lmdb.Error as error:
        raise translate_lmdb(error, path=path, max_size_bytes=max_size_bytes) from error
    finally:
        if handles is None:
            if raw is not None:
                raw.close()
            if lock_file is not None:
                lock_file.close()  # Close this last: closing it while LMDB is open would release LMDB's locks.
    return handles


def _open_tables(handles: LmdbHandles, path: Path) -> LmdbHandles:
    names = (META_TABLE, LOG_TABLE, INDEX_TABLE)
    try:
        handles.meta, handles.log, handles.index = (handles.raw.open_db(name, create=False) for name in names)
    except (lmdb.NotFoundError, lmdb.IncompatibleError) as error:
        message = f"{path} is an LMDB file, but not a statelog store"
        raise FormatError(message, path=str(path)) from error
    return handles


def _read_header(handles: LmdbHandles) -> bytes | None:
    with handles.begin_read() as transaction:
        value = transaction.get(HEADER_KEY, db=handles.meta)
    return None if value is None else bytes(value)


def _decode_header(value: bytes | None, path: Path) -> dict[str, Any]:
    if value is None:
        message = f"{path} is damaged: it has no header"
        raise CorruptionError(message, path=str(path))
    with _named(path):
        return decode_header(value)


def _check_key(header: dict[str, Any], key: StoreKey | None, path: Path) -> StoreMac | None:
    with _named(path):
        return check_key(header, key)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Add the path of the store to errors about its header that the `with` block raises."""
    try:
        yield
    except (CorruptionError, FormatError, StoreKeyError) as error:
        message = f"{path}: {error.message}"
        raise type(error)(message, **{"path": str(path), **error.facts}) from None
