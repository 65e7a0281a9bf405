"""An open data file, as its transactions and its journal know it."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import lmdb

from statelog.errors import FencedError, ForkedError
from statelog.kernels import new_seen
from statelog.storage.file.failures import translate_lmdb
from statelog.storage.file.lock_file import UNLOCKED
from statelog.storage.file.locks import FileLocks
from statelog.storage.file.moved import FENCED, MOVED, NOT_MOVED, map_word

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from statelog.errors import StatelogError
    from statelog.storage.file.lock_file import LockFile
    from statelog.storage.file.orphaned_transactions import Ending
    from statelog.storage.options import Options


class Handles:
    """What one opening of LMDB gave; replaced as a whole by a reopening.

    Attributes:
        descriptor: of the data file.
        lock_file: None if LMDB does not have a lock file open, because it may not write to one.
        reader_lock: one word, which is 0 unless a process takes a slot of the reader table. Then call
            `await_reader_lock` first.
        map_address: where LMDB's map lies; 0 until somebody looks, since it moves.
        seen: pages of the index that were found in use; see `kernels.page_in_use`.
    """

    __slots__ = (
        "__weakref__",
        "begin",
        "descriptor",
        "index",
        "lock_file",
        "log",
        "map_address",
        "meta",
        "page_size_bytes",
        "raw",
        "reader_lock",
        "seen",
    )

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
        """Free the reader slots of dead processes, and return their number. Do nothing while a process takes a slot."""
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


class _Nothing:
    """Stands where LMDB's environment will be."""

    def begin(self, *_arguments: Any) -> lmdb.Transaction:
        raise lmdb.Error("it is being opened")  # no code, as of one that was closed: who meets it waits at the gate

    def close(self) -> None:
        """Close nothing."""


_nothing: Any = _Nothing()

NO_HANDLES = Handles(_nothing, _nothing.begin, 0, -1)
"""While the successor of a file is being opened."""


class OpenFile(ABC):
    """What an `Environment` is to the rooms below it.

    Attributes:
        path: real path of the data file.
        store_id: 16 bytes, from the header.
        write_lock: held by the thread that writes, from before it begins until all of its commit is accounted for.
        moved: its one word is `MOVED` when a compaction, of any process, has put another file in this one's place, or
            is about to.
    """

    def __init__(self, path: Path, descriptor: int, options: Options) -> None:
        self.path = path
        self.options = options
        self.read_only = options.read_only
        self.max_size_bytes = options.max_size_bytes
        self.lock_timeout_s = options.lock_timeout_s
        self.interval_s = options.interval_ms / 1000
        """The least of all openings: each is promised its own."""
        self.process_id = os.getpid()
        self.locks = FileLocks(descriptor, path)
        self.active_transactions: set[Ending] = set()
        self.is_shut = True
        """Nobody may begin: the environment is being reopened or resized, or is closed."""
        self.is_forked = False
        """This is the copy that a child has of its parent's environment."""
        self.handles: Handles = None  # type: ignore[assignment]  # set before the gate opens
        self.write_lock = threading.RLock()
        self.store_id = b""
        self.moved = map_word(descriptor)
        self.fence: FencedError | None = None
        """What commits of this process raise, if it has fenced the file itself."""

    def translate(self, error: lmdb.Error) -> StatelogError:
        """Return statelog's exception for LMDB's."""
        return translate_lmdb(error, path=self.path, max_size_bytes=self.max_size_bytes)

    def forked_error(self) -> ForkedError:
        """Return the error of a child that uses its parent's store."""
        message = f"{self.path} was opened before this process was forked: open it again in the child"
        return ForkedError(message, path=str(self.path))

    @property
    def is_fenced(self) -> bool:
        """Whether the file was fenced, by whichever process."""
        return self.moved[0] == FENCED

    def check_fence(self) -> None:
        """Raise FencedError if the file was fenced."""
        if not self.is_fenced:
            return
        message = f"{self.path} was fenced: another has taken this store over"
        error = FencedError(message, path=str(self.path)) if self.fence is None else self.fence
        raise type(error)(error.message, **error.facts)

    @property
    def has_moved(self) -> bool:
        """Whether a compaction has put another file in this one's place: `follow` it."""
        return self.moved[0] == MOVED and not self.locks.file.is_kept()

    def forget_mapped(self) -> None:
        """Let go of what keeps a descriptor of the file."""
        self.moved = NOT_MOVED

    @abstractmethod
    def follow(self) -> None:
        """Go on in the file that a compaction has put in the place of this one; nothing happens if none has.

        Transactions that have begun end where they began.

        Raises:
            ClosedError: the store is closed.
            StoreLockedError: others open it, or this process commits, all the time allowed. Facts: path, timeout_s.
            StoreReplacedError, StorageError, ...: as for an opening; the next use tries again.
        """

    @abstractmethod
    def pass_gate(self, transaction: Ending) -> None:
        """Wait until transactions may begin, and enter `transaction` among the active ones.

        Raises:
            ClosedError: the store is closed. UsageError: this thread was interrupted where it lets nobody in.
            StorageError: an earlier reopening failed, and so does the new try; or LMDB refuses commits that wait.
        """

    @abstractmethod
    def begin_again(self, transaction: Ending, error: lmdb.Error, *, write: bool = False) -> lmdb.Transaction:
        """Begin LMDB's transaction after a first try failed with `error`, where there is a cure."""

    @abstractmethod
    def set_map_size(self, size_bytes: int) -> None:
        """Let LMDB's map end there, or where what is in use does, if that is later.

        Raises:
            ClosedError: as named.
            UsageError: a transaction of this process stays open.
        """
