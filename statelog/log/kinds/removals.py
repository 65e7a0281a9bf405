"""Removal events, which list the records that retention and deletion remove, for all copies of the log and `verify`.

A redacted record has lost its content, but a copy of the log that imported the record earlier still has the content. So
the transaction that redacts records also appends a removal event, which lists their LSNs. A store that applies the
event removes the index entries of these records. An import then redacts the listed records that are not yet redacted
(R2, R3). The records of a deleted thread are listed in the commit of the deletion, and redacted later.

A removal event without records is a mark in a log that an older release has begun. From that point on, the log lists
every redacted record. Record 1 of a newer log has a flag with the same meaning (`FLAG_NAMED`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from statelog.format.fields import GAPS, NO_THREAD, REMOVED_MAX
from statelog.format.record import FLAG_REDACTED, TYPE_REMOVAL, Record
from statelog.log.events import RemovalEvent, decode_as
from statelog.log.index import is_released, release_records
from statelog.log.kinds.kind import Kind, Recent, refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from statelog.log.index import IndexWriter
    from statelog.log.view import View

MARK = RemovalEvent(0, [])
"""A removal event without records. In a log of an earlier format, it follows the events that list all redacted records.
"""


def removals_of(lsns: Iterable[int]) -> Iterator[RemovalEvent]:
    """Yield removal events that list the records `lsns`."""
    ascending = sorted(lsns)
    for start in range(0, len(ascending), REMOVED_MAX):
        some = ascending[start : start + REMOVED_MAX]
        yield RemovalEvent(0, [after - before for before, after in pairwise([0, *some])])


def removal_kind(kinds: Mapping[int, Kind[Any]]) -> Kind[RemovalEvent]:
    """Return the kind of removal events. `kinds` maps the type of each removed record to its kind."""

    def apply(index: IndexWriter, event: RemovalEvent, lsn: int) -> None:
        for record, kind, removed in whole_records(index.view, event, lsn):
            assert kind.remove is not None
            kind.remove(index, removed, record.lsn)
            release_records(index, kind.owner(removed, record.lsn), [record.lsn])

    def check(view: View, event: RemovalEvent, lsn: int, _recent: Recent) -> None:
        if event.gaps and event.lsns[-1] >= lsn:
            refuse(lsn, f"it removes record {event.lsns[-1]}, which is not an earlier record")
        for _found in whole_records(view, event, lsn):
            pass

    def whole_records(view: View, event: RemovalEvent, lsn: int) -> Iterator[tuple[Record, Kind[Any], Any]]:
        """Yield the records of the event that still have keys in the index, with their kinds and events."""
        for record in _whole_records(view, event):
            kind = kinds[record.type]
            removed = decode_as(record, kind.read)
            if is_released(view, kind.owner(removed, record.lsn), record.lsn):
                continue
            if kind.remove is None:
                refuse(lsn, f"it removes record {record.lsn}, of a type that retention keeps")
            yield record, kind, removed

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
    """Yield the records of the event that are not redacted."""
    for lsn in event.lsns:
        record = view.record(lsn)
        if not record.flags & FLAG_REDACTED:
            yield record
