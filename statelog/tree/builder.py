"""Builds a tree from a stream of entries and whole subtrees. FORMAT.md 4.2 to 4.5.

Invariant T1: whether a chunk closes depends only on its own entries. A closed chunk can therefore be reused wherever
all levels below it are at a boundary. So an edited tree equals a tree built from scratch, and an edit rewrites only one
path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog import kernels
from statelog.format.record import varint
from statelog.tree.node import CHUNK, PIECE, ROOT, Node, Workspace

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Open:
    """The entries of one level that are not yet in a closed chunk."""

    __slots__ = ("count", "entries", "locators")

    def __init__(self) -> None:
        self.entries = b""
        self.locators = b""
        self.count = 0


class Builder:
    """Builds one tree from entries that are pushed in order."""

    def __init__(self, workspace: Workspace, kind: int, key: bytes = b"") -> None:
        self._workspace = workspace
        self.kind = kind
        self.key = key
        self._levels = [_Open()]

    def is_aligned(self, level: int) -> bool:
        """Return True if all levels below `level` are at a boundary, so that `level` can take an entry."""
        return all(not opened.count for opened in self._levels[:level])

    def push(self, level: int, entries: bytes, locators: bytes, count: int) -> None:
        """Append `count` entries of `level`. Locators with LSN 0 refer to the record being built."""
        if not count:
            return
        while len(self._levels) <= level:
            self._levels.append(_Open())
        opened = self._levels[level]
        entries = opened.entries + entries
        locators = opened.locators + locators
        count += opened.count
        cuts = kernels.boundaries(self.kind, level, entries, locators, count)
        done = at = locators_at = 0
        above: list[bytes] = []
        above_locators: list[bytes] = []
        for index in range(0, len(cuts), 3):
            entry_end, byte_end, locator_end = cuts[index : index + 3]
            content = bytes((self.kind, level)) + varint(entry_end - done) + entries[at:byte_end]
            entry, locator = self._close(CHUNK, content, locators[locators_at:locator_end])
            above.append(entry)
            above_locators.append(locator)
            done, at, locators_at = entry_end, byte_end, locator_end
        opened.entries = entries[at:]
        opened.locators = locators[locators_at:]
        opened.count = count - done
        self.push(level + 1, b"".join(above), b"".join(above_locators), len(above))

    def push_bytes(self, data: bytes) -> None:
        """Append bytes to a str or bytes tree."""
        opened = self._levels[0]
        data = opened.entries + data
        at = 0
        above: list[bytes] = []
        above_locators: list[bytes] = []
        for end in kernels.blob_cuts(data):
            digest, lsn, number = self._workspace.add(PIECE, data[at:end], end - at)
            above.append(varint(end - at) + digest)
            above_locators.append(varint(lsn) + varint(number))
            at = end
        opened.entries = data[at:]
        opened.count = len(data) - at
        self.push(1, b"".join(above), b"".join(above_locators), len(above))

    def _close(self, type_: int, content: bytes, locators: bytes) -> tuple[bytes, bytes]:
        data = content + locators
        digest, lsn, number = self._workspace.add(type_, data, len(content))
        entry = kernels.chunk_summary(data, len(content), self.kind, digest)
        return entry, varint(lsn) + varint(number)

    def finish(self) -> Node:
        """Return the root. It is not added to the workspace, because a small value is stored inline."""
        spine: list[tuple[int, bytes | None, int, int]] = []
        for level in range(len(self._levels) - 1, 0, -1):
            opened = self._levels[level]
            if opened.count:
                content = bytes((self.kind, level)) + varint(opened.count) + opened.entries
                spine.append(add_open_level(self._workspace, self.kind, content, opened.locators))
            else:
                spine.append((0, None, 0, 0))
        tail = self._levels[0]
        return assemble_root(self.kind, self.key, spine, (tail.count, tail.entries, tail.locators))


def add_open_level(workspace: Workspace, kind: int, content: bytes, locators: bytes) -> tuple[int, bytes, int, int]:
    """Add the node of an open level. Return its (covered, digest, LSN, number)."""
    data = content + locators
    table = kernels.entries_table(data, len(content), 0, is_root=False, kind=kind)
    return sum(table[3::6]), *workspace.add(CHUNK, data, len(content))


def assemble_root(
    kind: int,
    key: bytes,
    spine: Sequence[tuple[int, bytes | None, int, int]],
    tail: tuple[int, bytes, bytes],
) -> Node:
    """Return a root node.

    Args:
        kind: the kind of the tree.
        key: the key of a keyed list, or empty.
        spine: the (covered, digest, LSN, number) of each open level, the highest level first.
        tail: the (count, entries, locators) of the tail.
    """
    tail_count, entries, tail_locators = tail
    parts = [bytes((kind,))]
    if key:
        parts += [varint(len(key)), key]
    parts += [varint(tail_count + sum(level[0] for level in spine)), varint(len(spine))]
    locators = []
    for covered, digest, lsn, number in spine:
        parts.append(varint(covered))
        if digest is not None:
            parts.append(digest)
            locators.append(varint(lsn) + varint(number))
    parts += [varint(tail_count), entries]
    content = b"".join(parts)
    return Node(content + b"".join(locators) + tail_locators, len(content), 0)


def root_row(workspace: Workspace, node: Node) -> tuple[bytes, int, int]:
    """Add a finished root to the workspace. Return its digest, LSN and number."""
    return workspace.add(ROOT, node.data, node.content_size)
