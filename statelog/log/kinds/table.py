"""The table of kinds of events, and operations on records of any kind.

Commits, rebuilds, recoveries and imports all update the index through this module (L4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.errors import CorruptionError
from statelog.format.fields import RAW
from statelog.format.record import FLAG_VACUUMED, TYPE_REMOVAL, Record, Redacted, pack_nodes
from statelog.log.events import CheckpointEvent, DeleteEvent, Event, LoanEvent, RemovalEvent, decode_as
from statelog.log.index import (
    TO_BE_ERASED,
    WHOLE,
    apply_borrowed,
    apply_nodes,
    enter_redacted,
    facts_of,
    redacted_records,
    redacted_state,
)
from statelog.log.kinds import deletion
from statelog.log.kinds.checkpoints import CHECKPOINT_KIND, ROLLBACK_KIND
from statelog.log.kinds.deletion import deletion_kind
from statelog.log.kinds.entries import ENTRY_KIND
from statelog.log.kinds.loans import LOAN_KIND
from statelog.log.kinds.policies import POLICY_KIND
from statelog.log.kinds.removals import MARK, removal_kind, removals_of
from statelog.log.kinds.threads import FORK_KIND, SCHEMA_KIND, TAG_KIND, THREAD_KIND
from statelog.log.times import now_us

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from statelog.format.record import NodeRow
    from statelog.log.batch import Batch
    from statelog.log.index import IndexWriter, NodeFacts
    from statelog.log.kinds.kind import Kind
    from statelog.log.view import View

KINDS: dict[int, Kind[Any]] = {}
"""The kinds, keyed by record type."""

_BY_EVENT: dict[type[Event], Kind[Any]] = {}

_GENERAL_PREFIXES = (b"d", b"e", b"o", b"r")
"""The first bytes of keys that several kinds use."""


def register(kind: Kind[Any]) -> None:
    """Add a kind to the table."""
    taken = {prefix for each in KINDS.values() for prefix in (*each.prefixes, *each.other_prefixes)}
    assert kind.type not in KINDS, kind.name
    assert kind.has_raw == any(field in RAW for body in kind.bodies for field in body), kind.name
    assert not taken.union(_GENERAL_PREFIXES).intersection((*kind.prefixes, *kind.other_prefixes)), kind.name
    KINDS[kind.type] = kind
    _BY_EVENT.setdefault(kind.event, kind)


for _kind in (
    THREAD_KIND,
    CHECKPOINT_KIND,
    ROLLBACK_KIND,
    FORK_KIND,
    SCHEMA_KIND,
    TAG_KIND,
    deletion_kind(KINDS),
    POLICY_KIND,
    LOAN_KIND,
    ENTRY_KIND,
    removal_kind(KINDS),
):
    register(_kind)


def kind_of(record: Record) -> Kind[Any]:
    """Return the kind of a record. Raises CorruptionError if the type is unknown."""
    kind = KINDS.get(record.type)
    if kind is None:
        message = f"record {record.lsn}: unknown type {record.type}"
        raise CorruptionError(message, lsn=record.lsn)
    return kind


def kind_of_event(event: Event) -> Kind[Any]:
    """Return the kind of an event. A rollback has the kind of checkpoints."""
    return _BY_EVENT[type(event)]


def decode_event(record: Record) -> Event:
    """Return the event of a record with a valid checksum. Raises CorruptionError if the body does not fit its type."""
    event: Event = decode_as(record, kind_of(record).read)
    return event


def owner_of(event: Event | Redacted, lsn: int) -> int:
    """Return the thread that owns a record, or 0 if no thread does."""
    return event.thread if type(event) is Redacted else _BY_EVENT[type(event)].owner(event, lsn)


def version_in(event: Event | Redacted) -> CheckpointEvent | None:
    """Return the event if it is a version of a thread, or None."""
    return event if isinstance(event, CheckpointEvent) else None


def removed_by(event: Event | Redacted) -> list[int]:
    """Return the LSNs of the records that a removal event lists, or an empty list for other events."""
    return event.lsns if type(event) is RemovalEvent else []


def is_mark(event: Event) -> bool:
    """Return True if an event is the mark of an older log. From the mark on, the log lists every redacted record."""
    return type(event) is RemovalEvent and event == MARK


def deleted_by(event: Event | Redacted) -> int | None:
    """Return the thread that a deletion event deletes, or None for other events."""
    return event.thread if type(event) is DeleteEvent else None


def lent_to_anyone_by(event: Event | Redacted) -> int | None:
    """Return the lender of a loan to thread 0, or None for other events."""
    return event.lender if type(event) is LoanEvent and not event.thread else None


def records_of(view: View, owner: int) -> list[int]:
    """Return the LSNs of an owner's records that were neither redacted nor released."""
    return deletion.records_of(view, owner, KINDS)


