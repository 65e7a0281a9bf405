"""Recovers a store on request, and reports the result. Opening a store does the same recovery."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from statelog.limits import MAX_SIZE_BYTES_DEFAULT
from statelog.log.care.replay import open_engine
from statelog.storage.recovery import abandon_journal, count_beyond

if TYPE_CHECKING:
    import os

    from statelog.format.mac import Key


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The result of a recovery.

    Attributes:
        path: the store.
        records: the number of records recovered from the journal. It is 0 if the store was closed, or is open in
            another process.
        went_without_journal: whether recovery continued without a journal. Then the last commits may be lost.
        last_lsn: the last LSN of the log.
        journal_aside: the path to which an unused journal was moved, or None.
        dropped: the number of valid records in that journal that the store does not have.
    """

    path: str
    records: int
    went_without_journal: bool
    last_lsn: int
    journal_aside: str | None = None
    dropped: int = 0


def recover(
    path: str | os.PathLike[str],
    *,
    without_journal: bool = False,
    max_size_bytes: int | None = None,
    key: Key | None = None,
) -> RecoveryReport:
    """Restore a store that was not closed to its last commit.

    Args:
        path: the store, which must exist.
        without_journal: continue without a missing or damaged journal. A damaged journal is moved aside. After a power
            failure, the data file alone may be damaged: check it with `Store.verify`. After a process was killed, its
            last commits may be only in the journal: try `salvage` first, which reads both files.
        max_size_bytes: as for `open`.
        key: as for `open`. It checks every record of the journal.

    Raises:
        JournalMissingError: the journal is missing, and `without_journal` is False.
        StoreLockedError: `without_journal` is True, and another process has the store open.
        StoreNotFoundError, FormatError, CorruptionError, AccessError, StorageError: as for `open`.
    """
    abandoned = abandon_journal(Path(path)) if without_journal else None
    aside = abandoned.aside if abandoned is not None else None
    size_bytes = MAX_SIZE_BYTES_DEFAULT if max_size_bytes is None else max_size_bytes
    engine = open_engine(path, create=False, max_size_bytes=size_bytes, key=key)
    try:
        with engine.read() as view:
            last_lsn = view.transaction.last_lsn()
        return RecoveryReport(
            path=str(path),
            records=engine.store_file.replayed,
            went_without_journal=abandoned is not None,
            last_lsn=last_lsn,
            journal_aside=None if aside is None else str(aside),
            dropped=0 if aside is None else count_beyond(aside, last_lsn),
        )
    finally:
        engine.close()
