"""Recovery as users ask for it. It happens by itself whenever a store is opened; here it is said what was done."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from statelog.log.engine import Engine
from statelog.storage.recovery import abandon_journal

if TYPE_CHECKING:
    import os


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What was found, and done.

    Attributes:
        path: of the store.
        records: put back from the journal; 0 if the store had been closed, or another process has it open.
        went_without_journal: the journal was missing, or left out, and it was gone on without it: what was
            committed last may be lost.
        last_lsn: of the log.

    """

    path: str
    records: int
    went_without_journal: bool
    last_lsn: int


def recover(path: str | os.PathLike[str], *, without_journal: bool = False) -> RecoveryReport:
    """Bring a store that was not closed to the state of its last commit.

    Args:
        path: of the store; it must exist.
        without_journal: go on though its journal is gone (or, if it is there, throw it away). The file is taken as
            it lies, which after a loss of power may mean damaged: `Store.verify` tells, and `salvage` saves what is
            left. Where only a process was killed, what its last commits wrote may still be in the journal alone.

    Raises:
        JournalMissingError: the journal is gone, and `without_journal` was not said.
        StoreLockedError: `without_journal`, and another process has the store open.
        StoreNotFoundError, CorruptionError, AccessError, StorageError: as for `open`.

    """
    went_without = without_journal and abandon_journal(Path(path))
    engine = Engine.open(path, create=False)
    try:
        with engine.read() as view:
            last_lsn = view.transaction.last_lsn()
        return RecoveryReport(str(path), engine.environment.replayed, went_without, last_lsn)
    finally:
        engine.close()
