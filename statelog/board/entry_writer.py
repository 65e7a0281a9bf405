"""Stages the record of each event of an entry, and the index changes that follow from the event.

One call of a kernel stages a plain event. The general path stages the events that the kernel refuses: large values,
reducers in Python, and values with parts that the store may already have.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog import kernels
from statelog.board.reads import VALUE, EntryRecord, read_entry
from statelog.board.waiters import call_claimer, wake_bits
from statelog.errors import LimitError, ReducerTypeError, StatelogError, ValueTypeError
from statelog.format import cbor
from statelog.format.board_keys import NO_TAG, EntryRow
from statelog.format.record import NO_DIGEST, NO_NODES, TYPE_ENTRY, Nodes
from statelog.kernels import STEP_ADD, STEP_APPEND, STEP_PUT, pack_change
from statelog.kernels.entry import EntryMade, make_entry, pack_entry
from statelog.limits import LEAF_SIZE_BYTES_MAX
from statelog.log.batch import NOTHING_HELD, Staged
from statelog.log.index import release_records
from statelog.log.kinds.entries import GOES, NO_ROW, RANK, Claimed, EntryAct, EntryEvent, KnownEntry, last_row
from statelog.log.kinds.table import stage_event
from statelog.log.names import channel_key
from statelog.log.step import hold
from statelog.tree import mapping
from statelog.tree.node import ROOT
from statelog.tree.value import add_root

if TYPE_CHECKING:
    from collections.abc import Sequence

    from statelog.format.record import NodeRow
    from statelog.guard.hook import Redactor
    from statelog.log.batch import Batch
    from statelog.log.step import PreparedWrite
    from statelog.log.view import View

_TRIES_MAX = 4
"""The maximum number of nodes, not counting the entry's root, that the kernel reads to stage a plain event."""

_VALUE_KEY = channel_key(VALUE)

_NO_ENTRY = KnownEntry(NO_ROW, is_there=False)
_NO_ORDER = (RANK, 0, 0)
_NO_CLAIM = Claimed(0, NO_TAG, 0, 0, 0)
_NULL = cbor.encode(None)

_new = tuple.__new__
"""Creates a named tuple without calling its `__new__` in Python."""

Place = tuple[bytes | None, int, int]
"""The location of a value: digest, LSN and node number of its root."""


class EntryWriter(NamedTuple):
    """Stages writes to entries in one batch. All records of a batch have the same time."""

    batch: Batch
    board: int
    agent: str | None
    now_us: int

    @property
    def view(self) -> View:
        """The stored entries, with the changes that the batch has staged."""
        return self.batch.view

    def known(self, key: str) -> KnownEntry:
        """Return the row of a key and whether the entry exists. Only the first call for a key reads the index."""
        batch, place = self.batch, (self.board, key)
        known = batch.entries.get(place)
        if known is None:
            known = batch.memory.entries.get(place) or KnownEntry(*last_row(batch.view, self.board, key))
            batch.entries[place] = known
        return known

    def row(self, key: str) -> tuple[EntryRow, bool]:
        """Return the index row of a key, and whether the entry exists."""
        return self.known(key)[:2]

    def last_record(self, key: str) -> EntryRecord:
        """Return the last record of a key. The key must have an index row."""
        row, is_there, event, time_us = self.known(key)
        if event is not None:
            return _new(EntryRecord, (event, row.lsn, time_us))
        found = read_entry(self.batch.view, row.lsn)
        self.batch.entries[self.board, key] = KnownEntry(row, is_there, found.event, found.time_us)
        return found


class EntryFields(NamedTuple):
    """The fields of an entry other than its value."""

    created_us: int = 0
    """The time when the entry was created; 0 means the time of the record that is being staged."""
    expires_us: int = 0
    rank: int = RANK
    ready_us: int = 0
    attempts: int = 0
    claim: Claimed | None = None
    schema: list[Any] | None = None
    """The name and version of the value's schema; None for version 1."""


NOTHING = EntryFields()
NO_PLACE: Place = (None, 0, 0)


