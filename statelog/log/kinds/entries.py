"""The events of the board: an entry is set, claimed or deleted, and a lease is taken, renewed or released."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.format import board_keys, keys
from statelog.format.board_keys import NO_TAG, EntryRow
from statelog.format.fields import (
    ACT,
    CLAIM,
    DIGESTS,
    ENTRY_KEY,
    ENTRY_SCHEMA,
    ERROR,
    NAME,
    ORDER,
    RECORD_LSN,
    ROOT,
    THREAD,
    TIME_US,
    optional,
)
from statelog.format.record import FLAG_REDACTED, TYPE_AT, TYPE_ENTRY
from statelog.log.index import release_records
from statelog.log.kinds.kind import Kind, Recent, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog.log.index import IndexWriter
    from statelog.log.view import View

BOARD_ID = "statelog:board"
"""The id of the thread that owns the board's records."""

LEASES_ID = "statelog:leases"
"""The id of the thread that owns the records of leases. Leases have no history and no watchers."""

OWN_IDS = (BOARD_ID, LEASES_ID)
"""The ids of threads that users access only through `store.board()`. Policies of threads do not apply to them."""

RANK = 128
"""The rank of priority 0. Priority p has rank 128 - p."""


class EntryAct(IntEnum):
    """What an event did to an entry."""

    SET = 0
    DELETE = 1
    EXPIRE = 2
    ROLLBACK = 3
    """The entry was restored to its state at an earlier moment, or removed if it did not exist then."""
    CLAIM = 4
    RENEW = 5
    RELEASE = 6
    """A claim was released. If the event has no agent, the claim's time was up."""
    COMPLETE = 7
    """The work on the entry was completed, and the entry was deleted. The root is the result."""
    FAIL = 8
    """A claim was released after an error."""
    DEAD = 9
    """The entry was claimed too often and was deleted. It is stored again under the key for dead entries."""


GOES = (EntryAct.DELETE, EntryAct.EXPIRE, EntryAct.COMPLETE, EntryAct.DEAD)
"""The acts after which the entry no longer exists."""


class Claimed(NamedTuple):
    """A claim of an entry, or a lease."""

    token: int
    """The LSN of the claim's first record. It is 0 in that record."""
    tag: bytes
    """A digest of the boot id and the time namespace, which identify the clock of `deadline_us`."""
    deadline_us: int
    until_us: int
    """The deadline by the wall clock, for processes whose boot or time namespace differs."""
    lease_us: int


class EntryEvent(NamedTuple):
    """The event that sets, claims or deletes an entry. A key that begins with a slash is the name of a lease.

    `order` is [rank, time from which the entry may be claimed, number of claims]. None means [128, 0, 0]. `claim` has
    the fields of `Claimed`.
    """

    thread: int
    act: int
    key: str
    agent: str | None
    before: int
    """The LSN of the previous record with the same key, even if that record deleted the entry. It is 0 if the committer
    knew none (B1).
    """
    created_us: int
    """The time of the entry's creation."""
    expires_us: int
    """The time at which the entry expires, or 0 for never."""
    root_digest: bytes | None
    root_lsn: int
    root_node: int
    order: list[int] | None
    claim: list[Any] | None
    error: str | None
    """The reason for the act, or None."""
    borrowed: list[bytes]
    schema: list[Any] | None = None
    """The name and version of the value's schema, or None for version 1."""

    @property
    def is_there(self) -> bool:
        """Whether the entry exists after the event."""
        return self.root_digest is not None and self.act not in GOES


NO_ROW = EntryRow(0)


class KnownEntry(NamedTuple):
    """The current index row and event of a key, as read or staged by a commit."""

    row: EntryRow
    is_there: bool
    """True if the entry exists."""
    event: EntryEvent | None = None
    """The event of the last record, or None if the record was not read."""
    time_us: int = 0
    """The time of the last record, if `event` is set."""


def last_row(view: View, board: int, key: str) -> tuple[EntryRow, bool]:
    """Return the index row of a key, and whether the entry exists. If the index has no row, return `NO_ROW`."""
    payload = view.transaction.get_index(board_keys.encode_entry_key(board, key))
    if payload is not None:
        return board_keys.decode_row(payload), True
    payload = view.transaction.get_index(board_keys.encode_gone_key(board, key))
    return (NO_ROW if payload is None else board_keys.decode_row(payload)), False


