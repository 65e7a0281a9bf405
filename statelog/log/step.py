"""Steps: one kernel call makes the most frequent kind of commit.

The writes of a step put, add or append, and may close only the last chunk of a value.

Invariant T6: a step makes the same nodes from writes as the general path (`writer`) does, and the same record byte for
byte. If the general path would do more, or would reject a write, that path runs instead of the step.
"""

from __future__ import annotations

from functools import lru_cache, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from statelog import kernels
from statelog.errors import ReducerTypeError
from statelog.format import cbor
from statelog.format.keys import (
    VERSIONS_PER_PAGE,
    SharedNodePlace,
    decode_place,
    encode_digest_key,
    encode_place,
    pack_page_key,
)
from statelog.format.record import NO_NODES, TYPE_CHECKPOINT, TYPE_ROLLBACK, Nodes
from statelog.kernels import STEP_APPEND, Stepped, pack_change, pack_fixed, pack_held, pack_known
from statelog.log.batch import NOTHING_HELD, Head, Staged
from statelog.log.events import NOTHING_BORROWED, NULL_ITEM, CheckpointEvent
from statelog.log.index import put_checkpoint
from statelog.log.names import channel_key, channel_keys
from statelog.log.prints import SIZE_BYTES_MAX
from statelog.tree.node import ROOT
from statelog.tree.sequence import Identities
from statelog.tree.tree import Tree
from statelog.tree.value import fingerprint, identity_of, text_item

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from statelog.log.batch import Batch, RememberedState
    from statelog.tree.node import ValueSlot, Workspace

Line = tuple[int, int, int, int | None, int | None, bytes | None, int | None, int | None, int, int]
"""The first fields of a checkpoint event, as `parent_links` returns them: thread, branch, version, the parent link,
the jump pointer, and the depths.
"""

STEP_UPSERT = -1
"""The operation of an upsert into a keyed list. Its payload is a list of operations. An upsert whose identities are all
new to the list becomes an append.
"""

_new = tuple.__new__
"""Constructs a named tuple without calling its `__new__`, which is a slower Python function."""

_TRIES_MAX = 64
"""The maximum number of nodes read for one step: the root of each list, and one or two open levels."""

Grown = tuple[bytearray, bytes]
"""The fingerprints of a keyed list that gets new items, and the fingerprints of the new items."""

_Change = tuple[int, int, bytes, bytes]
"""A change to one channel: the operation, the number of items, the encoded key of a keyed list, and the payload."""

_NO_TARGET = 0
_is_removal, _item = itemgetter(0), itemgetter(1)


Redact: TypeAlias = "Callable[..., bytes]"
"""A guard's function that redacts an item. Its arguments are the item, its path, and optionally the item now stored at
that path. See `statelog.guard`.
"""


class PreparedWrite(Protocol):
    """One write to one channel that is encoded and bound to its reducer."""

    @property
    def channel(self) -> str:
        """The channel's name."""

    @property
    def spec(self) -> str:
        """The name of the reducer, for messages."""

    @property
    def operation(self) -> int | None:
        """One of `kernels.STEP_*` or `STEP_UPSERT`, or None if the write cannot be part of a step."""

    @property
    def payload(self) -> Any:
        """The item to write. For appends, it is a list of items, and for upserts a list of operations."""

    @property
    def parameter(self) -> str:
        """The name of the key that identifies an item of an upsert. Empty for other operations."""

    def merge(
        self, workspace: Workspace, current: ValueSlot | None, identities: dict[bytes, bytes]
    ) -> ValueSlot | None:
        """Merge the write into the channel. Return the channel's new slot, or None to remove the channel."""

    def redacted(self, redact: Redact) -> PreparedWrite:
        """Return the write with each item replaced by `redact(item, path)`."""


def take_step(
    batch: Batch,
    head: Head,
    writes: Sequence[PreparedWrite],
    line: Line,
    checkpoint_id: str | None,
    metadata: bytes,
    written: bytes,
    known: Sequence[tuple[bytes, int, int]] = (),
) -> Head | None:
    """Stage a checkpoint that merges the writes into the channels of the head. Return None if they cannot be a step."""
    event = head.event
    root = (event.root_digest, event.root_lsn, event.root_node)
    held = head.held or hold(batch, NOTHING_HELD, (ROOT, *root))
    grown: dict[bytes, Grown] = {}
    changes = _changes_of(batch, held, event.root_digest, writes, grown)
    if changes is None:
        return None
    id_item = NULL_ITEM if checkpoint_id is None else cbor.encode(checkpoint_id)
    leaves = b"".join([pack_known(*each) for each in known])
    make = partial(_make, batch, head, head, line, root, held, changes)
    made, borrowed = make(leaves, id_item, metadata, written, NOTHING_BORROWED), NOTHING_BORROWED
    if made is not None and made[0].large:
        found, borrowed = find_large(batch, made[0].large, line[0])
        if found:
            made = make(leaves + found, id_item, metadata, written, borrowed)
    if made is None:
        return None
    step, key, lsn, time_us = made
    nodes = NO_NODES
    if step.node_count:
        held, record, nodes_at = step.held, step.record, step.nodes_at
        nodes = _new(Nodes, (step.node_count, record[step.rows_at : nodes_at], record[nodes_at:]))
        root = (step.root_digest, lsn, step.root_number)
        if grown:
            _remember_grown(batch.memory, grown, step.root_digest, held)
    for leaf_number, leaf in step.large:
        place = SharedNodePlace(lsn, leaf_number, line[0], is_borrowed=False)
        batch.index[encode_digest_key(leaf)] = encode_place(place)
    fields = (*line, *root, checkpoint_id, metadata, written, borrowed, _NO_TARGET, lsn, time_us)
    return _stage(batch, TYPE_CHECKPOINT, _new(CheckpointEvent, fields), step, key, nodes, held)