def kept_of(found: EntryRecord) -> EntryFields:
    """Return the fields of an entry other than its value."""
    event = found.event
    rank, ready_us, attempts = event.order or (RANK, 0, 0)
    claim = None if event.claim is None else found.claim
    return _new(EntryFields, (event.created_us, event.expires_us, rank, ready_us, attempts, claim, event.schema))


def place_of(found: EntryRecord) -> Place:
    """Return the location of an entry's value."""
    return found.event.root_digest, found.event.root_lsn, found.event.root_node


class Value(NamedTuple):
    """A write to the value of an entry, prepared before the commit."""

    write: PreparedWrite
    change: bytes | None
    """The write as the kernel encodes it; None if only the general path can stage the write."""
    item: bytes | None
    """The encoded new value if it does not depend on the current value; otherwise None."""
    is_guarded: bool = False
    """Whether the write has passed the guard."""


def prepare(write: PreparedWrite) -> Value:
    """Encode a write to the value of an entry, before the commit begins."""
    operation, payload = write.operation, write.payload
    if operation is None:
        return Value(write, None, None)
    count, item = 0, None
    if type(payload) is list and payload and operation in (STEP_ADD, STEP_APPEND):
        operation, count, payload = STEP_APPEND, len(payload), b"".join(payload)
    elif type(payload) is not bytes:
        return Value(write, None, None)
    elif operation == STEP_PUT:
        item = payload
    change = None
    if item is None or len(item) <= LEAF_SIZE_BYTES_MAX:
        change = pack_change(operation, count, len(_VALUE_KEY), 0, len(payload)) + _VALUE_KEY + payload
    return _new(Value, (write, change, item, False))


def stage(
    writer: EntryWriter,
    act: EntryAct,
    key: str,
    kept: EntryFields = NOTHING,
    place: Place = NO_PLACE,
    value: Value | None = None,
    *,
    agent: str | None = "",
    error: str | None = None,
) -> EntryRecord:
    """Stage a record of an entry or of a lease.

    Args:
        writer: the writer.
        act: the act that the record reports.
        key: the key of the entry, or a slash and the name of the lease.
        kept: the fields of the entry other than its value.
        place: the location of the value.
        value: the write to merge with the value at `place`.
        agent: the agent that the record names; the empty str stands for the writer's agent.
        error: the reason for the act, if there is one.
    """
    batch, board, _agent, now_us = writer
    if batch.guard is not None:
        by = writer.agent if agent == "" else agent
        value = value if value is None or value.is_guarded else guarded(batch.guard, key, by, value)
        error = error if error is None else batch.guard.error(error, key, by)
    before = batch.entries.get((board, key)) or writer.known(key)
    stays = act not in GOES and (place[0] is not None or value is not None or key[0] == "/")
    created_us, expires_us, rank, ready_us, attempts, claim, schema = kept
    schema = schema if stays else None
    created_us = (created_us or now_us) if stays else 0
    head = (board, int(act), key, writer.agent if agent == "" else agent, before.row.lsn, created_us, expires_us)
    order = None if rank == RANK and not ready_us and not attempts else [rank, ready_us, attempts]
    rest = (order, None if claim is None else list(claim), error)
    lsn, chain = batch.next_end()
    change = None if schema is not None else b"" if value is None else value.change
    made = None if change is None else _stage_plain(writer, head, place, rest, before, change, (lsn, chain))
    if made is not None:
        event = _new(EntryEvent, (*head, *made, *rest, [], None))
    else:
        event = _stage_in_general(writer, EntryEvent(*head, *place, *rest, [], schema), value)
    is_there = stays and event.root_digest is not None
    tag, deadline_us = (NO_TAG, 0) if claim is None else (claim.tag, claim.deadline_us)
    row = _new(EntryRow, (lsn, expires_us, ready_us or created_us, rank, tag, deadline_us))
    is_forgotten = act == EntryAct.RELEASE and key[0] == "/"  # A released lease has no index row.
    known = _NO_ENTRY if is_forgotten else _new(KnownEntry, (row, is_there, event, now_us))
    batch.entries[board, key] = known
    batch.wakes |= wake_bits(key)
    if expires_us:
        batch.note_expiry(board, expires_us)
    if is_there and claim is None:
        former = before.event
        has_fewer_attempts = former is not None and former.order is not None and former.order[2] > attempts
        # Wake a waiting claimer if the entry's position in the queue has changed, or it has fewer attempts than before.
        if has_fewer_attempts or not before.is_there or before.row[2:5] != row[2:5]:
            batch.calls += (partial(call_claimer, key),)
    return _new(EntryRecord, (event, lsn, now_us))


