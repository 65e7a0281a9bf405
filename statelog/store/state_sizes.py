"""Computes the sizes of states and channels, broken down by the branch that wrote the records."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from statelog import kernels
from statelog.errors import CorruptionError
from statelog.format import cbor
from statelog.format.record import DIGEST_SIZE_BYTES, FLAG_REDACTED, FLAGS_AT, TYPE_AT, TYPE_MASK, TYPE_THREAD
from statelog.log.events import CHECKPOINT_TYPES
from statelog.log.nodes import removed_node
from statelog.log.view import missing
from statelog.tree.node import CHUNK, LEAF, REF_ROOT, REF_SIZE_BYTES, ROOT, Workspace
from statelog.tree.tree import STRIDE, STRINGS, Tree
from statelog.tree.value import container_head, container_kind, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from statelog.log.events import CheckpointEvent
    from statelog.log.view import View
    from statelog.tree.node import Node, ValueSlot

    Read = Callable[[int, bytes, int, int], Node]
    """Returns the node with the given type, digest, LSN and number."""

_TABLES_SIZE_MAX = 200_000
"""The maximum number of leaf sizes in memory."""

_TABLE_SHORT = 64


class RecordHead(NamedTuple):
    """The thread, branch and number of nodes of a record.

    The branch is None unless the record is a version that has not expired.
    """

    thread: int
    branch: int | None
    nodes: int


def read_head(data: memoryview, lsn: int) -> RecordHead:
    """Read the head of a record, but neither its checksum nor its nodes."""
    try:
        parts = kernels.record_open(data)
    except CorruptionError:
        message = f"record {lsn}: its {len(data)} bytes do not match its envelope"
        raise CorruptionError(message, lsn=lsn) from None
    if data[TYPE_AT] & TYPE_MASK == TYPE_THREAD:
        return RecordHead(lsn, None, parts.node_count)
    body = bytes(data[parts.body_at : parts.body_at + parts.body_size])
    _kind, first, ends = kernels.cbor_split(body)
    is_kept = data[TYPE_AT] in CHECKPOINT_TYPES and not data[FLAGS_AT] & FLAG_REDACTED
    thread = cbor.decode(body[first : ends[0]]) if ends else None
    branch = cbor.decode(body[ends[0] : ends[1]]) if is_kept and len(ends) > 1 else None
    if not isinstance(thread, int) or (is_kept and not isinstance(branch, int)):
        message = f"record {lsn}: its body does not name a thread"
        raise CorruptionError(message, lsn=lsn)
    return RecordHead(thread, branch, parts.node_count)


class WritingBranch(NamedTuple):
    """The branch of a thread that wrote a record. If the record has lost its event, the branch is unknown (None)."""

    thread: int
    branch: int | None
    latest: int
    """The last branch of the thread that began before the record."""

    def is_of(self, thread: int, branch: int) -> bool:
        """Return True if a branch may have written the record. The record must not be older than the branch."""
        if self.branch is None:
            return self.thread == thread and self.latest >= branch
        return (self.thread, self.branch) == (thread, branch)


class NodePart(NamedTuple):
    """A root, a chunk or a leaf."""

    type: int
    digest: bytes
    lsn: int
    number: int


class OpenedNode(NamedTuple):
    """The parts of a root or a chunk."""

    size_bytes: int
    """The bytes in the node itself."""
    children: list[NodePart]
    """The chunks and roots to which the node refers."""
    leaves: list[NodePart]


def open_part(part: NodePart, read: Read) -> OpenedNode:
    """Read a root or a chunk, and return its parts. Leaves are not read."""
    node = read(part.type, part.digest, part.lsn, part.number)
    if part.type == CHUNK:
        kind, level = node.data[:2]
        return _open_entries(node, kind, level=level, is_root=False)
    head = kernels.root_read(*node)
    if head.kind in STRINGS:
        return OpenedNode(len(cbor.head(2, head.count)) + head.count, [], [])
    own, children, leaves = _open_entries(node, head.kind, level=0, is_root=True)
    chunks = [NodePart(CHUNK, digest, lsn, number) for _c, digest, lsn, number in head.levels if digest is not None]
    return OpenedNode(own + len(container_head(head.kind, head.count)), children + chunks, leaves)


def _open_entries(node: Node, kind: int, *, level: int, is_root: bool) -> OpenedNode:
    table = kernels.entries_table(*node, is_root=is_root, kind=kind)
    entries = [table[at : at + STRIDE] for at in range(0, len(table), STRIDE)]
    if level:
        chunks = [
            NodePart(CHUNK, node.data[at : at + DIGEST_SIZE_BYTES], lsn, number)
            for _at, at, _end, _covered, lsn, number in entries
        ]
        return OpenedNode(0, chunks, [])
    own = entries[-1][2] - entries[0][0] if entries else 0
    if kind == kernels.KIND_KEYED:
        own -= 2 * len(entries)  # Exclude the fingerprints, which are not part of the value.
    refs = [(node.data[at : at + REF_SIZE_BYTES], lsn, number) for _at, at, _end, _c, lsn, number in entries if lsn]
    roots = [NodePart(ROOT, ref[1:], lsn, number) for ref, lsn, number in refs if ref[:1] == REF_ROOT]
    leaves = [NodePart(LEAF, ref[1:], lsn, number) for ref, lsn, number in refs if ref[:1] != REF_ROOT]
    return OpenedNode(own - REF_SIZE_BYTES * len(refs), roots, leaves)


def root_of(event: CheckpointEvent) -> NodePart:
    """Return the root of a checkpoint's state."""
    return NodePart(ROOT, event.root_digest, event.root_lsn, event.root_node)


