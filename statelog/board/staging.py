"""Staging of entries: the record of an event and the index changes that follow from it.

A plain event is staged by one call of a kernel. The general path stages what the kernel refuses: large values, reducers
in Python, values that store parts again.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from statelog import kernels
from statelog.board.calling import call_claimer, wake_bits
from statelog.board.reading import VALUE, Found
from statelog.errors import LimitError, ReducerTypeError, StatelogError, ValueTypeError
from statelog.format import cbor
from statelog.format.board_keys import NO_TAG
from statelog.format.record import NO_DIGEST, NO_NODES, TYPE_ENTRY, Nodes
from statelog.kernels import STEP_ADD, STEP_APPEND, STEP_PUT, EntryMade, pack_change, pack_entry
from statelog.limits import LEAF_SIZE_BYTES_MAX
from statelog.log.batch import NOTHING_HELD, Staged
from statelog.log.index import release_records
from statelog.log.kinds.entries import GOES, RANK, Act, Claimed, EntryEvent, last_row, row_of
from statelog.log.kinds.table import stage_event
from statelog.log.names import channel_key
from statelog.log.step import hold
from statelog.tree import mapping
from statelog.tree.node import ROOT
from statelog.tree.value import add_root

if TYPE_CHECKING:
    from collections.abc import Sequence

    from statelog.format.board_keys import EntryRow
    from statelog.format.record import NodeRow
    from statelog.log.batch import Batch
    from statelog.log.step import StepChange, Write
    from statelog.log.view import View

_TRIES_MAX = 4
"""The maximum number of nodes that are read for one plain change: the roots of the entry and of its value."""

_VALUE_KEY = channel_key(VALUE)

_NO_CLAIM = Claimed(0, NO_TAG, 0, 0, 0)
_NO_ERROR = _NO_AGENT = cbor.encode(None)

_new = tuple.__new__
"""Makes a named tuple without a call of Python's."""

Place = tuple[bytes | None, int, int]
"""Where a value is: digest, LSN and number of its root."""


class Writer(NamedTuple):
    """A writer of entries, in one batch and at one time."""

    batch: Batch
    view: View
    """What is stored and what the batch has staged."""
    board: int
    agent: str | None
    now_us: int
    rows: dict[str, tuple[EntryRow, bool]]
    """The rows that were read or staged, by key, and whether the entry exists: a row is read once per commit."""

    def row(self, key: str) -> tuple[EntryRow, bool]:
        """Return the row of a key, and whether the entry exists."""
        known = self.rows.get(key)
        if known is None:
            known = self.rows[key] = last_row(self.view, self.board, key)
        return known

    def is_sweep_due(self) -> bool:
        """Return False if no entry of the board has expired."""
        return self.batch.memory.expiries_us.get(self.board, 0) <= self.now_us


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
    event = found.event
    rank, ready_us, attempts = event.order or (RANK, 0, 0)
    claim = None if event.claim is None else found.claim
    return _new(Kept, (event.created_us, event.expires_us, rank, ready_us, attempts, claim))


def place_of(found: Found) -> Place:
    """Return where the value of an entry is."""
    return found.event.root_digest, found.event.root_lsn, found.event.root_node


def stage(
    writer: Writer,
    act: Act,
    key: str,
    kept: Kept = NOTHING,
    place: Place = NO_PLACE,
    write: Write | None = None,
    *,
    agent: str | None = "",
    error: str | None = None,
) -> Found:
    """Stage a record of an entry, or of a lease.

    Args:
        writer: the writer.
        act: what happens to the entry.
        key: the key, or a slash and the name of the lease.
        kept: what the entry has besides its value.
        place: where its value is.
        write: merges with the value at `place`.
        agent: who does it; empty for the writer's agent.
        error: the reason of the act, if it has one.

    """
    batch, board = writer.batch, writer.board
    before, was_there = writer.row(key)
    stays = act not in GOES and (place[0] is not None or write is not None or key[0] == "/")
    created_us = (kept.created_us or writer.now_us) if stays else 0
    kept = kept._replace(created_us=created_us)
    agent = writer.agent if agent == "" else agent
    change = b"" if write is None else _plain_change(write.step)
    made = None
    if change is not None:
        made = _stage_plain(writer, act, key, kept, place, change, agent, error)
    if made is None:
        made = _stage_in_general(writer, act, key, kept, place, write, agent, error)
    event = made.event
    row = row_of(event, made.lsn)
    is_there = event.is_there
    writer.rows[key] = (row, is_there)
    batch.wakes |= wake_bits(key)
    if kept.expires_us and (next_us := batch.memory.expiries_us.get(board)) is not None:
        batch.memory.expiries_us[board] = min(next_us, kept.expires_us)
    if is_there and row.tag == NO_TAG and not (was_there and before[2:5] == row[2:5]):  # It joins the queue.
        batch.calls += (partial(call_claimer, key),)
    return made


