"""Finds checkpoints by version, id, tag, time, or a checkpoint itself."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from statelog.errors import CheckpointNotFoundError, LimitError, UsageError
from statelog.format import keys
from statelog.format.record import FLAG_REDACTED
from statelog.limits import VERSIONS_MAX
from statelog.log.batch import NOTHING_HELD, Head
from statelog.log.events import CHECKPOINT_TYPES, default_id, parse_default_id, read_checkpoint
from statelog.log.names import check_name
from statelog.log.times import to_time_us
from statelog.log.view import checkpoint_in
from statelog.store.checkpoint import Checkpoint, event_of, read_head

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.log.view import View

Target = int | str | datetime | Checkpoint
"""A name of a checkpoint: a version (int), an id, tag or time (str), a time (datetime), or a checkpoint itself."""


_DATE = re.compile(r"\d{4}-?\d\d-?\d\d", re.ASCII)


class Line(NamedTuple):
    """The branch on which to search for a target: names for messages, and numbers for the index."""

    thread_id: str
    branch_name: str
    thread: int
    branch: int


def find_checkpoint(view: View, line: Line, target: Target) -> Head:
    """Return the checkpoint that `target` names on a branch.

    Raises:
        CheckpointNotFoundError: the checkpoint does not exist or was removed.
        UsageError: the target has an unsupported type.
    """
    found: Head | None = None
    if isinstance(target, int) and not isinstance(target, bool):
        found = _find_version(view, line, target)
    elif isinstance(target, Checkpoint):
        return _find_itself(view, line, target)
    elif isinstance(target, datetime):
        found = _find_time(view, line, target)
    elif isinstance(target, str):
        found = find_named(view, line.thread, target) if target else None
        if found is None and (time := parse_time(target)) is not None:
            found = _find_time(view, line, time)
    else:
        message = (
            "a checkpoint must be given as a version (int), an id, tag or time (str) or a time (datetime), not"
            f" {target!r}"
        )
        raise UsageError(message, argument="target", value=target)
    if found is None:
        last = view.head_version(line.thread, line.branch)
        raise no_checkpoint(line.thread_id, line.branch_name, target, last)
    return found


def no_checkpoint(thread_id: str, branch: str, target: Target, last: int) -> CheckpointNotFoundError:
    """Return the error for a target that names no checkpoint on a branch."""
    shown = target.isoformat() if isinstance(target, datetime) else repr(target)
    message = f"thread {thread_id!r}, branch {branch!r}: no checkpoint {shown} (its last version is {last})"
    return CheckpointNotFoundError(message, thread=thread_id, branch=branch, target=target)


def parse_time(text: str) -> datetime | None:
    """Parse a time in ISO 8601 that has at least a date. Return None for any other string."""
    if _DATE.match(text) is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _find_version(view: View, line: Line, version: int) -> Head | None:
    """Return the checkpoint of a version. A negative version counts from the head, which is -1."""
    if version < 0:
        version += view.head_version(line.thread, line.branch) + 1
    return read_head(view, line.thread, line.branch, version) if version <= VERSIONS_MAX else None


def _find_time(view: View, line: Line, time: datetime) -> Head | None:
    """Return the last checkpoint at or before a time."""
    version = view.version_at_time(line.thread, line.branch, to_time_us(time))
    return read_head(view, line.thread, line.branch, version)


def _find_itself(view: View, line: Line, target: Checkpoint) -> Head:
    event = event_of(target)
    thread, branch = event.thread, event.branch
    if thread == line.thread and target.thread_id == line.thread_id:
        found = read_head(view, thread, branch, target.version)
        if found is not None and found.event.lsn == target.lsn and found.digest.hex() == target.digest:
            return found
    is_there = 0 < target.lsn <= view.transaction.last_lsn() and target.thread_id == line.thread_id
    head = head_at(view, line.thread, target.lsn) if is_there else None
    if head is None or head.digest.hex() != target.digest:
        message = (
            f"checkpoint {target.id} of {target.thread_id!r} does not belong to thread {line.thread_id!r} in this store"
        )
        raise CheckpointNotFoundError(message, thread=line.thread_id, branch=line.branch_name, target=target.id)
    return head


def find_named(view: View, thread: int, name: str) -> Head | None:
    """Return the checkpoint of a thread that has the tag or id `name`, or None."""
    lsn = parse_default_id(name)  # No tag and no caller's id has this form, so try a default id first.
    if lsn is not None and 0 < lsn <= view.transaction.last_lsn():
        head = head_at(view, thread, lsn)
        if head is not None and default_id(lsn, head.digest) == name:
            return head
    for encode in (keys.encode_tag_key, keys.encode_checkpoint_id_key):
        key = _safe_key(encode, thread, name)
        payload = view.transaction.get_index(key) if key else None
        if payload is not None:
            return head_at(view, thread, keys.decode_lsn(payload))
    return None


def head_at(view: View, thread: int, lsn: int) -> Head | None:
    """Return the checkpoint in the record at `lsn`, or None if it belongs to a different thread or has expired."""
    data = view.transaction.get_log(lsn)
    found = None if data is None else read_checkpoint(data, lsn)
    if found is not None and found[0].thread == thread:
        event = found[0]
        entry = view.entry(thread, event.branch, event.version)
        if entry == (lsn, event.time_us):
            return tuple.__new__(Head, (*found, None, NOTHING_HELD))
    record = view.record(lsn)
    if record.type not in CHECKPOINT_TYPES or record.flags & FLAG_REDACTED:
        return None
    event = checkpoint_in(record)
    return read_head(view, thread, event.branch, event.version) if event.thread == thread else None


def _safe_key(encode: Callable[[int, str], bytes], thread: int, name: str) -> bytes | None:
    """Return the index key of a name, or None for a name that cannot be stored."""
    try:
        check_name("name", name)
    except (UsageError, LimitError):
        return None
    return encode(thread, name)
