"""Removes the sidecar files of a data file that a compaction has replaced, before the new file is used."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from statelog.storage.faults import point
from statelog.storage.file.creation import make_name_durable
from statelog.storage.file.failures import translate_os
from statelog.storage.file.moved import SUCCEEDED, SUCCESSOR, read_word, write_word
from statelog.storage.file.sidecar_files import is_lock_file, lock_path, open_own
from statelog.storage.wal.shared_state import is_leftover, shared_state_path

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def finish_move(path: Path, descriptor: int) -> None:
    """If a compaction has replaced the old data file by this one, remove the sidecar files of the old file.

    Other processes may still have the old file open. They will notice that they have to open the new one. LMDB's lock
    file and the shared state belong to the old file. The WAL of the old file is a leftover, which recovery removes. The
    caller holds the opening lock of this file for writing, and has opened nothing except the file itself.

    Raises:
        StorageError, ...: the operating system reports an error. Facts: path.
    """
    word = read_word(descriptor)
    if word not in SUCCEEDED and word != SUCCESSOR:
        return
    try:
        if word == SUCCESSOR:
            # Flush the file name before removing anything. Otherwise a power failure could restore the old file without
            # its WAL.
            make_name_durable(path)
            point("compaction.after_directory_sync")
            _remove(path, lock_path(path), is_lock_file)
            point("compaction.between_removals")
            _remove(path, shared_state_path(path), is_leftover)
        write_word(descriptor, 0)
    except OSError as error:
        raise translate_os(error, path=path) from error


def _remove(path: Path, own: Path, is_own: Callable[[int], bool]) -> None:
    """Remove a sidecar file if `is_own` returns True for it."""
    try:
        descriptor = open_own(path, own)
    except FileNotFoundError:
        return
    try:
        if is_own(descriptor):
            own.unlink(missing_ok=True)
    finally:
        os.close(descriptor)
