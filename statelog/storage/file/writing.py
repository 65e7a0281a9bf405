"""Writing the tables of a store within a transaction, and what the journal has to know of that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xxhash import xxh3_64_digest

from statelog.errors import StorageError
from statelog.format.header import HEADER_KEY
from statelog.storage.faults import armed, point
from statelog.storage.file.reading import ReadTransaction, encode_lsn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class TableWriter(ReadTransaction):
    """A transaction that puts, replaces and removes; `WriteTransaction` begins and ends it.

    Attributes:
        changes: how often it wrote.
        size_bytes: size of the records it wrote.
        number: its id, once it has begun.
        first_lsn: of the records appended.
    """

    _may_own_pages = True

    changes = first_lsn = size_bytes = number = 0
    is_steady = False
    """Whether it is flushed where it lies: the journal holds records that are appended, and no other changes."""

    appended: list[bytes]
    """The records put, one after another: they go into the journal."""
    is_flushed: bool
    """Whether it is durable when its commit returns."""

    @property
    def snapshot_id(self) -> int:  # type: ignore[override]  # follows from what a write has counted
        """As declared."""
        return 0 if self.changes else self.number - 1  # pages it has taken are free in what it began with

    def put_log(self, lsn: int, record: bytes) -> None:
        """Append a record.

        Raises:
            StorageError: the LSN is not above the last one. Facts: lsn.
        """
        self.put(lsn, (record,), {})

    def put(  # noqa: C901 - all in one frame: every commit comes through here once
        self, lsn: int, records: Sequence[bytes], changes: Mapping[bytes, bytes | None]
    ) -> None:
        """Append records, and change the index.

        Args:
            lsn: of the first record.
            records: any number.
            changes: payloads by key, to be stored sealed; None removes what is there.

        Raises:
            StorageError: the LSN is not above the last one. Facts: lsn.
        """
        if self._borrowed:
            self._take_back()
        put = self._raw.put
        self.changes += len(records) + len(changes)
        if records and not self.appended:
            self.first_lsn = lsn
        for record in records:
            if armed:
                point("commit.before_put_log")
            self.size_bytes += len(record)
            # dupdata, overwrite, append: LMDB answers False, and stores nothing, where the key is out of order
            if not put(encode_lsn(lsn), record, True, True, True, self._log):
                message = f"record {lsn} was not appended: the log already ends at {self._last_key()}"
                raise StorageError(message, lsn=lsn)
            self.appended.append(record)
            lsn += 1
            if armed:
                point("commit.after_put_log")
        for key, payload in changes.items():
            if payload is None:
                self._raw.delete(key, b"", self._index)
                continue
            if armed:
                point("commit.before_put_index")
            put(key, payload + xxh3_64_digest(key + payload), True, True, False, self._index)  # as `seal` does
            if armed:
                point("commit.after_put_index")

    def replace_logs(self, records: dict[int, bytes]) -> None:
        """Put other records in the places of some that are there.

        All are taken out first: LMDB never joins pages that were half emptied by smaller values.

        Args:
            records: by LSN.

        Raises:
            StorageError: there is no record with one of these LSNs; nothing was replaced. Facts: lsn.
        """
        if self._borrowed:
            self._take_back()
        keys = {lsn: encode_lsn(lsn) for lsn in sorted(records)}
        from statelog.storage.file.packing import packing_order

        for lsn, key in keys.items():
            if self._raw.get(key, None, self._log) is None:
                message = f"record {lsn} was not replaced: there is none"
                raise StorageError(message, lsn=lsn)
        self.changes += 1
        self.is_steady = True
        self.size_bytes += sum(map(len, records.values()))
        for key in keys.values():
            self._raw.delete(key, b"", self._log)
        for lsn in packing_order(records):
            self._raw.put(keys[lsn], records[lsn], True, True, False, self._log)

    def put_index(self, key: bytes, payload: bytes) -> None:
        """Store `payload` under `key`, sealed."""
        self.put(0, (), {key: payload})

    def write_header_again(self) -> None:
        """Write the header as it is: a transaction that changes nothing, and counts."""
        self.changes += 1
        self.is_steady = True
        meta = self._handles.meta
        self._raw.put(HEADER_KEY, bytes(self._raw.get(HEADER_KEY, None, meta)), True, True, False, meta)

    def put_meta(self, key: bytes, value: bytes) -> None:
        """Store a fact about the store, sealed already."""
        self.changes += 1
        self.is_steady = True
        self._raw.put(key, value, True, True, False, self._handles.meta)

    def delete_index(self, key: bytes) -> None:
        """Remove `key`, if it is there."""
        self.put(0, (), {key: None})