def row_of(event: EntryEvent, lsn: int) -> EntryRow:
    """Return the index row of a key after an event with this LSN."""
    rank, ready_us, _attempts = event.order or (RANK, 0, 0)
    tag, deadline_us = (NO_TAG, 0) if event.claim is None else event.claim[1:3]
    return EntryRow(lsn, event.expires_us, ready_us or event.created_us, rank, tag, deadline_us)


def is_lease(key: str) -> bool:
    """Return True if a key is the name of a lease."""
    return key.startswith("/")


def _apply(index: IndexWriter, event: EntryEvent, lsn: int) -> None:
    board, key = event.thread, event.key
    before, is_there = last_row(index.view, board, key)
    stays, row = event.is_there, row_of(event, lsn)
    is_queued = stays and event.claim is None
    if before.lsn:
        _take_out(index, board, key, before, is_there=is_there, following=row if is_queued else None)
        if is_there is not stays:
            index.delete_index((board_keys.encode_entry_key if is_there else board_keys.encode_gone_key)(board, key))
    if is_lease(key):  # A lease needs only its last record, and none after a release, so release the others.
        ends = event.act == EntryAct.RELEASE
        if before.lsn:
            index.delete_index(keys.encode_thread_event_key(board, before.lsn))
        release_records(index, board, [each for each in (before.lsn, lsn if ends else 0) if each])
        if ends:
            index.delete_index(board_keys.encode_gone_key(board, key))
            return
    place = (board_keys.encode_entry_key if stays else board_keys.encode_gone_key)(board, key)
    index.put_index(place, board_keys.encode_row(row))
    index.put_index(keys.encode_thread_event_key(board, lsn), b"")
    if is_queued and not (is_there and before.tag == NO_TAG and before[2:4] == row[2:4]):
        place = board_keys.encode_queue_key(board, key, row.rank, row.order_us)
        index.put_index(place, b"\1" if event.order and event.order[1] else b"")
    if event.expires_us:
        index.put_index(board_keys.encode_expiry_key(board, event.expires_us, lsn), key.encode())
    if event.claim is not None:
        index.put_index(board_keys.encode_deadline_key(board, row.tag, row.deadline_us, lsn), key.encode())


def _remove(index: IndexWriter, event: EntryEvent, lsn: int) -> None:
    index.delete_index(keys.encode_thread_event_key(event.thread, lsn))
    row, is_there = last_row(index.view, event.thread, event.key)
    if row.lsn == lsn:
        _take_out(index, event.thread, event.key, row, is_there=is_there, following=None)
        place = board_keys.encode_entry_key if is_there else board_keys.encode_gone_key
        index.delete_index(place(event.thread, event.key))


def _take_out(
    index: IndexWriter, board: int, key: str, before: EntryRow, *, is_there: bool, following: EntryRow | None
) -> None:
    """Remove all index keys that the last record of an entry has added, except the entry's row.

    Args:
        index: the index.
        board: the thread of the record.
        key: the key of the entry, or the name of the lease.
        before: the row of the key.
        is_there: True if `before` is the row of an existing entry.
        following: the row that replaces `before`, if the entry then waits to be claimed, otherwise None. With equal
            rank and time, the entry keeps its place in the queue.
    """
    if before.expires_us:
        index.delete_index(board_keys.encode_expiry_key(board, before.expires_us, before.lsn))
    if before.tag != NO_TAG:
        index.delete_index(board_keys.encode_deadline_key(board, before.tag, before.deadline_us, before.lsn))
    elif is_there and (following is None or following[2:4] != before[2:4]):
        index.delete_index(board_keys.encode_queue_key(board, key, before.rank, before.order_us))


def _describe(_view: View, event: EntryEvent) -> dict[str, Any]:
    agent = {} if event.agent is None else {"agent": event.agent}
    act = EntryAct(event.act).name.lower()
    if is_lease(event.key):
        return {"act": "lease" if event.act == EntryAct.CLAIM else act, "lease": event.key[1:], **agent}
    token = {} if event.claim is None else {"token": event.claim[0] or None}
    error = {} if event.error is None else {"error": event.error}
    schema = {} if event.schema is None else {"schema": "{}:{}".format(*event.schema)}
    return {"act": act, "key": event.key, **agent, "before": event.before or None, **token, **error, **schema}


