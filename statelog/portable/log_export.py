"""Export the records of the log unchanged, starting after an LSN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.errors import CorruptionError, UsageError
from statelog.format.record import FLAG_REDACTED, NO_DIGEST, decode_record, record_chain_digest
from statelog.log.reader import read_with_digest
from statelog.log.view import missing
from statelog.portable.frames import LOG, RECORD, FrameWriter, Header
from statelog.portable.reports import ExportReport
from statelog.storage.mapped_pages import MappedPages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from statelog.log.engine import Engine
    from statelog.portable.frames import ExportTarget

_PAGE_SIZE_BYTES = 1024 * 1024
_PAGE_RECORDS = 1024
_ROUNDS_MAX = 8
"""The maximum number of rounds in which an export adds the records that were committed during the previous round."""


def export_log(
    engine: Engine, target: ExportTarget, *, since: int = 0, progress: Callable[[int, int], None] | None = None
) -> ExportReport:
    """Write all records above an LSN; see `Store.export`.

    Raises:
        UsageError: the log ends before `since`.
        CorruptionError: a record is damaged. The export ends before this record.
    """
    with engine.read() as view:
        last = view.transaction.last_lsn()
        if since > last:
            message = f"the log ends at LSN {last}: it has no record {since}"
            raise UsageError(message, since=since, last_lsn=last)
        chain = read_with_digest(view, since)[1] if since else NO_DIGEST
    writer = FrameWriter(target, Header(LOG, engine.store_file.lmdb_file.store_id, since, chain, last))
    at, rounds, named_at = since, 0, 0
    while at < last:
        for lsn, data, known_last in _pages(engine, at, last):
            record = decode_record(data, lsn)
            if record.previous_chain not in (b"", chain):
                message = f"record {lsn} does not continue the chain"
                raise CorruptionError(message, lsn=lsn)
            chain = record_chain_digest(data, record, chain)
            if record.flags & FLAG_REDACTED:
                named_at = max(named_at, known_last)
            writer.put(RECORD, data)
            if progress is not None and (lsn % 256 == 0 or lsn == last):
                progress(lsn - since, last - since)
        at, rounds = last, rounds + 1
        if rounds < _ROUNDS_MAX:
            with engine.read() as view:
                last = view.transaction.last_lsn()
        else:  # The export must include the removal events that name its redacted records.
            last = max(last, named_at)
    writer.finish(last=at, chain=chain)
    return ExportReport(LOG, at - since, None, since, at, writer.size_bytes)


def export_records(
    target: ExportTarget, *, store_id: bytes, since: int, chain: bytes, records: Sequence[bytes]
) -> bytes:
    """Write an export of `records`, which begin after LSN `since`. Return the chain digest of the last record.

    `chain` is the chain digest of the record at `since`.
    """
    last = since + len(records)
    writer = FrameWriter(target, Header(LOG, store_id, since, chain, last))
    for lsn, data in enumerate(records, since + 1):
        chain = record_chain_digest(data, decode_record(data, lsn), chain)
        writer.put(RECORD, data)
    writer.finish(last=last, chain=chain)
    return chain


def _pages(engine: Engine, after: int, last: int) -> Iterator[tuple[int, bytes, int]]:
    """Yield (LSN, record, the store's last LSN when the record was read) for LSNs above `after` up to `last`.

    No transaction is open between two items.
    """
    mapped = MappedPages(engine.store_file.lmdb_file)
    while after < last:
        page: list[tuple[int, bytes, int]] = []
        size_bytes = 0
        with engine.read() as view:
            known_last = view.transaction.last_lsn()
            while after < last and size_bytes < _PAGE_SIZE_BYTES and len(page) < _PAGE_RECORDS:
                after += 1
                data = view.transaction.get_log(after)
                if data is None:
                    raise missing("record", after)
                page.append((after, bytes(data), known_last))
                size_bytes += len(data)
                mapped.read(len(data))
        yield from page
