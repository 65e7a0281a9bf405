"""What is done to entries of the board: each stages it in a batch, or refuses.

Which entries have expired is decided here, by the clock, and recorded: who reads the log asks no clock (L4).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from statelog import kernels
from statelog.board.reading import (
    VALUE,
    Found,
    board_of,
    changed_since,
    expired,
    find_at,
    read_entry,
)
from statelog.errors import (
    AlreadyExistsError,
    ConflictError,
    LimitError,
    ReducerTypeError,
    StatelogError,
    UsageError,
    ValueTypeError,
)
from statelog.log import operations
from statelog.log.kinds.entries import BOARD_ID, Act, EntryEvent, last_record
from statelog.log.kinds.table import stage_event
from statelog.log.names import channel_key
from statelog.log.times import now_us
from statelog.tree import mapping
from statelog.tree.node import ROOT
from statelog.tree.value import add_root

if TYPE_CHECKING:
    from collections.abc import Sequence

    from statelog.format.record import NodeRow
    from statelog.log.batch import Batch
    from statelog.log.step import Write

EXPIRED_MAX = 8
"""So many entries that have expired are recorded with a write of another one."""

SWEPT_MAX = 64
"""So many are recorded in a commit that does nothing else."""

NO_FACTS = b"\xa0"


class Writer(NamedTuple):
    """Who writes, and when."""

    batch: Batch
    board: int
    agent: str | None
    now_us: int


def begin(batch: Batch, agent: str | None) -> Writer:
    """Begin to write; the first write of all makes the board."""
    board = board_of(batch.view)
    if board is None:
        board = operations.create_thread(batch, BOARD_ID, {}, anew=True)
    return Writer(batch, board, agent, now_us())


def find(writer: Writer, key: str) -> Found | None:
    """Return the entry of a key. If it has expired that is recorded, and there is none."""
    lsn, expires_us, is_there = last_record(writer.batch.view, writer.board, key)
    if not is_there:
        return None
    found = read_entry(writer.batch.view, lsn)
    if 0 < expires_us <= writer.now_us:
        _take_away(writer, found, Act.EXPIRE)
        return None
    return found


def check_version(key: str, expected: int | None, found: Found | None) -> None:
    """Refuse a stale expectation; 0 is that of no entry. Raises ConflictError, UsageError."""
    if expected is None:
        return
    if isinstance(expected, bool) or not isinstance(expected, int) or expected < 0:
        message = f"the version expected is an int from 0, not {expected!r}"
        raise UsageError(message, argument="expected_version", value=expected)
    actual = 0 if found is None else found.lsn
    if expected != actual:
        is_there = "is not there" if found is None else f"is at version {actual}"
        message = f"entry {key!r} {is_there}, not at {expected}"
        raise ConflictError(message, key=key, expected_version=expected, actual_version=actual)


def check_absent(key: str, found: Found | None) -> None:
    """Refuse what is to be new and is not. Raises AlreadyExistsError."""
    if found is not None:
        message = f"there is an entry {key!r}, of version {found.lsn}"
        raise AlreadyExistsError(message, key=key, version=found.lsn)


def put(writer: Writer, key: str, write: Write, found: Found | None, expires_us: int) -> Found:
    """Stage the merging of a write with what an entry is; of nothing, if there is none."""
    batch, held = writer.batch, None if found is None else found.event
    borrowed: list[bytes] = []
    workspace = batch.workspace(writer.board, borrowed)
    if held is None or held.root_digest is None:
        root = mapping.empty_root(kernels.KIND_DICT)
    else:
        workspace.know(held.root_digest, held.root_lsn, held.root_node)
        root = workspace.read(ROOT, held.root_digest, held.root_lsn, held.root_node)
    current = mapping.find_in_root(workspace, root, channel_key(VALUE))
    try:
        merged = write.merge(workspace, current, batch.memory.identities)
    except (ReducerTypeError, ValueTypeError, LimitError) as error:
        message = f"entry {key!r} ({write.spec}): {error.message}"
        raise type(error)(message, **{**error.facts, "path": key, "key": key}) from error
    except StatelogError:
        raise
    except Exception as error:  # a user's reducer's
        error.add_note(f"statelog: raised by {write.spec} of entry {key!r}")
        raise
    changes = [(channel_key(VALUE), merged)]
    slot = add_root(workspace, mapping.merge_batch(workspace, root, changes, kind=kernels.KIND_DICT))
    if workspace.has_garbage:
        slot = workspace.collect(slot)
    place = (slot.data[1:], slot.lsn or batch.next_lsn(), slot.number)
    return _stage(writer, Act.SET, key, place, found, expires_us, sorted(set(borrowed)), workspace.rows)


def take(writer: Writer, found: Found) -> Found:
    """Stage the end of an entry."""
    return _take_away(writer, found, Act.DELETE)


def roll_back(writer: Writer, prefix: str, lsn: int) -> list[Found]:
    """Stage that entries below a prefix are what they were at an LSN; return those that have changed."""
    view, made = writer.batch.view, []
    for key in [key for key in changed_since(view, writer.board, lsn) if key.startswith(prefix)]:
        now, was = find(writer, key), find_at(view, writer.board, key, lsn=lsn)
        if was is None or not was.is_there(writer.now_us):
            if now is not None:
                made.append(_take_away(writer, now, Act.ROLLBACK))
        elif now is None or _place(now) != _place(was) or now.event.expires_us != was.event.expires_us:
            made.append(_stage(writer, Act.ROLLBACK, key, _place(was), now, was.event.expires_us))
    return made


def sweep(writer: Writer, count: int) -> int:
    """Stage that entries have expired, at most so many; return how many."""
    view = writer.batch.view
    some = list(islice(expired(view, writer.board, writer.now_us), count))
    for key in some:
        find(writer, key)
    return len(some)


def _place(found: Found) -> tuple[bytes | None, int, int]:
    return found.event.root_digest, found.event.root_lsn, found.event.root_node


def _take_away(writer: Writer, found: Found, act: Act) -> Found:
    return _stage(writer, act, found.event.key, (None, 0, 0), None, 0)


def _stage(
    writer: Writer,
    act: Act,
    key: str,
    root: tuple[bytes | None, int, int],
    found: Found | None,
    expires_us: int,
    borrowed: list[bytes] = [],  # noqa: B006 - never changed
    rows: Sequence[NodeRow] = (),
) -> Found:
    before = last_record(writer.batch.view, writer.board, key)[0]
    created_us = 0 if found is None else found.created_us
    agent = None if act is Act.EXPIRE else writer.agent
    event = EntryEvent(writer.board, int(act), key, agent, before, created_us, expires_us, *root, NO_FACTS, borrowed)
    lsn = stage_event(writer.batch, event, rows, writer.now_us)
    return Found(event, lsn, writer.now_us)