def slots_of(event: CheckpointEvent, read: Read) -> Iterator[tuple[str, ValueSlot, int]]:
    """Yield (name, slot, LSN of the record that has the slot) of each channel."""
    tree = Tree(Workspace(read), read(*root_of(event)))
    for node, table, first, last in tree.runs(0, tree.count):
        for index in range(first, last):
            yield cbor.decode(tree.key(node, table, index)), tree.slot(node, table, index), node.lsn


def part_of(slot: ValueSlot) -> NodePart | None:
    """Return the node that a slot refers to, or None if the slot has the value itself."""
    if not slot.is_ref:
        return None
    return NodePart(ROOT if slot.data[:1] == REF_ROOT else LEAF, slot.data[1:], slot.lsn, slot.number)


def count_items(slot: ValueSlot, read: Read) -> int:
    """Return the number of items in a channel's list, dict or set; 1 for any other value."""
    part = part_of(slot)
    if part is not None:
        head = kernels.root_read(*read(*part)) if part.type == ROOT else None
        return 1 if head is None or head.kind in STRINGS else head.count
    kind = container_kind(slot.data)
    return 1 if kind < 0 else len(split(slot.data)) // (2 if kind == kernels.KIND_DICT else 1)


class StateSizer:
    """Computes the sizes of values, each as one CBOR item, from their nodes.

    A node that several states share is read once. So each further state costs only the parts that it does not share
    with earlier states. Only the sizes of leaves are read.

    Args:
        read_node: reads a node.
        view: opens a view for a short time.
    """

    def __init__(self, read_node: Read, view: Callable[[], AbstractContextManager[View]]) -> None:
        self._read_node, self._view = read_node, view
        self._sizes: dict[tuple[int, int], Counter[WritingBranch]] = {}
        self._tables: dict[int, list[int]] = {}
        self._tables_size = 0
        self._writers: dict[int, WritingBranch] = {}
        self._branches: dict[int, list[tuple[int, int]]] = {}
        self._leaves: set[tuple[int, int]] = set()
        self.visited = 0
        self.distinct: Counter[int] = Counter()
        """The measured bytes in the records of each thread. Each node counts only once."""

    def measure(self, event: CheckpointEvent) -> Counter[WritingBranch]:
        """Return the size of a checkpoint's state, broken down by the branch that wrote the records."""
        root = root_of(event)
        # Measure children first, without recursion, because a value may have any depth.
        open_parts: list[tuple[NodePart, Counter[WritingBranch], list[NodePart]] | None] = []
        pending: list[NodePart | None] = [root]
        while pending:
            part = pending.pop()
            if part is None:  # All children of the last opened part were measured.
                opened = open_parts.pop()
                assert opened is not None
                closed, sizes, children = opened
                for child in children:
                    sizes.update(self._sizes[child.lsn, child.number])
                self._sizes[closed.lsn, closed.number] = sizes
            elif (part.lsn, part.number) not in self._sizes:
                sizes, children = self._open(part)
                open_parts.append((part, sizes, children))
                pending.append(None)
                pending.extend(children)
        return self._sizes[root.lsn, root.number]

    def _open(self, part: NodePart) -> tuple[Counter[WritingBranch], list[NodePart]]:
        """Return the bytes in a node and its leaves, and the chunks and roots that remain to be measured."""
        self.visited += 1
        opened = open_part(part, self._read_node)
        sizes = self._leaf_sizes([(leaf.lsn, leaf.number) for leaf in opened.leaves])
        with self._view() as view:
            writer = self._writer(view, part.lsn)
        sizes[writer] += opened.size_bytes
        self.distinct[writer.thread] += opened.size_bytes
        return sizes, opened.children

    def channels(self, event: CheckpointEvent) -> Iterator[tuple[str, int, Counter[WritingBranch]]]:
        """Yield (name, number of items, size like `measure`) of each channel."""
        self.measure(event)
        for name, slot, lsn in slots_of(event, self._read_node):
            part = part_of(slot)
            if part is None:
                with self._view() as view:
                    sizes = Counter({self._writer(view, lsn): len(slot.data)})
            elif part.type == ROOT:
                sizes = self._sizes[slot.lsn, slot.number]
            else:
                sizes = self._leaf_sizes([(slot.lsn, slot.number)])
            yield name, count_items(slot, self._read_node), sizes

    def _leaf_sizes(self, leaves: list[tuple[int, int]]) -> Counter[WritingBranch]:
        sizes: Counter[WritingBranch] = Counter()
        self.visited += len(leaves)
        if leaves:
            with self._view() as view:
                for leaf in leaves:
                    writer, size = self._writer(view, leaf[0]), self._leaf_size(view, *leaf)
                    sizes[writer] += size
                    self.distinct[writer.thread] += 0 if leaf in self._leaves else size
                    self._leaves.add(leaf)
        return sizes

    def _leaf_size(self, view: View, lsn: int, number: int) -> int:
        sizes = self._tables.get(lsn)
        if sizes is None:
            record = view.transaction.get_log(lsn)
            if record is None:
                raise missing("record", lsn)
            if number < _TABLE_SHORT:
                found = kernels.record_node(record, number)
                if found == kernels.VACUUMED:  # A concurrent retention has removed the leaf.
                    raise removed_node(lsn, number)
                return _checked_leaf_size(found[3] if found[0] == LEAF else 0, lsn, number)
            # The LMDB binding touches every page of a record that it returns. So read all sizes of a long record at
            # once.
            if self._tables_size > _TABLES_SIZE_MAX:
                self._tables, self._tables_size = {}, 0
            nodes = kernels.record_nodes(record)
            if number >= len(nodes) or nodes[number] == kernels.VACUUMED:
                kernels.record_node(record, number)  # Raises CorruptionError if the record never had this node.
                raise removed_node(lsn, number)
            sizes = [size if type_ == LEAF else 0 for type_, _digest, _at, size, _total in nodes]
            self._tables[lsn] = sizes
            self._tables_size += len(sizes)
        return _checked_leaf_size(sizes[number] if number < len(sizes) else 0, lsn, number)

    def _writer(self, view: View, lsn: int) -> WritingBranch:
        writer = self._writers.get(lsn)
        if writer is None:
            data = view.transaction.get_log(lsn)
            if data is None:
                raise missing("record", lsn)
            thread, branch, _nodes = read_head(data, lsn)
            if thread not in self._branches:
                self._branches[thread] = [(row.lsn, row.number) for row in view.branches(thread)]
            branches = self._branches[thread]
            begun = bisect_right(branches, lsn, key=itemgetter(0))
            writer = self._writers[lsn] = WritingBranch(thread, branch, branches[begun - 1][1] if begun else 0)
        return writer


def _checked_leaf_size(size: int, lsn: int, number: int) -> int:
    if not size:
        message = f"record {lsn}: node {number} is not a leaf, although a node refers to it as one"
        raise CorruptionError(message, lsn=lsn, node=number)
    return size
