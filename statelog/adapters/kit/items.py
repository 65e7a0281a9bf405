"""Reads and writes values as encoded CBOR items, for adapters of frameworks with their own serialisers.

These writes bypass the channel's reducer. Items have the canonical form of `statelog.format.cbor.encode` (FORMAT.md 7).
They are checked, but not decoded.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from statelog import kernels
from statelog.errors import UsageError
from statelog.format import cbor
from statelog.format.record import DIGEST_SIZE_BYTES
from statelog.log.names import channel_key, channel_keys
from statelog.log.operations import check_version, seen
from statelog.log.step import PreparedWrite
from statelog.reducers import Prepared, Removal, extend, replace
from statelog.store.checkpoint import event_of
from statelog.tree import sequence
from statelog.tree.node import CHUNK, LEAF, REF_BYTE_MIN, REF_LEAF, REF_SIZE_BYTES, ROOT, Node, ValueSlot
from statelog.tree.tree import LISTS, STRIDE, Tree
from statelog.tree.value import (
    encode_slot,
    is_tree,
    open_root,
    read_item,
    read_items,
    root_kind,
    split,
    tree_item,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from statelog.log.batch import Batch
    from statelog.log.step import Redact
    from statelog.store.checkpoint import Checkpoint
    from statelog.store.thread import Thread
    from statelog.store.views import MapView
    from statelog.tree.node import Workspace
    from statelog.tree.tree import EntryRun

__all__ = [
    "PreparedWrite",
    "Stored",
    "Unread",
    "after",
    "append",
    "append_made",
    "codec_prefix",
    "commit",
    "count",
    "edit",
    "gather",
    "get",
    "has_key",
    "identity",
    "keys_between",
    "opened",
    "pack_list",
    "put",
    "put_made",
    "put_once",
    "put_once_made",
    "read",
    "read_list",
    "read_tree",
    "remove",
    "tree_between",
    "unwrap",
    "whole",
    "wrap",
]

T = TypeVar("T")

_new = tuple.__new__
"""Creates a named tuple without calling a Python function."""

_MAJOR_LIST = 4
_LONG_TEXT = 0x78
"""The smallest first byte of an item for a string of 24 bytes or more.

The head of a shorter string is one smaller byte.
"""

Stored = bytes | Tree
"""A stored value: its item, or the tree of a long list for `read_list`."""


def put(channel: str, item: bytes) -> PreparedWrite:
    """Return a write that sets a channel. Equal parts of an existing list or dict stay shared."""
    kernels.cbor_check(item)
    return put_made(channel, item)


def put_made(channel: str, item: bytes) -> PreparedWrite:
    """Return a write like `put`. The item is not checked, because statelog encoded it."""
    return _new(Prepared, (channel, replace, item, False, None, kernels.STEP_PUT))


def put_once(channel: str, item: bytes, join: Callable[[bytes, bytes], bytes] | None = None) -> PreparedWrite:
    """Return a write that sets a channel only if it has no value. An existing value stays, or `join` combines both."""
    kernels.cbor_check(item)
    return _PutOnce(channel, item, join)


def put_once_made(channel: str, item: bytes, join: Callable[[bytes, bytes], bytes] | None = None) -> PreparedWrite:
    """Return a write like `put_once`. The item is not checked, because statelog encoded it."""
    return _new(_PutOnce, (channel, item, join, "put_once", kernels.STEP_PUT_ONCE, ""))


def append(channel: str, items: Sequence[bytes]) -> PreparedWrite:
    """Return a write that appends items to a list, or creates the list."""
    _check_all(items)
    return append_made(channel, items)


def append_made(channel: str, items: Sequence[bytes]) -> PreparedWrite:
    """Return a write like `append`. The items are not checked, because statelog encoded them."""
    return _new(Prepared, (channel, extend, [*items], False, None, kernels.STEP_APPEND))


def edit(channel: str, start: int, stop: int, items: Sequence[bytes]) -> PreparedWrite:
    """Return a write that replaces the items `start` to `stop` (excluded) of a list.

    The cost depends on the new items and the depth of the tree, not on the length of the list. The commit raises
    UsageError if the list is shorter than `stop`.
    """
    _check_all(items)
    return _Edit(channel, start, stop, list(items))


def remove(channel: str) -> PreparedWrite:
    """Return a write that removes a channel from the state."""
    return Removal(channel)


def commit(
    thread: Thread[Any, Any],
    *writes: PreparedWrite,
    expected_version: int | Checkpoint | None = None,
    metadata: Mapping[str, Any] | None = None,
    id: str | None = None,
) -> Checkpoint:
    """Commit writes of this module to a thread. All else is as in `Thread.commit`."""
    return thread._commit_writes(  # noqa: SLF001 - only the kit may call it
        list(writes), metadata, expected_version=expected_version, checkpoint_id=id
    )


def expect(thread: Thread[Any, Any], head: Checkpoint) -> None:
    """Make the transaction raise ConflictError at its end if `head` is then no longer the thread's head."""
    event = event_of(head)

    def check(batch: Batch) -> None:
        held = batch.head(event.thread, event.branch) if batch.view.is_alive(event.thread) else None
        check_version(thread.id, seen(event), -1 if held is None else held.event.version, held)

    thread._session.act(check)  # noqa: SLF001 - only the kit may call it


