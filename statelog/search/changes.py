"""Finds the texts that a version adds to the previous one, and the text at a path of a version.

Trees are compared by digest, so subtrees that both versions share are not read (`tree.diff`). An append to a list is
detected from the open nodes of the two lists alone.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog import kernels
from statelog.display.packed import CUT, MSGPACK, Coded
from statelog.format import cbor
from statelog.limits import GRAPH_CHANNEL
from statelog.log.nodes import read_node, read_nodes
from statelog.search.texts import NAMES_OF_MESSAGES, Path, Text, item_text, texts_of
from statelog.tree.diff import diff_lists, diff_maps
from statelog.tree.node import CHUNK, ROOT, Workspace
from statelog.tree.tree import LISTS, STRIDE, Tree
from statelog.tree.value import is_tree, open_root, read_item, read_items

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from statelog.log.nodes import NodeCache
    from statelog.log.transaction import Log
    from statelog.tree.node import Node, ValueSlot

GRAPH_KEY = cbor.encode(GRAPH_CHANNEL)
_MESSAGE_KEYS = tuple(cbor.encode(name) for name in NAMES_OF_MESSAGES)
UNKNOWN = -1
"""The position of an item in a list that was rebuilt from writes, where positions are unknown."""
_READ_ITEMS = 256
"""The number of items of a list that are read at once."""


def decoded(workspace: Workspace, slot: ValueSlot) -> Any:
    """Return the value of a slot. Values of codecs stay in their stored form."""
    return cbor.decode(read_item(workspace, slot), as_stored=True)


def _decoded_all(workspace: Workspace, slots: Sequence[ValueSlot]) -> list[Any]:
    items = read_items(workspace, slots)
    values: list[Any] = cbor.decode(cbor.head(4, len(items)) + b"".join(items), as_stored=True)
    return values


# --- the texts that a version adds ------------------------------------------------------

Item = tuple[int | None, str, str]
"""A text as (position in its list or None, role, text)."""


class Added(NamedTuple):
    """Texts that were added to a value."""

    path: Path
    """The path of the list that has the texts, or the path of the single text."""
    items: list[Item]


def texts_added(
    old: Tree | None, new: Tree, channels: Iterable[bytes] | None = None, keep: Callable[[str], bool] | None = None
) -> Iterator[Added]:
    """Yield the texts in the dict `new` that the dict `old` does not have at the same path.

    Args:
        old: the earlier dict; None for an empty one.
        new: the later dict.
        channels: the encoded keys whose values may differ; None if any value may differ.
        keep: a function that returns False for a key whose value is left out.
    """
    if old is None:
        changes: Iterable[tuple[bytes, ValueSlot | None, ValueSlot | None]] = (
            (new.key(run.node, run.table, at), None, new.slot(run.node, run.table, at))
            for run in new.runs(0, new.count)
            for at in range(run.start, run.stop)
        )
    elif channels is None:
        changes = ((key, change.old, change.new) for key, change in diff_maps(old, new))
    else:
        changes = ((key, old.find(key)[1], new.find(key)[1]) for key in channels)
    for key, before, after in changes:
        if after is not None and (before is None or before.data != after.data):
            name = cbor.decode(key)
            if keep is None or keep(name):
                yield from _added(new.workspace, before, after, (name,))


def _added(workspace: Workspace, old: ValueSlot | None, new: ValueSlot, path: Path) -> Iterator[Added]:
    if is_tree(new):
        tree = open_root(workspace, new)
        before = open_root(workspace, old) if old is not None and is_tree(old) else None
        if tree.kind in LISTS and (old is None or (before is not None and before.kind in LISTS)):
            items = _items_added(before, tree)
            if items is not None:
                if items:
                    yield Added(path, items)
                return
        elif (
            tree.kind == kernels.KIND_DICT
            and (old is None or (before is not None and before.kind == kernels.KIND_DICT))
            and not _may_be_message(tree)
        ):
            for below, items in texts_added(before, tree):
                yield Added((*path, *below), items)
            return
    known = {*texts_of(decoded(workspace, old), path)} if old is not None else ()
    for text in texts_of(decoded(workspace, new), path):
        if text not in known:
            last = text.path[-1]
            if type(last) is int:
                yield Added(text.path[:-1], [(last, text.role, text.text)])
            else:
                yield Added(text.path, [(None, text.role, text.text)])


def _may_be_message(tree: Tree) -> bool:
    return any(tree.find(key)[1] is not None for key in _MESSAGE_KEYS)


def _items_added(old: Tree | None, new: Tree) -> list[Item] | None:
    """Return the texts of the items that were added to a list; None if the value is not a list."""
    if old is None:
        return _items(new, range(new.count), new.slots(0, new.count))
    if old.count <= new.count and _begins_with(new, old):
        return _items(new, range(old.count, new.count), new.slots(old.count, new.count))
    changes = [(at, change.new) for _old, at, change in diff_lists(old, new) if change.new is not None]
    return _items(new, [at for at, _slot in changes], [slot for _at, slot in changes])


def _begins_with(new: Tree, old: Tree) -> bool:
    """Return True if the open nodes of two lists prove that `new` begins with all items of `old`.

    The open node of a level in `old` has the digests of closed nodes. The node in `new` that begins at the same item
    must begin with the same digests.
    """
    start = 0
    level = len(old.head.levels)
    for covered, digest, lsn, number in old.head.levels:
        if digest is not None:
            node = old.workspace.read(CHUNK, digest, lsn, number)
            if not _begins_as(old, node, _node_at(new, level, start), new, level):
                return False
        start += covered
        level -= 1
    return not old.head.tail_count or _begins_as(old, old.node, _node_at(new, 0, start), new, 0)


def _begins_as(old: Tree, node: Node, found: Node | None, new: Tree, level: int) -> bool:
    if found is None:
        return False
    if node.content == found.content and level:
        return True
    before, after = old.table(node, level), new.table(found, level)
    if len(before) > len(after):
        return False
    start, stop, at = before[0], before[-STRIDE + 2], after[0]
    return node.data[start:stop] == found.data[at : at + stop - start]


def _node_at(tree: Tree, wanted: int, position: int) -> Node | None:
    """Return the node of a level that begins at a position, or None."""
    level = len(tree.head.levels)
    node: Node | None = None
    for covered, digest, lsn, number in tree.head.levels:
        if level < wanted:
            return None
        if position < covered and digest is not None:
            node = tree.workspace.read(CHUNK, digest, lsn, number)
            break
        position -= covered
        level -= 1
    else:
        return tree.node if wanted == 0 and position == 0 else None
    while level > wanted:
        table = tree.table(node, level)
        index = 0
        while position >= table[index * STRIDE + 3]:
            position -= table[index * STRIDE + 3]
            index += 1
        node = tree.child(node, table, index, level)
        level -= 1
    return node if position == 0 else None


def _items(tree: Tree, positions: Iterable[int], slots: Sequence[ValueSlot]) -> list[Item] | None:
    """Return the texts of some items of a list; None if the list is a framework's value that was cut (`_is_cut`)."""
    found: list[tuple[str, str]] = []
    is_packed = False
    for start in range(0, len(slots), _READ_ITEMS):
        values = _decoded_all(tree.workspace, slots[start : start + _READ_ITEMS])
        is_packed = is_packed or isinstance(values[-1], Coded)
        found += map(item_text, values)
    if is_packed and _is_cut(tree):
        return None
    return [(position, role, text) for position, (role, text) in zip(positions, found, strict=True) if text]


