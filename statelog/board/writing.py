"""What is done to entries of the board: each stages it in a batch, or refuses.

Which entries have expired is decided here, by the clock, and recorded: who reads the log asks no clock (L4).
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from statelog import kernels
from statelog.board.calling import call_claimer, wake_bits
from statelog.board.names import RESERVED
from statelog.board.reading import (
    VALUE,
    Found,
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
from statelog.log.kinds.entries import BOARD_ID, GOES, RANK, Act, Claimed, EntryEvent, is_lease, last_row
from statelog.log.kinds.table import stage_event
from statelog.log.names import channel_key
from statelog.log.times import now_us
from statelog.tree import mapping
from statelog.tree.node import ROOT
from statelog.tree.value import add_root

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from statelog.format.record import NodeRow
    from statelog.log.batch import Batch
    from statelog.log.step import Write

EXPIRED_MAX = 8
"""So many entries that have expired are recorded with a write of another one."""

SWEPT_MAX = 64
"""So many are recorded in a commit that does nothing else."""

Place = tuple[bytes | None, int, int]
"""Where a value is: digest, LSN and number of its root."""


class Writer(NamedTuple):
    """Who writes, and when."""

    batch: Batch
    board: int
    agent: str | None
    now_us: int


def begin(batch: Batch, agent: str | None, owner: str = BOARD_ID) -> Writer:
    """Begin to write to the board, or of leases; the first write of all makes it."""
    board = batch.view.thread_lsn(owner)
    if board is None:
        board = operations.create_thread(batch, owner, {}, anew=True)
    return Writer(batch, board, agent, now_us())


def find(writer: Writer, key: str) -> Found | None:
    """Return the entry of a key. If it has expired that is recorded, and there is none."""
    row, is_there = last_row(writer.batch.view, writer.board, key)
    if not is_there:
        return None
    found = read_entry(writer.batch.view, row.lsn)
    if 0 < row.expires_us <= writer.now_us:
        stage(writer, Act.EXPIRE, key, agent=None)
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


def check_absent(key: str, found: Found | None, *, is_version_told: bool) -> None:
    """Raise AlreadyExistsError if the entry exists. With `is_version_told`, the error has the version of the entry."""
    if found is not None:
        version = {"version": found.lsn} if is_version_told else {}
        message = f"there is an entry {key!r}" + (f", of version {found.lsn}" if version else "")
        raise AlreadyExistsError(message, key=key, **version)


def put(writer: Writer, key: str, write: Write, found: Found | None, kept: Kept) -> Found:
    """Stage the merging of a write with what an entry is; of nothing, if there is none."""
    place, borrowed, rows = merge(writer, key, write, found)
    return stage(writer, Act.SET, key, kept, place, borrowed, rows)


def merge(
    writer: Writer, key: str, write: Write, found: Found | None
) -> tuple[Place, Sequence[bytes], Sequence[NodeRow]]:
    """Return a root with the merging of a write and what an entry is, the nodes it borrows, and those it is made of."""
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
    return place, sorted(set(borrowed)), workspace.rows


def take(writer: Writer, found: Found) -> Found:
    """Stage the end of an entry."""
    return stage(writer, Act.DELETE, found.event.key)


def roll_back(writer: Writer, prefix: str, lsn: int, check: Callable[[str], None]) -> list[Found]:
    """Stage the rollback of all entries below a prefix to an LSN. Return the entries that have changed.

    `check` refuses a key that the handle may not write.

    All current claims of these entries end. An entry that was claimed at the LSN is not claimed after the rollback.
    """
    view, made = writer.batch.view, []
    for key in changed_since(view, writer.board, lsn):
        if not key.startswith(prefix) or key.startswith(RESERVED):
            continue
        now, was = find(writer, key), find_at(view, writer.board, key, lsn=lsn)
        if was is None or not was.is_there(writer.now_us):
            if now is not None:
                check(key)
                made.append(stage(writer, Act.ROLLBACK, key))
        elif now is None or _content(now) != _content(was):
            check(key)
            made.append(stage(writer, Act.ROLLBACK, key, kept_of(was)._replace(claim=None), place_of(was)))
    return made


def sweep(writer: Writer, count: int) -> int:
    """Stage that entries have expired, at most so many; return how many."""
    view = writer.batch.view
    some = list(islice(expired(view, writer.board, writer.now_us), count))
    for key in some:
        find(writer, key)
    return len(some)


class Kept(NamedTuple):
    """What an entry has besides its value."""

    created_us: int = 0
    """0: it begins with the record."""
    expires_us: int = 0
    rank: int = RANK
    ready_us: int = 0
    attempts: int = 0
    claim: Claimed | None = None


NOTHING = Kept()
NO_PLACE: Place = (None, 0, 0)


def kept_of(found: Found) -> Kept:
    """Return what an entry has."""
    rank, ready_us, attempts = found.event.order or (RANK, 0, 0)
    return Kept(found.event.created_us, found.event.expires_us, rank, ready_us, attempts, found.claim)


def set_anew(kept: Kept, how: tuple[int, Kept], now_us: int) -> Kept:
    """Return the fields of an entry that is set again. Its claim and its number of claims stay.

    `how` has the delay until the entry may be claimed, in microseconds, and the other new fields.
    """
    delay_us, new = how
    return new._replace(
        created_us=kept.created_us,
        expires_us=now_us + new.expires_us if new.expires_us else 0,
        ready_us=now_us + delay_us if delay_us else 0,
        attempts=kept.attempts if kept.claim is not None else 0,
        claim=kept.claim,
    )


def place_of(found: Found) -> Place:
    """Return where the value of an entry is."""
    return found.event.root_digest, found.event.root_lsn, found.event.root_node


def _content(found: Found) -> tuple[object, ...]:
    return found.event.root_digest, kept_of(found)


def stage(
    writer: Writer,
    act: Act,
    key: str,
    kept: Kept = NOTHING,
    place: Place = NO_PLACE,
    borrowed: Sequence[bytes] = (),
    rows: Sequence[NodeRow] = (),
    *,
    agent: str | None = "",
    error: str | None = None,
) -> Found:
    """Stage a record of an entry, or of a lease. An empty agent is the writer's."""
    batch, board = writer.batch, writer.board
    before = last_row(batch.view, board, key)[0].lsn
    stays = act not in GOES and (place[0] is not None or is_lease(key))
    created_us = (kept.created_us or writer.now_us) if stays else 0
    order = None if kept[2:5] == NOTHING[2:5] else list(kept[2:5])
    claim = None if kept.claim is None else list(kept.claim)
    agent = writer.agent if agent == "" else agent
    head = (board, int(act), key, agent, before, created_us, kept.expires_us)
    event = EntryEvent(*head, *place, order, claim, error, list(borrowed))
    lsn = stage_event(batch, event, rows, writer.now_us)
    batch.wakes |= wake_bits(key)
    if event.is_there and claim is None:
        batch.calls += (partial(call_claimer, key),)
    return Found(event, lsn, writer.now_us)