def others_of(view: View, owner: int, after: int = 0) -> list[int]:
    """Return the ascending LSNs above `after` of an owner's records with roots. Omit versions and redacted records."""
    with_roots = [kind for kind in KINDS.values() if kind.root_field is not None and not kind.is_version]
    kinds = [kind for kind in with_roots if kind.is_owner(view, owner)]
    if not kinds:
        return []
    released = [lsn for lsn, state in redacted_records(view, owner).items() if state == TO_BE_ERASED and lsn > after]
    found = {lsn for kind in kinds for lsn in kind.records(view, owner, after) if lsn > after}
    return sorted(found.union(lsn for lsn in released if view.record(lsn).type in {kind.type for kind in kinds}))


# --- the index ----------------------------------------------------------------------


def apply_event(index: IndexWriter, event: Event, lsn: int) -> None:
    """Update the index for one event."""
    kind = _BY_EVENT[type(event)]
    kind.apply(index, event, lsn)
    if kind.borrowed_field is not None and not kind.is_version:
        apply_borrowed(index, event[kind.borrowed_field])


def apply_record(index: IndexWriter, record: Record, event: Event | None, facts: Sequence[NodeFacts]) -> None:
    """Update an index for one record.

    Args:
        index: the index.
        record: the record.
        event: its event, or None if it was redacted. In that case, only its nodes affect the index.
        facts: the facts of its nodes. This may be empty if the record was not redacted and has no widely shared node.
    """
    if event is not None:
        apply_nodes(index, record.lsn, owner_of(event, record.lsn), facts)
        apply_event(index, event, record.lsn)
        return
    redacted = record.redacted()
    apply_nodes(index, record.lsn, redacted.thread, facts)
    apply_borrowed(index, redacted.borrowed)
    is_vacuumed = bool(record.flags & FLAG_VACUUMED)
    holds_nodes = any(size for _type, _digest, size, _first in facts)
    state = redacted_state(is_vacuumed=is_vacuumed, holds_nodes=holds_nodes)
    enter_redacted(index, redacted.thread, {record.lsn: state})


def losing_records(view: View, owner: int) -> Iterator[int]:
    """Yield the LSNs of a deleted owner's records that a removal event must list (R2).

    A released record is about to lose its event. A redacted record that never had an event is about to lose the list of
    its nodes.
    """
    for lsn, state in redacted_records(view, owner).items():
        if state == TO_BE_ERASED or (state == WHOLE and not view.record(lsn).redacted().had_event):
            yield lsn


def stage_names(batch: Batch, owner: int) -> None:
    """Stage removal events that list the records of an owner that the batch has deleted.

    The deletion has released the records, so the removal events do not change the index and are not applied.
    """
    for event in removals_of(losing_records(batch.view, owner)):
        batch.append(TYPE_REMOVAL, now_us(), KINDS[TYPE_REMOVAL].encode(event, batch.next_lsn()))


def stage_event(batch: Batch, event: Event, rows: Sequence[NodeRow] = (), time_us: int | None = None) -> int:
    """Stage the record of an event and its index changes, and return the LSN. Use `operations` to stage versions.

    Args:
        batch: the batch, which may have other events already.
        event: the event.
        rows: the nodes of the record, from a workspace of its owner (`Batch.workspace`).
        time_us: the time of the record. With None, the time of the clock.
    """
    kind, lsn = kind_of_event(event), batch.next_lsn()
    batch.append(kind.type, now_us() if time_us is None else time_us, kind.encode(event, lsn), pack_nodes(rows))
    apply_nodes(batch, lsn, kind.owner(event, lsn), facts_of(rows))
    apply_event(batch, event, lsn)
    return lsn
