"""What must be on the disk before anything is written to a store: the name of its file, and what a failure left."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from statelog.errors import StorageError
from statelog.storage.file.creation import sync_directory
from statelog.storage.file.disk import flush_file, write_all

if TYPE_CHECKING:
    from pathlib import Path


def make_name_durable(path: Path) -> None:
    """Flush the directory of a store, which its creation or compaction may have been killed before doing.

    A name that a power cut takes away, or gives back to the old file, takes along whatever was committed under it.

    Raises:
        StorageError: the directory cannot be flushed. Facts: path.

    """
    try:
        with contextlib.suppress(PermissionError):  # a directory that lets its names be used, but not be read
            sync_directory(path.parent)
    except OSError as error:
        message = f"{path}: its directory cannot be flushed: {error.strerror}"
        raise StorageError(message, path=str(path)) from error


def flush_anew(descriptor: int, page_size_bytes: int) -> None:
    """Write both meta pages over themselves, and flush. The caller holds the writer lock.

    After a failed flush the kernel holds pages clean that never got to the disk; a slot lost so
    would make the file look damaged later, or bring back a commit that was refused.

    Raises:
        OSError: what the system refuses.

    """
    for slot in (0, 1):
        page = os.pread(descriptor, page_size_bytes, slot * page_size_bytes)
        write_all(descriptor, page, slot * page_size_bytes)
    flush_file(descriptor)
