"""What a compaction leaves beside its new file, of the old one: gone before the new one is used."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from statelog.storage.faults import point
from statelog.storage.file.creation import make_name_durable
from statelog.storage.file.failures import is_of_system, translate_os
from statelog.storage.file.moved import MOVED, SUCCESSOR, read_word, write_word
from statelog.storage.file.sidecar_files import is_lock_file, lock_path, open_own
from statelog.storage.wal.shared_state import is_leftover, shared_state_path

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def finish_move(path: Path, descriptor: int) -> None:
    """Remove what belongs to the processes that still have the file open which a compaction has replaced by this one.

    They have it open without its name, and find out that they have to open this one. LMDB's lock file and the shared
    state say nothing about this file. The old WAL is a leftover like any other. The caller holds the lock of
    openings of this file, for writing, and has opened nothing but the file itself.

    Raises:
        StorageError, ...: the system refuses. Facts: path.
    """
    word = read_word(descriptor)
    if word not in {MOVED, SUCCESSOR}:
        return
    try:
        if word == SUCCESSOR:
            make_name_durable(path)  # before: else a loss of power would bring the old file back without its journal
            point("compaction.after_directory_sync")
            _remove(path, lock_path(path), is_lock_file)
            point("compaction.between_removals")
            _remove(path, shared_state_path(path), is_leftover)
        write_word(descriptor, 0)
    except OSError as error:
        if not is_of_system(error):
            raise
        raise translate_os(error, path=path) from error


def _remove(path: Path, own: Path, is_own: Callable[[int], bool]) -> None:
    """Remove a file beside the store if it is what its name says."""
    try:
        descriptor = open_own(path, own)
    except FileNotFoundError:
        return
    try:
        if is_own(descriptor):
            own.unlink(missing_ok=True)
    finally:
        os.close(descriptor)
