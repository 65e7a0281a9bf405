"""Walks over the pages of one snapshot of a store's file, without LMDB.

LMDB does not check its pages, and neither records nor seals cover the structure of the pages. Even if every value is
valid, two trees may lead to one page, or a page may be both in use and listed as free. Readers do not notice such
damage, but the next commits would overwrite live pages. So the walk checks every page of a snapshot:

E2. A page contains its own number, its nodes fill it, and its keys ascend within the bounds that its parent sets. All
    leaves of a tree are equally deep. A long value has at least as many pages as it needs.
E3. Every page from the third to the last occurs exactly once, either in a tree or on the free list.
E4. The entry count, the page counts of each kind and the depth of a tree match the tree's record. Only the record of
    the free list has flags and the page size.

While a read transaction is open, LMDB does not reuse the pages of its snapshot. So the walk needs only an open read
transaction and its meta page.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from statelog.errors import StatelogError
from statelog.kernels import NODE_LONG, NODE_TABLE, PAGE_BRANCH, PageReader
from statelog.storage.file.preopen_checks import (
    INTEGER_KEY_FLAG,
    NO_PAGE,
    DatabaseRecord,
    Meta,
    check_file,
    decode_database,
    read_meta_of,
)
from statelog.storage.mapped_pages import MAPPED_AROUND_BYTES, RELEASE_SIZE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog.kernels import PageNode
    from statelog.storage.lmdb_file import LmdbFile
    from statelog.storage.read_transaction import ReadTransaction

_HEADER_SIZE_BYTES = 16
_LONG_FLAG = 0x04
_META_PAGES = 2
_DEPTH_MAX = 32
_NUMBER = struct.Struct("=Q")
_HEADER = struct.Struct("=QHHI")
FREE_LIST, MAIN = "free list", "main"
"""The names of the two trees in the meta page. The other trees are tables, named by their keys in the main tree."""


class PageProblem(NamedTuple):
    """A violated invariant: the invariant's number, the tree (or an empty string), the page, and a message."""

    invariant: str
    tree: str
    page: int
    message: str

    @property
    def is_in_the_way(self) -> bool:
        """Whether LMDB may abort the process when it reads the snapshot. Reading does not use the free list."""
        return self.invariant in ("E2", "E3") and self.tree not in ("", FREE_LIST)


class TreePage(NamedTuple):
    """A branch or leaf page that a walk yields."""

    tree: str
    number: int
    is_branch: bool
    nodes: list[PageNode]


class LongValue(NamedTuple):
    """The pages of a long value: the first page, their number, and the value's size."""

    tree: str
    number: int
    pages: int
    size_bytes: int


@dataclass(slots=True)
class _TreeCounts:
    """The depth, pages and entries that a walk has found in one tree."""

    depth: int = 0
    branch_pages: int = 0
    leaf_pages: int = 0
    overflow_pages: int = 0
    entries: int = 0
    is_whole: bool = True


