"""Read-only views of stored lists and dicts, which read items on access.

A view holds no transaction open and no pointer into the file. It reads nodes one by one, and always shows the version
for which it was created.

The type of a value does not depend on its size. A list or dict that is the value of a channel is returned as a view.
The items of a view are plain, independent copies. In a `lazy` view, large lists and dicts are views again.
"""

from __future__ import annotations

import copy
import operator
import sys
from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import Any, SupportsIndex, overload

from statelog import kernels
from statelog.errors import ValueTypeError
from statelog.format import cbor
from statelog.tree.node import REF_BYTE_MIN, ROOT, ValueSlot, Workspace
from statelog.tree.tree import LISTS, Tree
from statelog.tree.value import is_tree, open_root, read_item, read_items, tree_item


def _view_value(workspace: Workspace, slot: ValueSlot, *, is_channel: bool, is_lazy: bool) -> Any:
    """Return a stored value. A channel's list or dict becomes a view, and so does a large one in a lazy view."""
    item = slot.data
    if item[0] >= REF_BYTE_MIN:
        if (is_channel or is_lazy) and is_tree(slot):
            tree = open_root(workspace, slot)
            if tree.kind in LISTS:
                return ListView(tree, is_lazy=is_lazy)
            if tree.kind == kernels.KIND_DICT:
                return MapView(tree, is_lazy=is_lazy)
        item = read_item(workspace, slot)
    value = cbor.decode(item)
    if is_channel and type(value) is list:
        return ListView(value, is_lazy=is_lazy)
    if is_channel and type(value) is dict:
        return MapView(value, is_lazy=is_lazy)
    return value


def channel_value(workspace: Workspace, slot: ValueSlot) -> Any:
    """Return the value of a channel in a state. A list or dict is returned as a view, and other values are plain."""
    return _view_value(workspace, slot, is_channel=True, is_lazy=False)


def _view_values(workspace: Workspace, slots: list[ValueSlot], *, is_lazy: bool) -> list[Any]:
    """Return the values of several items like `_view_value`. Their leaves are read together."""
    trees = [is_tree(slot) for slot in slots]
    items = read_items(workspace, [slot for slot, is_one in zip(slots, trees, strict=True) if not is_one])
    plain = cbor.decode_all(items)
    if len(plain) == len(slots):
        return plain
    others = iter(plain)
    return [
        _view_value(workspace, slot, is_channel=False, is_lazy=is_lazy) if is_one else next(others)
        for slot, is_one in zip(slots, trees, strict=True)
    ]


def _is_same_tree(mine: object, theirs: object) -> bool:
    """Return True if two sources of views are stored trees with equal digests, which need no comparison."""
    return isinstance(mine, Tree) and isinstance(theirs, Tree) and mine.node.content == theirs.node.content


def find_text(tree: Tree, key: object) -> ValueSlot | None:
    """Return the slot under a key of a stored dict, or None if the key is missing or not valid."""
    if not isinstance(key, str):
        return None
    try:
        item = cbor.encode(str.__str__(key))
    except ValueTypeError:  # A str with a lone surrogate is never stored.
        return None
    return tree.find(item)[1]


def position_in(size: int, index: SupportsIndex) -> int:
    """Convert an index of a list of this size to a position. Raises IndexError and TypeError, like a list."""
    try:
        number = operator.index(index)
    except TypeError:
        message = f"list indices must be integers or slices, not {type(index).__name__}"
        raise TypeError(message) from None
    position = number + size if number < 0 else number
    if not 0 <= position < size:
        message = f"index {number} is out of range: the list has {size} items"
        raise IndexError(message)
    return position


