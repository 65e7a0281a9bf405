"""Values and their slots, which are the bytes that represent a value in its parent. FORMAT.md 4.1.

Invariant T2: a slot depends only on the value's canonical CBOR, on whether it is the value of a
channel (`top`), and on the key of a keyed list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog import kernels
from statelog.errors import CorruptionError, ReducerTypeError
from statelog.format.cbor import FROZENSET_PREFIX, SET_PREFIX, TUPLE_PREFIX, head
from statelog.limits import BLOB_SIZE_BYTES_MIN, INLINE_SIZE_BYTES_MAX, LEAF_SIZE_BYTES_MAX
from statelog.tree.builder import Builder, root_row
from statelog.tree.node import LEAF, REF_BYTE_MIN, REF_LEAF, REF_ROOT, REF_SIZE_BYTES, ROOT, Node, ValueSlot, Workspace
from statelog.tree.tree import MAPS, STRIDE, STRINGS, Tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_MAJOR_BYTES = 2
_MAJOR_TEXT = 3
_MAJOR_LIST = 4
_MAJOR_DICT = 5
_MAJOR_TAG = 6

_CONTAINER_PREFIXES = {
    kernels.KIND_LIST: b"",
    kernels.KIND_KEYED: b"",
    kernels.KIND_TUPLE: TUPLE_PREFIX,
    kernels.KIND_SET: SET_PREFIX,
    kernels.KIND_FROZENSET: FROZENSET_PREFIX,
}
_KINDS_BY_PREFIX = {
    TUPLE_PREFIX: kernels.KIND_TUPLE,
    SET_PREFIX: kernels.KIND_SET,
    FROZENSET_PREFIX: kernels.KIND_FROZENSET,
}


def container_kind(item: bytes) -> int:
    """Return the kind of a container's item, or -1 for a scalar."""
    major = item[0] >> 5
    if major == _MAJOR_LIST:
        return kernels.KIND_LIST
    if major == _MAJOR_DICT:
        return kernels.KIND_DICT
    return _KINDS_BY_PREFIX.get(item[:3], -1) if major == _MAJOR_TAG else -1


def container_head(kind: int, count: int) -> bytes:
    """Return the bytes that precede the entries in a container's item."""
    if kind == kernels.KIND_DICT:
        return head(_MAJOR_DICT, count)
    return _CONTAINER_PREFIXES[kind] + head(_MAJOR_LIST, count)


def split(item: bytes) -> list[bytes]:
    """Return the children of a container's item. For a dict, keys and values alternate."""
    _kind, at, ends = kernels.cbor_split(item)
    children = []
    for end in ends:
        children.append(item[at:end])
        at = end
    return children


# --- item -> slot -------------------------------------------------------------


def encode_slot(workspace: Workspace, item: bytes, *, top: bool = False, key: bytes = b"") -> ValueSlot:
    """Add the nodes of a value to the workspace, and return its slot.

    Args:
        workspace: receives the nodes.
        item: canonical CBOR of the value.
        top: whether the value is the value of a channel.
        key: the key as UTF-8, for a channel with `upsert`.
    """
    size = len(item)
    if size <= INLINE_SIZE_BYTES_MAX:
        return ValueSlot(item)
    major = item[0] >> 5
    if major in (_MAJOR_TEXT, _MAJOR_BYTES):
        if size > BLOB_SIZE_BYTES_MIN:
            return _encode_string(workspace, item, major)
    elif (top or size > LEAF_SIZE_BYTES_MAX) and container_kind(item) >= 0:
        return _encode_tree(workspace, item, key)
    digest, lsn, number = workspace.add(LEAF, item, size)
    return ValueSlot(REF_LEAF + digest, lsn, number)


def string_body(item: bytes) -> memoryview:
    """Return the bytes of a str or bytes item, without its head."""
    extra = (1, 2, 3, 5, 9)[max((item[0] & 31) - 23, 0)]
    return memoryview(item)[extra:]


def _encode_string(workspace: Workspace, item: bytes, major: int) -> ValueSlot:
    builder = Builder(workspace, kernels.KIND_STR if major == _MAJOR_TEXT else kernels.KIND_BYTES)
    builder.push_bytes(bytes(string_body(item)))
    return add_root(workspace, builder.finish())


