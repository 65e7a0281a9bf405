"""Recovery as users ask for it. It happens by itself whenever a store is opened; here it is said what was done."""

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
    """What was found, and done.

    Attributes:
        path: of the store.
        records: put back from the journal; 0 if the store had been closed, or another process has it open.
        went_without_journal: the journal was missing, or left out, and it was gone on without it: what was
            committed last may be lost.
        last_lsn: of the log.
        journal_aside: where the journal lies that was left out, under a name that no store looks at; None if there was
            none.
        dropped: so many records of it are whole, and not in the store.

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
    """Bring a store that was not closed to the state of its last commit.

    Args:
        path: of the store; it must exist.
        without_journal: go on though its journal is gone, or damaged: then it is set aside. The file is taken as it
            lies, which after a loss of power may mean damaged: `Store.verify` tells, and `salvage` saves what is left.
            Where only a process was killed, what its last commits wrote may still be in the journal alone: `salvage`,
            which reads both, is to be tried before.
        max_size_bytes: as for `open`.
        key: as for `open`. It checks every record of the journal.

    Raises:
        JournalMissingError: the journal is gone, and `without_journal` was not said.
        StoreLockedError: `without_journal`, and another process has the store open.
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