class ListView(Sequence[Any]):
    """A read-only view of a stored list. Slices, `+`, `*`, copies and pickles are plain lists, read at once."""

    __slots__ = ("_is_lazy", "_source")
    __hash__ = None  # type: ignore[assignment]  # as list

    def __init__(self, source: Tree | list[Any], *, is_lazy: bool = False) -> None:
        self._source = source
        self._is_lazy = is_lazy

    @property
    def lazy(self) -> ListView:
        """The same list, in which large lists and dicts are views."""
        return ListView(self._source, is_lazy=True)

    def __len__(self) -> int:
        source = self._source
        return source.count if isinstance(source, Tree) else len(source)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        source = self._source
        if not isinstance(source, Tree):
            return _copied(source[index])
        if isinstance(index, slice):
            positions = range(source.count)[index]
            if positions.step == 1:
                slots = source.slots(positions.start, positions.stop)
                return _view_values(source.workspace, slots, is_lazy=self._is_lazy)
            return [self[position] for position in positions]
        slot = source.at(position_in(source.count, index))
        return _view_value(source.workspace, slot, is_channel=False, is_lazy=self._is_lazy)

    def index(self, value: Any, start: SupportsIndex = 0, stop: SupportsIndex = sys.maxsize) -> int:
        """Return the position of the first item that equals a value. Raises ValueError."""
        return super().index(value, operator.index(start), operator.index(stop))

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self._source, Tree):
            return self._read(0, self._source.count)
        return iter(_copied(self._source))

    def _read(self, start: int, stop: int) -> Iterator[Any]:
        tree = self._source
        assert isinstance(tree, Tree)
        for run in tree.runs(start, stop):
            slots = [tree.slot(run.node, run.table, index) for index in range(run.start, run.stop)]
            yield from _view_values(tree.workspace, slots, is_lazy=self._is_lazy)

    def __reversed__(self) -> Iterator[Any]:
        for position in range(len(self) - 1, -1, -1):
            yield self[position]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ListView):
            if _is_same_tree(self._source, other._source):
                return True
        elif not isinstance(other, list):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __lt__(self, other: Any) -> bool:
        return NotImplemented if _is_no_list(other) else list(self) < list(other)

    def __le__(self, other: Any) -> bool:
        return NotImplemented if _is_no_list(other) else list(self) <= list(other)

    def __gt__(self, other: Any) -> bool:
        return NotImplemented if _is_no_list(other) else list(self) > list(other)

    def __ge__(self, other: Any) -> bool:
        return NotImplemented if _is_no_list(other) else list(self) >= list(other)

    def __add__(self, other: Any) -> list[Any]:
        return NotImplemented if _is_no_list(other) else [*self, *other]

    def __radd__(self, other: Any) -> list[Any]:
        return NotImplemented if _is_no_list(other) else [*other, *self]

    def __mul__(self, times: int) -> list[Any]:
        return self.to_python() * times

    __rmul__ = __mul__

    def copy(self) -> list[Any]:
        """Return a plain, deep copy, as `to_python` does."""
        return self.to_python()

    def __copy__(self) -> list[Any]:
        return self.to_python()

    def __deepcopy__(self, _memo: dict[int, Any]) -> list[Any]:
        return self.to_python()

    def __reduce__(self) -> tuple[type, tuple[list[Any]]]:
        """Pickle as a plain list."""
        return list, (self.to_python(),)

    def to_python(self) -> list[Any]:
        """Return a plain, deep copy."""
        source = self._source
        value = cbor.decode(tree_item(source)) if isinstance(source, Tree) else _copied(source)
        assert isinstance(value, list)
        return value

    def __repr__(self) -> str:
        from statelog.display.lines import list_line

        return cbor.decoded_loosely(list_line, self)

    def __rich__(self) -> object:
        from statelog.display.terminal import value_tree

        return cbor.decoded_loosely(value_tree, self)

    def _repr_html_(self) -> str:
        from statelog.display.notebook import value_html

        return cbor.decoded_loosely(value_html, self)


def _is_no_list(value: object) -> bool:
    return not isinstance(value, ListView | list)


