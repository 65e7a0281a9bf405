"""Upgrading a store of an older format where it lies, when it is opened. `format/upgrades.py` says how."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.errors import FormatError, StoreLockedError
from statelog.format import upgrades
from statelog.format.header import FORMAT_VERSION, FORMAT_VERSION_READ_MIN, HEADER_KEY
from statelog.format.upgrades import INDEX, LOG, META, stored_version
from statelog.storage.faults import point

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import lmdb

    from statelog.storage.file.locks import FileLocks
    from statelog.storage.file.opened import Handles


class _Tables:
    """The tables of a write transaction, as upgrades see them."""

    def __init__(self, transaction: lmdb.Transaction, handles: Handles) -> None:
        self._transaction = transaction
        self._handles: dict[bytes, Any] = {META: handles.meta, LOG: handles.log, INDEX: handles.index}

    def get(self, table: bytes, key: bytes) -> bytes | None:
        value = self._transaction.get(key, db=self._handles[table])
        return None if value is None else bytes(value)

    def put(self, table: bytes, key: bytes, value: bytes) -> None:
        self._transaction.put(key, value, db=self._handles[table])

    def delete(self, table: bytes, key: bytes) -> None:
        self._transaction.delete(key, db=self._handles[table])

    def scan(self, table: bytes) -> Iterator[tuple[bytes, bytes]]:
        cursor = self._transaction.cursor(self._handles[table])
        found = cursor.first()
        while found:
            key, value = map(bytes, cursor.item())
            yield key, value
            found = cursor.set_range(key + b"\0")


def is_older(handles: Handles, *, read_only: bool) -> bool:
    """Tell whether a store has a format that this release has a way from, or cannot know.

    One that is only read may have any of which all that may be in it is understood.
    """
    version = _stored_version(handles)
    return version != FORMAT_VERSION and not (read_only and version >= FORMAT_VERSION_READ_MIN)


def _stored_version(handles: Handles) -> int:
    with handles.begin_read() as transaction:
        value = transaction.get(HEADER_KEY, db=handles.meta)
    return FORMAT_VERSION if value is None else stored_version(bytes(value))


def upgrade(handles: Handles, locks: FileLocks, path: Path, *, read_only: bool, lock_timeout_s: float) -> None:
    """Bring a store that is older than this release up to its format, in one transaction.

    Raises:
        FormatError: it is older, and open read-only, or there is no way from its format. Facts:
            path, needed, supported.
        StoreLockedError: it is older, and open in another process. Facts: path.
    """
    version = _stored_version(handles)
    facts = {"path": str(path), "needed": version, "supported": FORMAT_VERSION}
    if read_only:
        message = f"{path} has format {version}: open it once for writing, and it becomes format {FORMAT_VERSION}"
        raise FormatError(message, **facts)
    if not locks.try_exclusive():
        message = f"{path} has format {version} and is open in another process: it cannot be upgraded now"
        raise StoreLockedError(message, path=str(path))
    try:
        locks.acquire_writer(lock_timeout_s)
        try:
            with handles.begin(write=True) as transaction:
                upgrades.upgrade(_Tables(transaction, handles), version)
                point("upgrade.before_lmdb_commit")
            handles.raw.sync(True)
            point("upgrade.after_lmdb_commit")
        finally:
            locks.release_writer()
    except FormatError as error:
        raise FormatError(f"{path}: {error.message}", **facts) from error
    finally:
        locks.acquire_presence(0)
