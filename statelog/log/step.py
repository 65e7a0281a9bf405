"""The common commit: writes that put, add or append, and close last chunks at most, in a few kernel calls.

Invariant T6: what a step makes of writes is what the general path (`writer`) makes of them, node for node, and its
record is, byte for byte, what the general encoders make of these.
Where that path would do more, or refuse, there is no step, and it is taken.
"""

from __future__ import annotations

from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from statelog import kernels
from statelog.errors import ReducerTypeError
from statelog.format import cbor
from statelog.format.keys import (
    Place,
    encode_checkpoint_id_key,
    encode_digest_key,
    encode_lsn,
    encode_page_key,
    encode_place,
)
from statelog.format.record import NO_NODES, TYPE_CHECKPOINT, TYPE_ROLLBACK, Nodes, varint
from statelog.kernels import STEP_ADD, STEP_APPEND, STEP_LEVELS, STEP_PUT, STEP_PUT_ONCE, STEP_REMOVE, pack_numbers
from statelog.log.batch import NO_LISTS, Head, Staged
from statelog.log.events import NOTHING_BORROWED, NULL_ITEM, CheckpointEvent
from statelog.log.names import channel_key
from statelog.log.prints import SIZE_BYTES_MAX
from statelog.tree.node import CHUNK, REF_ROOT, ROOT, Node
from statelog.tree.sequence import Identities
from statelog.tree.tree import LISTS, Tree
from statelog.tree.value import fingerprint, identity_of, text_item

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from statelog.kernels import Change, Stepped
    from statelog.log.batch import Batch, Held, Memory
    from statelog.log.lines import Line
    from statelog.storage.commit.transaction import WriteTransaction

STEP_UPSERT = -1
"""An upsert into a keyed list: where every identity is new to it, an append. Payload: its operations."""

_REF_ROOT = REF_ROOT[0]
_new = tuple.__new__
"""Makes a named tuple without a call of Python's."""

_LISTS_MAX = 8
"""Lists whose roots are kept with a head."""


StepChange = tuple[int, Any, str]
"""One of `kernels.STEP_*` or `STEP_UPSERT`; payload (an item, or of appends a list of them); key of an upsert."""


class Grown(NamedTuple):
    """A keyed list that gets new items."""

    prints: bytearray
    added: bytes


class StepWrite(Protocol):
    """A write that may be part of a step."""

    @property
    def channel(self) -> str:
        """The channel's name."""

    @property
    def step(self) -> StepChange | None:
        """What it is as part of a step, None if it can be none."""


def take_step(
    batch: Batch,
    head: Head,
    writes: Sequence[StepWrite],
    line: Line,
    checkpoint_id: str | None,
    metadata: bytes,
    written: bytes,
) -> Head | None:
    """Stage a checkpoint of the head's channels merged with writes, the head its parent; None if they are no step."""
    event = head.event
    root = (event.root_digest, event.root_lsn, event.root_node)
    state, opens = (head.state, head.opens) if head.state else read_state(batch, event)
    grown: dict[bytes, Grown] = {}
    changes = changes_of(batch, head, state, writes, grown)
    if changes is None:
        return None
    step = _make(batch, head, head, line, state, opens, root, changes, NO_TARGET, checkpoint_id, metadata, written)
    if step is None:
        return None
    (digest, chain, root_digest, record, page, count, rows_at, nodes_at, places, large), key, lsn, time_us = step
    if large and not are_new(batch, [leaf for _number, leaf in large]):
        return None
    lists, nodes = head.lists, NO_NODES
    if count:
        rows, data = record[rows_at:nodes_at], record[nodes_at:]
        nodes = _new(Nodes, (count, rows, data))
        *levels, number, at, content_end, end = places.pop()
        root = (root_digest, lsn, number)
        state = _new(Node, (data[at:end], content_end - at, lsn))
        opens = _opens_after(opens, levels, nodes, lsn)
        if lists or places:
            lists = lists_after(lists, changes, nodes, places, lsn)
            remember_grown(batch.memory, grown, lists)
    fields = (*line, *root, checkpoint_id, metadata, written, NOTHING_BORROWED, NO_TARGET, lsn, time_us)
    event = _new(CheckpointEvent, fields)
    batch.staged.append(_new(Staged, (TYPE_CHECKPOINT, time_us, b"", nodes, (record, chain, rows_at))))
    batch.index[key] = page
    batch.index.update(place_rows(large, lsn, line[0]))
    if checkpoint_id is not None:
        batch.index[encode_checkpoint_id_key(line[0], checkpoint_id)] = encode_lsn(lsn)
    stepped = _new(Head, (event, digest, page, state, lists, opens))
    batch.set_head(line[0], line[1], stepped)
    return stepped


def are_new(reader: Batch | WriteTransaction, leaves: Sequence[bytes]) -> bool:
    """Tell whether the store has none of some large leaves, given by their digests."""
    return all(reader.get_index(encode_digest_key(leaf)) is None for leaf in leaves)