class MapView(Mapping[str, Any]):
    """A read-only view of a stored dict. `|`, copies and pickles are plain dicts, which are read at once."""

    __slots__ = ("_is_lazy", "_is_state", "_source")
    __hash__ = None  # type: ignore[assignment]  # as dict

    def __init__(self, source: Tree | dict[str, Any], *, is_state: bool = False, is_lazy: bool = False) -> None:
        self._source = source
        self._is_state = is_state
        self._is_lazy = is_lazy

    @property
    def lazy(self) -> MapView:
        """The same dict, in which large lists and dicts are views."""
        return MapView(self._source, is_state=self._is_state, is_lazy=True)

    def __getitem__(self, key: str) -> Any:
        source = self._source
        if not isinstance(source, Tree):
            return _copied(source[key])
        slot = find_text(source, key)
        if slot is None:
            raise KeyError(key)
        return _view_value(source.workspace, slot, is_channel=self._is_state, is_lazy=self._is_lazy)

    def __contains__(self, key: object) -> bool:
        if isinstance(self._source, Tree):
            return find_text(self._source, key) is not None
        return key in self._source

    def __len__(self) -> int:
        source = self._source
        return source.count if isinstance(source, Tree) else len(source)

    def __iter__(self) -> Iterator[str]:
        source = self._source
        if not isinstance(source, Tree):
            yield from source
            return
        for run in source.runs(0, source.count):
            for index in range(run.start, run.stop):
                yield cbor.decode(source.key(run.node, run.table, index))

    def keys(self) -> KeysView[str]:
        """Return the keys, in the order of their encoded bytes."""
        return KeysView(self)

    def items(self) -> ItemsView[str, Any]:
        """Return (key, value) pairs. Several neighbouring values are read at a time."""
        return _MapItems(self)

    def values(self) -> ValuesView[Any]:
        """Return the values. Several neighbouring values are read at a time."""
        return _Values(self)

    def _pairs(self) -> Iterator[tuple[str, Any]]:
        source = self._source
        if not isinstance(source, Tree):
            for key, value in source.items():
                yield key, _copied(value)
            return
        for node, table, start, stop in source.runs(0, source.count):
            keys = cbor.decode_all([source.key(node, table, index) for index in range(start, stop)])
            slots = [source.slot(node, table, index) for index in range(start, stop)]
            if self._is_state:
                views = (_view_value(source.workspace, each, is_channel=True, is_lazy=self._is_lazy) for each in slots)
                yield from zip(keys, views, strict=True)
            else:
                yield from zip(keys, _view_values(source.workspace, slots, is_lazy=self._is_lazy), strict=True)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, MapView):
            if _is_same_tree(self._source, other._source):
                return True
        elif not isinstance(other, dict):
            return NotImplemented
        return len(self) == len(other) and all(key in other and self[key] == other[key] for key in self)

    @property
    def tree(self) -> Tree | None:
        """The stored tree, or None for a small dict. This is internal."""
        return self._source if isinstance(self._source, Tree) else None

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self))

    def __or__(self, other: Any) -> dict[str, Any]:
        return self.to_python() | _plain_map(other) if isinstance(other, MapView | dict) else NotImplemented

    def __ror__(self, other: Any) -> dict[str, Any]:
        return other | self.to_python() if isinstance(other, dict) else NotImplemented

    def copy(self) -> dict[str, Any]:
        """Return a plain, deep copy, as `to_python` does."""
        return self.to_python()

    def __copy__(self) -> dict[str, Any]:
        return self.to_python()

    def __deepcopy__(self, _memo: dict[int, Any]) -> dict[str, Any]:
        return self.to_python()

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        """Pickle as a plain dict."""
        return dict, (self.to_python(),)

    def to_python(self) -> dict[str, Any]:
        """Return a plain, deep copy."""
        source = self._source
        value = cbor.decode(tree_item(source)) if isinstance(source, Tree) else _copied(source)
        assert isinstance(value, dict)
        return value

    def __repr__(self) -> str:
        from statelog.display.lines import map_line

        return cbor.decoded_loosely(map_line, self)

    def __rich__(self) -> object:
        from statelog.display.terminal import value_tree

        return cbor.decoded_loosely(value_tree, self)

    def _repr_html_(self) -> str:
        from statelog.display.notebook import value_html

        return cbor.decoded_loosely(value_html, self)


def _plain_map(value: MapView | dict[str, Any]) -> dict[str, Any]:
    return value.to_python() if isinstance(value, MapView) else value


class _MapItems(ItemsView[str, Any]):
    """The (key, value) pairs of a map. Several neighbouring values are read at a time."""

    _mapping: MapView

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return self._mapping._pairs()  # noqa: SLF001 - the map's own view


class _Values(ValuesView[Any]):
    """The values of a map. Several neighbouring values are read at a time."""

    _mapping: MapView

    def __iter__(self) -> Iterator[Any]:
        return (value for _key, value in self._mapping._pairs())  # noqa: SLF001 - the map's own view


def _copied(value: Any) -> Any:
    if not isinstance(value, list | dict | set | tuple | frozenset):
        return value
    try:
        return cbor.decode(cbor.encode(value))
    except ValueTypeError:  # Within `cbor.reading_unregistered`, the codec may be unregistered.
        return copy.deepcopy(value)


def state_view(workspace: Workspace, digest: bytes, lsn: int, number: int) -> MapView:
    """Return a view of the state with this root, by channel name."""
    return MapView(Tree(workspace, workspace.read(ROOT, digest, lsn, number)), is_state=True)


EMPTY_STATE = MapView({}, is_state=True)
