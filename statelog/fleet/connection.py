"""Connects to a fleet: opens and probes the storage, and creates the folder for local copies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statelog.errors import AccessError, UsageError
from statelog.fleet.fleet import Fleet
from statelog.fleet.storage_urls import open_archive, probe
from statelog.format.mac import as_store_key

if TYPE_CHECKING:
    from statelog.fleet.archive import Archive
    from statelog.format.mac import Key


def connect(url: str, cache: str | os.PathLike[str], *, key: Key | None = None, **options: Any) -> Fleet:
    """Return a fleet: stores in a shared storage, with local copies of the stores that this machine has used.

    First probe whether the storage enforces the conditions of writes, because a fleet relies on them.

    Args:
        url: `file:///folder` (one host), `s3://bucket/folder`, `gs://...`, `az://...`,
            `postgresql://...`.
        cache: a folder of this machine for the copies, which is created if necessary.
        key: the key of all stores of the fleet, as for `statelog.open`. Segments are shipped with a
            MAC. A store gets the key when it is created.
        options: options of a bucket, as for obstore. They override the environment.

    Raises:
        UsageError: the kind of storage is unknown, its package is not installed, or the cache
            cannot be a folder.
        NotFoundError: the folder, bucket or table does not exist.
        AccessError: credentials are missing or refused, or the cache is not writable.
        UnsafeStorageError: the storage ignores conditions.
        RemoteError: the storage is unavailable.
    """
    given = None if key is None else as_store_key(key)
    return Fleet(*prepare(url, cache, **options), given)


def prepare(url: str, cache: str | os.PathLike[str], **options: Any) -> tuple[Archive, Path]:
    """Return the probed storage, and the folder for copies. Raises as `connect`."""
    archive = open_archive(url, **options)
    try:
        probe(archive)
        folder = _folder(cache)
    except BaseException:
        archive.close()
        raise
    return archive, folder


def _folder(cache: str | os.PathLike[str]) -> Path:
    """Return a writable folder as an absolute path, so that a later change of the working directory does not matter."""
    try:
        folder = Path(cache).absolute()
        folder.mkdir(parents=True, exist_ok=True)
    except TypeError as error:
        message = f"cache must be the path of a folder for copies, not {cache!r}"
        raise UsageError(message, argument="cache", value=cache) from error
    except OSError as error:
        message = f"{cache} cannot be a folder for copies: {error.strerror}"
        raise UsageError(message, argument="cache", value=str(cache)) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        message = f"no permission to write to {cache}, the folder for copies"
        raise AccessError(message, path=str(cache))
    return folder
