"""`statelog.fleet.connect`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from statelog.errors import UsageError
from statelog.fleet.fleet import Fleet
from statelog.fleet.opening import open_archive, probe

if TYPE_CHECKING:
    import os

    from statelog.fleet.archive import Archive


def connect(url: str, cache: str | os.PathLike[str], **options: Any) -> Fleet:
    """Return a fleet: stores in a storage, and copies of those that this machine has used.

    It tries first whether the storage heeds the conditions that a fleet stands on.

    Args:
        url: `file:///folder` (one host), `s3://bucket/folder`, `gs://...`, `az://...`, `postgresql://...`.
        cache: a folder of this machine for the copies, which is made if need be.
        options: of a bucket, as obstore takes them; else from the environment.

    Raises:
        UsageError: no such kind of storage, or its package is not installed.
        NotFoundError: no such folder, bucket or table. AccessError: it refuses these credentials.
        UnsafeStorageError: it ignores conditions. RemoteError: it is away.

    """
    return Fleet(*prepare(url, cache, **options))


def prepare(url: str, cache: str | os.PathLike[str], **options: Any) -> tuple[Archive, Path]:
    """Return a storage that was probed, and the folder for copies. Raises as `connect`."""
    archive = open_archive(url, **options)
    try:
        probe(archive)
        folder = Path(cache)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        archive.close()
        message = f"{cache} is no folder for copies: {error.strerror}"
        raise UsageError(message, argument="cache", value=str(cache)) from error
    except BaseException:
        archive.close()
        raise
    return archive, folder
