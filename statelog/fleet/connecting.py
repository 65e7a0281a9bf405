"""`statelog.fleet.connect`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from statelog.errors import UsageError
from statelog.fleet.fleet import Fleet
from statelog.fleet.opening import open_archive, probe

if TYPE_CHECKING:
    import os


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
    archive = open_archive(url, **options)
    try:
        probe(archive)
        folder = Path(cache).absolute()  # whatever becomes the working directory
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        archive.close()
        message = f"{cache} is no folder for copies: {error.strerror}"
        raise UsageError(message, argument="cache", value=str(cache)) from error
    except BaseException:
        archive.close()
        raise
    return Fleet(archive, folder)