def merge(writer: Writer, key: str, write: Write, place: Place) -> tuple[Place, Sequence[bytes], Sequence[NodeRow]]:
    """Merge a write into the value at a place. Return the new root, the nodes it borrows, and its new nodes."""
    batch, (digest, lsn, number) = writer.batch, place
    borrowed: list[bytes] = []
    workspace = batch.workspace(writer.board, borrowed)
    if digest is None:
        root = mapping.empty_root(kernels.KIND_DICT)
    else:
        workspace.know(digest, lsn, number)
        root = workspace.read(ROOT, digest, lsn, number)
    current = mapping.find_in_root(workspace, root, _VALUE_KEY)
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
    slot = add_root(workspace, mapping.merge_batch(workspace, root, [(_VALUE_KEY, merged)], kind=kernels.KIND_DICT))
    if workspace.has_garbage:
        slot = workspace.collect(slot)
    place = (slot.data[1:], slot.lsn or batch.next_lsn(), slot.number)
    return place, sorted(set(borrowed)), workspace.rows


@lru_cache(maxsize=256)
def _agent_item(agent: str) -> bytes:
    return cbor.encode(agent)


def _plain_change(step: StepChange | None) -> bytes | None:
    """Return a change of a value as the kernel takes it; None if the general path must be taken."""
    if step is None:
        return None
    operation, payload, _key = step
    count = 0
    if type(payload) is list and payload and operation in (STEP_ADD, STEP_APPEND):
        operation, count, payload = STEP_APPEND, len(payload), b"".join(payload)
    elif type(payload) is not bytes or len(payload) > LEAF_SIZE_BYTES_MAX:
        return None
    return pack_change(operation, count, len(_VALUE_KEY), 0, len(payload)) + _VALUE_KEY + payload


def _stage_plain(
    writer: Writer,
    act: Act,
    key: str,
    kept: Kept,
    place: Place,
    change: bytes,
    agent: str | None,
    error: str | None,
) -> Found | None:
    """Stage a record by one call of the kernel. Return None if the general path must be taken.

    Invariant T6: the record and the index changes are, byte for byte, those of the general path.
    """
    batch, board, now_us = writer.batch, writer.board, writer.now_us
    before, was_there = writer.rows[key]
    lsn, chain = batch.next_end()
    created_us, expires_us, rank, ready_us, attempts, claim = kept
    digest, root_lsn, root_number = place
    fixed = pack_entry(
        *(board, act, lsn, now_us, created_us, expires_us, rank, ready_us, attempts, root_lsn, root_number),
        *(was_there, *before, *(claim or _NO_CLAIM), digest or NO_DIGEST, chain),
    )
    held = NOTHING_HELD
    if digest is not None and change and change[0] != STEP_PUT:
        held = hold(batch, held, (ROOT, digest, root_lsn, root_number))
    agent_item = _NO_AGENT if agent is None else _agent_item(agent)
    error_item = _NO_ERROR if error is None else cbor.encode(error)
    made = kernels.entry(fixed, held, change, key.encode(), agent_item, error_item)
    for _ in range(_TRIES_MAX):
        if made is None or type(made) is EntryMade:
            break
        held = hold(batch, held, made)  # type: ignore[arg-type]
        made = kernels.entry(fixed, held, change, key.encode(), agent_item, error_item)
    if type(made) is not EntryMade:
        return None
    nodes = NO_NODES
    if made.node_count:
        record, rows_at, nodes_at = made.record, made.rows_at, made.nodes_at
        nodes = _new(Nodes, (made.node_count, record[rows_at:nodes_at], record[nodes_at:]))
        digest, root_lsn, root_number = made.root_digest, lsn, made.root_number
    batch.staged.append(_new(Staged, (TYPE_ENTRY, now_us, b"", nodes, (made.record, made.chain, made.rows_at))))
    batch.index.update(made.index_changes)
    if key[0] == "/":  # The last record of a lease counts. A released lease has no record that counts.
        release_records(batch, board, [each for each in (before.lsn, lsn if act == Act.RELEASE else 0) if each])
    order = None if kept[2:5] == NOTHING[2:5] else [rank, ready_us, attempts]
    event = _new(
        EntryEvent,
        (
            *(board, int(act), key, agent, before.lsn, created_us, expires_us, digest, root_lsn, root_number),
            *(order, None if claim is None else list(claim), error, []),
        ),
    )
    return _new(Found, (event, lsn, now_us))


def _stage_in_general(
    writer: Writer,
    act: Act,
    key: str,
    kept: Kept,
    place: Place,
    write: Write | None,
    agent: str | None,
    error: str | None,
) -> Found:
    """Stage a record by the table of kinds."""
    before = writer.rows[key][0].lsn
    borrowed: Sequence[bytes] = ()
    rows: Sequence[NodeRow] = ()
    if write is not None:
        place, borrowed, rows = merge(writer, key, write, place)
    order = None if kept[2:5] == NOTHING[2:5] else list(kept[2:5])
    claim = None if kept.claim is None else list(kept.claim)
    head = (writer.board, int(act), key, agent, before, kept.created_us, kept.expires_us)
    event = EntryEvent(*head, *place, order, claim, error, list(borrowed))
    lsn = stage_event(writer.batch, event, rows, writer.now_us)
    return Found(event, lsn, writer.now_us)
