"""What must be on the disk before anything is written to a store: the name of its file, and what a failure left."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from statelog.errors import StorageError
from statelog.storage.file.creation import sync_directory

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
