"""Reads the records of the event log in order, and waits for more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from statelog.errors import StatelogError
from statelog.format.record import (
    FLAG_CONTINUES,
    FLAG_REDACTED,
    Record,
    decode_record,
    record_chain_digest,
)
from statelog.log.chain import read_chained
from statelog.log.kinds.table import decode_event, kind_of
from statelog.log.times import to_datetime
from statelog.log.view import missing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from statelog.log.engine import Engine
    from statelog.log.events import Event
    from statelog.log.kinds.kind import Kind
    from statelog.log.view import View

_PAGE_RECORDS = 64
_WAIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record of the event log.

    Attributes:
        lsn: the log sequence number. LSNs are dense from 1.
        type: "thread", "checkpoint", "rollback", "fork", "schema", "tag", "policy", "delete", "loan" (a copy was made),
            "entry" (of the board, or a lease) or "removal" (retention has removed records).
        time: the time of the commit (UTC).
        thread_id: the thread that the event belongs to; None if the thread was deleted, if the event is redacted, or if
            the event does not belong to a thread (a policy for future threads, a removal).
        body: the fields of the event, by type. It is empty if the event is redacted, for example because the version
            was removed. Metadata is as in `Checkpoint.metadata`.
        size_bytes: the size of the record with its nodes.
        digest: the chain digest in hex, over all records up to this one.
        previous_digest: the chain digest of the previous record.
        continues: True if the next record belongs to the same transaction.
    """

    lsn: int
    type: str
    time: datetime
    thread_id: str | None
    body: dict[str, Any]
    size_bytes: int
    digest: str
    previous_digest: str
    continues: bool


def read_log(engine: Engine, after: int, *, follow: bool, timeout_s: float | None) -> Iterator[LogRecord]:
    """Yield records above `after`; see `Store.log`. At a damaged record, yield all earlier records, then raise."""
    end: int | None = None
    chain = b""
    while True:
        flushed = engine.store_file.flushed_lsn() if follow else None
        with engine.read() as view:
            last = view.transaction.last_lsn() if flushed is None else flushed
            if not follow:  # Without `follow`, stop at the last record that existed at the beginning.
                end = last = last if end is None else end
            stop = min(after + _PAGE_RECORDS, last)
            page: list[LogRecord] = []
            failure: StatelogError | None = None
            try:
                for lsn in range(after + 1, stop + 1):
                    page.append(_log_record(view, lsn, chain))
                    chain = bytes.fromhex(page[-1].digest)
            except StatelogError as error:  # Yield the records before the damaged one first, because they are intact.
                failure = error
        yield from page
        if failure is not None:
            raise failure
        after = max(stop, after)
        if after < last:
            continue
        if not follow:
            return
        is_more = engine.store_file.wake.wait(after, _WAIT_S if timeout_s is None else timeout_s)
        if not is_more and timeout_s is not None:
            return


def _log_record(view: View, lsn: int, before: bytes) -> LogRecord:
    """Return a record of the log. `before` is the chain digest before it, or empty if unknown."""
    record, digest = _read_behind(view, lsn, before) if before else read_with_digest(view, lsn)
    kind = kind_of(record)
    if record.flags & FLAG_REDACTED:
        thread_id = None
        body: dict[str, Any] = {}
    else:
        event = decode_event(record)
        thread_id, is_deleted = _thread_of(view, kind, event, lsn)
        body = {} if is_deleted else kind.describe(view, event)
    return LogRecord(
        lsn=lsn,
        type=kind.name,
        time=to_datetime(record.time_us),
        thread_id=thread_id,
        body=body,
        size_bytes=record.size_bytes,
        digest=digest.hex(),
        previous_digest=record.previous_chain.hex(),
        continues=bool(record.flags & FLAG_CONTINUES),
    )


def _thread_of(view: View, kind: Kind[Any], event: Event, lsn: int) -> tuple[str | None, bool]:
    """Return the id of the thread that owns an event, or None. Also return whether that thread was deleted.

    A deleted thread may still have records, because a crash may come between the deletion and their erasure.
    """
    owner = kind.owner(event, lsn)
    if not owner or kind.outlives:
        return (view.thread(owner).id if owner and view.is_alive(owner) else None), False
    if view.is_alive(owner):
        return view.thread(owner).id, False
    if owner not in view.deleted_threads():
        raise missing("thread", owner)
    return None, True


def read_with_digest(view: View, lsn: int) -> tuple[Record, bytes]:
    """Return a record, with `previous_chain` set, and its own chain digest."""
    found = read_chained(view.transaction.get_log, lsn)
    if found is None:
        raise missing("record", lsn)
    return found


def _read_behind(view: View, lsn: int, before: bytes) -> tuple[Record, bytes]:
    data = view.transaction.get_log(lsn)
    if data is None:
        raise missing("record", lsn)
    record = decode_record(data, lsn)
    digest = record_chain_digest(data, record, before)
    return record._replace(previous_chain=record.previous_chain or before), digest
