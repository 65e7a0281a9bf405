"""Scans the nodes and bodies of a log's records for secrets.

The bytes of a record are scanned as a whole. Only a record that may hold a secret is decoded. Its nodes are walked from
its roots, because the names on the path can make a value a secret. The walk skips nodes of earlier records, which were
scanned with those records. A long string is cut into pieces, so a new piece is scanned together with its neighbours.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from statelog import kernels
from statelog.display.packed import CUT
from statelog.errors import CorruptionError, ExpiredError
from statelog.format import cbor, keys
from statelog.format.fields import split_array
from statelog.format.record import DIGEST_SIZE_BYTES, FLAG_REDACTED, TYPE_AT, TYPE_ENTRY, decode_record
from statelog.guard.items import packed_body
from statelog.log.events import CheckpointEvent
from statelog.log.kinds.entries import EntryEvent
from statelog.log.kinds.table import decode_event, kind_of, owner_of
from statelog.log.nodes import NodeCache, read_node
from statelog.tree.node import CHUNK, LEAF, PIECE, REF_LEAF, ROOT, Node, ValueSlot, Workspace
from statelog.tree.tree import LISTS, STRIDE, STRINGS, Tree
from statelog.tree.value import tree_item

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from statelog.format.record import Record
    from statelog.log.transaction import IndexedLog
    from statelog.storage.mapped_pages import MappedPages
    from statelog.storage.read_transaction import ReadTransaction

    Path = tuple[str, ...]
    Home = tuple[int, bytes]
    """The LSN and the digest of a node."""
    Rows = dict[int, tuple[int, bytes, int, int, int]]
    """The nodes of a record, as `kernels.record_rows` returns them."""

REMOVED = "(removed)"
"""The path of secrets in nodes that no event refers to, such as the nodes of an expired version."""

IN_ERROR = "(error)"
"""The last part of the path of a secret in a claim's error."""

_NAMES = {
    "thread_id": "(id)",
    "id": "(id)",
    "name": "(name)",
    "key": "(key)",
    "agent": "(agent)",
    "specs": "(channel)",
    "written": "(channel)",
    "pattern": "(pattern)",
}
"""The fields of events that hold names, and the paths of secrets in these fields."""

_VALUE = "value"
"""The key of the value in the root of a board entry."""

_PAIR = 2
_OS_THREADS = 2
_BATCH_SIZE_BYTES = 512 * 1024
_CACHE_SIZE_BYTES = 8 * 1024 * 1024


SETS = (kernels.KIND_SET, kernels.KIND_FROZENSET)


class Looker(Protocol):
    """Decides which parts of a record are secrets. See `guard.search`."""

    def may_hold(self, data: bytes, /) -> bool:
        """Return False if bytes certainly hold no secret."""

    def may_be_stored_in(self, record: bytes, /, *, any_name: bool) -> bool:
        """Return False if a record certainly has no secret. `any_name` is as in `guard.Secrets.may_be_stored_in`."""

    def is_sensitive(self, path: Path, /) -> bool:
        """Return True if a value at this path may be a secret because of the path alone."""

    def names_field(self, path: Path, /) -> bool:
        """Return True if every value at this path is a secret."""

    def look(self, item: bytes, path: Path, /) -> bool:
        """Return True if an encoded value has a secret."""

    def look_at_name(self, name: bytes, path: Path, /) -> bool:
        """Return True if a name has a secret."""


class StringPiece(NamedTuple):
    """The digest of a piece of a long string, and the record and number of its node."""

    digest: bytes
    lsn: int
    number: int


class SecretPlace(NamedTuple):
    """The place of a secret in the content of a node."""

    home: Home
    """The node that contains the secret. For a long string, it is the root."""
    path: Path
    """The names on the path to the value that contains the secret."""
    key: str | None
    """The key of the value in the node, or None if every value of the node counts."""