def _stage(
    batch: Batch, type_: int, event: CheckpointEvent, step: Stepped, key: bytes, nodes: Nodes, held: bytes
) -> Head:
    """Stage the result of a step, and return the new head."""
    record = (step.record, step.chain, step.rows_at)
    batch.staged.append(_new(Staged, (type_, event.time_us, b"", nodes, record)))
    batch.index[key] = step.page
    if event.id is not None or event.borrowed != NOTHING_BORROWED:
        put_checkpoint(batch, event, key, step.page)
    stepped: Head = _new(Head, (event, step.digest, step.page, held))
    batch.new_heads[event.thread, event.branch] = stepped
    batch.times_us[event.thread] = event.time_us
    return stepped


def find_large(batch: Batch, large: Sequence[tuple[int, bytes]], thread: int) -> tuple[bytes, bytes]:
    """Return, packed, the large leaves that the store already has, and, encoded, the digests of those to borrow."""
    known: list[bytes] = []
    borrowed: list[bytes] = []
    for _number, leaf in large:
        payload = batch.get_index(encode_digest_key(leaf))
        if payload is not None:
            place = decode_place(payload)
            known.append(pack_known(leaf, place.lsn, place.node))
            if place.thread != thread and not place.is_borrowed:
                borrowed.append(leaf)
    return b"".join(known), cbor.encode(sorted(borrowed)) if borrowed else NOTHING_BORROWED


def take_rollback(batch: Batch, head: Head, line: Line, parent: Head, metadata: bytes, written: bytes) -> Head | None:
    """Stage a rollback after `head`, with the root of `parent`. Return None if it is too large for a step."""
    target = parent.event
    root = (target.root_digest, target.root_lsn, target.root_node)
    nothing, target_lsn = NOTHING_BORROWED, target.lsn
    found = _make(
        batch,
        head,
        parent,
        line,
        root,
        NOTHING_HELD,
        b"",
        b"",
        NULL_ITEM,
        metadata,
        written,
        nothing,
        target=target_lsn,
    )
    if found is None:
        return None
    made, key, lsn, time_us = found
    fields = (*line, *root, None, metadata, written, NOTHING_BORROWED, target.lsn, lsn, time_us)
    return _stage(batch, TYPE_ROLLBACK, _new(CheckpointEvent, fields), made, key, NO_NODES, NOTHING_HELD)