def place_rows(large: Sequence[tuple[int, bytes]], lsn: int, thread: int) -> dict[bytes, bytes]:
    """Return what the index says of a record's large leaves, by key."""
    return {
        encode_digest_key(leaf): encode_place(Place(lsn, number, thread, is_borrowed=False)) for number, leaf in large
    }


def take_rollback(batch: Batch, head: Head, line: Line, parent: Head, metadata: bytes, written: bytes) -> Head | None:
    """Stage a checkpoint behind the head, with the root of its parent; None if there is too much of it."""
    target = parent.event
    root = (target.root_digest, target.root_lsn, target.root_node)
    step = _make(batch, head, parent, line, NO_ROOT, (), root, (), target.lsn, None, metadata, written)
    if step is None:
        return None
    (digest, chain, _root, record, page, _count, rows_at, *_), key, lsn, time_us = step
    fields = (*line, *root, None, metadata, written, NOTHING_BORROWED, target.lsn, lsn, time_us)
    event = _new(CheckpointEvent, fields)
    batch.staged.append(_new(Staged, (TYPE_ROLLBACK, time_us, b"", NO_NODES, (record, chain, rows_at))))
    batch.index[key] = page
    rolled_back = _new(Head, (event, digest, page, None, NO_LISTS, ()))
    batch.set_head(line[0], line[1], rolled_back)
    return rolled_back


def _make(
    batch: Batch,
    head: Head,
    parent: Head,
    line: Line,
    state: tuple[bytes, int, int],
    opens: tuple[tuple[bytes, int, int], ...],
    root: tuple[bytes, int, int],
    changes: Sequence[Change],
    target: int,
    checkpoint_id: str | None,
    metadata: bytes,
    written: bytes,
) -> tuple[Stepped, bytes, int, int] | None:
    """Make the record of the head's successor and the page it is entered on; return them, the page's key, LSN, time."""
    thread, branch, version = line[:3]
    lsn, time_us, previous_chain = batch.next_place(thread, branch)
    key = encode_page_key(thread, branch, version)
    page = head.page_before(branch, version)
    if page is None:
        page = batch.get_index(key) or b""
    made = kernels.step(
        state,
        opens,
        root[0],
        changes,
        pack_numbers(*line[:5], *line[6:], root[1], root[2], target, time_us),
        parent.digest,
        NULL_ITEM if checkpoint_id is None else cbor.encode(checkpoint_id),
        metadata,
        written,
        lsn,
        previous_chain,
        page,
    )
    return None if made is None else (made, key, lsn, time_us)


def changes_of(
    batch: Batch, head: Head, state: Node, writes: Sequence[StepWrite], grown: dict[bytes, Grown]
) -> list[Change] | None:
    """Return what writes do, channel by channel; None if they are no step."""
    changes: dict[bytes, Change] = {}
    for each in writes:
        write = each.step
        if write is None:
            return None
        key = channel_key(each.channel)
        if key in changes:
            change = _append_more(changes[key], write)
        elif write[0] in PUTS and type(write[1]) is bytes:
            change = (write[0], key, write[1], 0, 0, NO_ROOT, ())
        else:
            change = _append(batch, head, state, key, write, grown)
        if change is None:
            return None
        changes[key] = change
    return [changes[key] for key in sorted(changes)] if len(changes) > 1 else list(changes.values())


def lists_after(
    known: Mapping[bytes, Held],
    changes: Sequence[Change],
    nodes: Nodes,
    places: Sequence[Sequence[int]],
    lsn: int,
) -> Mapping[bytes, Held]:
    """Return the lists that the next step may begin with: those known and left alone, and those appended to."""
    lists = dict(known) if len(known) < _LISTS_MAX else {}
    appended = iter(places)
    for change in changes:
        key = change[1]
        if change[0] == STEP_APPEND:
            *levels, number, at, content_end, end = next(appended)
            root = _new(Node, (nodes.data[at:end], content_end - at, lsn))
            lists[key] = (nodes.digest(number), root, _opens_after(change[6], levels, nodes, lsn))
        else:
            lists.pop(key, None)
    return lists


def read_state(reader: Batch, event: CheckpointEvent) -> tuple[Node, tuple[tuple[bytes, int, int], ...]]:
    """Return the root of a checkpoint's state, and its lowest open levels."""
    root = reader.read_node(ROOT, event.root_digest, event.root_lsn, event.root_node)
    return root, _read_opens(reader, root)


def _read_opens(reader: Batch, root: Node) -> tuple[tuple[bytes, int, int], ...]:
    return tuple(
        NO_ROOT if digest is None else reader.read_node(CHUNK, digest, lsn, number)
        for _covered, digest, lsn, number in kernels.root_read(*root).levels[: -STEP_LEVELS - 1 : -1]
    )