def pack_list(items: Sequence[bytes]) -> bytes:
    """Return the item for a list that consists of `items`."""
    return cbor.head(4, len(items)) + b"".join(items)


def _check_all(items: Sequence[bytes]) -> None:
    if len(items) == 1:
        kernels.cbor_check(items[0])
    else:
        for item in items:
            kernels.cbor_check(item)


class _PutOnce(NamedTuple):
    channel: str
    payload: bytes
    join: Callable[[bytes, bytes], bytes] | None
    spec: str = "put_once"
    operation: int = kernels.STEP_PUT_ONCE
    parameter: str = ""

    def merge(self, workspace: Workspace, current: ValueSlot | None, _identities: dict[bytes, bytes]) -> ValueSlot:
        """Return the slot for the channel's value after this write: existing, new or joined."""
        if current is None:
            return encode_slot(workspace, self.payload, top=True)
        if self.join is None:
            return current
        held = read_item(workspace, current)
        joined = self.join(held, self.payload)
        return current if joined == held else encode_slot(workspace, joined, top=True)

    def redacted(self, redact: Redact) -> _PutOnce:
        """Return the write with secrets redacted."""
        return self._replace(payload=redact(self.payload, self.channel))


class _Edit(NamedTuple):
    channel: str
    start: int
    stop: int
    items: list[bytes]
    spec: str = "edit"
    operation: None = None
    payload: None = None
    parameter: str = ""

    def merge(self, workspace: Workspace, current: ValueSlot | None, _identities: dict[bytes, bytes]) -> ValueSlot:
        """Return the slot of the edited list."""
        if current is not None and is_tree(current) and root_kind(workspace, current) in LISTS:
            tree = open_root(workspace, current)
            self._check(tree.count)
            if self.start == self.stop == tree.count:
                return sequence.append(workspace, current, self.items)
            return sequence.edit(workspace, tree, [(self.start, self.stop, self.items)])
        slot = ValueSlot(b"\x80") if current is None else current
        held = split(read_item(workspace, slot))
        self._check(len(held))
        held[self.start : self.stop] = self.items
        return sequence.rebuild(workspace, slot, held)

    def redacted(self, redact: Redact) -> _Edit:
        """Return the write with secrets redacted."""
        return self._replace(items=[redact(item, self.channel) for item in self.items])

    def _check(self, count: int) -> None:
        if not 0 <= self.start <= self.stop <= count:
            message = f"channel {self.channel!r}: items {self.start} to {self.stop} are not in a list of {count}"
            raise UsageError(message, channel=self.channel, start=self.start, stop=self.stop, count=count)


# --- reading ----------------------------------------------------------------------


def read(state: MapView) -> dict[str, Stored]:
    """Return the value of every channel: its item, or the tree of a long list for `read_list`."""
    return {} if state.tree is None else read_tree(state.tree)


def read_tree(tree: Tree) -> dict[str, Stored]:
    """Return the value of every channel like `read`, for the open tree of a state."""
    return _entries(tree, 0, tree.head.count)


def get(state: MapView, channel: str) -> Stored | None:
    """Return the value of one channel as `read` does, or None if the channel does not exist."""
    tree = state.tree
    slot = None if tree is None else tree.find(channel_key(channel))[1]
    return None if tree is None or slot is None else _stored(tree.workspace, slot)


class Unread(NamedTuple):
    """A value of a checkpoint that this process committed. It is read on demand."""

    made: Checkpoint
    channel: str
    identity: bytes
    """Identifies the value: the digest of the state, and then the channel."""

    def read(self) -> Stored | None:
        """Return the value."""
        return get(self.made.state, self.channel)


def opened(stored: Stored | Unread | None) -> Stored | None:
    """Return a value from the result of `after`. If it is an `Unread`, read it first."""
    return stored.read() if isinstance(stored, Unread) else stored


