"""Removal events, which list the records that retention has removed, so that every copy of the log removes them, too.

A redacted record has no content any more, but a copy that imported the record earlier still has the content. So the
transaction that redacts records also appends a removal event, which lists their LSNs. A store that applies the event
removes the index entries of these records. An import then redacts those of the records that are still whole (R2, R3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.format.fields import GAPS, NO_THREAD
from statelog.format.record import FLAG_REDACTED, TYPE_REMOVAL, Record
from statelog.log.events import RemovalEvent, decode_as
from statelog.log.index import release_records
from statelog.log.kinds.kind import Kind, Recent, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from statelog.log.index import IndexWriter
    from statelog.log.view import View


def removal_kind(kinds: Mapping[int, Kind[Any]]) -> Kind[RemovalEvent]:
    """Return the kind of removal events. `kinds` maps a record type to the kind of the record that is removed."""

    def apply(index: IndexWriter, event: RemovalEvent, _lsn: int) -> None:
        for record in _whole_records(index.view, event):
            kind = kinds[record.type]
            assert kind.remove is not None, "retention has removed a record that it must keep"
            removed = decode_as(record, kind.read)
            kind.remove(index, removed, record.lsn)
            release_records(index, kind.owner(removed, record.lsn), [record.lsn])

    def check(view: View, event: RemovalEvent, lsn: int, _recent: Recent) -> None:
        if event.lsns[-1] >= lsn:
            refuse(lsn, f"it removes record {event.lsns[-1]}, which is not before it")
        for record in _whole_records(view, event):
            if record.type not in kinds or kinds[record.type].remove is None:
                refuse(lsn, f"it removes record {record.lsn}, of a type that retention keeps")

    return Kind(
        type=TYPE_REMOVAL,
        name="removal",
        event=RemovalEvent,
        bodies=((NO_THREAD, GAPS),),
        apply=apply,
        describe=lambda _view, event: {"removed": event.lsns},
        check=check,
        outlives=True,
    )


def _whole_records(view: View, event: RemovalEvent) -> Iterator[Record]:
    """Yield those records of the event that are not redacted."""
    for lsn in event.lsns:
        record = view.record(lsn)
        if not record.flags & FLAG_REDACTED:
            yield record
