"""Replay: writes the records of a write-ahead log into the log again, with their index changes (L4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog import kernels
from statelog.format.record import (
    FLAG_REDACTED,
    FLAG_VACUUMED,
    Record,
    chain_digest,
    contents_digest,
    decode_record,
    part_digest,
    record_contents_digest,
)
from statelog.log.batch import LogEnd, read_log_end
from statelog.log.engine import Engine
from statelog.log.index import node_facts
from statelog.log.kinds.table import apply_record, decode_event
from statelog.log.view import View
from statelog.storage.store_file import StoreFile

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from statelog.storage.write_transaction import WriteTransaction


class _Applied:
    """Gives `apply_record` access to the index of a write transaction."""

    def __init__(self, transaction: WriteTransaction) -> None:
        self._transaction = transaction
        self.get_index = transaction.get_index
        self.put_index = transaction.put_index
        self.delete_index = transaction.delete_index
        self.get_log = transaction.get_log
        self.lend_log = transaction.lend_log
        self.last_lsn = transaction.last_lsn
        self.last_index = transaction.last_index
        self.view = View(self)

    def scan_index(self, prefix: bytes, *, start: bytes = b"", reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield the current rows. The caller may change rows during the scan."""
        return iter(list(self._transaction.scan_index(prefix, start=start, reverse=reverse)))


def open_engine(path: str | os.PathLike[str], *, key: object = None, **options: Any) -> Engine:
    """Open the store at `path`. Options and errors are as for `StoreFile.open`; `key` is as in `statelog.open`.

    Raises:
        KeyArgumentError: `key` is not a key. Facts: argument.
    """
    if key is not None:
        from statelog.format.mac import as_store_key

        options["key"] = as_store_key(key)
    return Engine(StoreFile.open(path, replay=Replay(), **options))


class Replay:
    """A callable that replays the groups of a write-ahead log in order, for one opening of a store."""

    def __init__(self) -> None:
        self._transaction: WriteTransaction | None = None
        self._index: _Applied
        self._end: LogEnd

    def __call__(self, transaction: WriteTransaction, lsn: int, records: Sequence[bytes]) -> bool:
        """Append records from `lsn` on, and update the index.

        Returns:
            False if the records do not continue the chain (L3): they were never acknowledged.
            Nothing was written.

        Raises:
            CorruptionError: a record has a wrong checksum, or an impossible event.
        """
        if transaction is not self._transaction:
            self._transaction, self._index, self._end = transaction, _Applied(transaction), read_log_end(transaction)
        end = self._end
        read = []
        for number, data in enumerate(records, lsn):
            record = decode_record(data, number)
            if number != end.lsn + 1 or record.previous_chain not in (b"", end.chain):
                return False
            rows = {} if record.flags & FLAG_VACUUMED else kernels.record_rows(data)
            contents = _contents_digest(data, record, rows)
            chain = chain_digest(record.type, record.flags, number, record.time_us, end.chain, contents)
            end = LogEnd(number, chain, record.time_us)
            read.append((data, record, rows))
        for data, record, rows in read:
            transaction.put_log(record.lsn, data)
            if record.flags & FLAG_REDACTED:
                apply_record(self._index, record, None, node_facts(data))
            else:
                facts = [
                    (type_, digest, size, data[at] if size else 0) for type_, digest, at, size, _total in rows.values()
                ]
                apply_record(self._index, record, decode_event(record), facts)
        self._end = end
        return True


def _contents_digest(data: bytes, record: Record, rows: Mapping[int, tuple[int, bytes, int, int, int]]) -> bytes:
    """Return the `record_contents_digest` of a record whose nodes are known."""
    if record.flags & FLAG_REDACTED:
        return record_contents_digest(data, record)
    identities = b"".join([bytes((type_,)) + digest for type_, digest, _at, _size, _total in rows.values()])
    return contents_digest(part_digest(record.body), identities)