def _check(view: View, event: EntryEvent, lsn: int, _recent: Recent) -> None:
    before, is_there = last_row(view, event.thread, event.key)
    if view.thread(event.thread).id != (LEASES_ID if is_lease(event.key) else BOARD_ID):
        refuse(lsn, f"entry {event.key!r} is in a thread that is not a board")
    # Retention may have redacted the previous record, here or in the original store. In that case, the previous state
    # of the entry is unknown, and the event is accepted.
    is_known = event.before == before.lsn
    if event.before and not is_known and not _is_redacted(view, event.before):
        refuse(lsn, f"entry {event.key!r} follows record {event.before}, but its last record is {before.lsn}")
    if event.act not in list(EntryAct):
        refuse(lsn, f"entry {event.key!r} has an unknown operation")
    is_free = before.tag == NO_TAG if is_known else not event.before
    if (event.act in (EntryAct.CLAIM, EntryAct.RENEW)) > (event.claim is not None) or (
        event.act == EntryAct.RENEW and is_free
    ):
        refuse(lsn, f"{event.key!r} is claimed or renewed, but nobody holds the claim")
    if event.schema is not None and (is_lease(event.key) or not event.is_there):
        refuse(lsn, f"{event.key!r} has a schema version, but no value")
    if is_lease(event.key):
        if event.act not in (EntryAct.CLAIM, EntryAct.RENEW, EntryAct.RELEASE) or event.root_digest is not None:
            refuse(lsn, f"lease {event.key[1:]!r} has an operation or a value of an entry")
        return
    goes = event.act in GOES or (event.act == EntryAct.ROLLBACK and event.root_digest is None)
    if event.act not in GOES and event.act != EntryAct.ROLLBACK and event.root_digest is None:
        refuse(lsn, f"entry {event.key!r} has no value, but is not removed")
    was_gone = not is_there if is_known else not event.before
    if goes and (was_gone or event.expires_us or event.claim is not None):
        refuse(lsn, f"entry {event.key!r} is removed, but did not exist, or still has a claim or an expiry time")


def _is_redacted(view: View, lsn: int) -> bool:
    return bool(view.record(lsn).flags & FLAG_REDACTED)


def is_board(view: View, thread: int) -> bool:
    """Return True if a thread owns records of the board or of leases. The thread may be deleted."""
    row = view.find_thread(thread) if thread else None
    return thread != 0 and (row is None or row.id in OWN_IDS)


def is_entry(view: View, lsn: int) -> bool:
    """Return True if a record of the board belongs to an entry.

    The board's thread may also have a policy record: before format 5, a policy for all threads also applied to it.
    """
    data = view.transaction.get_log(lsn)
    return data is not None and data[TYPE_AT] == TYPE_ENTRY


def is_leases(view: View, thread: int) -> bool:
    """Return True if a thread is the owner of the records of leases."""
    row = view.find_thread(thread) if thread else None
    return row is not None and row.id == LEASES_ID


def records_of(view: View, board: int, after: int = 0) -> Iterator[int]:
    """Yield the LSNs above `after` of the records that the thread `board` owns, ascending."""
    if is_board(view, board):
        start = keys.encode_thread_event_key(board, after + 1)
        for key, _payload in view.transaction.scan_index(keys.encode_thread_prefix(b"e", board), start=start):
            yield keys.decode_event_lsn(key)


_BODY = (
    *(THREAD, ACT, ENTRY_KEY, optional(NAME), RECORD_LSN, TIME_US, TIME_US, *ROOT),
    *(optional(ORDER), optional(CLAIM), optional(ERROR), DIGESTS),
)

ENTRY_KIND = Kind(
    type=TYPE_ENTRY,
    name="entry",
    event=EntryEvent,
    bodies=(_BODY, (*_BODY, ENTRY_SCHEMA)),
    apply=_apply,
    describe=_describe,
    check=_check,
    remove=_remove,
    records=records_of,
    is_owner=is_board,
    prefixes=(b"k", b"K", b"E", b"q", b"Q"),
    root_field=7,
    borrowed_field=13,
)