def _is_cut(tree: Tree) -> bool:
    """Return True if a list is a framework's value that was stored as a header and the items of its lists."""
    first = decoded(tree.workspace, tree.at(0))
    codec, payload = first.stored if isinstance(first, Coded) else ("", None)
    return codec == MSGPACK and isinstance(payload, bytes) and payload.startswith(CUT)


# --- the text at a path -----------------------------------------------------------------


Taken = set[tuple["TextFinder", Path, int]]
"""The list items that a search has found already, as (state, path of the list, position)."""


class ViewNodes:
    """Reads the nodes of the view that a search uses.

    Attributes:
        lend: a function that returns a view of the record with an LSN, or None.
    """

    __slots__ = ("_cache", "_transaction", "_workspace", "lend")

    lend: Callable[[int], memoryview | None]
    _cache: NodeCache
    _transaction: Log
    _workspace: Workspace | None

    def begin(self, transaction: Log, cache: NodeCache) -> None:
        """Use this transaction for all further reads."""
        self.lend = transaction.lend_log
        self._cache = cache
        self._workspace = None
        self._transaction = transaction

    @property
    def workspace(self) -> Workspace:
        """A workspace that reads one node at a time. It is created on demand, because most searches do not need it."""
        if self._workspace is None:
            transaction, cache = self._transaction, self._cache
            self._workspace = Workspace(
                partial(read_node, transaction, cache), source_many=partial(read_nodes, transaction, cache)
            )
        return self._workspace


