"""What is said of an entry of the board: it is set, or is there no more."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.format import keys
from statelog.format.fields import (
    ACT,
    DIGESTS,
    ENTRY_KEY,
    METADATA,
    NAME,
    RECORD_LSN,
    ROOT,
    THREAD,
    TIME_US,
    optional,
)
from statelog.format.record import TYPE_ENTRY
from statelog.log.kinds.kind import Kind, Recent, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog.log.index import IndexWriter
    from statelog.log.view import View

BOARD_ID = "statelog:board"
"""Id of the thread that has the board's records."""


class Act(IntEnum):
    """What was done to an entry."""

    SET = 0
    DELETE = 1
    EXPIRE = 2
    ROLLBACK = 3
    """It is what it was at an earlier moment, or is not there, as then."""


class EntryEvent(NamedTuple):
    """An entry is set, or goes: then it has no root.

    `facts` is an encoded dict, for what an act is to say besides; none of these says anything.
    """

    thread: int
    act: int
    key: str
    agent: str | None
    before: int
    """The record before of the same key, 0 for none: also of an entry that went since."""
    created_us: int
    """When it came to be, 0: with this record."""
    expires_us: int
    """0 for never."""
    root_digest: bytes | None
    root_lsn: int
    root_node: int
    facts: bytes
    borrowed: list[bytes]


def last_record(view: View, board: int, key: str) -> tuple[int, int, bool]:
    """Return (last LSN, when it expires, whether it is there) of an entry; (0, 0, False) if there never was one."""
    payload = view.transaction.get_index(keys.encode_entry_key(board, key))
    if payload is not None:
        return *keys.decode_entry(payload), True
    payload = view.transaction.get_index(keys.encode_gone_key(board, key))
    return (0, 0, False) if payload is None else (*keys.decode_entry(payload), False)


def _apply(index: IndexWriter, event: EntryEvent, lsn: int) -> None:
    board, key = event.thread, event.key
    index.put_index(keys.encode_thread_event_key(board, lsn), b"")
    before, expires_us, is_there = last_record(index.view, board, key)
    if before:
        index.delete_index(keys.encode_change_key(board, before))
        if expires_us:
            index.delete_index(keys.encode_expiry_key(board, expires_us, before))
    stays = event.root_digest is not None
    if before and is_there is not stays:
        index.delete_index((keys.encode_entry_key if is_there else keys.encode_gone_key)(board, key))
    place = (keys.encode_entry_key if stays else keys.encode_gone_key)(board, key)
    index.put_index(place, keys.encode_entry(lsn, event.expires_us))
    index.put_index(keys.encode_change_key(board, lsn), key.encode())
    if event.expires_us:
        index.put_index(keys.encode_expiry_key(board, event.expires_us, lsn), key.encode())


def _describe(_view: View, event: EntryEvent) -> dict[str, Any]:
    agent = {} if event.agent is None else {"agent": event.agent}
    return {"act": Act(event.act).name.lower(), "key": event.key, **agent, "before": event.before or None}


def _check(view: View, event: EntryEvent, lsn: int, _recent: Recent) -> None:
    before, _expires_us, is_there = last_record(view, event.thread, event.key)
    if view.thread(event.thread).id != BOARD_ID:
        refuse(lsn, f"an entry {event.key!r} of a thread that is no board")
    if event.before != before:
        refuse(lsn, f"entry {event.key!r} follows record {event.before}, and the one before is {before}")
    goes = event.act in (Act.DELETE, Act.EXPIRE)
    if event.act not in list(Act) or (event.act != Act.ROLLBACK and goes is not (event.root_digest is None)):
        refuse(lsn, f"entry {event.key!r} is neither set nor taken away")
    if event.root_digest is None and (not is_there or event.expires_us or event.created_us):
        refuse(lsn, f"entry {event.key!r} goes, and was not there, or is said to stay")


def is_board(view: View, thread: int) -> bool:
    """Whether a thread is the board's; one that was deleted may have been."""
    row = view.find_thread(thread) if thread else None
    return thread != 0 and (row is None or row.id == BOARD_ID)


def records_of(view: View, board: int) -> Iterator[int]:
    """Yield the LSNs of a board's records."""
    if is_board(view, board):
        for key, _payload in view.transaction.scan_index(keys.encode_thread_prefix(b"e", board)):
            lsn = keys.decode_event_lsn(key)
            if view.record(lsn).type == TYPE_ENTRY:
                yield lsn


ENTRY_KIND = Kind(
    type=TYPE_ENTRY,
    name="entry",
    event=EntryEvent,
    bodies=((THREAD, ACT, ENTRY_KEY, optional(NAME), RECORD_LSN, TIME_US, TIME_US, *ROOT, METADATA, DIGESTS),),
    apply=_apply,
    describe=_describe,
    check=_check,
    records=records_of,
    is_owner=is_board,
    prefixes=(b"k", b"K", b"c", b"E"),
    root_field=7,
    borrowed_field=11,
)