class Scanned(NamedTuple):
    """The secrets of a record that was walked."""

    record: Record
    event: Any
    """The event of the record, or None if the record is redacted."""
    owner: int
    edits: list[SecretPlace]
    """The places of the secrets."""
    strings: list[tuple[Tree, Path]]
    """The long strings with a secret."""
    blanks: list[bytes]
    """The digests of set chunks that contain a secret, and of loose pieces with a secret. Loose pieces are runs of
    pieces whose string is not in the record.
    """
    rebuilds: bool
    """Whether a long string or a set contains a secret and has to be rebuilt."""


def is_cut(item: bytes) -> bool:
    """Return True if an item is the header of a value that was cut into the items of a list."""
    body = packed_body(item)
    return body is not None and body.startswith(CUT)


def pieces_of(tree: Tree) -> Iterator[StringPiece]:
    """Yield the pieces of a long string. The root of the string contains the bytes after the last piece."""
    for digest, lsn, number, level in parts_of(tree):
        if not level:
            yield StringPiece(digest, lsn, number)


def parts_of(tree: Tree) -> Iterator[tuple[bytes, int, int, int]]:
    """Yield the digest, the LSN, the number and the level of each chunk and piece of a string or a set.

    Pieces and the lowest chunks of a set have level 0.
    """
    level = len(tree.head.levels)
    for _covered, digest, lsn, number in tree.head.levels:
        if digest is not None:
            yield digest, lsn, number, level
        level -= 1
    for level, _covered, node in tree.groups():
        if level:
            yield from _parts_below(tree, node, level)