def _opens_after(
    before: tuple[tuple[bytes, int, int], ...], places: Sequence[int], nodes: Nodes, lsn: int
) -> tuple[tuple[bytes, int, int], ...]:
    """Return the open levels of a list or a state after a step: those made, which have places, the others as before."""
    opens = list(before)
    for level in range(STEP_LEVELS):
        at, content_end, end = places[3 * level : 3 * level + 3]
        if end:
            opens += [NO_ROOT] * (level + 1 - len(opens))
            opens[level] = _new(Node, (nodes.data[at:end], content_end - at, lsn))
    return tuple(opens)


PUTS = (STEP_PUT, STEP_ADD, STEP_PUT_ONCE, STEP_REMOVE)
NO_ROOT = (b"", 0, 0)
NO_TARGET = 0
_is_removal, _item = itemgetter(0), itemgetter(1)


def _append(
    batch: Batch, head: Head, state: Node, key: bytes, write: StepChange, grown: dict[bytes, Grown]
) -> Change | None:
    operation, payload, parameter = write
    found = head.lists.get(key) or _find_list(batch, state, key)
    if found is None or not payload:
        return None
    digest, root, opens = found
    kind = kernels.KIND_LIST
    if operation == STEP_UPSERT:
        kind = kernels.KIND_KEYED
        if None in payload or any(map(_is_removal, payload)):
            return None
        payload = list(map(_item, payload))
        growth = _grow(batch, digest, root, parameter, payload)
        if growth is None:
            return None
        grown[key] = growth
    return STEP_APPEND, key, b"".join(payload), len(payload), kind, root, opens


def _append_more(change: Change, write: StepChange) -> Change | None:
    """Return an append of what an earlier write of the same commit appends, and of more."""
    operation, key, payload, count, kind, root, opens = change
    wanted, items, _parameter = write
    if operation != STEP_APPEND or kind != kernels.KIND_LIST or wanted == STEP_UPSERT or type(items) is not list:
        return None
    return STEP_APPEND, key, payload + b"".join(items), count + len(items), kind, root, opens


def _find_list(batch: Batch, state: Node, key: bytes) -> Held | None:
    """Return a channel's value, if the state's root says that it is a tree."""
    _index, found, slot_at, end, lsn, number, _passed = kernels.find_key(
        *state, is_root=True, kind=kernels.KIND_DICT, key_item=key
    )
    if not found or state.data[slot_at] != _REF_ROOT:
        return None
    digest = state.data[slot_at + 1 : end]
    root = batch.read_node(ROOT, digest, lsn, number)
    return digest, root, _read_opens(batch, root) if root.data[0] in LISTS else ()


# --- keyed lists ------------------------------------------------------------------


@lru_cache(maxsize=256)
def _encoded_key(key: str) -> tuple[bytes, bytes]:
    """Return how the root of a list keyed so begins, and the key's item."""
    encoded = key.encode()
    return bytes((kernels.KIND_KEYED,)) + varint(len(encoded)) + encoded, text_item(encoded)


def _grow(batch: Batch, digest: bytes, root: Node, key: str, items: Sequence[bytes]) -> Grown | None:
    """Return how a keyed list grows by an upsert; None unless every item is new to it."""
    begin, key_item = _encoded_key(key)
    if not root.data.startswith(begin):
        return None
    prints = batch.memory.prints.take(digest)  # of two channels that hold the same list, for one
    if prints is None:
        tree = Tree(batch.reader(), root)
        if 4 * tree.count > SIZE_BYTES_MAX:
            return None
        prints = Identities(tree, batch.memory.identities).joined()
    added = kernels.step_prints(b"".join(items), key_item, prints)
    if added is None:
        added = _prints_of_new(batch, root, key_item, prints, items)
    return None if added is None else _new(Grown, (prints, added))


def _prints_of_new(
    batch: Batch, root: Node, key_item: bytes, prints: bytearray, items: Sequence[bytes]
) -> bytes | None:
    """Return the fingerprints of items whose identities are new to a keyed list, though their fingerprints are not."""
    tree: Tree | None = None
    added: list[bytes] = []
    for item in items:
        try:
            identity = identity_of(item, key_item)
        except ReducerTypeError:
            return None  # which the general path says
        wanted = fingerprint(identity)
        position = kernels.prints_find(prints, wanted, 0)
        while position >= 0:
            tree = tree or Tree(batch.reader(), root)
            if Identities(tree, batch.memory.identities).is_at(position, identity):
                return None
            position = kernels.prints_find(prints, wanted, position + 1)
        added.append(wanted.to_bytes(2, "big"))
    return None if len(set(added)) < len(added) else b"".join(added)  # perhaps one item twice


def remember_grown(memory: Memory, grown: Mapping[bytes, Grown], lists: Mapping[bytes, Held]) -> None:
    """Keep lists' fingerprints for their next upsert; whatever becomes of the commit, they are those of its digests."""
    for key, growth in grown.items():
        growth.prints.extend(growth.added)
        memory.prints.keep(lists[key][0], growth.prints)
