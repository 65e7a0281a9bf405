"""Reads the events of the board from the log, in the order of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from statelog.board.reads import EntryRecord, read_entry
from statelog.errors import CursorError, CursorExpiredError, ExpiredError
from statelog.format import board_keys, keys
from statelog.format.record import FLAG_CONTINUES, FLAG_REDACTED, FLAGS_AT, TYPE_AT, TYPE_ENTRY
from statelog.log.kinds.entries import BOARD_ID
from statelog.log.kinds.table import decode_event
from statelog.log.reader import read_with_digest
from statelog.log.view import missing

if TYPE_CHECKING:
    from statelog.log.kinds.entries import EntryEvent
    from statelog.log.view import View

_DIGEST_CHARACTERS = 32
_RECORDS_MAX = 4096


class Happened(NamedTuple):
    """An event of the board: the record, its cursor, and the end of its commit."""

    found: EntryRecord
    cursor: str
    commit: int
    """The LSN of the last event in the same commit. It is equal for all events of one commit."""


def read_events(view: View, board: int, after: int, until: int, count: int) -> tuple[list[Happened], int]:
    """Return the next events above an LSN, in whole commits, and the LSN up to which the log has been read.

    The events come from the log, because the index does not show which events were removed.

    Raises:
        CursorExpiredError: retention has removed one of these events. Facts: cursor, oldest.
    """
    commits: list[list[int]] = [[]]
    taken = 0
    for lsn in range(after + 1, until + 1):
        kind, flags = _look(view, lsn)
        if flags & FLAG_REDACTED and view.record(lsn).redacted().thread == board:
            check_kept(view, board, lsn - 1, view.transaction.last_lsn())
        if kind == TYPE_ENTRY and not flags & FLAG_REDACTED:
            commits[-1].append(lsn)
            taken += 1
        if not flags & FLAG_CONTINUES:
            if taken >= count or lsn - after >= _RECORDS_MAX:
                until = lsn
                break
            commits.append([])
    events = [_read_event(view, lsn, commit[-1]) for commit in commits for lsn in commit]
    return [event for event in events if event.found.event.thread == board], until


def _look(view: View, lsn: int) -> tuple[int, int]:
    """Return the type and flags of a record."""
    data = view.transaction.get_log(lsn)
    if data is None:
        raise missing("record", lsn)
    return data[TYPE_AT], data[FLAGS_AT]


def _read_event(view: View, lsn: int, commit: int) -> Happened:
    record, digest = read_with_digest(view, lsn)
    event = cast("EntryEvent", decode_event(record))
    return Happened(EntryRecord(event, lsn, record.time_us), encode_cursor(lsn, digest), commit)


def before(view: View, happened: Happened) -> EntryRecord | None:
    """Return the entry as it was before an event.

    Return None if it did not exist, or if its earlier record was removed.
    """
    lsn = happened.found.event.before
    try:
        found = read_entry(view, lsn) if lsn else None
    except ExpiredError:
        return None
    return found if found is not None and found.event.is_there else None


def next_expiry_us(view: View, board: int) -> int | None:
    """Return the earliest expiry time that is not recorded yet, or None."""
    prefix = keys.encode_thread_prefix(b"E", board)
    place = next((place for place, _payload in view.transaction.scan_index(prefix)), None)
    return None if place is None else board_keys.decode_expiry_us(place)


# --- cursors -----------------------------------------------------------------------------


def encode_cursor(lsn: int, digest: bytes) -> str:
    """Return the cursor of an LSN: the LSN and its chain digest."""
    return f"{lsn}-{digest.hex()[:_DIGEST_CHARACTERS]}"


def cursor_at(view: View, lsn: int) -> str:
    """Return the cursor of an LSN."""
    return encode_cursor(lsn, read_with_digest(view, lsn)[1] if lsn else b"\0" * 20)


def check_cursor(view: View, cursor: object) -> int:
    """Return the LSN of a cursor. The cursor may also be an LSN, which is returned unchanged.

    Raises:
        CursorError: the argument is not a cursor, is from a different store, or refers to records that a power failure
            undid or a purge rewrote. Facts: cursor.
    """
    last = view.transaction.last_lsn()
    if isinstance(cursor, int) and not isinstance(cursor, bool):
        if not 0 <= cursor <= last:
            message = f"there is no record {cursor}: the log ends at {last}"
            raise CursorError(message, cursor=cursor)
        return cursor
    number = cursor.partition("-")[0] if isinstance(cursor, str) else ""
    if not (number.isascii() and number.isdigit() and "-" in str(cursor)):
        message = f"{cursor!r} is not a cursor: pass `event.cursor`, or an LSN (an int)"
        raise CursorError(message, cursor=cursor)
    lsn = int(number)
    if lsn > last or cursor_at(view, lsn) != cursor:
        message = (
            f"cursor {cursor!r} belongs to a different history: to a different store, to records that a power failure"
            " undid, or to the time before a purge. List the entries, and watch from now on"
        )
        raise CursorError(message, cursor=cursor)
    return lsn


def check_life(view: View, after: int) -> None:
    """Raise CursorExpiredError if the board was deleted and re-created after an LSN."""
    board = view.thread_lsn(BOARD_ID)
    if view.deleted_lives(BOARD_ID) and after < (board or view.transaction.last_lsn()):
        raise expired((board or view.transaction.last_lsn() + 1) - 1)


def check_kept(view: View, board: int, after: int, until: int) -> None:
    """Raise CursorExpiredError if retention has removed events between two LSNs."""
    lost = last_lost(view, board, after, until)
    if lost:
        raise expired(lost)


def last_lost(view: View, board: int, after: int, until: int) -> int:
    """Return the LSN of the last removed event between two LSNs, or 0 if retention has removed none there."""
    lost = 0
    for lsn in range(max(after, board) + 1, until + 1):
        if _look(view, lsn)[1] & FLAG_REDACTED and view.record(lsn).redacted().thread == board:
            lost = lsn
    return lost


def expired(lsn: int) -> CursorExpiredError:
    """Return the error for events that retention has removed."""
    message = f"events up to record {lsn} were removed by retention: list the entries, and continue to watch from {lsn}"
    return CursorExpiredError(message, cursor=None, oldest=lsn)
