"""Stages writes to entries of the board. A function that raises has staged nothing.

The writer compares expiry times with its clock, and records each expiry. So readers of the log need
no clock (L4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.board.entry_writer import EntryFields, EntryWriter, kept_of, place_of, stage
from statelog.board.names import RESERVED
from statelog.board.reads import EntryRecord, changed_since, find_at
from statelog.errors import AlreadyExistsError, ConflictError, UsageError
from statelog.format import board_keys, keys
from statelog.log import operations
from statelog.log.kinds.entries import BOARD_ID, EntryAct
from statelog.log.times import now_us

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.log.batch import Batch

EXPIRED_MAX = 8
"""The maximum number of other entries whose expiry a write to an entry also records."""

SWEPT_MAX = 64
"""The maximum number of expiries that one commit of `Board.sweep` records."""

_NO_EXPIRY_US = 1 << 64
"""A time after the expiry of every entry."""

_new = tuple.__new__
"""Creates a named tuple without calling its `__new__` in Python."""


def begin(batch: Batch, agent: str | None, owner: str = BOARD_ID) -> EntryWriter:
    """Return a writer of the entries or leases of thread `owner`. Create the thread if it does not exist."""
    board = batch.memory.owners.get(owner) or batch.find_owner(owner)
    if board is None:
        board = operations.create_thread(batch, owner, {}, anew=True)
    return _new(EntryWriter, (batch, board, agent, now_us()))


def find(writer: EntryWriter, key: str) -> EntryRecord | None:
    """Return the entry of a key, or None. If the entry has expired, stage its expiry and return None."""
    row, is_there, event, time_us = writer.known(key)
    if not is_there:
        return None
    if 0 < row.expires_us <= writer.now_us:
        stage(writer, EntryAct.EXPIRE, key, agent=None)
        return None
    return writer.last_record(key) if event is None else _new(EntryRecord, (event, row.lsn, time_us))


def check_version(key: str, expected: int | None, found: EntryRecord | None) -> None:
    """Raise ConflictError if the entry is not at the expected version. Version 0 means that no entry may exist."""
    if expected is None:
        return
    if isinstance(expected, bool) or not isinstance(expected, int) or expected < 0:
        message = f"expected_version must be a non-negative int, not {expected!r}"
        raise UsageError(message, argument="expected_version", value=expected)
    actual = 0 if found is None else found.lsn
    if expected != actual:
        held = f"does not exist; version {expected} was expected"
        if found is not None:
            held = f"is at version {actual}, not at {expected}"
        message = f"entry {key!r} {held}"
        raise ConflictError(message, key=key, expected_version=expected, actual_version=actual)


def check_absent(key: str, found: EntryRecord | None, *, is_version_told: bool) -> None:
    """Raise AlreadyExistsError if the entry exists. The error reports the entry's version only if `is_version_told`."""
    if found is not None:
        version = {"version": found.lsn} if is_version_told else {}
        message = f"entry {key!r} already exists" + (f", at version {found.lsn}" if version else "")
        raise AlreadyExistsError(message, key=key, **version)


def take(writer: EntryWriter, found: EntryRecord) -> EntryRecord:
    """Stage the deletion of an entry."""
    return stage(writer, EntryAct.DELETE, found.event.key)


def roll_back(writer: EntryWriter, prefix: str, lsn: int, check: Callable[[str], None]) -> list[EntryRecord]:
    """Stage the rollback of all entries below a prefix to an LSN. Return the entries that change.

    `check` raises an error if the handle may not write a key. A rollback ends the claims of the
    changed entries, and does not restore the claims that existed at the LSN.
    """
    view, made = writer.view, []
    for key in changed_since(view, writer.board, lsn):
        if not key.startswith(prefix) or key.startswith(RESERVED):
            continue
        now, was = find(writer, key), find_at(view, writer.board, key, lsn=lsn)
        if was is None or not was.is_there(writer.now_us):
            if now is not None:
                check(key)
                made.append(stage(writer, EntryAct.ROLLBACK, key))
        elif now is None or _content(now) != _content(was):
            check(key)
            made.append(stage(writer, EntryAct.ROLLBACK, key, kept_of(was)._replace(claim=None), place_of(was)))
    return made


def sweep(writer: EntryWriter, count: int) -> int:
    """Stage the expiry of up to `count` expired entries. Return the number of these entries."""
    expired: list[str] = []
    next_us = _NO_EXPIRY_US
    for place, payload in writer.view.transaction.scan_index(keys.encode_thread_prefix(b"E", writer.board)):
        expires_us = board_keys.decode_expiry_us(place)
        if expires_us > writer.now_us or len(expired) == count:
            next_us = expires_us
            break
        expired.append(payload.decode())
    for key in expired:
        find(writer, key)
    writer.batch.expiries_us[writer.board] = next_us
    return len(expired)


def set_anew(found: EntryRecord | None, how: tuple[int, EntryFields], now_us: int) -> EntryFields:
    """Return the fields of an entry after `set`, other than its value.

    A claimed entry keeps its claim and its number of attempts. `how` is a pair: the delay in microseconds until the
    entry may be claimed, and the new fields, which have the lifetime in place of `expires_us`.
    """
    delay_us, (_created_us, ttl_us, rank, _ready_us, _attempts, _claim, _schema) = how
    expires_us = now_us + ttl_us if ttl_us else 0
    ready_us = now_us + delay_us if delay_us else 0
    if found is None or found.event.claim is None:
        created_us = 0 if found is None else found.event.created_us
        return _new(EntryFields, (created_us, expires_us, rank, ready_us, 0, None, None))
    return EntryFields(found.event.created_us, expires_us, rank, ready_us, found.attempts, found.claim)


def _content(found: EntryRecord) -> tuple[object, ...]:
    return found.event.root_digest, kept_of(found)