def _make(
    batch: Batch,
    head: Head,
    parent: Head,
    line: Line,
    root: tuple[bytes, int, int],
    held: bytes,
    changes: bytes,
    known: bytes,
    id_item: bytes,
    metadata: bytes,
    written: bytes,
    borrowed: bytes,
    *,
    target: int = _NO_TARGET,
) -> tuple[Stepped, bytes, int, int] | None:
    """Encode the record of the head's successor and its version page. Return them with the page's key, LSN and time."""
    thread, branch, version = line[:3]
    lsn, time_us, previous_chain = batch.next_place(thread, branch)
    key = pack_page_key(thread, branch, version // VERSIONS_PER_PAGE)
    page = head.page_before(branch, version)
    if page is None:
        page = batch.get_index(key) or b""
    fixed = pack_fixed(
        *line[:5], *line[6:], root[1], root[2], target, time_us, lsn, parent.digest, root[0], previous_chain
    )
    for _ in range(_TRIES_MAX):
        made = kernels.step(fixed, held, changes, known, id_item, metadata, written, borrowed, page)
        if isinstance(made, Stepped):
            return made, key, lsn, time_us
        if made is None:
            break
        held = hold(batch, held, made)
    return None


def hold(reader: Batch, held: bytes, wanted: kernels.Wanted) -> bytes:
    """Read the node that a step asked for. Return `held` with this node appended."""
    data, content_size, lsn = reader.read_node(*wanted)
    return held + pack_held(wanted[0], wanted[1], lsn, len(data), content_size) + data


def _changes_of(
    batch: Batch, held: bytes, state_digest: bytes, writes: Sequence[PreparedWrite], grown: dict[bytes, Grown]
) -> bytes | None:
    """Return the encoded changes that the writes make, in channel order, or None if they cannot be a step."""
    changes: dict[bytes, _Change] = {}
    for each in writes:
        operation, payload = each.operation, each.payload
        key = channel_keys.get(each.channel) or channel_key(each.channel)
        change: _Change | None = None
        if operation is None:
            return None
        if operation != STEP_APPEND and type(payload) is bytes and key not in changes:
            change = operation, 0, b"", payload
        elif operation == STEP_UPSERT and key not in changes:
            change = _upsert(batch, kernels.step_list(state_digest, held, key), each, grown, key)
        elif operation != STEP_UPSERT:
            change = _change(operation, payload, changes.get(key))
        if change is None:
            return None
        changes[key] = change
    return b"".join(
        [
            pack_change(operation, count, len(key), len(name), len(payload)) + key + name + payload
            for key, (operation, count, name, payload) in sorted(changes.items())
        ]
    )


def _change(operation: int, payload: Any, earlier: _Change | None) -> _Change | None:
    """Return the change that a write makes, combined with an earlier change to the same channel in this commit.

    Return None if a step cannot make this change.
    """
    if operation != STEP_APPEND and type(payload) is bytes:
        return (operation, 0, b"", payload) if earlier is None else None
    if type(payload) is not list or not payload:
        return None
    operation, count, name, before = earlier or (STEP_APPEND, 0, b"", b"")
    if operation != STEP_APPEND or name:
        return None
    return STEP_APPEND, count + len(payload), b"", before + b"".join(payload)


# --- keyed lists ------------------------------------------------------------------


@lru_cache(maxsize=256)
def _encoded_key(key: str) -> bytes:
    return text_item(key.encode())


def _upsert(
    batch: Batch, found: kernels.Wanted | None, write: PreparedWrite, grown: dict[bytes, Grown], key: bytes
) -> _Change | None:
    """Return the append that has the same effect as an upsert, or None if some item is not new to the list."""
    operations = write.payload
    if found is None or not operations or None in operations or any(map(_is_removal, operations)):
        return None
    key_item, items = _encoded_key(write.parameter), list(map(_item, operations))
    growth = _grow(batch, found, key_item, items)
    if growth is None:
        return None
    grown[key] = growth
    return STEP_APPEND, len(items), key_item, b"".join(items)


def _grow(batch: Batch, found: kernels.Wanted, key_item: bytes, items: Sequence[bytes]) -> Grown | None:
    """Return the fingerprints of a keyed list and of the new items, or None if some item is not new to the list."""
    # Taking the fingerprints removes them from the cache, so two channels with equal lists never extend the same bytes.
    prints = batch.memory.prints.take(found[1])
    if prints is None:
        tree = Tree(batch.reader(), batch.read_node(*found))
        if tree.kind != kernels.KIND_KEYED or 4 * tree.count > SIZE_BYTES_MAX:
            return None
        prints = Identities(tree, batch.memory.identities).joined()
    added = kernels.step_prints(b"".join(items), key_item, prints)
    if added is None:
        added = _prints_of_new(batch, found, key_item, prints, items)
    return None if added is None else (prints, added)


def _prints_of_new(
    batch: Batch, found: kernels.Wanted, key_item: bytes, prints: bytearray, items: Sequence[bytes]
) -> bytes | None:
    """Return the fingerprints of new items, or None if an identity is not new to the list.

    Call this if a fingerprint already occurs in the list, because different identities may have the same fingerprint.
    """
    tree: Tree | None = None
    added: list[bytes] = []
    for item in items:
        try:
            identity = identity_of(item, key_item)
        except ReducerTypeError:
            return None  # The general path reports the error.
        wanted = fingerprint(identity)
        position = kernels.prints_find(prints, wanted, 0)
        while position >= 0:
            tree = tree or Tree(batch.reader(), batch.read_node(*found))
            if Identities(tree, batch.memory.identities).is_at(position, identity):
                return None
            position = kernels.prints_find(prints, wanted, position + 1)
        added.append(wanted.to_bytes(2, "big"))
    # If two fingerprints are equal, two new items may be equal, so leave the commit to the general path.
    return None if len(set(added)) < len(added) else b"".join(added)


def _remember_grown(memory: RememberedState, grown: dict[bytes, Grown], state_digest: bytes, held: bytes) -> None:
    """Cache the fingerprints of lists for their next upsert.

    The cache stays valid even if the commit fails, because it uses digests as keys.
    """
    for key, (prints, added) in grown.items():
        found = kernels.step_list(state_digest, held, key)
        if found is not None:
            prints.extend(added)
            memory.prints.keep(found[1], prints)
