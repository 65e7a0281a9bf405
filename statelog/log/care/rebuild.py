"""Rebuilds the index from the log. The result equals the index that commits maintain, byte for byte (L4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.format.record import FLAG_REDACTED, decode_record
from statelog.log.index import node_facts
from statelog.log.kinds.table import apply_record, decode_event
from statelog.log.view import View, missing, ordered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from statelog.log.engine import Engine
    from statelog.log.transaction import Log
    from statelog.storage.read_transaction import ReadTransaction
    from statelog.storage.write_transaction import WriteTransaction


class DerivedIndex:
    """An index in memory that is derived from the log of a transaction."""

    def __init__(self, transaction: Log) -> None:
        self._transaction = transaction
        self.payloads: dict[bytes, bytes] = {}
        self.view = View(self)

    def get_index(self, key: bytes) -> bytes | None:
        """Return the payload of a key, or None."""
        return self.payloads.get(key)

    def put_index(self, key: bytes, payload: bytes) -> None:
        """Store the payload of a key."""
        self.payloads[key] = payload

    def delete_index(self, key: bytes) -> None:
        """Delete a key."""
        self.payloads.pop(key, None)

    def get_log(self, lsn: int) -> memoryview | None:
        """Return a record of the log, or None."""
        return self._transaction.get_log(lsn)

    def lend_log(self, lsn: int) -> memoryview | None:
        """Return a record of the log without checking its MAC."""
        return self._transaction.lend_log(lsn)

    def last_lsn(self) -> int:
        """Return the LSN of the last record."""
        return self._transaction.last_lsn()

    def last_index(self, prefix: bytes) -> tuple[bytes, bytes] | None:
        """Return the greatest key that begins with `prefix`, and its payload."""
        return max(self.scan_index(prefix), default=None)

    def scan_index(self, prefix: bytes, *, start: bytes = b"", reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys that begin with `prefix` and their payloads, from the key `start` on, or in reverse."""
        found = {key: payload for key, payload in self.payloads.items() if key.startswith(prefix)}
        yield from ordered(found, start, reverse=reverse)


def derive(transaction: ReadTransaction, progress: Callable[[int, int], None] | None = None) -> DerivedIndex:
    """Return the index derived from the log. Only one record at a time is in memory."""
    index = DerivedIndex(transaction)
    last = transaction.last_lsn()
    for lsn in range(1, last + 1):
        data = transaction.get_log(lsn)
        if data is None:
            raise missing("record", lsn)
        record = decode_record(data, lsn)
        event = None if record.flags & FLAG_REDACTED else decode_event(record)
        facts = node_facts(data)
        transaction.give_back(data)
        apply_record(index, record, event, facts)
        if progress is not None and lsn % 256 == 0:
            progress(lsn, last)
    if progress is not None:
        progress(last, last)
    return index


def rebuild_index(engine: Engine, progress: Callable[[int, int], None] | None = None) -> int:
    """Replace the index by the one derived from the log, in one transaction. Return the number of records read.

    Raises:
        CorruptionError: a record is damaged. The index is unchanged.
    """

    def work(transaction: WriteTransaction) -> int:
        derived = derive(transaction, progress).payloads
        # A rebuild must work even if the index is damaged, so read only the keys of the old index.
        for key in transaction.index_keys():
            if key not in derived:
                transaction.delete_index(key)
        for key, payload in sorted(derived.items()):
            transaction.put_index(key, payload)
        return transaction.last_lsn()

    return engine.care(work)