def guarded(guard: Redactor, key: str, agent: str | None, value: Value) -> Value:
    """Apply a guard to a value, and return what may be stored. Raises SecretError, CheckError."""
    write = guard.entry(value.write, key, agent)
    made = value if write is value.write else prepare(write)
    return made._replace(is_guarded=True)


def _merge(
    writer: EntryWriter, key: str, write: PreparedWrite, place: Place
) -> tuple[Place, Sequence[bytes], Sequence[NodeRow]]:
    """Merge a write into a value. Return the new location, the nodes borrowed from other threads, and the new nodes."""
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
    except Exception as error:  # The user's reducer may raise any exception.
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


def _stage_plain(
    writer: EntryWriter,
    head: tuple[Any, ...],
    place: Place,
    rest: tuple[Any, ...],
    before: KnownEntry,
    change: bytes,
    end: tuple[int, bytes],
) -> Place | None:
    """Stage a record with a call of the kernel, and return the location of the entry's value.

    Return None if the kernel cannot stage the record. The caller then uses `_stage_in_general`.

    Args:
        writer: the writer.
        head: the fields of the event that come before the root.
        place: the location of the current value.
        rest: the fields of the event that come after the root, except `borrowed`.
        before: the index row of the key before the event, and whether the entry existed.
        change: see `Value.change`; empty if the value does not change.
        end: the LSN of the record, and the chain digest of the record before it.

    Invariant T6: the general path would make the same record and the same index changes, byte for byte.
    """
    batch, board, _agent, now_us = writer
    _board, act, key, agent, _before, created_us, expires_us = head
    digest, root_lsn, root_number = place
    order, claim, error = rest
    lsn, chain = end
    fixed = pack_entry(
        *(board, act, lsn, now_us, created_us, expires_us, *(order or _NO_ORDER), root_lsn, root_number),
        *(before.is_there, *before.row, *(claim or _NO_CLAIM), digest or NO_DIGEST, chain),
    )
    held = NOTHING_HELD
    if digest is not None and change and change[0] != STEP_PUT:
        held = hold(batch, held, (ROOT, digest, root_lsn, root_number))
    agent_item = _NULL if agent is None else _agent_item(agent)
    error_item = _NULL if error is None else cbor.encode(error)
    made = make_entry(fixed, held, change, key.encode(), agent_item, error_item)
    for _ in range(_TRIES_MAX):
        if made is None or type(made) is EntryMade:
            break
        held = hold(batch, held, made)  # type: ignore[arg-type]
        made = make_entry(fixed, held, change, key.encode(), agent_item, error_item)
    if type(made) is not EntryMade:
        return None
    chain, digest, root_number, record, node_count, rows_at, nodes_at, index_changes = made
    nodes = NO_NODES
    if node_count:
        nodes = _new(Nodes, (node_count, record[rows_at:nodes_at], record[nodes_at:]))
        place = (digest, lsn, root_number)
    batch.staged.append(_new(Staged, (TYPE_ENTRY, now_us, b"", nodes, (record, chain, rows_at))))
    batch.index.update(index_changes)
    if key[0] == "/":  # Only the last record of a lease is needed, and none after its release.
        ends = (before.row.lsn, lsn if act == EntryAct.RELEASE else 0)
        release_records(batch, board, [each for each in ends if each])
    return place


def _stage_in_general(writer: EntryWriter, event: EntryEvent, value: Value | None) -> EntryEvent:
    """Stage a record with the general encoders of `log.kinds`, and return its event."""
    rows: Sequence[NodeRow] = ()
    if value is not None:
        place, borrowed, rows = _merge(writer, event.key, value.write, event[7:10])
        event = EntryEvent(*event[:7], *place, *event[10:13], list(borrowed), event.schema)
    stage_event(writer.batch, event, rows, writer.now_us)
    return event
