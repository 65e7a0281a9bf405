"""The texts that a version has and the version before it has not, and the text at a path of a version.

Trees are compared by digest, so what both versions share is not read (`tree.diff`). An append to a list is told from
the entries of the two roots alone.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from statelog import kernels
from statelog.display.packed import CUT, MSGPACK, Coded
from statelog.format import cbor
from statelog.limits import GRAPH_CHANNEL
from statelog.search.texts import NAMES_OF_MESSAGES, Path, Text, item_text, texts_of
from statelog.tree.diff import diff_lists, diff_maps
from statelog.tree.tree import LISTS, STRIDE, Tree
from statelog.tree.value import is_tree, open_root, read_item, read_items

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from statelog.tree.node import Slot, Workspace

GRAPH_KEY = cbor.encode(GRAPH_CHANNEL)
_MESSAGE_KEYS = tuple(cbor.encode(name) for name in NAMES_OF_MESSAGES)
_HASHED_ITEMS = 256
"""Items of a list that are read in one go."""


def decoded(workspace: Workspace, slot: Slot) -> Any:
    """Return the value of a slot, with values of codecs as they are stored."""
    return cbor.decode(read_item(workspace, slot), as_stored=True)


def _decoded_all(workspace: Workspace, slots: Sequence[Slot]) -> list[Any]:
    items = read_items(workspace, slots)
    values: list[Any] = cbor.decode(cbor.head(4, len(items)) + b"".join(items), as_stored=True)
    return values


# --- what a version adds ----------------------------------------------------------------


def texts_added(
    old: Tree | None, new: Tree, channels: Iterable[bytes] | None = None, keep: Callable[[str], bool] | None = None
) -> Iterator[Text]:
    """Yield the texts of a dict that another one has not at the same path.

    Args:
        old: the dict before; None for an empty one.
        new: the dict after.
        channels: the encoded keys whose values may differ; None if any may.
        keep: returns False for a key whose value is left out.
    """
    if old is None:
        changes: Iterable[tuple[bytes, Slot | None, Slot | None]] = (
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


def _added(workspace: Workspace, old: Slot | None, new: Slot, path: Path) -> Iterator[Text]:
    found: list[Text] | None = None
    is_same_kind = False
    if is_tree(new):
        tree = open_root(workspace, new)
        before = open_root(workspace, old) if old is not None and is_tree(old) else None
        if tree.kind in LISTS:
            is_same_kind = before is not None and before.kind in LISTS
            if before is not None and is_same_kind:
                found = _items_added(before, tree, path)
            else:
                found = _items(tree, range(tree.count), tree.slots(0, tree.count), path)
        elif tree.kind == kernels.KIND_DICT and not _may_be_message(tree):
            is_same_kind = before is not None and before.kind == kernels.KIND_DICT
            below = texts_added(before if is_same_kind else None, tree)
            found = [text._replace(path=(*path, *text.path)) for text in below]
    if found is None:
        is_same_kind = False
        found = list(texts_of(decoded(workspace, new), path))
    yield from found if old is None or is_same_kind or not found else _without(workspace, old, path, found)


def _without(workspace: Workspace, old: Slot, path: Path, found: Iterable[Text]) -> Iterator[Text]:
    """Yield the texts that a value before did not have at the same path."""
    known = {*texts_of(decoded(workspace, old), path)}
    return (text for text in found if text not in known)


def _may_be_message(tree: Tree) -> bool:
    return any(tree.find(key)[1] is not None for key in _MESSAGE_KEYS)


def _items_added(old: Tree, new: Tree, path: Path) -> list[Text] | None:
    """Return the texts of the items that a list has got; None if its value is not a list."""
    slots = _appended(old, new)
    if slots is not None:
        return _items(new, range(new.count - len(slots), new.count), slots, path)
    changes = [(at, change.new) for _old, at, change in diff_lists(old, new) if change.new is not None]
    return _items(new, [at for at, _slot in changes], [slot for _at, slot in changes], path)


def _appended(old: Tree, new: Tree) -> list[Slot] | None:
    """Return the slots behind those of the old list, if the roots alone prove that the new list begins with it."""
    if old.head.levels != new.head.levels or old.count > new.count:
        return None
    before, after = old.table(old.node, 0), new.table(new.node, 0)
    if before:
        start, stop, at = before[0], before[-STRIDE + 2], after[0]
        if old.node.data[start:stop] != new.node.data[at : at + stop - start]:
            return None
    return new.slots_in(new.node, after[len(before) :])


def _items(tree: Tree, positions: Iterable[int], slots: Sequence[Slot], path: Path) -> list[Text] | None:
    """Return the texts of some items of a list; None if the list is a value that was cut."""
    found: list[Text] = []
    is_packed = False
    for start in range(0, len(slots), _HASHED_ITEMS):
        values = _decoded_all(tree.workspace, slots[start : start + _HASHED_ITEMS])
        is_packed = is_packed or any(isinstance(value, Coded) for value in values)
        found += map(item_text, values)
    if is_packed and _is_cut(tree):
        return None
    return [
        Text((*path, position), role, text)
        for position, (_path, role, text) in zip(positions, found, strict=True)
        if text
    ]


def _is_cut(tree: Tree) -> bool:
    """Return True if a list is a value of a framework whose lists were cut out."""
    first = decoded(tree.workspace, tree.at(0))
    codec, payload = first.stored if isinstance(first, Coded) else ("", None)
    return codec == MSGPACK and isinstance(payload, bytes) and payload.startswith(CUT)


# --- what a version has -----------------------------------------------------------------


class State:
    """Finds texts in one version, or in one entry of the board.

    Args:
        tree: the root.
        hash_of: returns the hash by which a text is known.
    """

    def __init__(self, tree: Tree, hash_of: Callable[[str], int]) -> None:
        self.tree = tree
        self._hash_of = hash_of
        self._positions: dict[Path, dict[int, list[int]]] = {}

    @cached_property
    def is_graph(self) -> bool:
        """Whether the version lies on a line of LangGraph."""
        return self.tree.find(GRAPH_KEY)[1] is not None

    def find(self, path: Path, hash: int) -> Text | None:
        """Return the text with a hash at a path, or else in the same list nearest to it; None if there is none."""
        slot = self.tree.find(cbor.encode(path[0]))[1]
        at, workspace = 1, self.tree.workspace
        while slot is not None and at < len(path) and is_tree(slot):
            tree, name = open_root(workspace, slot), path[at]
            if tree.kind == kernels.KIND_DICT and type(name) is str and not _may_be_message(tree):
                slot = tree.find(cbor.encode(name))[1]
                at += 1
            elif tree.kind in LISTS and type(name) is int and at == len(path) - 1 and tree.count and not _is_cut(tree):
                return self._find_item(tree, path, name, hash)
            else:
                break
        if slot is None:
            return None
        return self._find_in(list(texts_of(decoded(workspace, slot), path[:at])), path, hash)

    def _find_item(self, tree: Tree, path: Path, position: int, hash: int) -> Text | None:
        """Look for an item where it was; if it is not there, in the whole list."""
        if position < tree.count:
            text = item_text(decoded(tree.workspace, tree.at(position)))
            if text.text and self._hash_of(text.text) == hash:
                return text._replace(path=path)
        positions = self._positions.get(path[:-1])
        if positions is None:
            positions = self._positions[path[:-1]] = {}
            for start in range(0, tree.count, _HASHED_ITEMS):
                stop = min(start + _HASHED_ITEMS, tree.count)
                for at, value in enumerate(_decoded_all(tree.workspace, tree.slots(start, stop)), start):
                    positions.setdefault(self._hash_of(item_text(value).text), []).append(at)
        places = positions.get(hash)
        if not places:
            return None
        nearest = min(places, key=lambda each: abs(each - position))
        places.remove(nearest)
        text = item_text(decoded(tree.workspace, tree.at(nearest)))
        return text._replace(path=(*path[:-1], nearest))

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
