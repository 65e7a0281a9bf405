"""The common commit: writes that put, add or append, and close no chunk, in a few kernel calls.

Invariant T6: what a step makes of writes is what the general path (`writer`) makes of them, node for node.
Where that path would do more, or refuse, there is no step, and it is taken.
"""

from __future__ import annotations

from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from statelog import kernels
from statelog.errors import ReducerTypeError
from statelog.format.record import NO_NODES, Nodes, varint
from statelog.kernels import STEP_ADD, STEP_APPEND, STEP_PUT
from statelog.log.names import channel_key
from statelog.tree.node import REF_ROOT, ROOT, Node
from statelog.tree.sequence import Identities
from statelog.tree.tree import Tree
from statelog.tree.value import fingerprint, identity_of, text_item

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from statelog.kernels import Change
    from statelog.log.batch import Batch, Head

STEP_UPSERT = -1
"""An upsert into a keyed list: where every identity is new to it, an append. Payload: its operations."""

_REF_ROOT = REF_ROOT[0]
_new = tuple.__new__
"""Makes a named tuple without a call of Python's."""

_LISTS_MAX = 8
"""Lists whose roots are kept with a head."""

_PRINTS_SIZE_BYTES_MAX = 8 * 1024 * 1024
"""Fingerprints in memory, 2 bytes an item: lists that are longer than half of it take the general path."""


StepChange = tuple[int, Any, str]
"""One of `kernels.STEP_*` or `STEP_UPSERT`; payload (an item, or of appends a list of them); key of an upsert."""


class Step(NamedTuple):
    """What a step made: what `Head` keeps of it, and the nodes."""

    root: tuple[bytes, int, int]
    """Digest, LSN and number of the state's root."""
    nodes: Nodes
    state: Node | None
    lists: Mapping[bytes, tuple[bytes, Node]]


class _Grown(NamedTuple):
    """A keyed list that gets new items."""

    prints: bytearray
    added: bytes
    is_known: bool


class StepWrite(Protocol):
    """A write that may be part of a step."""

    @property
    def channel(self) -> str:
        """The channel's name."""

    @property
    def step(self) -> StepChange | None:
        """What it is as part of a step, None if it can be none."""


def take_step(batch: Batch, head: Head, writes: Sequence[StepWrite]) -> Step | None:
    """Return what writes make of a checkpoint's state; None if they are no step."""
    event = head.event
    state = head.state or batch.read_node(ROOT, event.root_digest, event.root_lsn, event.root_node)
    changes: dict[bytes, Change] = {}
    grown: dict[bytes, _Grown] = {}
    for each in writes:
        write = each.step
        if write is None:
            return None
        key = channel_key(each.channel)
        if key in changes:
            change = _append_more(changes[key], write)
        elif write[0] in _PUTS and type(write[1]) is bytes:
            change = (write[0], key, write[1], 0, 0, _NO_ROOT)
        else:
            change = _append(batch, head, state, key, write, grown)
        if change is None:
            return None
        changes[key] = change
    ordered = [changes[key] for key in sorted(changes)] if len(changes) > 1 else list(changes.values())
    stepped = kernels.step(state, event.root_digest, ordered)
    return None if stepped is None else _outcome(batch, head, ordered, stepped, grown)


def _outcome(
    batch: Batch, head: Head, changes: Sequence[Change], stepped: kernels.Stepped, grown: dict[bytes, _Grown]
) -> Step:
    count, rows, data, places = stepped
    if not count:
        event = head.event
        return Step((event.root_digest, event.root_lsn, event.root_node), NO_NODES, head.state, head.lists)
    nodes = _new(Nodes, (count, rows, data))
    lsn = batch.next_lsn()
    number, at, content_end, end = places.pop()
    state = _new(Node, (data[at:end], content_end - at, lsn))
    root = (nodes.digest(number), lsn, number)
    if not head.lists and len(changes) == 1 and changes[0][0] != STEP_APPEND:
        return _new(Step, (root, nodes, state, head.lists))
    lists = dict(head.lists) if len(head.lists) < _LISTS_MAX else {}
    for change, (number, at, content_end, end) in zip(changes, places, strict=True):
        key = change[1]
        if change[0] == STEP_APPEND:
            digest = nodes.digest(number)
            lists[key] = (digest, _new(Node, (data[at:end], content_end - at, lsn)))
            if key in grown:
                _remember(batch, grown[key], digest)
        else:
            lists.pop(key, None)
    return _new(Step, (root, nodes, state, lists))


_PUTS = (STEP_PUT, STEP_ADD)
_NO_ROOT = (b"", 0, 0)
_is_removal, _item = itemgetter(0), itemgetter(1)


def _append(
    batch: Batch, head: Head, state: Node, key: bytes, write: StepChange, grown: dict[bytes, _Grown]
) -> Change | None:
    operation, payload, parameter = write
    found = head.lists.get(key) or _find_list(batch, state, key)
    if found is None or not payload:
        return None
    digest, root = found
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
    return STEP_APPEND, key, b"".join(payload), len(payload), kind, root


def _append_more(change: Change, write: StepChange) -> Change | None:
    """Return an append of what an earlier write of the same commit appends, and of more."""
    operation, key, payload, count, kind, root = change
    wanted, items, _parameter = write
    if operation != STEP_APPEND or kind != kernels.KIND_LIST or wanted == STEP_UPSERT or type(items) is not list:
        return None
    return STEP_APPEND, key, payload + b"".join(items), count + len(items), kind, root


def _find_list(batch: Batch, state: Node, key: bytes) -> tuple[bytes, Node] | None:
    """Return digest and root of a channel's value, if the state's root says that it is a tree."""
    _index, found, slot_at, end, lsn, number, _passed = kernels.find_key(
        *state, is_root=True, kind=kernels.KIND_DICT, key_item=key
    )
    if not found or state.data[slot_at] != _REF_ROOT:
        return None
    digest = state.data[slot_at + 1 : end]
    return digest, batch.read_node(ROOT, digest, lsn, number)


# --- keyed lists ------------------------------------------------------------------


@lru_cache(maxsize=256)
def _encoded_key(key: str) -> tuple[bytes, bytes]:
    """Return how the root of a list keyed so begins, and the key's item."""
    encoded = key.encode()
    return bytes((kernels.KIND_KEYED,)) + varint(len(encoded)) + encoded, text_item(encoded)


def _grow(batch: Batch, digest: bytes, root: Node, key: str, items: Sequence[bytes]) -> _Grown | None:
    """Return how a keyed list grows by an upsert; None unless every item is new to it."""
    begin, key_item = _encoded_key(key)
    if not root.data.startswith(begin):
        return None
    # Taken out: whoever extends it owns it, also where two channels hold the same list.
    prints = batch.memory.prints.pop(digest, None)
    is_known = prints is not None
    if prints is None:
        tree = Tree(batch.reader(), root)
        if 4 * tree.count > _PRINTS_SIZE_BYTES_MAX:
            return None
        prints = Identities(tree, batch.memory.identities).joined()
    added = kernels.step_prints(b"".join(items), key_item, prints)
    if added is None:
        added = _prints_of_new(batch, root, key_item, prints, items)
    return None if added is None else _new(_Grown, (prints, added, is_known))


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


def _remember(batch: Batch, grown: _Grown, digest: bytes) -> None:
    """Keep a list's fingerprints for its next upsert; whatever becomes of the commit, they are that digest's."""
    known = batch.memory.prints
    if not grown.is_known and sum(map(len, known.values())) > _PRINTS_SIZE_BYTES_MAX // 2:
        known.clear()
    grown.prints.extend(grown.added)
    known[digest] = grown.prints
