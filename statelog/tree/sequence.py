"""Operations on lists in the slots of channel values: append, splice by position, and find by key.

A list is a prolly tree (content-defined chunks, as in Noms and Dolt). The root refers to the right spine of the tree,
so an append writes only the open tail until a chunk closes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog import kernels
from statelog.errors import ReducerTypeError
from statelog.format import cbor
from statelog.format.record import DIGEST_SIZE_BYTES
from statelog.tree.builder import Builder
from statelog.tree.node import CHUNK, ROOT, Node, ValueSlot, Workspace
from statelog.tree.splice import Edit, splice
from statelog.tree.tree import STRIDE, Tree
from statelog.tree.value import (
    add_root,
    container_head,
    container_kind,
    encode_slot,
    fingerprint,
    identity_of,
    is_tree,
    list_entries,
    open_root,
    read_item,
    settle,
    split,
    text_item,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def append(workspace: Workspace, slot: ValueSlot, items: Sequence[bytes], *, top: bool = True) -> ValueSlot:
    """Return the slot of a list or tuple with items added at its end."""
    if not items:
        return slot
    if not is_tree(slot):
        return rebuild(workspace, slot, split(read_item(workspace, slot)) + list(items), top=top)
    node = workspace.read(ROOT, slot.data[1:], slot.lsn, slot.number)
    # Open the tree only if necessary, because every commit of a message runs this line.
    tree = Tree(workspace, node) if node.data[0] == kernels.KIND_KEYED else None
    entries, locators, count = list_entries(workspace, items, tree.head.key if tree else b"")
    grown = kernels.tail_append(*node, entries, locators, count)
    if grown is not None:
        return add_root(workspace, Node(grown[0], grown[1], 0))
    tree = tree or Tree(workspace, node)
    builder = Builder(workspace, tree.kind, tree.head.key)
    tree.feed(builder, 0, tree.count)
    builder.push(0, entries, locators, count)
    return add_root(workspace, builder.finish())


def rebuild(
    workspace: Workspace, slot: ValueSlot, items: list[bytes], *, top: bool = True, key: bytes = b""
) -> ValueSlot:
    """Return the slot of a list or tuple with exactly these items, of the same kind as `slot`."""
    kind = kernels.KIND_LIST if slot.is_ref else container_kind(slot.data)
    return encode_slot(workspace, container_head(kind, len(items)) + b"".join(items), top=top, key=key)


def edit(
    workspace: Workspace, tree: Tree, edits: Sequence[tuple[int, int, Sequence[bytes]]], *, top: bool = True
) -> ValueSlot:
    """Return the slot of a list after ascending edits.

    An edit (start, stop, items) puts items in place of [start, stop).
    """
    made = [Edit(start, stop, *list_entries(workspace, items, tree.head.key)) for start, stop, items in edits]
    return settle(workspace, splice(tree, made), top=top)


# --- keyed lists ----------------------------------------------------------------


class Identities:
    """Finds the items of a keyed list by identity. An identity is the encoded value under the list's key.

    Each level-1 node stores a 16-bit fingerprint of every identity below it. The fingerprints below each node of level
    2 or higher are joined once and cached by digest (`cache`). So a lookup in a long list searches a few arrays instead
    of walking the tree.
    """

    def __init__(self, tree: Tree, cache: dict[bytes, bytes]) -> None:
        self._tree = tree
        self._cache = cache
        self._key_item = text_item(tree.head.key)

    def find(self, identity: bytes) -> int:
        """Return the position of the item with this identity, or -1."""
        wanted = fingerprint(identity)
        digests = iter([level[1] for level in self._tree.head.levels if level[1] is not None])
        before = 0
        for level, covered, node in self._tree.groups():
            prints = self._prints(node, level, next(digests)) if level > 1 else None
            position = self._find_in(node, level, prints, wanted, identity)
            if position >= 0:
                return before + position
            before += covered
        return -1

    def _find_in(self, node: Node, level: int, prints: bytes | None, wanted: int, identity: bytes) -> int:
        position = -1
        while True:
            if prints is not None:
                position = kernels.prints_find(prints, wanted, position + 1)
            else:
                position = kernels.fingerprint_find(
                    node.data,
                    node.content_size,
                    is_root=node is self._tree.node,
                    fingerprint=wanted,
                    start=position + 1,
                )
            if position < 0 or self._is_at(node, level, position, identity):
                return position

    def joined(self) -> bytearray:
        """Return the fingerprints of all items in order."""
        joined = bytearray()
        digests = iter([level[1] for level in self._tree.head.levels if level[1] is not None])
        for level, _covered, node in self._tree.groups():
            if level:
                joined += self._prints(node, level, next(digests))
            else:
                joined += b"".join([node.data[at : at + 2] for at in self._tree.table(node, 0)[::STRIDE]])
        return joined

    def is_at(self, position: int, identity: bytes) -> bool:
        """Return True if the item at `position` has this identity."""
        return self._is(self._tree.at(position), identity)

    def _is_at(self, node: Node, level: int, position: int, identity: bytes) -> bool:
        return self._is(self._tree.at_below(node, level, position), identity)

    def _is(self, slot: ValueSlot, identity: bytes) -> bool:
        return identity_of(read_item(self._tree.workspace, slot), self._key_item) == identity

    def _prints(self, node: Node, level: int, digest: bytes | None) -> bytes:
        """Return the fingerprints of all items below a node of level >= 1. They are joined once and cached."""
        joined = self._cache.get(digest) if digest is not None else None
        if joined is not None:
            return joined
        table = self._tree.table(node, level)
        parts: list[bytes] = []
        for at in range(0, len(table), STRIDE):
            digest_at, end, _covered, lsn, number = table[at + 1 : at + STRIDE]
            child_digest = node.data[digest_at : digest_at + DIGEST_SIZE_BYTES]
            if level == 1:
                parts.append(node.data[digest_at + DIGEST_SIZE_BYTES : end])
            elif child_digest in self._cache:
                parts.append(self._cache[child_digest])
            else:
                child = self._tree.workspace.read(CHUNK, child_digest, lsn, number)
                parts.append(self._prints(child, level - 1, child_digest))
        joined = b"".join(parts)
        if digest is not None:
            if len(self._cache) >= IDENTITY_CACHE_ENTRIES_MAX:
                self._cache.clear()
            self._cache[digest] = joined
        return joined


IDENTITY_CACHE_ENTRIES_MAX = 4096
"""The maximum number of cached arrays of joined fingerprints. At 2 bytes an item, they take at most a few megabytes."""


def upsert(
    workspace: Workspace,
    slot: ValueSlot,
    key: bytes,
    operations: Sequence[tuple[bool, bytes]],
    cache: dict[bytes, bytes],
) -> ValueSlot:
    """Return the slot of a keyed list after the operations (is removal, item or identity), in order.

    An item replaces the existing item with the same identity, or is appended if there is none.

    Raises:
        ReducerTypeError: the identity to remove does not exist.
    """
    key_item = text_item(key)
    if not is_tree(slot):
        items = split(read_item(workspace, slot))
        return rebuild(workspace, slot, _upsert_plain(items, key_item, operations), key=key)
    tree = open_root(workspace, slot)
    if tree.kind != kernels.KIND_KEYED or tree.head.key != key:
        items = split(read_item(workspace, slot))
        return rebuild(workspace, ValueSlot(b"\x80"), _upsert_plain(items, key_item, operations), key=key)
    identities = Identities(tree, cache)
    changed: dict[int, bytes | None] = {}
    added: dict[bytes, bytes] = {}
    for is_removal, item in operations:
        identity = item if is_removal else identity_of(item, key_item)
        position = -1 if identity in added else identities.find(identity)
        is_gone = position >= 0 and changed.get(position, b"") is None
        if position >= 0 and not (is_gone and not is_removal):
            if is_removal and is_gone:
                raise _absent(identity)
            changed[position] = None if is_removal else item
        elif not is_removal:
            added[identity] = item
        elif identity in added:
            del added[identity]
        else:
            raise _absent(identity)
    if not changed:
        return append(workspace, slot, list(added.values()))
    edits: list[tuple[int, int, Sequence[bytes]]] = [
        (position, position + 1, [] if item is None else [item]) for position, item in sorted(changed.items())
    ]
    if added:
        edits.append((tree.count, tree.count, list(added.values())))
    return edit(workspace, tree, edits)


def _upsert_plain(items: list[bytes], key_item: bytes, operations: Sequence[tuple[bool, bytes]]) -> list[bytes]:
    merged = {identity_of(item, key_item): item for item in items}
    for is_removal, item in operations:
        if not is_removal:
            merged[identity_of(item, key_item)] = item
        elif merged.pop(item, None) is None:
            raise _absent(item)
    return list(merged.values())


def _absent(identity: bytes) -> ReducerTypeError:
    value = cbor.decode(identity)
    return ReducerTypeError(f"cannot remove {value!r}: no item has this identity", write=value)
