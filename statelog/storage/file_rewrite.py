"""Replaces the file of a store in use by a new file with changed records.

A rewrite holds the writer lock from its first read to the rename, so nobody can commit during a rewrite. Unlike after a
compaction, a process that had the old file open cannot switch to the new file, because its cached records do not match
the new ones. The word `PURGED` in the old file tells such a process that its handles have ended. If a rewrite is
interrupted, the path names either the old file or the new file, and that file is complete.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from statelog.format import keys
from statelog.format.purge_key import PURGE_KEY, encode_purged_lsn
from statelog.format.seal import RECORD_MAC_SIZE_BYTES, seal
from statelog.storage.compaction import (
    Appender,
    check_compactable,
    finish_file,
    opened_for_filling,
    swap,
    temporary_file,
)
from statelog.storage.faults import point
from statelog.storage.file.creation import (
    INDEX_TABLE,
    LOG_TABLE,
    META_TABLE,
    compaction_path,
    finish_leftovers,
    make_name_durable,
)
from statelog.storage.file.moved import PURGED
from statelog.storage.file.sidecar_files import remove_journal
from statelog.storage.mapped_pages import MappedPages
from statelog.storage.read_transaction import ReadTransaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from statelog.format.mac import StoreMac
    from statelog.storage.lmdb_file import LmdbFile
    from statelog.storage.wal.wal import Wal

_SEARCHED_SIZE_BYTES = 8 * 1024 * 1024
_OVERLAP_SIZE_BYTES = 256 * 1024
"""The overlap of consecutive parts that `check` searches, so that it finds a string that crosses their border."""


class NewFile:
    """The new file. The caller fills the table `meta`, then the log, then the index."""

    def __init__(self, appender: Appender, mac: StoreMac | None) -> None:
        self._appender = appender
        self._mac = mac
        self._tables: dict[bytes, Any] = {}
        self._last_lsn = 0

    def copy_meta(self, old: ReadTransaction, upto: int) -> None:
        """Copy the table `meta`, and record that a purge has rewritten the records up to the LSN `upto`."""
        facts = {**dict(old.metas()), PURGE_KEY: self._sealed(PURGE_KEY, encode_purged_lsn(upto))}
        for key, value in sorted(facts.items()):
            self._put(META_TABLE, key, value)

    def put_log(self, lsn: int, record: bytes) -> None:
        """Append a record."""
        value = record if self._mac is None else self._mac.seal_record(lsn, record)
        self._put(LOG_TABLE, keys.encode_lsn(lsn), value)
        self._last_lsn = lsn

    def get_log(self, lsn: int) -> memoryview | None:
        """Return a view of an appended record, or None. The view is valid until the next record is appended."""
        found = self._appender.transaction.get(keys.encode_lsn(lsn), db=self._table(LOG_TABLE))
        if found is None:
            return None
        return memoryview(found) if self._mac is None else memoryview(found)[:-RECORD_MAC_SIZE_BYTES]

    lend_log = get_log

    def last_lsn(self) -> int:
        """Return the LSN of the last record."""
        return self._last_lsn

    def put_index(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Append the rows of the index. They must be in the order of their keys."""
        self._table(INDEX_TABLE)
        for key, payload in rows:
            self._put(INDEX_TABLE, key, self._sealed(key, payload))

    def _sealed(self, key: bytes, payload: bytes) -> bytes:
        return seal(key, payload) if self._mac is None else self._mac.seal(key, payload)

    def _put(self, name: bytes, key: bytes, value: bytes) -> None:
        self._appender.put(key, value, self._table(name))

    def _table(self, name: bytes) -> Any:
        if name not in self._tables:
            self._tables[name] = self._appender.open_table(name)
        return self._tables[name]


def rewrite_file(
    file: LmdbFile,
    wal: Wal,
    fill: Callable[[ReadTransaction, NewFile], None],
    check: Callable[[bytes], None],
    swapped: Callable[[], None],
) -> int:
    """Replace the file of a store by a file with changed records. Return the size of the new file in bytes.

    Args:
        file: the LMDB file.
        wal: the write-ahead log.
        fill: reads the old file and fills the new file. If it raises, the old file stays.
        check: called with all bytes of the new file, in parts that overlap. If it raises, the old file stays.
        swapped: called after the new file was renamed to the path, before anybody can commit to it.

    Raises:
        ...: the errors of `compact_file`.
    """
    check_compactable(file, wal)
    temporary = compaction_path(file.path)
    timeout_s = file.lock_timeout_s
    with file.translating():
        finish_leftovers(file.path)
        with (
            temporary_file(file, temporary) as descriptor,
            file.write_lock,
            file.locks.moving(timeout_s),
            file.locks.writing(timeout_s),
        ):
            file.locks.file.check()
            # Reserve space, because the new file may be larger: a redaction may be longer than the secret.
            spare_size_bytes = os.fstat(file.locks.descriptor).st_size
            with (
                ReadTransaction(file) as snapshot,
                opened_for_filling(file, temporary, descriptor, spare_size_bytes) as target,
            ):
                appender = Appender(target, MappedPages(file, descriptor))
                try:
                    fill(snapshot, NewFile(appender, file.handles.mac))
                    appender.transaction.commit()
                finally:
                    appender.transaction.abort()
            finish_file(file, temporary, descriptor)
            size_bytes = os.fstat(descriptor).st_size
            for at in range(0, size_bytes, _SEARCHED_SIZE_BYTES):
                check(os.pread(descriptor, _SEARCHED_SIZE_BYTES + _OVERLAP_SIZE_BYTES, at))
            file.follows_purge = True
            try:
                swap(file, temporary, descriptor, PURGED)
            finally:
                file.follows_purge = file.has_moved
            swapped()
            # Flush the name before the WAL is removed. Otherwise a power failure could bring the old file back without
            # its WAL.
            make_name_durable(file.path)
            point("purge.after_directory_sync")
            remove_journal(file.path)
        file.follow()
    return size_bytes