class TextFinder:
    """Finds texts in one version, or in one entry of the board.

    Args:
        root: digest, LSN and number of the root.
        nodes: the nodes of the view that the search currently uses.
        hash_of: a function that returns the hash of a text in the index.

    Attributes:
        delta_items: a function that returns the items of a LangGraph delta channel, which the tree does not have, or
            None for any other channel. The caller sets it before `find`; None for a version that is not LangGraph's.
    """

    def __init__(self, root: tuple[bytes, int, int], nodes: ViewNodes, hash_of: Callable[[str], int]) -> None:
        self._root = root
        self._nodes = nodes
        self._hash_of = hash_of
        self._tree: Tree | None = None
        self._looked: tuple[Path, bytes] | None = None
        """The last result of `look`."""
        self._is_graph: bool | None = None
        self._lists: dict[Path, Tree] = {}
        self._positions: dict[Path, dict[int, list[int]]] = {}
        self._deltas: dict[str | int, list[tuple[str, str]]] = {}
        self.delta_items: Callable[[str], list[Any] | None] | None = None

    @property
    def tree(self) -> Tree:
        """The tree of the state, opened at its root."""
        workspace = self._nodes.workspace
        if self._tree is None:
            self._tree = Tree(workspace, workspace.read(ROOT, *self._root))
        self._tree.workspace = workspace
        return self._tree

    @property
    def is_graph(self) -> bool:
        """Whether the version is on a branch of LangGraph."""
        if self._is_graph is None:
            self._is_graph = self.tree.find(GRAPH_KEY)[1] is not None
        return self._is_graph

    def look(self, path: Path) -> bytes | None:
        """Return the item at a path of channel and position, or None if one kernel call does not find it."""
        if len(path) != 2 or type(path[1]) is not int or path[1] < 0:
            return None
        if self._looked is not None and self._looked[0] == path:
            return self._looked[1]
        found = kernels.item_find(
            self._nodes.lend, *self._root, key=cbor.encode(path[0]), position=path[1], mark=GRAPH_KEY
        )
        if found is None:
            return None
        item, self._is_graph = found
        self._looked = path, item
        return item

    def find(self, path: Path, hash: int, taken: Taken) -> Text | None:
        """Return the text with this hash at a path, or else the nearest one in the same list, or None.

        Args:
            path: the previous path of the text.
            hash: the hash of the text.
            taken: list items that this search has found already. This call adds the item it finds, so that the next
                call finds the next equal text.
        """
        known = self._lists.get(path[:-1])
        found = self._find_at(path, hash, is_list=known is not None)
        if found is not None:
            return found
        if known is not None and type(path[-1]) is int:
            known.workspace = self._nodes.workspace
            return self._find_item(known, path, hash, taken)
        slot = self.tree.find(cbor.encode(path[0]))[1]
        if slot is None and self.delta_items is not None:
            return self._find_delta(str(path[0]), path, hash, taken)
        at, workspace = 1, self.tree.workspace
        while slot is not None and at < len(path) and is_tree(slot):
            tree, name = open_root(workspace, slot), path[at]
            if tree.kind == kernels.KIND_DICT and type(name) is str and not _may_be_message(tree):
                slot = tree.find(cbor.encode(name))[1]
                at += 1
            elif tree.kind in LISTS and type(name) is int and at == len(path) - 1 and tree.count:
                if isinstance(decoded(workspace, tree.at(tree.count - 1)), Coded) and _is_cut(tree):
                    break
                self._lists[path[:-1]] = tree
                return self._find_item(tree, path, hash, taken)
            else:
                break
        if slot is None:
            return None
        return self._find_in(list(texts_of(decoded(workspace, slot), path[:at])), path, hash)

    def _find_at(self, path: Path, hash: int, *, is_list: bool) -> Text | None:
        """Return the text if it has not moved and `look` finds it.

        `is_list` means that the list is known not to be cut.
        """
        item = self.look(path)
        if item is None:
            return None
        value = cbor.decode(item, as_stored=True)
        # A coded item may be a part of a value that was cut, because all items of such a value are coded.
        if isinstance(value, Coded) and not is_list:
            return None
        role, text = item_text(value)
        return Text(path, role, text) if text and self._hash_of(text) == hash else None

    def _find_item(self, tree: Tree, path: Path, hash: int, taken: Taken) -> Text | None:
        """Find an item at its previous position, or else in the whole list."""
        position = int(path[-1])
        if 0 <= position < tree.count:
            role, text = item_text(decoded(tree.workspace, tree.at(position)))
            if text and self._hash_of(text) == hash:
                return Text(path, role, text)
        positions = self._positions.get(path[:-1])
        if positions is None:
            positions = self._positions[path[:-1]] = {}
            for start in range(0, tree.count, _READ_ITEMS):
                stop = min(start + _READ_ITEMS, tree.count)
                for at, item in enumerate(_decoded_all(tree.workspace, tree.slots(start, stop)), start):
                    positions.setdefault(self._hash_of(item_text(item)[1]), []).append(at)
        nearest = self._take_nearest(path, hash, taken)
        if nearest is None:
            return None
        return Text((*path[:-1], nearest), *item_text(decoded(tree.workspace, tree.at(nearest))))

    def _find_delta(self, channel: str, path: Path, hash: int, taken: Taken) -> Text | None:
        """Find an item of a delta channel, or return None."""
        texts = self._deltas.get(channel)
        if texts is None:
            assert self.delta_items is not None
            texts = self._deltas[channel] = [*map(item_text, self.delta_items(channel) or ())]
            positions = self._positions[channel,] = {}
            for at, (_role, text) in enumerate(texts):
                positions.setdefault(self._hash_of(text), []).append(at)
        position = path[-1] if type(path[-1]) is int else UNKNOWN
        nearest = self._take_nearest((channel, position), hash, taken)
        return None if nearest is None else Text((channel, nearest), *texts[nearest])

    def _take_nearest(self, path: Path, hash: int, taken: Taken) -> int | None:
        """Return the position of the text with this hash that is nearest to `path`, and mark the text as taken.

        Skip texts that another row has taken.
        """
        position = int(path[-1])
        places = self._positions[path[:-1]].get(hash, ())
        left = [each for each in places if (self, path[:-1], each) not in taken]
        if not left:
            return None
        nearest = min(left, key=lambda each: abs(each - position))
        taken.add((self, path[:-1], nearest))
        return nearest

    def _find_in(self, texts: list[Text], path: Path, hash: int) -> Text | None:
        found = [text for text in texts if self._hash_of(text.text) == hash]
        for text in found:
            if text.path == path:
                return text
        if type(path[-1]) is not int:
            return None
        position = path[-1]
        moved = [text for text in found if text.path[:-1] == path[:-1] and type(text.path[-1]) is int]
        return min(moved, key=lambda text: abs(int(text.path[-1]) - position), default=None)