class PageWalk:
    """One walk over all trees of a snapshot. It collects problems, and skips damaged pages.

    Args:
        file: the bytes of the whole file.
        meta: the snapshot's meta page.
        lists_all: also yield leaf pages, with all their nodes. Otherwise only branch pages and long values are yielded.
    """

    def __init__(self, file: mmap.mmap | bytes, meta: Meta, *, lists_all: bool = False) -> None:
        self.problems: list[PageProblem] = []
        self.trees: dict[str, DatabaseRecord] = {FREE_LIST: meta.free, MAIN: meta.main}
        self._meta = meta
        self._lists_all = lists_all
        self._size = meta.page_size_bytes
        self._map = file
        self._pages_present = len(self._map) // self._size
        self._view = memoryview(file)
        self._reader = PageReader(self._view, self._size)
        self._seen = bytearray(meta.last_page + 1)
        self._seen[:_META_PAGES] = b"\1" * _META_PAGES
        self._read_bytes = 0

    def close(self) -> None:
        """Release the file."""
        self._reader.close()
        self._view.release()

    def run(self) -> Iterator[TreePage | LongValue]:
        """Walk over every tree, and yield its pages. At the end, check that every page was visited exactly once."""
        yield from self._walk_tree(MAIN)
        for tree in list(self.trees)[2:]:
            yield from self._walk_tree(tree)
        yield from self._walk_tree(FREE_LIST)
        if not self.problems:
            lost = self._seen.find(0)
            if lost >= 0:
                self._add("E3", "", lost, f"neither in a tree nor free, like {self._seen.count(0) - 1} more pages")

    def data(self, page: int, at: int, size_bytes: int) -> bytes:
        """Return bytes of a page, or of consecutive pages."""
        start = page * self._size + at
        return self._map[start : start + size_bytes]

    def _add(self, invariant: str, tree: str, page: int, message: str) -> None:
        what = f"{tree}: {message}" if tree else message
        self.problems.append(PageProblem(invariant, tree, page, f"page {page}: {what}"))

    def _take(self, tree: str, number: int, count: int) -> bool:
        """Mark pages as visited. If they do not exist or were visited before, add a problem and return False."""
        if not _META_PAGES <= number <= self._meta.last_page or count > self._meta.last_page + 1 - number:
            self._add("E3", tree, number, f"not one of the {self._meta.last_page + 1} pages of the file")
            return False
        if self._seen.find(1, number, number + count) >= 0:
            self._add("E3", tree, number, "already in use or free")
            return False
        self._seen[number : number + count] = b"\1" * count
        return True

    def _note_read(self) -> None:
        """Count a read page, and sometimes release the mapped pages. Touching a page also maps its neighbours."""
        self._read_bytes += MAPPED_AROUND_BYTES
        if self._read_bytes >= RELEASE_SIZE_BYTES and isinstance(self._map, mmap.mmap):
            self._read_bytes = 0
            self._map.madvise(mmap.MADV_DONTNEED)

    def _walk_tree(self, tree: str) -> Iterator[TreePage | LongValue]:
        record = self.trees[tree]
        found = _TreeCounts()
        todo: list[tuple[int, int, bytes | None, bytes | None]] = []
        if record.root != NO_PAGE:
            todo.append((record.root, 1, None, None))
        has_integer_keys = bool(record.flags & INTEGER_KEY_FLAG)
        reads_values = tree == FREE_LIST
        read = self._reader.read
        lists_all = self._lists_all or reads_values
        while todo:
            number, depth, low, high = todo.pop()
            if not self._take(tree, number, 1) or not self._is_present(tree, number):
                found.is_whole = False
                continue
            facts = read(number, low=low, high=high, has_integer_keys=has_integer_keys, lists_all=lists_all)
            fault = facts.fault if facts.number == number else f"it has the page number {facts.number}"
            if not fault and facts.kind == PAGE_BRANCH and (depth >= _DEPTH_MAX or facts.node_count < 2 - reads_values):
                fault = "a branch with too few children"
            if fault:
                self._add("E2", tree, number, fault)
                found.is_whole = False
                continue
            self._note_read()
            if facts.kind == PAGE_BRANCH:
                found.branch_pages += 1
                todo.extend(self._children(number, facts.nodes, depth, low, high))
                yield TreePage(tree, number, True, facts.nodes)
                continue
            if found.depth not in (0, depth):
                self._add("E2", tree, number, f"a leaf at depth {depth}, but other leaves at {found.depth}")
            found.depth = depth
            found.leaf_pages += 1
            found.entries += facts.node_count
            if self._lists_all:
                yield TreePage(tree, number, False, facts.nodes)
            if facts.nodes:
                yield from self._look_into(tree, number, facts.nodes, found)
        self._compare(tree, record, found)

    def _is_present(self, tree: str, number: int) -> bool:
        if number >= self._pages_present:
            self._add("E3", tree, number, "beyond the end of the file")
            return False
        return True

    def _children(
        self, number: int, nodes: list[PageNode], depth: int, low: bytes | None, high: bytes | None
    ) -> Iterator[tuple[int, int, bytes | None, bytes | None]]:
        """Yield the page, depth and key bounds of each child. The last child comes first, for the stack of the walk."""
        for index in range(len(nodes) - 1, -1, -1):
            node = nodes[index]
            least = self.data(number, node.key_at, node.key_size) if index else low
            yield node.value, depth + 1, least, high
            high = least

    def _look_into(self, tree: str, number: int, nodes: list[PageNode], found: _TreeCounts) -> Iterator[LongValue]:
        """Follow the nodes of a leaf to tables, long values and free pages."""
        for node in nodes:
            if node.flags == NODE_TABLE:
                self._note_table(tree, number, node)
            elif node.flags == NODE_LONG:
                value = self._take_long_value(tree, number, node)
                if value is None:
                    found.is_whole = False
                    continue
                found.overflow_pages += value.pages
                yield value
                if tree == FREE_LIST:
                    self._note_free(number, self.data(value.number, _HEADER_SIZE_BYTES, node.value))
            elif tree == FREE_LIST:
                self._note_free(number, self.data(number, node.data_at, node.value))

    def _note_table(self, tree: str, number: int, node: PageNode) -> None:
        name = self.data(number, node.key_at, node.key_size).decode(errors="replace")
        if tree != MAIN or name in self.trees:
            self._add("E2", tree, number, "the record of a table in a tree that cannot have tables")
            return
        self.trees[name] = decode_database(self.data(number, node.data_at, node.value))

    def _take_long_value(self, tree: str, leaf: int, node: PageNode) -> LongValue | None:
        (number,) = _NUMBER.unpack_from(self._map, leaf * self._size + node.data_at)
        if not _META_PAGES <= number < self._pages_present:
            self._add("E3", tree, leaf, f"a long value on page {number}, which does not exist")
            return None
        own, _padding, flags, pages = _HEADER.unpack_from(self._map, number * self._size)
        self._note_read()
        needed = (_HEADER_SIZE_BYTES - 1 + node.value) // self._size + 1
        if own != number or flags != _LONG_FLAG or pages < needed:
            self._add("E2", tree, number, f"not a long value of {needed} pages")
            return None
        if not self._take(tree, number, pages) or not self._is_present(tree, number + needed - 1):
            return None
        return LongValue(tree, number, pages, node.value)

    def _note_free(self, leaf: int, data: bytes) -> None:
        """Mark the pages that one commit has freed. `data` has a count, then the page numbers, descending."""
        count = _NUMBER.unpack_from(data)[0] if len(data) >= _NUMBER.size else -1
        if len(data) % _NUMBER.size or not 0 <= count < len(data) // _NUMBER.size:
            self._add("E3", FREE_LIST, leaf, f"a list of {count} free pages cannot have {len(data)} bytes")
            return
        before = self._meta.last_page + 1
        for number in struct.unpack_from(f"={count}Q", data, _NUMBER.size):
            if number >= before:
                self._add("E3", FREE_LIST, leaf, f"its free pages are out of order: {number} follows {before}")
                return
            if not self._take(FREE_LIST, number, 1):
                return
            before = number

    def _compare(self, tree: str, record: DatabaseRecord, found: _TreeCounts) -> None:
        if not found.is_whole:
            return
        is_named = tree not in (FREE_LIST, MAIN)
        pairs = (
            ("flags", record.flags if is_named else 0, 0),
            ("bytes a page", 0 if tree == FREE_LIST else record.page_size_bytes, 0),
            ("depth", record.depth, found.depth),
            ("branch pages", record.branch_pages, found.branch_pages),
            ("leaf pages", record.leaf_pages, found.leaf_pages),
            ("pages of long values", record.overflow_pages, found.overflow_pages),
            ("entries", record.entries, found.entries),
        )
        for what, said, there in pairs:
            if said != there:
                page = 0 if record.root == NO_PAGE else record.root
                self._add("E4", tree, page, f"{what}: {said}, not {there}")


def check_pages(file: LmdbFile, transaction: ReadTransaction) -> list[PageProblem] | None:
    """Check every page of the snapshot of a read transaction.

    Returns:
        The violations of E1 to E4, or None if later commits have overwritten the meta page of the snapshot.
    """
    descriptor, path = transaction.handles.descriptor, file.path
    try:
        meta = read_meta_of(descriptor, path, transaction.id)
        check_file(descriptor, path)
    except StatelogError as error:
        return [PageProblem("E1", "", 0, error.message)]
    if meta is None:
        return None
    with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as mapped:
        walk = PageWalk(mapped, meta)
        try:
            for _ in walk.run():
                pass
        finally:
            walk.close()
        return walk.problems
