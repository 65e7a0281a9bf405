"""Rewrites the nodes of records for a purge.

Each node keeps its record and its number, so every locator stays valid.

A node in which a secret was replaced gets a new digest, and so does each node above it. New nodes are added after the
last node of the record: values that have become too large for their parents, and the parts of a rebuilt set or long
string. The chunks of lists and dicts keep their borders, and other values stay where they are. So a purged tree may
break the rules T1 and T2. Only writers follow these rules, and no reader depends on them.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from statelog import kernels
from statelog.display.packed import CUT, mended_header, put_together
from statelog.display.short_messages import lengthen
from statelog.errors import CorruptionError, ExpiredError, SecretError
from statelog.format import cbor
from statelog.format.record import DIGEST_SIZE_BYTES, NodeRow, varint
from statelog.guard.items import packed_body, packed_item
from statelog.kernels.msgpack import split_array
from statelog.log.care.secret_scan import SETS, SecretPlace, is_cut, pieces_of
from statelog.log.nodes import NodeCache, read_node
from statelog.tree.builder import Builder, assemble_root
from statelog.tree.node import (
    CHUNK,
    LEAF,
    PIECE,
    REF_BYTE_MIN,
    REF_LEAF,
    REF_ROOT,
    REF_SIZE_BYTES,
    ROOT,
    Node,
    ValueSlot,
    Workspace,
    is_shared_widely,
    node_digest,
)
from statelog.tree.tree import STRIDE, STRINGS, Tree
from statelog.tree.value import encode_slot, fingerprint, read_item, split, string_body, tree_item

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from statelog.guard.search import Purger
    from statelog.log.care.secret_scan import Home
    from statelog.log.transaction import Log

    Path = tuple[str, ...]
    Spine = list[tuple[int, bytes | None, int, int]]
    """The open levels of a root, as `assemble_root` takes them."""
    Row = tuple[int, bytes, int, int, int]

_NULL = b"\xf6"
_UNREADABLE = (ExpiredError, CorruptionError)
"""The errors of reading an unused tree, of which retention may have removed some nodes."""
_CACHE_SIZE_BYTES = 16 * 1024 * 1024
_ANY_PATH = ("langgraph:",)
"""A path that no field has. Only texts that are secrets everywhere are replaced under this path."""
_GONE = NodeRow(0, b"", b"", 0)


class Renewed(NamedTuple):
    """The new type and digest of a node that has changed."""

    type: int
    digest: bytes


class NodeRewriter:
    """Rewrites nodes, record by record, in the order of the log.

    Args:
        old: reads the old log.
        new: reads the rewritten records.
        purger: removes the secrets.
        edits: the places of the secrets in a node, keyed by the LSN and the digest of the node. Equal nodes of two
            records may differ in their secrets: a number may be a secret in one entry of the board but not in another.
        paths: the paths of the secrets in a node, keyed by the digest alone.
        blanks: the digests of pieces and chunks that are replaced by a leaf `null`. Their strings and sets are rebuilt,
            so nothing refers to the old parts. If the parts stayed, they would refer to nodes that retention may
            remove.
    """

    def __init__(
        self,
        old: Log,
        new: Log,
        purger: Purger,
        edits: Mapping[Home, Iterable[SecretPlace]],
        paths: Mapping[bytes, Iterable[Path]],
        blanks: set[bytes],
    ) -> None:
        self._purger = purger
        self._edits = edits
        self._blanks = blanks
        self._paths = paths
        self.renewed: dict[Home, Renewed] = {}
        """The new types and digests of changed nodes, keyed by their LSNs and previous digests."""
        self.renewed_digests: dict[bytes, Renewed] = {}
        """The new types and digests of changed nodes, keyed by their previous digests."""
        self._large: dict[bytes, bytes] = {}
        """The new digests of changed nodes whose digests are in the index, keyed by their previous digests."""
        self.has_renewed_large = False
        """Whether any node whose digest is in the index has changed. Any thread may have borrowed such a node."""
        self.is_reshaped = False
        """Whether the number of digests in the index changes."""
        self.redactions = 0
        """The number of places in which a secret was replaced."""
        self._old_workspace = Workspace(partial(read_node, old, NodeCache(_CACHE_SIZE_BYTES)))
        self._read_new = partial(read_node, new, NodeCache(_CACHE_SIZE_BYTES))
        self._headers: dict[bytes, bytes] = {}
        """The new headers of values that were cut into the items of a list, keyed by their previous headers."""
        self._added: dict[int, dict[bytes, tuple[int, int]]] = {}
        """The record and the number of each added node, keyed by owner and digest."""
        # The following attributes describe the record being rewritten, and its nodes by number.
        self._lsn = 0
        self._owner = 0
        self._data = b""
        self._rows: Mapping[int, Row] = {}
        self._done: set[int] = set()
        self._count = 0
        self._workspace = Workspace(self._read_new)
        self._is_changed = False

    def rewrite(self, lsn: int, owner: int, data: bytes, rows: Mapping[int, Row]) -> dict[int, NodeRow] | None:
        """Return the nodes of a record, keyed by number, or None if no node has changed."""
        self._lsn, self._owner, self._data, self._rows = lsn, owner, data, rows
        self._done = set()
        self._count = max(rows, default=-1) + 1
        self._workspace = Workspace(self._read_new)
        self._workspace.rows = [_GONE] * self._count
        self._is_changed = False
        if CUT in self._data:
            self._mend_headers()
        for number in self._rows:
            self._place(number)
        if not self._is_changed:
            return None
        made = self._workspace.rows
        if any(is_shared_widely(row.type, row.content_size, row.data[0]) for row in made[self._count :]):
            self.is_reshaped = True
        if self._owner:
            added = self._added.setdefault(self._owner, {})
            for number in range(self._count, len(made)):
                added[made[number].digest] = (self._lsn, number)
        return {number: row for number, row in enumerate(made) if row is not _GONE}

    def _place(self, number: int) -> None:
        """Add the rewritten node `number` to the rows of the new record, after its children."""
        if number in self._done or number not in self._rows:
            return
        self._done.add(number)
        type_, digest, at, content_size, total_size = self._rows[number]
        node = Node(self._data[at : at + total_size], content_size, self._lsn)
        row = self._made(type_, digest, node)
        was_large = is_shared_widely(type_, content_size, node.data[0])
        if was_large:
            new = digest if row is None else row.digest
            if self._large.setdefault(digest, new) != new:
                self.is_reshaped = True  # Two equal nodes, which shared one digest in the index, now differ.
        if row is None:
            self._workspace.rows[number] = NodeRow(type_, digest, node.data, content_size)
            return
        self._is_changed = True
        self._workspace.rows[number] = row
        self.has_renewed_large = self.has_renewed_large or was_large
        if was_large != is_shared_widely(row.type, row.content_size, row.data[0]):
            self.is_reshaped = True
        self.renewed[self._lsn, digest] = self.renewed_digests[digest] = Renewed(row.type, row.digest)

    def _child(self, digest: bytes, lsn: int, number: int) -> Renewed | None:
        """Return the new type and digest of the node that a ref leads to, or None if the node has not changed."""
        if not lsn:
            self._place(number)
        return self.renewed.get((lsn or self._lsn, digest))

    def _made(self, type_: int, digest: bytes, node: Node) -> NodeRow | None:
        """Return the rewritten node, or None if the node does not change."""
        edits = self._edits_of(self._lsn, digest)
        if digest in self._blanks:
            return _row(LEAF, _NULL)
        if type_ == PIECE:
            return None
        if type_ == LEAF:
            if not edits and not is_cut(node.content):
                return None
            made = self._redacted(node.content, {edit.path for edit in edits})
            if made == node.content:
                return None
            self.redactions += 1
            return _row(LEAF, made)
        kind = node.data[0]
        if kind in STRINGS and type_ == ROOT:
            return self._string(node, {edit.path for edit in edits})
        if kind in SETS:
            return self._set(type_, node, {edit.path for edit in edits})
        return self._tree(type_, node, edits)

    def _edits_of(self, lsn: int, digest: bytes) -> Iterable[SecretPlace]:
        """Return the places of the secrets in a node, including those found in equal nodes."""
        if digest not in self._paths:
            return ()
        home = lsn, digest
        return {SecretPlace(home, _ANY_PATH, None), *self._edits.get(home, ())}

    def _redacted(self, item: bytes, paths: Iterable[Path]) -> bytes:
        if is_cut(item):
            return self._headers.get(item, item)
        for path in (_ANY_PATH, *paths):
            item = self._purger.redacted(item, path)
        return item

    # --- lists, dicts, and all chunks ---------------------------------------------------------

    def _tree(self, type_: int, node: Node, edits: Iterable[SecretPlace]) -> NodeRow | None:
        kind = node.data[0]
        level = node.data[1] if type_ == CHUNK else 0
        spine, is_changed = self._spine(type_, node)
        table = kernels.entries_table(node.data, node.content_size, 0, is_root=type_ == ROOT, kind=kind)
        if not edits and not self._headers and kind != kernels.KIND_KEYED:
            return self._with_new_digests(type_, node, table, spine, level)
        parts: list[bytes] = []
        locators: list[bytes] = []
        for index in range(0, len(table), STRIDE):
            numbers = table[index : index + STRIDE]
            entry, locator = self._upper(node, numbers, level) if level else self._entry(node, numbers, edits)
            is_changed = is_changed or entry != node.data[numbers[0] : numbers[2]]
            parts.append(entry)
            locators.append(locator)
        if not is_changed:
            return None
        count = len(table) // STRIDE
        entries, behind = b"".join(parts), b"".join(locators)
        if type_ == CHUNK:
            content = bytes((kind, level)) + varint(count) + entries
            return _row(CHUNK, content, behind)
        head = kernels.root_read(node.data, node.content_size, 0)
        return _row_of(assemble_root(kind, head.key, spine, (count, entries, behind)))

    def _with_new_digests(self, type_: int, node: Node, table: list[int], spine: Spine, level: int) -> NodeRow | None:
        """Return a node with the new digests of its children, or None if no child has changed.

        The node's size stays the same.
        """
        data = node.data
        changed: list[tuple[int, bytes]] = []
        for (_covered, digest, _lsn, _number), (_same, made, _at, _node) in zip(
            kernels.root_read(data, node.content_size, 0).levels if type_ == ROOT else (), spine, strict=True
        ):
            if digest is not None and made is not None and digest != made:
                changed.append((data.index(digest), made))
        for index in range(0, len(table), STRIDE):
            _at, slot_at, end, _covered, lsn, number = table[index : index + STRIDE]
            if level:
                renewed = self._child(data[slot_at : slot_at + DIGEST_SIZE_BYTES], lsn, number)
                if renewed is not None:
                    changed.append((slot_at, renewed.digest))
            elif end - slot_at == REF_SIZE_BYTES and data[slot_at] >= REF_BYTE_MIN:
                renewed = self._child(data[slot_at + 1 : end], lsn, number)
                if renewed is not None:
                    changed.append((slot_at, (REF_LEAF if renewed.type == LEAF else REF_ROOT) + renewed.digest))
        if not changed:
            return None
        patched = bytearray(data)
        for at, new in changed:
            patched[at : at + len(new)] = new
        content = bytes(patched[: node.content_size])
        return _row(type_, content, data[node.content_size :])

    def _empty(self, node: Node) -> NodeRow:
        """Return an empty root of the same kind, to replace an unused tree that cannot be read."""
        return _row_of(Builder(self._workspace, node.data[0]).finish())

    def _spine(self, type_: int, node: Node) -> tuple[Spine, bool]:
        """Return the open levels of a root, and whether a level has changed."""
        if type_ != ROOT:
            return [], False
        spine = []
        is_changed = False
        for covered, digest, lsn, number in kernels.root_read(node.data, node.content_size, 0).levels:
            made = None if digest is None else self._child(digest, lsn, number)
            is_changed = is_changed or made is not None
            spine.append((covered, digest if made is None else made.digest, lsn, number))
        return spine, is_changed

    def _upper(self, node: Node, numbers: list[int], level: int) -> tuple[bytes, bytes]:
        """Return an entry of a level above 0, and its locator."""
        at, digest_at, end, _covered, lsn, number = numbers
        digest_end = digest_at + DIGEST_SIZE_BYTES
        made = self._child(node.data[digest_at:digest_end], lsn, number)
        entry = node.data[at:end]
        if made is not None:
            entry = node.data[at:digest_at] + made.digest + node.data[digest_end:end]
            if node.data[0] == kernels.KIND_KEYED and level == 1:  # The fingerprints of identities may have changed.
                child = self._workspace.read(CHUNK, made.digest, lsn, number)
                entry = kernels.chunk_summary(child.data, child.content_size, kernels.KIND_KEYED, made.digest)
        return entry, varint(lsn) + varint(number)

    def _entry(self, node: Node, numbers: list[int], edits: Iterable[SecretPlace]) -> tuple[bytes, bytes]:
        """Return an entry of level 0, and its locator, which is empty if the value is inline."""
        at, slot_at, end, _covered, lsn, number = numbers
        before, old = node.data[at:slot_at], ValueSlot(node.data[slot_at:end], lsn, number)
        slot = old
        if old.is_ref:
            made = self._child(old.data[1:], lsn, number)
            if made is not None:
                slot = old._replace(data=(REF_LEAF if made.type == LEAF else REF_ROOT) + made.digest)
        elif edits or is_cut(old.data):
            is_dict = node.data[0] == kernels.KIND_DICT
            key = cbor.decode(before) if is_dict else None
            paths = {edit.path for edit in edits if edit.key is None or edit.key == key}
            item = self._redacted(old.data, paths)
            if item != old.data:
                self.redactions += 1
                slot = encode_slot(self._workspace, item, top=is_dict and any(len(path) == 1 for path in paths))
        if slot is not old and node.data[0] == kernels.KIND_KEYED:
            before = self._fingerprint(before, old, slot)
        return before + slot.data, slot.locators

    def _fingerprint(self, before: bytes, old: ValueSlot, new: ValueSlot) -> bytes:
        """Return the fingerprint of a changed item's identity.

        Only the root of the list names the identity's key, so this method finds the key by the previous fingerprint.
        """
        old = old._replace(lsn=old.lsn or (self._lsn if old.is_ref else 0))
        former, item = read_item(self._old_workspace, old), read_item(self._workspace, new)
        pairs = zip(split(former), split(item), strict=True)
        for former_key, key in pairs:
            former_value, value = next(pairs)
            if former_key == key and fingerprint(former_value).to_bytes(2) == before:
                return fingerprint(value).to_bytes(2)
        return before

    # --- values that were cut into the items of a list ------------------------------------------

    def _mend_headers(self) -> None:
        """Update the headers of values that were cut into items, because a header contains the sizes of its items."""
        for type_, _digest, at, content_size, total_size in self._rows.values():
            if type_ != ROOT or self._data[at] != kernels.KIND_LIST:
                continue
            tree = Tree(self._old_workspace, Node(self._data[at : at + total_size], content_size, self._lsn))
            with suppress(*_UNREADABLE):
                if tree.count and is_cut(header := read_item(tree.workspace, tree.at(0))):
                    self._mend(header, split(tree_item(tree))[1:])

    def _mend(self, header: bytes, items: list[bytes]) -> None:
        bodies = [lengthen(packed_body(item) or b"", split_array) for item in items]
        made = [lengthen(packed_body(self._redacted(item, self._paths_of(item))) or b"", split_array) for item in items]
        first = packed_body(header) or b""
        whole = self._redacted(packed_item(put_together(first + b"".join(bodies))), ())
        mended = packed_item(mended_header(first, bodies, made, packed_body(whole) or b""))
        known = self._headers.setdefault(header, mended)
        if known != mended:
            message = "it cannot be cut out"
            raise SecretError(message, path="a value that is stored as the items of a list", lsn=self._lsn)

    def _paths_of(self, item: bytes) -> Iterable[Path]:
        return self._paths.get(node_digest(LEAF, item), ())

    # --- sets and long strings, which are rebuilt -----------------------------------------------

    def _set(self, type_: int, node: Node, paths: Iterable[Path]) -> NodeRow | None:
        """Return a rebuilt set, or None if no element has changed. Its previous chunks are in `blanks`."""
        if type_ == CHUNK or not (paths or self._spine(ROOT, node)[1]):
            return None
        tree = Tree(self._old_workspace, node)
        try:
            slots = tree.slots(0, tree.count)
            paths = self._paths_in(tree, paths)
        except _UNREADABLE:
            return self._empty(node)
        elements = sorted({self._redacted(slot.data, paths) for slot in slots})
        self.redactions += 1
        self._know_added()
        builder = Builder(self._workspace, node.data[0])
        builder.push(0, b"".join(elements), b"", len(elements))
        return _row_of(builder.finish())

    def _paths_in(self, tree: Tree, paths: Iterable[Path]) -> set[Path]:
        """Return the paths of the secrets in the root and in the chunks of a set."""
        found = set(paths)
        for run in tree.runs(0, tree.count):
            edits = self._edits_of(run.node.lsn or self._lsn, node_digest(CHUNK, run.node.content))
            found |= {edit.path for edit in edits}
        return found

    def _string(self, node: Node, paths: Iterable[Path]) -> NodeRow | None:
        """Return a rebuilt long string, or None if neither its text nor a node below it has changed."""
        if not paths and not self._spine(ROOT, node)[1]:
            return None
        tree = Tree(self._old_workspace, node)
        try:
            pieces = [*pieces_of(tree)]
            item = tree_item(tree)
        except _UNREADABLE:
            return self._empty(node)
        made = self._redacted(item, paths)
        self.redactions += made != item
        self._know_added()
        for piece in pieces:
            if piece.digest not in self._blanks:
                self._workspace.know(piece.digest, 0 if piece.lsn == self._lsn else piece.lsn, piece.number)
        builder = Builder(self._workspace, node.data[0])
        builder.push_bytes(bytes(string_body(made)))
        return _row_of(builder.finish())

    def _know_added(self) -> None:
        """Register the nodes added to this owner's earlier records, so that the workspace reuses them."""
        for digest, place in self._added.get(self._owner, {}).items():
            self._workspace.know(digest, *place)


def _row(type_: int, content: bytes, locators: bytes = b"") -> NodeRow:
    return NodeRow(type_, node_digest(type_, content), content + locators, len(content))


def _row_of(node: Node) -> NodeRow:
    return NodeRow(ROOT, node_digest(ROOT, node.content), node.data, node.content_size)