def _encode_tree(workspace: Workspace, item: bytes, key: bytes) -> ValueSlot:
    kind = container_kind(item)
    children = split(item)
    if key and kind == kernels.KIND_LIST:
        kind = kernels.KIND_KEYED
    builder = Builder(workspace, kind, key if kind == kernels.KIND_KEYED else b"")
    if kind == kernels.KIND_DICT:
        entries = [(children[at], encode_slot(workspace, children[at + 1])) for at in range(0, len(children), 2)]
        push_pairs(builder, entries)
    elif kind in MAPS:
        builder.push(0, b"".join(children), b"", len(children))
    else:
        push_items(workspace, builder, children)
    return add_root(workspace, builder.finish())


def push_pairs(builder: Builder, pairs: list[tuple[bytes, ValueSlot]]) -> None:
    """Push the (key item, slot) entries of a dict, which must be in ascending order."""
    builder.push(
        0,
        b"".join([part for key_item, slot in pairs for part in (key_item, slot.data)]),
        b"".join([slot.locators for _key, slot in pairs]),
        len(pairs),
    )


def push_items(workspace: Workspace, builder: Builder, items: Iterable[bytes]) -> None:
    """Push items of a list, tuple or keyed list."""
    entries, locators, count = list_entries(workspace, items, builder.key)
    builder.push(0, entries, locators, count)


def list_entries(workspace: Workspace, items: Iterable[bytes], key: bytes) -> tuple[bytes, bytes, int]:
    """Return the (entries, locators, count) of list items. `key` is the key of a keyed list, or empty."""
    key_item = text_item(key) if key else b""
    entries: list[bytes] = []
    locators: list[bytes] = []
    count = 0
    for item in items:
        if key:
            entries.append(fingerprint(identity_of(item, key_item)).to_bytes(2, "big"))
        slot = encode_slot(workspace, item)
        entries.append(slot.data)
        if slot.is_ref:
            locators.append(slot.locators)
        count += 1
    return b"".join(entries), b"".join(locators), count


def text_item(text: bytes) -> bytes:
    """Return the CBOR item of UTF-8 text."""
    return head(_MAJOR_TEXT, len(text)) + text


def identity_of(item: bytes, key_item: bytes) -> bytes:
    """Return the encoded value that a keyed list's item has under the list's key."""
    span = kernels.cbor_map_get(item, key_item)
    if span is None:
        message = f"an item of an upsert channel must be a dict with the key {key_item[1:].decode(errors='replace')!r}"
        raise ReducerTypeError(message)
    return item[span[0] : span[1]]


def fingerprint(identity: bytes) -> int:
    """Return the 16-bit fingerprint that a keyed list stores for an item's identity."""
    return kernels.content_hash(identity) & 0xFFFF


def add_root(workspace: Workspace, node: Node) -> ValueSlot:
    """Add a root and return a slot that refers to it."""
    digest, lsn, number = root_row(workspace, node)
    return ValueSlot(REF_ROOT + digest, lsn, number)


def settle(workspace: Workspace, node: Node, *, top: bool) -> ValueSlot:
    """Return the slot for a finished root (not of a string).

    Store a value that has become small without a tree (T2).
    """
    item = small_item(Tree(workspace, node), INLINE_SIZE_BYTES_MAX if top else LEAF_SIZE_BYTES_MAX)
    if item is None:
        return add_root(workspace, node)
    workspace.has_garbage = True
    return encode_slot(workspace, item)


