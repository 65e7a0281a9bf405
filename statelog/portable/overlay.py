"""Records and index changes that are staged for one transaction, and can be read as if they were committed.

This is like `log.batch.Batch`, but for records that already exist as bytes. A staged record keeps
its LSN, time and chain digest. Nothing is written until all of the records have been checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from statelog.format import keys
from statelog.format.record import FLAG_VACUUMED, Record, Redacted
from statelog.log.index import apply_borrowed, enter_redacted, enter_shared, redacted_state
from statelog.log.kinds.table import apply_event, owner_of, version_in
from statelog.log.view import View, ordered
from statelog.tree.node import is_shared_widely

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog.guard.hook import Redactor
    from statelog.log.events import Event
    from statelog.log.transaction import IndexedLog
    from statelog.portable.nodes import NodeHeader
    from statelog.storage.write_transaction import WriteTransaction

T = TypeVar("T")

_PAGES = b"v"
_PAGE_PREFIX_SIZE_BYTES = len(keys.encode_page_prefix(0, 0))


class Overlay:
    """Stages records and index payloads over a transaction. The guard refuses a record with a secret (SecretError)."""

    def __init__(self, transaction: IndexedLog, guard: Redactor | None = None) -> None:
        self._guard = guard
        self.view = View(self)
        self._transaction = transaction
        self._end = transaction.last_lsn()
        self._records: list[bytes] = []
        self._payloads: dict[bytes, bytes | None] = {}
        self._last_pages: dict[bytes, bytes] = {}
        """For each branch, the key of its last staged version page. Cached because this page is read most often."""
        self._times_us: dict[int, int] = {}
        """The time of each thread's last version, staged or read from the transaction."""

    # --- reading ------------------------------------------------------------------

    def get_index(self, key: bytes) -> bytes | None:
        """Return the payload of a key. A staged payload takes precedence."""
        if key in self._payloads:
            return self._payloads[key]
        return self._transaction.get_index(key)

    def get_log(self, lsn: int) -> memoryview | None:
        """Return a record, staged or not."""
        if lsn > self._end:
            index = lsn - self._end - 1
            return memoryview(self._records[index]) if index < len(self._records) else None
        return self._transaction.get_log(lsn)

    def lend_log(self, lsn: int) -> memoryview | None:
        """Return a record, staged or not, without a check of its MAC."""
        return self._transaction.lend_log(lsn) if lsn <= self._end else self.get_log(lsn)

    def last_lsn(self) -> int:
        """Return the last LSN, including staged records."""
        return self._end + len(self._records)

    def last_index(self, prefix: bytes) -> tuple[bytes, bytes] | None:
        """Return the greatest key with the given prefix, and its payload. Return None if there is no such key."""
        if prefix[:1] == _PAGES and len(prefix) == _PAGE_PREFIX_SIZE_BYTES:
            key = self._last_pages.get(prefix)
            payload = None if key is None else self._payloads[key]
            if key is not None and payload is not None:  # No stored page of the branch has a greater key.
                return key, payload
            stored = self._transaction.last_index(prefix)
            if stored is None or stored[0] not in self._payloads:
                return stored
        return next(self.scan_index(prefix, reverse=True), None)

    def last_time_us(self, thread: int) -> int:
        """Return the time of a thread's last version, or 0."""
        known = self._times_us.get(thread)
        if known is None:
            known = self._times_us[thread] = View(self._transaction).last_time_us(thread)
        return known

    def scan_index(self, prefix: bytes, *, start: bytes = b"", reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, payload) for each key with the given prefix, from `start` on. `reverse` means descending."""
        merged = dict(self._transaction.scan_index(prefix))
        for key, payload in self._payloads.items():
            if key.startswith(prefix):
                if payload is None:
                    merged.pop(key, None)
                else:
                    merged[key] = payload
        yield from ordered(merged, start, reverse=reverse)

    # --- staging ------------------------------------------------------------------

    def put_index(self, key: bytes, payload: bytes) -> None:
        """Stage a payload."""
        self._payloads[key] = payload
        if key[:1] == _PAGES:
            prefix = key[:_PAGE_PREFIX_SIZE_BYTES]
            self._last_pages[prefix] = max(key, self._last_pages.get(prefix, b""))

    def delete_index(self, key: bytes) -> None:
        """Stage a deletion."""
        self._payloads[key] = None
        if key[:1] == _PAGES:
            self._last_pages.pop(key[:_PAGE_PREFIX_SIZE_BYTES], None)

    def stage(self, data: bytes, record: Record, event: Event | Redacted, rows: dict[int, NodeHeader]) -> None:
        """Stage a record and its changes to the index."""
        lsn = record.lsn
        assert lsn == self.last_lsn() + 1
        if self._guard is not None:
            self._guard.check_bytes(data, f"record {lsn} of the import")
        thread = owner_of(event, lsn)
        for number, row in rows.items():
            if is_shared_widely(row.type, row.content_size, data[row.at]):
                enter_shared(self, row.digest, keys.SharedNodePlace(lsn, number, thread, is_borrowed=False))
        if isinstance(event, Redacted):
            apply_borrowed(self, event.borrowed)
            state = redacted_state(is_vacuumed=bool(record.flags & FLAG_VACUUMED), holds_nodes=bool(rows))
            enter_redacted(self, thread, {lsn: state})
        else:
            apply_event(self, event, lsn)
        if version_in(event) is not None:
            self._times_us[thread] = max(record.time_us, self.last_time_us(thread))
        self._records.append(data)

    def flush(self, transaction: WriteTransaction) -> None:
        """Write everything staged into `transaction`, which must be the transaction of this overlay."""
        for offset, data in enumerate(self._records):
            transaction.put_log(self._end + offset + 1, data)
        for key, payload in sorted(self._payloads.items()):
            if payload is None:
                transaction.delete_index(key)
            else:
                transaction.put_index(key, payload)