def _parts_below(tree: Tree, node: Node, level: int) -> Iterator[tuple[bytes, int, int, int]]:
    table = tree.table(node, level)
    for index in range(len(table) // STRIDE):
        _at, digest_at, _end, _covered, lsn, number = table[index * STRIDE : (index + 1) * STRIDE]
        yield node.data[digest_at : digest_at + DIGEST_SIZE_BYTES], lsn, number, level - 1
        if level > 1:
            yield from _parts_below(tree, tree.child(node, table, index, level), level - 1)


def _lsns_with_large_nodes(transaction: IndexedLog) -> set[int]:
    """Return the LSNs of records with nodes whose digests are in the index (keys `d` and `O`)."""
    return {
        keys.decode_place(payload).lsn for prefix in (b"d", b"O") for _key, payload in transaction.scan_index(prefix)
    }


class Scanner:
    """Scans records, in any order.

    Args:
        transaction: reads the log.
        looker: decides what is a secret.
        is_thorough: whether to scan every copy of a value. If False, only the channels that a version has written are
            scanned in the version's root.
    """

    def __init__(self, transaction: IndexedLog, looker: Looker, *, is_thorough: bool) -> None:
        self._looker = looker
        self.large = _lsns_with_large_nodes(transaction)
        """The LSNs of records with nodes whose digests are in the index, such as roots of long strings."""
        self._is_thorough = is_thorough
        self._workspace = Workspace(partial(read_node, transaction, NodeCache(_CACHE_SIZE_BYTES)))

    def all(self, transaction: ReadTransaction, pages: MappedPages) -> Iterator[tuple[int, bytes, Scanned | None]]:
        """Yield the LSN, the bytes and the scan of each record, in order. Other OS threads scan in advance.

        The scan is None if the record certainly has no secret.
        """
        with ThreadPoolExecutor(_OS_THREADS) as pool:
            ahead: deque[Future[list[tuple[int, bytes, bool]]]] = deque()
            for batch in chain(transaction.log_batches(_BATCH_SIZE_BYTES), [None]):
                if batch is not None:
                    copied = [(lsn, bytes(data)) for lsn, data in batch]
                    pages.read(sum(len(data) for _lsn, data in copied))
                    ahead.append(pool.submit(self._sift, copied))
                while ahead and (batch is None or len(ahead) > _OS_THREADS):
                    for lsn, data, may_hold in ahead.popleft().result():
                        yield lsn, data, self._walk(lsn, data) if may_hold else None

    def _sift(self, records: list[tuple[int, bytes]]) -> list[tuple[int, bytes, bool]]:
        return [(lsn, data, lsn in self.large or self._may_hold(data)) for lsn, data in records]

    def _may_hold(self, data: bytes) -> bool:
        return self._looker.may_be_stored_in(data, any_name=data[TYPE_AT] == TYPE_ENTRY)

    def scan(self, lsn: int, data: bytes) -> Scanned | None:
        """Scan one record. Return None if it certainly has no secret."""
        return self._walk(lsn, data) if lsn in self.large or self._may_hold(data) else None

    def _walk(self, lsn: int, data: bytes) -> Scanned | None:
        rows = kernels.record_rows(data)
        strings = [
            (number, row[1]) for number, row in rows.items() if row[0] == ROOT and data[row[2]] in STRINGS and row[3]
        ]
        if not strings and lsn in self.large and not self._may_hold(data):
            return None
        record = decode_record(data, lsn)
        event = None if record.flags & FLAG_REDACTED else decode_event(record)
        walk = _Walk(self._looker, self._workspace, lsn, data, rows)
        if event is None:
            owner = record.redacted().thread
        else:
            owner = owner_of(event, lsn)
            if self._looker.may_hold(record.body):
                self._look_at_body(record, event)
            walk.begin(event, is_thorough=self._is_thorough)
            for _type, digest, at, number in kind_of(record).roots(event):
                if at == lsn:
                    walk.root(digest, at, number, ())
        for number, digest in strings:
            if number not in walk.visited:
                with suppress(ExpiredError, CorruptionError):
                    walk.root(digest, lsn, number, (REMOVED,))
        walk.look_at_rest()
        return Scanned(record, event, owner, walk.edits, walk.strings, walk.blanks, walk.rebuilds)

    def _look_at_body(self, record: Record, event: Any) -> None:
        looker = self._looker
        for field, part in zip(event._fields, split_array(record.body), strict=False):
            if not looker.may_hold(part):
                continue
            if field == "metadata":
                looker.look(part, ("metadata",))
            elif field == "error":
                looker.look(part, (event.key, IN_ERROR))
            elif field in _NAMES:
                looker.look_at_name(part, (_NAMES[field],))


class _Walk:
    """Walks over the nodes of one record, and collects the fields of `Scanned`."""

    def __init__(self, looker: Looker, workspace: Workspace, lsn: int, data: bytes, rows: Rows) -> None:
        self._looker = looker
        self._workspace = workspace
        self._lsn = lsn
        self._data = data
        self._rows = rows
        self._written: set[str] | None = None
        self._key: str | None = None
        self.visited: set[int] = set()
        self.edits: list[SecretPlace] = []
        self.strings: list[tuple[Tree, Path]] = []
        self.blanks: list[bytes] = []
        self.rebuilds = False

    def begin(self, event: Any, *, is_thorough: bool) -> None:
        """Remember the key of an entry, or the channels that a version has written."""
        if type(event) is EntryEvent:
            self._key = event.key
        elif type(event) is CheckpointEvent and not is_thorough:
            self._written = set(cbor.decode(event.written))

    # --- trees ------------------------------------------------------------------------

    def root(self, digest: bytes, lsn: int, number: int, path: Path) -> None:
        """Walk a tree."""
        self._visit(lsn, number)
        node = self._read(ROOT, digest, lsn, number)
        tree = Tree(self._workspace, node)
        if tree.kind in STRINGS:
            self._string(tree, digest, path)
            return
        level = len(tree.head.levels)
        for _covered, child, child_lsn, child_number in tree.head.levels:
            if child is not None:
                self._chunk(tree, child, (child_lsn, child_number), level, path)
            level -= 1
        table = tree.table(node, 0)
        home = node.lsn, digest
        self._entries(tree, node, table, home, path)
        if path and tree.count == _PAIR and not tree.head.levels and self._is_own(lsn):
            self._pair(tree, node, table, home, path)

    def _chunk(self, tree: Tree, digest: bytes, place: tuple[int, int], level: int, path: Path) -> None:
        lsn, number = place
        if not self._is_own(lsn) and not self._looker.is_sensitive(path):
            return
        self._visit(lsn, number)
        node = self._read(CHUNK, digest, lsn, number)
        table = tree.table(node, level)
        if not level:
            self._entries(tree, node, table, (node.lsn, digest), path)
            return
        for index in range(len(table) // STRIDE):
            _at, digest_at, _end, _covered, lsn, number = table[index * STRIDE : (index + 1) * STRIDE]
            child = node.data[digest_at : digest_at + DIGEST_SIZE_BYTES]
            self._chunk(tree, child, (lsn, number), level - 1, path)

    def _entries(self, tree: Tree, node: Node, table: list[int], home: Home, path: Path) -> None:
        is_dict = tree.kind == kernels.KIND_DICT
        is_field = is_dict and path != () and self._looker.names_field(path)
        may_hold_any = self._looker.may_hold(node.content)
        is_skipped = not is_dict and not self._looker.is_sensitive(path)
        for index in range(len(table) // STRIDE):
            at, _slot_at, end, _covered, lsn, _number = table[index * STRIDE : (index + 1) * STRIDE]
            if is_skipped and (lsn != self._lsn if lsn else not may_hold_any):
                continue  # The value belongs to an earlier record, or its node certainly holds no secret.
            may_hold = may_hold_any and self._looker.may_hold(node.data[at:end])
            below, named = path, None
            if is_dict:
                key = cbor.decode(tree.key(node, table, index))
                if may_hold:
                    self._looker.look_at_name(key.encode(), (*path, "(name)"))
                if not path and self._written is not None and key not in self._written:
                    continue
                # If the path names a secret field, every value below is a part of that secret and has its path.
                if not is_field:
                    below = (*path, self._key if not path and self._key is not None and key == _VALUE else key)
                    named = key
            in_set, is_chunk = tree.kind in SETS, node is not tree.node
            slot = tree.slot(node, table, index)
            self._slot(slot, SecretPlace(home, below, named), may_hold=may_hold, in_set=in_set, is_chunk=is_chunk)

    def _slot(self, slot: ValueSlot, edit: SecretPlace, *, may_hold: bool, in_set: bool, is_chunk: bool) -> None:
        """Scan the value of an entry. Add `edit` to the places if the entry itself contains a secret."""
        looker, path = self._looker, edit.path
        is_sensitive = looker.is_sensitive(path)
        if not slot.is_ref:
            if is_cut(slot.data):
                self._cut(slot.data, edit)
            elif (is_sensitive or may_hold) and looker.look(slot.data, path):
                self.edits.append(edit)
                self.rebuilds = self.rebuilds or in_set
                if in_set and is_chunk:
                    self.blanks.append(edit.home[1])
            return
        if not self._is_own(slot.lsn) and not is_sensitive:
            return
        digest = slot.data[1:]
        with suppress(ExpiredError, CorruptionError):  # Retention may have removed nodes of an unused tree.
            if slot.data[:1] != REF_LEAF:
                self.root(digest, slot.lsn, slot.number, path)
                return
            self._visit(slot.lsn, slot.number)
            leaf = self._read(LEAF, digest, slot.lsn, slot.number)
            self._leaf(leaf.content, SecretPlace((leaf.lsn, digest), path, None), is_sensitive=is_sensitive)

    def _leaf(self, content: bytes, edit: SecretPlace, *, is_sensitive: bool) -> None:
        if is_cut(content):
            self._cut(content, edit)
        elif (is_sensitive or self._looker.may_hold(content)) and self._looker.look(content, edit.path):
            self.edits.append(edit)

    def _cut(self, item: bytes, edit: SecretPlace) -> None:
        """Scan the header of a value that was cut into items. The header contains the bytes around the items."""
        body = packed_body(item)
        if body is not None and self._looker.may_hold(body):
            text = b"".join(bytes((each,)) if 0x20 <= each < 0x7F else b"\n" for each in body)
            if self._looker.look(cbor.encode(text.decode()), edit.path):
                self.edits.append(edit)

    def _pair(self, tree: Tree, node: Node, table: list[int], home: Home, path: Path) -> None:
        """Scan a pair as a whole, because one item may be the name of the other."""
        is_list = tree.kind in (*LISTS, kernels.KIND_TUPLE)
        keys = [] if is_list else [tree.key(node, table, index)[1:] for index in range(_PAIR)]
        if is_list or (tree.kind == kernels.KIND_DICT and b"value" in keys):
            item = tree_item(tree)
            if self._looker.may_hold(item) and self._looker.look(item, path):
                self.edits.append(SecretPlace(home, path, None))

    def _string(self, tree: Tree, digest: bytes, path: Path) -> None:
        """Scan the new pieces of a long string, each with its neighbours, and the end of the string."""
        pieces = [*pieces_of(tree), StringPiece(b"", self._lsn, -1)]
        near = [any(self._is_own(each.lsn) for each in pieces[max(at - 1, 0) : at + 2]) for at in range(len(pieces))]
        is_found = self._looker.is_sensitive(path)
        parts: list[bytes] = []
        for piece, is_near in zip([*pieces, None], [*near, False], strict=True):
            if piece is not None and is_near:
                parts.append(
                    self._workspace.read(PIECE, *piece).content if piece.digest else tree.node.data[tree.head.tail_at :]
                )
            elif parts:
                is_found = is_found or self._looker.may_hold(b"".join(parts))
                parts = []
        for piece in pieces:
            self._visit(piece.lsn, piece.number)
        if is_found and self._looker.look(tree_item(tree), path):
            self.edits.append(SecretPlace((tree.node.lsn, digest), path, None))
            self.strings.append((tree, path))
            self.rebuilds = True

    # --- nodes below no root -------------------------------------------------------------

    def look_at_rest(self) -> None:
        """Scan each node that was not visited. Pieces that follow each other are scanned as one text."""
        data, rows = self._data, self._rows
        looker, path = self._looker, (REMOVED,)
        run: list[bytes] = []
        digests: list[bytes] = []
        rest = [(number, row) for number, row in rows.items() if number not in self.visited and row[3]]
        for number, (type_, digest, at, content_size, total_size) in [*rest, (-1, (LEAF, b"", 0, 0, 0))]:
            if type_ == PIECE:
                run.append(data[at : at + content_size])
                digests.append(digest)
                continue
            if run and looker.may_hold(b"".join(run)):
                looker.look(cbor.encode(b"".join(run).decode("utf-8", "replace")), path)
                self.blanks += digests
                self.rebuilds = True
            run, digests = [], []
            if number < 0 or not looker.may_hold(data[at : at + content_size]):
                continue
            node = Node(data[at : at + total_size], content_size, self._lsn)
            edit = SecretPlace((self._lsn, digest), path, None)
            if type_ == LEAF:
                self._leaf(node.content, edit, is_sensitive=False)
            elif node.data[0] not in STRINGS:
                self._look_at_loose(type_, node, edit)
            elif looker.look(cbor.encode(node.content.decode("utf-8", "replace")), path):
                self.edits.append(edit)

    def _look_at_loose(self, type_: int, node: Node, edit: SecretPlace) -> None:
        looker = self._looker
        kind, level = node.data[0], node.data[1] if type_ == CHUNK else 0
        if level:
            return
        table = kernels.entries_table(*node, is_root=type_ == ROOT, kind=kind)
        for index in range(0, len(table), STRIDE):
            at, slot_at, end, _covered, lsn, number = table[index : index + STRIDE]
            if kind == kernels.KIND_DICT:
                key = cbor.decode(node.data[at:slot_at])
                edit = SecretPlace(edit.home, (REMOVED, key), key)
            slot = ValueSlot(node.data[slot_at if slot_at < end else at : end], lsn, number)
            if not slot.is_ref:
                may_hold = looker.may_hold(node.data[at:end])
                self._slot(slot, edit, may_hold=may_hold, in_set=kind in SETS, is_chunk=type_ == CHUNK)

    def _read(self, type_: int, digest: bytes, lsn: int, number: int) -> Node:
        row = self._rows.get(number) if lsn == self._lsn else None
        if row is None or row[1] != digest or not row[3]:
            return self._workspace.read(type_, digest, lsn, number)
        _type, _digest, at, content_size, total_size = row
        return Node(self._data[at : at + total_size], content_size, lsn)

    def _is_own(self, lsn: int) -> bool:
        return lsn == self._lsn

    def _visit(self, lsn: int, number: int) -> None:
        if lsn == self._lsn:
            self.visited.add(number)