def small_item(tree: Tree, size_max: int) -> bytes | None:
    """Return a tree's value as one item if it takes at most `size_max` bytes.

    Otherwise return None, as early as possible.
    """
    # An entry takes at least 1 byte. In a dict with str keys, the empty key and its value take at least 2 bytes, each
    # of 128 one-byte keys 3, and each other key 4. The sum is at least 2 + 128 * 3 + 4 * (count - 129).
    if tree.count > (size_max // 4 + 33 if tree.kind == kernels.KIND_DICT else size_max):
        return None
    least = 0  # This is a lower bound: a ref counts as the smallest value that cannot be inline.
    first = 1 if tree.kind == kernels.KIND_KEYED else 0  # Skip the fingerprints of a keyed list.
    for run in tree.runs(0, tree.count):
        table = run.table[run.start * STRIDE : run.stop * STRIDE]
        least += sum(table[2::STRIDE]) - sum(table[first::STRIDE])
        least += _refs(tree, table) * (INLINE_SIZE_BYTES_MAX + 1 - REF_SIZE_BYTES)
        if least > size_max:
            return None
    item = container_head(tree.kind, tree.count) + b"".join(_parts(tree, size_max))
    return item if len(item) <= size_max else None


# --- slot -> item -------------------------------------------------------------


def open_root(workspace: Workspace, slot: ValueSlot) -> Tree:
    """Open the tree that a slot refers to."""
    return Tree(workspace, workspace.read(ROOT, slot.data[1:], slot.lsn, slot.number))


def root_kind(workspace: Workspace, slot: ValueSlot) -> int:
    """Return the kind of the tree that a slot refers to, without opening it."""
    return workspace.read(ROOT, slot.data[1:], slot.lsn, slot.number).data[0]


def is_tree(slot: ValueSlot) -> bool:
    """Return True if a slot refers to a root."""
    return slot.data[:1] == REF_ROOT


def read_item(workspace: Workspace, slot: ValueSlot) -> bytes:
    """Return the canonical CBOR of the whole value."""
    first = slot.data[0]
    if first < REF_BYTE_MIN:
        return slot.data
    if slot.data[:1] == REF_LEAF:
        return workspace.read(LEAF, slot.data[1:], slot.lsn, slot.number).content
    if slot.data[:1] == REF_ROOT:
        return tree_item(open_root(workspace, slot))
    message = f"a slot begins with the invalid byte {first:#x}"
    raise CorruptionError(message)


def tree_item(tree: Tree) -> bytes:
    """Return the canonical CBOR of a whole tree."""
    if tree.kind in STRINGS:
        data = read_string(tree, 0, tree.count)
        return head(_MAJOR_TEXT if tree.kind == kernels.KIND_STR else _MAJOR_BYTES, len(data)) + data
    return container_head(tree.kind, tree.count) + b"".join(_parts(tree, None))


def _parts(tree: Tree, size_max: int | None) -> Iterator[bytes]:
    """Yield the bytes of all entries. Stop as soon as the total size will certainly exceed `size_max`."""
    is_dict = tree.kind == kernels.KIND_DICT
    for run in tree.runs(0, tree.count):
        if size_max is not None and _refs(tree, run.table) * INLINE_SIZE_BYTES_MAX > size_max:
            yield bytes(size_max + 1)
            return
        slots = [tree.slot(run.node, run.table, index) for index in range(run.start, run.stop)]
        items = read_items(tree.workspace, slots)
        for index, item in zip(range(run.start, run.stop), items, strict=True):
            if is_dict:
                yield tree.key(run.node, run.table, index)
            yield item


def read_items(workspace: Workspace, slots: Sequence[ValueSlot]) -> list[bytes]:
    """Return the items of several slots, reading all their leaves in one call."""
    refs = [(LEAF, data[1:], lsn, number) for data, lsn, number in slots if data[:1] == REF_LEAF]
    if len(refs) < 2:
        return [read_item(workspace, slot) for slot in slots]
    contents = [data[:content_size] for data, content_size, _lsn in workspace.read_many(refs)]
    if len(contents) == len(slots):
        return contents
    leaves = iter(contents)
    return [next(leaves) if slot.data[:1] == REF_LEAF else read_item(workspace, slot) for slot in slots]


def _refs(tree: Tree, table: list[int]) -> int:
    if tree.kind in (kernels.KIND_SET, kernels.KIND_FROZENSET):
        return 0
    return sum(1 for lsn, number in zip(table[4::STRIDE], table[5::STRIDE], strict=True) if lsn or number)


def read_string(tree: Tree, start: int, stop: int) -> bytes:
    """Return bytes [start, stop) of a str or bytes tree."""
    parts: list[bytes] = []
    at = 0
    for level, covered, node in tree.groups():
        low, high = max(start - at, 0), min(stop - at, covered)
        if low < high:
            _collect_pieces(tree, node, level, low, high, parts)
        at += covered
    return b"".join(parts)


def _collect_pieces(tree: Tree, node: Node, level: int, low: int, high: int, parts: list[bytes]) -> None:
    if level == 0:
        begin = tree.head.tail_at if node is tree.node else 0
        parts.append(node.data[begin + low : begin + high])
        return
    table = tree.table(node, level)
    at = 0
    for index in range(len(table) // STRIDE):
        covered = table[index * STRIDE + 3]
        if at < high and at + covered > low:
            child = tree.child(node, table, index, level)
            _collect_pieces(tree, child, level - 1, max(low - at, 0), min(high - at, covered), parts)
        at += covered