def after(
    known: Mapping[str, Stored | Unread], writes: Sequence[PreparedWrite], made: Checkpoint
) -> dict[str, Stored | Unread]:
    """Return the channels of the checkpoint that `writes` created. `known` has the channels of its parent."""
    channels = dict(known)
    digest = event_of(made).root_digest
    for write in writes:
        channel = write.channel
        if type(write) is Removal:
            channels.pop(channel, None)
        elif type(write) is Prepared and write.reducer is replace and write.payload[0] >> 5 != _MAJOR_LIST:
            channels[channel] = write.payload
        else:
            channels[channel] = _new(Unread, (made, channel, digest + channel.encode()))
    return channels


def keys_between(state: MapView, first: str, last: str) -> dict[str, Stored]:
    """Return the channels `first` to `last` (excluded) as `read` does, in the order of their encoded keys.

    Shorter keys sort before longer keys. Keys of equal length sort by their UTF-8 bytes.
    """
    return {} if state.tree is None else tree_between(state.tree, first, last)


def tree_between(tree: Tree, first: str, last: str) -> dict[str, Stored]:
    """Return the channels `first` to `last` like `keys_between`, for the open tree of a state."""
    start, count = tree.find(_key(first))[0], tree.head.count
    return _entries(tree, start, count, _key(last)) if start < count else {}


def has_key(tree: Tree, channel: str) -> bool:
    """Return True if the open tree of a state has the channel."""
    return tree.find(_key(channel))[1] is not None


def _key(channel: str) -> bytes:
    """Return a channel's encoded key. It is not cached, because the name of a pending write is used only once."""
    return channel_keys.get(channel) or cbor.encode(channel)


