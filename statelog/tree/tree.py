"""Reads a tree by position, by key or in ranges, and copies ranges into a builder."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from statelog import kernels
from statelog.format.record import DIGEST_SIZE_BYTES
from statelog.tree.node import CHUNK, PIECE, REF_BYTE_MIN, REF_SIZE_BYTES, Node, ValueSlot, Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog.tree.builder import Builder

STRIDE = 6
"""The number of ints per entry in the result of `kernels.entries_table`: start, slot start, end, covered, LSN, node."""

LISTS = (kernels.KIND_LIST, kernels.KIND_KEYED)
"""The kinds of trees that store a Python list."""
MAPS = (kernels.KIND_DICT, kernels.KIND_SET, kernels.KIND_FROZENSET)
"""The kinds of trees whose entries are sorted by key."""
STRINGS = (kernels.KIND_STR, kernels.KIND_BYTES)
"""The kinds of trees whose value is cut into pieces, not entries."""


_new = tuple.__new__
"""Creates a named tuple without calling its `__new__` in Python."""


_FEW = 64
"""The maximum number of entries that are read by searching for each child.

To read more entries, every node on the path is parsed once.
"""


class EntryRun(NamedTuple):
    """A run of neighbouring level-0 entries of one node."""

    node: Node
    table: list[int]
    start: int
    stop: int


class Tree:
    """A root node opened for reading.

    Positions count level-0 entries (bytes in a str or bytes tree).
    """

    __slots__ = ("head", "node", "workspace")

    def __init__(self, workspace: Workspace, node: Node) -> None:
        self.workspace = workspace
        self.node = node
        self.head = kernels.root_read(*node)

    @property
    def count(self) -> int:
        """The number of entries in the tree, or of bytes in a str or bytes tree."""
        return self.head.count

    @property
    def kind(self) -> int:
        """The kind of the tree: one of `kernels.KIND_*`."""
        return self.head.kind

    def groups(self) -> Iterator[tuple[int, int, Node]]:
        """Yield (level, covered, node) from left to right: the open levels, and then the root, which has the tail."""
        level = len(self.head.levels)
        for covered, digest, lsn, number in self.head.levels:
            if digest is not None:
                self.workspace.know(digest, lsn, number)
                yield level, covered, self.workspace.read(CHUNK, digest, lsn, number)
            level -= 1
        yield 0, self.head.tail_count, self.node

    def table(self, node: Node, level: int) -> list[int]:
        """Return the entries table of a node in this tree. For the root, level 0 is the tail."""
        return kernels.entries_table(*node, is_root=node is self.node and level == 0, kind=self.head.kind)

    def child(self, node: Node, table: list[int], index: int, level: int) -> Node:
        """Return the node that the entry `index` of a chunk refers to. The chunk's `level` is at least 1."""
        _at, digest_at, _end, _covered, lsn, number = table[index * STRIDE : (index + 1) * STRIDE]
        digest = node.data[digest_at : digest_at + DIGEST_SIZE_BYTES]
        self.workspace.know(digest, lsn, number)
        type_ = PIECE if level == 1 and self.head.kind in STRINGS else CHUNK
        return self.workspace.read(type_, digest, lsn, number)

    def slot(self, node: Node, table: list[int], index: int) -> ValueSlot:
        """Return the slot of a level-0 entry. In a set, this is the element itself."""
        at, slot_at, end, _covered, lsn, number = table[index * STRIDE : (index + 1) * STRIDE]
        start = slot_at if slot_at < end else at
        return ValueSlot(node.data[start:end], lsn, number)

    def key(self, node: Node, table: list[int], index: int) -> bytes:
        """Return the key item of a level-0 entry of a dict, or the element of a set."""
        at, slot_at = table[index * STRIDE : index * STRIDE + 2]
        return node.data[at:slot_at]

    # --- by position --------------------------------------------------------

    def runs(self, start: int, stop: int) -> Iterator[EntryRun]:
        """Yield the level-0 entries [start, stop) node by node (not for str and bytes)."""
        at = 0
        level = len(self.head.levels)
        for covered, digest, lsn, number in self.head.levels:
            low, high = max(start - at, 0), min(stop - at, covered)
            if low < high and digest is not None:
                self.workspace.know(digest, lsn, number)
                yield from self.runs_below(self.workspace.read(CHUNK, digest, lsn, number), level, low, high)
            at += covered
            level -= 1
        low, high = max(start - at, 0), min(stop - at, self.head.tail_count)
        if low < high:
            yield from self.runs_below(self.node, 0, low, high)

    def slots(self, start: int, stop: int) -> list[ValueSlot]:
        """Return the slots of the level-0 entries [start, stop) (not for str and bytes)."""
        slots: list[ValueSlot] = []
        for node, table, first, last in self.runs(start, stop):
            slots += self.slots_in(node, table[first * STRIDE : last * STRIDE])
        return slots

    @staticmethod
    def slots_in(node: Node, table: list[int]) -> list[ValueSlot]:
        """Return the slots of the level-0 entries in `table`, which is a part of the node's table."""
        data, numbers = node.data, iter(table)
        return [
            _new(ValueSlot, (data[slot_at if slot_at < end else at : end], lsn, number))
            for at, slot_at, end, _covered, lsn, number in zip(*[numbers] * STRIDE, strict=True)
        ]

    def runs_below(self, node: Node, level: int, low: int, high: int) -> Iterator[EntryRun]:
        """Yield level-0 entries below a node. Positions are relative to the node."""
        if level and high - low <= _FEW:
            yield from self._few_runs_below(node, level, low, high)
            return
        table = self.table(node, level)
        if level == 0:
            yield EntryRun(node, table, low, high)
            return
        at = 0
        for index in range(len(table) // STRIDE):
            covered = table[index * STRIDE + 3]
            if at >= high:
                return
            if at + covered > low:
                child = self.child(node, table, index, level)
                yield from self.runs_below(child, level - 1, max(low - at, 0), min(high - at, covered))
            at += covered

    def _few_runs_below(self, node: Node, level: int, low: int, high: int) -> Iterator[EntryRun]:
        while low < high:
            _index, offset, digest_at, _end, lsn, number, covered = kernels.find_position(
                *node, is_root=False, kind=self.head.kind, position=low
            )
            digest = node.data[digest_at : digest_at + DIGEST_SIZE_BYTES]
            self.workspace.know(digest, lsn, number)
            child = self.workspace.read(CHUNK, digest, lsn, number)
            taken = min(covered - offset, high - low)
            yield from self.runs_below(child, level - 1, offset, offset + taken)
            low += taken

    def at(self, position: int) -> ValueSlot:
        """Return the slot at a position below `count`, reading one path."""
        level = len(self.head.levels)
        for covered, digest, lsn, number in self.head.levels:
            if position < covered and digest is not None:
                self.workspace.know(digest, lsn, number)
                return self.at_below(self.workspace.read(CHUNK, digest, lsn, number), level, position)
            position -= covered
            level -= 1
        if position < self.head.tail_count:
            return self.at_below(self.node, 0, position)
        raise IndexError(position)

    def at_below(self, node: Node, level: int, position: int) -> ValueSlot:
        """Return the slot at a position relative to a node, reading one path."""
        node, offset = self._descend(node, level, position)
        _index, _offset, slot_at, end, lsn, number, _covered = kernels.find_position(
            *node, is_root=node is self.node, kind=self.head.kind, position=offset
        )
        return ValueSlot(node.data[slot_at:end], lsn, number)

    def _descend(self, node: Node, level: int, position: int) -> tuple[Node, int]:
        while level:
            _index, position, digest_at, _end, lsn, number, _covered = kernels.find_position(
                *node, is_root=False, kind=self.head.kind, position=position
            )
            digest = node.data[digest_at : digest_at + DIGEST_SIZE_BYTES]
            node = self.workspace.read(CHUNK, digest, lsn, number)
            level -= 1
        return node, position

    # --- by key -------------------------------------------------------------

    def find(self, key_item: bytes) -> tuple[int, ValueSlot | None]:
        """Return the position and slot of a key. If the key is missing, return its insertion position and None."""
        before = 0
        kind = self.head.kind
        for level, covered, group in self.groups() if self.head.levels else ((0, 0, self.node),):
            node = group
            is_here = True
            while level:
                _index, found, digest_at, _end, lsn, number, passed = kernels.find_key(
                    *node, is_root=False, kind=kind, key_item=key_item
                )
                if not found:
                    is_here = False
                    break
                before += passed
                digest = node.data[digest_at : digest_at + DIGEST_SIZE_BYTES]
                self.workspace.know(digest, lsn, number)
                node = self.workspace.read(CHUNK, digest, lsn, number)
                level -= 1
            if not is_here:
                before += covered
                continue
            index, found, slot_at, end, lsn, number, _passed = kernels.find_key(
                *node, is_root=node is self.node, kind=kind, key_item=key_item
            )
            if found:
                return before + index, ValueSlot(node.data[slot_at:end] or key_item, lsn, number)
            return before + index, None
        return self.head.count, None

    # --- copying ------------------------------------------------------------

    def feed(self, builder: Builder, start: int, stop: int) -> None:
        """Push entries [start, stop) into a builder, as whole subtrees where the builder is aligned (T1)."""
        at = 0
        for level, covered, node in self.groups():
            low, high = max(start - at, 0), min(stop - at, covered)
            if low < high:
                self._feed(builder, node, level, low, high)
            at += covered

    def _feed(self, builder: Builder, node: Node, level: int, low: int, high: int) -> None:
        kind = self.head.kind
        if level == 0:
            if kind in STRINGS:
                begin = self.head.tail_at if node is self.node else 0
                builder.push_bytes(node.data[begin + low : begin + high])
                return
            entries, locators = kernels.entries_copy(*node, is_root=node is self.node, kind=kind, start=low, stop=high)
            builder.push(0, entries, locators, high - low)
            return
        table = self.table(node, level)
        size = len(table) // STRIDE
        at = index = 0
        while index < size and at < high:
            covered = table[index * STRIDE + 3]
            if at + covered <= low:
                at += covered
                index += 1
            elif low <= at and at + covered <= high and builder.is_aligned(level):
                first = index
                while index < size and at + table[index * STRIDE + 3] <= high:
                    at += table[index * STRIDE + 3]
                    index += 1
                entries, locators = kernels.entries_copy(*node, is_root=False, kind=kind, start=first, stop=index)
                builder.push(level, entries, locators, index - first)
            else:
                child = self.child(node, table, index, level)
                self._feed(builder, child, level - 1, max(low - at, 0), min(high - at, covered))
                at += covered
                index += 1

    def know_all(self) -> None:
        """Register every node below this root in the workspace, so that `add` reuses it. This reads all chunks."""
        if self.head.kind in STRINGS:
            for level, _covered, node in self.groups():
                self._know_pieces(node, level)
            return
        for run in self.runs(0, self.head.count):
            for index in range(run.start, run.stop):
                slot = self.slot(run.node, run.table, index)
                if len(slot.data) == REF_SIZE_BYTES and slot.data[0] >= REF_BYTE_MIN:
                    self.workspace.know(slot.data[1:], slot.lsn, slot.number)

    def _know_pieces(self, node: Node, level: int) -> None:
        if not level:
            return
        table = self.table(node, level)
        for index in range(len(table) // STRIDE):
            if level == 1:
                _at, digest_at, _end, _covered, lsn, number = table[index * STRIDE : (index + 1) * STRIDE]
                self.workspace.know(node.data[digest_at : digest_at + DIGEST_SIZE_BYTES], lsn, number)
            else:
                self._know_pieces(self.child(node, table, index, level), level - 1)
