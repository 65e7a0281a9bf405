"""`statelog.fleet.connect`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statelog.errors import AccessError, UsageError
from statelog.fleet.fleet import Fleet
from statelog.fleet.opening import open_archive, probe
from statelog.format.mac import as_store_key

if TYPE_CHECKING:
    from statelog.fleet.archive import Archive
    from statelog.format.mac import Key


def connect(url: str, cache: str | os.PathLike[str], *, key: Key | None = None, **options: Any) -> Fleet:
    """Return a fleet: stores in a storage, and copies of those that this machine has used.

    It tries first whether the storage heeds the conditions that a fleet stands on.

    Args:
        url: `file:///folder` (one host), `s3://bucket/folder`, `gs://...`, `az://...`, `postgresql://...`.
        cache: a folder of this machine for the copies, which is made if need be.
        key: the key of all stores of the fleet, as for `statelog.open`. Segments are shipped with a MAC. A store gets
            the key when it is created.
        options: of a bucket, as obstore takes them; else from the environment.

    Raises:
        UsageError: no such kind of storage, or its package is not installed; the cache can be no folder.
        NotFoundError: no such folder, bucket or table. AccessError: there are no credentials, or it refuses them; the
            cache may not be written to.
        UnsafeStorageError: it ignores conditions. RemoteError: it is away.

    """
    given = None if key is None else as_store_key(key)
    return Fleet(*prepare(url, cache, **options), given)


def prepare(url: str, cache: str | os.PathLike[str], **options: Any) -> tuple[Archive, Path]:
    """Return a storage that was probed, and the folder for copies. Raises as `connect`."""
    archive = open_archive(url, **options)
    try:
        probe(archive)
        folder = _folder(cache)
    except BaseException:
        archive.close()
        raise
    return archive, folder


def _folder(cache: str | os.PathLike[str]) -> Path:
    """Return a folder that is there and may be written to, whatever becomes the working directory."""
    try:
        folder = Path(cache).absolute()
        folder.mkdir(parents=True, exist_ok=True)
    except TypeError as error:
        message = f"cache is the path of a folder for copies, not {cache!r}"
        raise UsageError(message, argument="cache", value=cache) from error
    except OSError as error:
        message = f"{cache} is no folder for copies: {error.strerror}"
        raise UsageError(message, argument="cache", value=str(cache)) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        message = f"no permission to write to {cache}, which is to have the copies"
        raise AccessError(message, path=str(cache))
    return folder