class Ranges:
    """Reads ranges of a state's keys, which are asked for in descending order. Most are in the leaf that was read last.

    Args:
        state: the state to read.
    """

    def __init__(self, state: MapView) -> None:
        self._state = state
        self._run: EntryRun | None = None
        self._keys: list[bytes] = []
        """The keys of `_run`, in order."""

    def between(self, first: str, last: str) -> dict[str, Stored]:
        """Return the channels `first` to `last` (excluded), like `keys_between`."""
        tree, run, keys = self._state.tree, self._run, self._keys
        low_key, high_key = channel_key(first), channel_key(last)
        if tree is None or run is None or not keys[0] <= low_key <= high_key <= keys[-1]:
            self._keep_run(low_key)
            return keys_between(self._state, first, last)
        low, high = bisect_left(keys, low_key), bisect_left(keys, high_key)
        slots = (tree.slot(run.node, run.table, index) for index in range(low, high))
        return {
            cbor.decode(key): _stored(tree.workspace, slot) for key, slot in zip(keys[low:high], slots, strict=True)
        }

    def _keep_run(self, below: bytes) -> None:
        """Remember the leaf that contains the greatest key less than `below`."""
        tree = self._state.tree
        at = 0 if tree is None else tree.find(below)[0]
        self._run = run = None if tree is None or not at else next(tree.runs(at - 1, at), None)
        if tree is not None and run is not None:
            self._keys = [tree.key(run.node, run.table, index) for index in range(len(run.table) // STRIDE)]


def _entries(tree: Tree, start: int, stop: int, below: bytes | None = None) -> dict[str, Stored]:
    """Return the channels at positions `start` to `stop` whose keys are less than `below`, if given.

    All values in separate nodes are read at once.
    """
    found: dict[str, Stored] = {}
    refs: list[tuple[int, bytes, int, int]] = []
    channels: list[str] = []
    for node, table, low, high in tree.runs(start, stop):
        data, numbers = node.data, iter(table[low * STRIDE : high * STRIDE])
        for at, slot_at, end, _covered, lsn, number in zip(*[numbers] * STRIDE, strict=True):
            key = data[at:slot_at]
            if below is not None and key >= below:
                break
            channel = key[1:].decode() if key[0] < _LONG_TEXT else cbor.decode(key)
            found[channel] = item = data[slot_at:end]
            if item[0] >= REF_BYTE_MIN:
                channels.append(channel)
                refs.append((LEAF if item[:1] == REF_LEAF else ROOT, item[1:], lsn, number))
        else:
            continue
        break
    if refs:
        workspace = tree.workspace
        for channel, ref, node in zip(channels, refs, workspace.read_many(refs), strict=True):
            found[channel] = node.data[: node.content_size] if ref[0] == LEAF else _opened(Tree(workspace, node))
    return found


def _stored(workspace: Workspace, slot: ValueSlot) -> Stored:
    return _opened(open_root(workspace, slot)) if is_tree(slot) else read_item(workspace, slot)


def _opened(opened: Tree) -> Stored:
    return opened if opened.head.kind in LISTS else tree_item(opened)


def read_list(stored: Stored, start: int = 0, stop: int | None = None) -> list[bytes]:
    """Return the items `start` to `stop` of a list value from `read` or `keys_between`."""
    if isinstance(stored, bytes):
        return split(stored)[start:stop]
    return read_items(stored.workspace, stored.slots(start, stored.count if stop is None else stop))


def whole(stored: Stored) -> bytes:
    """Return the item of the whole value."""
    return stored if isinstance(stored, bytes) else tree_item(stored)


def gather(tree: Tree, known: dict[bytes, T], make: Callable[[list[bytes]], T]) -> list[T]:
    """Call `make` with the items of each leaf of a long list, and return the results in order.

    Leaves never change, so results in `known` are reused. New results are added if other lists may share the leaf.
    """
    found: list[T] = []
    for level, _covered, node in tree.groups():
        _gather_below(tree, node, level, known, make, found)
    return found


def _gather_below(
    tree: Tree, node: Node, level: int, known: dict[bytes, T], make: Callable[[list[bytes]], T], found: list[T]
) -> None:
    table = tree.table(node, level)
    if level == 0:
        found.append(make(read_items(tree.workspace, tree.slots_in(node, table))))
        return
    entries = range(len(table) // STRIDE)
    for index in entries:
        if level > 1:
            _gather_below(tree, tree.child(node, table, index, level), level - 1, known, make, found)
            continue
        at = table[index * STRIDE + 1]
        digest = node.data[at : at + DIGEST_SIZE_BYTES]
        part = known.get(digest)
        if part is None:
            _gather_below(tree, tree.child(node, table, index, level), 0, known, make, found)
            known[digest] = found[-1]
        else:
            found.append(part)


def leaves(stored: Stored) -> list[tuple[bytes, int, int]]:
    """Return (digest, LSN, number) for each item of a list that is stored as a separate node (internal)."""
    if isinstance(stored, bytes):
        return []
    return [(data[1:], lsn, number) for data, lsn, number in stored.slots(0, stored.count) if data[:1] == REF_LEAF]


def lists(state: MapView, count_max: int) -> Iterator[Tree]:
    """Yield the lists in a state that are stored as separate nodes and have at most `count_max` items."""
    tree = state.tree
    for node, table, low, high in () if tree is None else tree.runs(0, tree.count):
        for index in range(low, high):
            assert tree is not None
            slot = tree.slot(node, table, index)
            opened = open_root(tree.workspace, slot) if is_tree(slot) else None
            if opened is not None and opened.kind in LISTS and opened.count <= count_max:
                yield opened


def add_nodes(tree: Tree, found: dict[bytes, tuple[int, int]]) -> None:
    """Add the LSN and number of each node below the root of a list to `found`, by digest (internal)."""
    level = len(tree.head.levels) + 1
    for _covered, digest, lsn, number in tree.head.levels:
        level -= 1
        if digest is not None and digest not in found:
            found[digest] = (lsn, number)
            _add_nodes_below(tree, tree.workspace.read(CHUNK, digest, lsn, number), level, found)
    _add_nodes_below(tree, tree.node, 0, found)


def _add_nodes_below(tree: Tree, node: Node, level: int, found: dict[bytes, tuple[int, int]]) -> None:
    table = tree.table(node, level)
    for index in range(len(table) // STRIDE):
        _at, at, end, _covered, lsn, number = table[index * STRIDE : (index + 1) * STRIDE]
        if not level:
            if end - at == REF_SIZE_BYTES and node.data[at : at + 1] == REF_LEAF:
                found[node.data[at + 1 : end]] = (lsn, number)
            continue
        digest = node.data[at : at + DIGEST_SIZE_BYTES]
        if digest not in found:
            found[digest] = (lsn, number)
            _add_nodes_below(tree, tree.child(node, table, index, level), level - 1, found)


def identity(stored: Stored) -> bytes:
    """Return bytes that identify the value: equal values have equal bytes in all versions."""
    return stored if isinstance(stored, bytes) else stored.node.content


def count(stored: Stored) -> int:
    """Return the number of items of a list value from `read`."""
    return len(split(stored)) if isinstance(stored, bytes) else stored.count


# --- values of a codec whose payload is bytes --------------------------------------


def codec_prefix(name: str) -> bytes:
    """Return the bytes that precede the payload of each value encoded by the codec `name` (FORMAT.md 7)."""
    return b"\xd8\x1b\x82" + cbor.encode(name)


def wrap(prefix: bytes, payload: bytes) -> bytes:
    """Return the item for a codec's value whose payload is bytes. `prefix` comes from `codec_prefix`."""
    return prefix + cbor.head(2, len(payload)) + payload


def unwrap(prefix: bytes, item: bytes) -> bytes:
    """Return the payload of an item that begins with `prefix`. This is the inverse of `wrap`."""
    at = len(prefix)
    return item[at + (1, 2, 3, 5, 9)[max((item[at] & 31) - 23, 0)] :]
