"""Upgrades a store in an older format in place, when it is opened. `format/upgrades.py` has the steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.errors import FormatError, StoreLockedError
from statelog.format import upgrades
from statelog.format.header import FORMAT_VERSION, FORMAT_VERSION_READ_MIN
from statelog.format.upgrades import stored_version
from statelog.storage.faults import point

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import lmdb

    from statelog.format.mac import StoreMac
    from statelog.storage.file.locks import FileLocks


class _Tables:
    """Gives upgrade steps access to the tables of a write transaction."""

    def __init__(self, transaction: lmdb.Transaction, handles: Mapping[bytes, Any]) -> None:
        self._transaction = transaction
        self._handles = handles

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


def is_older(header: bytes | None, *, read_only: bool) -> bool:
    """Return True if the store's format is older than this release's or unknown, so it must be upgraded or refused.

    For a read-only store, return False for every format that this release can read without an upgrade.
    """
    version = _version_of(header)
    return version != FORMAT_VERSION and not (read_only and version >= FORMAT_VERSION_READ_MIN)


def _version_of(header: bytes | None) -> int:
    return FORMAT_VERSION if header is None else stored_version(header)


def upgrade(
    raw: lmdb.Environment,
    tables: Mapping[bytes, Any],
    header: bytes | None,
    mac: StoreMac | None,
    locks: FileLocks,
    path: Path,
    *,
    read_only: bool,
    lock_timeout_s: float,
) -> None:
    """Upgrade a store from an older format to the format of this release, in one transaction.

    `raw` is an environment that flushes each commit. `mac` computes the MACs of a store that has a key.

    Raises:
        FormatError: the store is open read-only, or its format cannot be upgraded. Facts: path, needed, supported.
        StoreLockedError: the store is open in another process. Facts: path.
    """
    version = _version_of(header)
    facts = {"path": str(path), "needed": version, "supported": FORMAT_VERSION}
    if read_only:
        message = f"{path} has format {version}: open it once for writing, which upgrades it to format {FORMAT_VERSION}"
        raise FormatError(message, **facts)
    if not locks.try_exclusive():
        message = f"{path} has format {version} and is open in another process: it cannot be upgraded now"
        raise StoreLockedError(message, path=str(path))
    try:
        with locks.writing(lock_timeout_s):
            with raw.begin(write=True) as transaction:
                upgrades.upgrade(_Tables(transaction, tables), version, mac)
                point("upgrade.before_lmdb_commit")
            raw.sync(True)
            point("upgrade.after_lmdb_commit")
    except FormatError as error:
        raise FormatError(f"{path}: {error.message}", **facts) from error
    finally:
        locks.acquire_presence(0)
