"""Lists and dicts of a lazy mount, which change a stored tree in place.

When a value is read, it is kept with its stored bytes. At the end it is encoded again. If the bytes differ, the value
was changed at some depth. Only the parts of a stored list or dict that were read or set are compared and written.
"""

from __future__ import annotations

import copy
import operator
import sys
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, MutableSequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, cast, overload

from statelog import kernels
from statelog.errors import StatelogError, UsageError
from statelog.format import cbor
from statelog.limits import KEY_SIZE_BYTES_MAX
from statelog.store.encoded import TEXT_ONLY, Encoded, Lazy, encode_value, plain
from statelog.store.views import MapView, find_text, position_in
from statelog.tree import mapping, sequence
from statelog.tree.tree import LISTS, Tree
from statelog.tree.value import encode_slot, is_tree, open_root, read_item, tree_item

if TYPE_CHECKING:
    from statelog.tree.node import ValueSlot, Workspace


@dataclass(slots=True)
class Loaded:
    """A value of a mount that the user has read or set.

    Attributes:
        value: the value, or a `MountList` or `MountMap` over a stored tree.
        item: its stored bytes, or None for a new value or a tree.
        position: its position in the stored list, or None for a new value.
        final: the bytes to store, set by `encode`.
    """

    value: Any
    item: bytes | None = None
    position: int | None = None
    final: bytes | None = None

    @property
    def mounted(self) -> MountList | MountMap | None:
        """The `MountList` or `MountMap` of a stored tree, or None."""
        value = self.value
        return value if isinstance(value, MountList | MountMap) and value.origin is self else None

    def stored_item(self) -> bytes | None:
        """Return the stored item, or None for a new value. A mounted tree is read whole."""
        mounted = self.mounted
        return self.item if mounted is None else tree_item(mounted.tree)

    def is_changed(self) -> bool:
        """Whether the value differs from the stored value."""
        mounted = self.mounted
        if mounted is not None:
            return mounted.is_changed()
        if self.item is None:
            return True
        try:
            return cbor.encode(plain(self.value)) != self.item
        except StatelogError:
            return True  # `encode` raises this error again with the path.

    def encode(self, path: str, depth: int = 0) -> bool:
        """Encode the value for the commit, and return `is_changed`. Raises an error with its path for an invalid part.

        `depth` is the number of lists and dicts around the value.
        """
        mounted = self.mounted
        if mounted is not None:
            return mounted.encode(path, depth)
        self.final = encode_value(self.value, path, depth)
        return self.final != self.item

    def store(self, workspace: Workspace) -> ValueSlot:
        """Return the slot of the encoded value, as a part of another value."""
        mounted = self.mounted
        if mounted is not None:
            return mounted.store(workspace, top=False)
        assert self.final is not None
        return encode_slot(workspace, self.final)


def load_value(workspace: Workspace, slot: ValueSlot, position: int | None = None) -> Loaded:
    """Return a stored value that can be changed."""
    if is_tree(slot):
        tree = open_root(workspace, slot)
        loaded = Loaded(None, position=position)
        if tree.kind in LISTS:
            loaded.value = MountList(tree, slot, loaded)
            return loaded
        if tree.kind == kernels.KIND_DICT:
            loaded.value = MountMap(tree, slot, loaded)
            return loaded
    item = read_item(workspace, slot)
    return Loaded(cbor.decode(item), item, position)


class MountList(Lazy, MutableSequence[Any]):
    """A stored list that is changed in place.

    It consists of ranges of the stored list, and loaded or new items between them.

    Copies and pickles are plain lists.
    """

    __slots__ = ("_edits", "_pieces", "_slot", "_tree", "origin")

    def __init__(self, tree: Tree, slot: ValueSlot, origin: Loaded) -> None:
        self.origin = origin
        self._tree = tree
        self._slot = slot
        self._pieces: list[range | list[Loaded]] = [range(tree.count)]
        self._edits: list[tuple[int, int, list[bytes]]] = []

    @property
    def tree(self) -> Tree:
        """The stored list (internal)."""
        return self._tree

    # --- pieces --------------------------------------------------------------------

    def _split(self, position: int) -> int:
        """Split the pieces before the item at `position`. Return the index of the piece that begins there."""
        for number, piece in enumerate(self._pieces):
            if position == 0:
                return number
            if position < len(piece):
                self._pieces[number : number + 1] = [piece[:position], piece[position:]]
                return number + 1
            position -= len(piece)
        return len(self._pieces)

    def _loaded(self, position: int) -> Loaded:
        """Return an item. Remember the object if the user can change it in place."""
        offset = position
        for piece in self._pieces:
            if offset < len(piece):
                break
            offset -= len(piece)
        if isinstance(piece, list):
            return _opened(piece[offset])
        stored = piece[offset]
        loaded = load_value(self._tree.workspace, self._tree.at(stored), stored)
        if not cbor.is_immutable(type(loaded.value)):
            number = self._split(position)
            self._split(position + 1)
            self._pieces[number] = [loaded]
        return loaded

    def _replace(self, start: int, stop: int, values: Iterable[Any]) -> None:
        first = self._split(start)
        last = self._split(stop) if stop > start else first
        made = [Loaded(value) for value in values]
        if first and isinstance(self._pieces[first - 1], list) and first == last:
            self._pieces[first - 1].extend(made)  # type: ignore[union-attr]  # The check above shows that it is a list.
        else:
            self._pieces[first:last] = [made] if made else []

    # --- as a list -----------------------------------------------------------------

    def __len__(self) -> int:
        return sum(map(len, self._pieces))

    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        if isinstance(index, slice):
            return [self._loaded(position).value for position in range(len(self))[index]]
        return self._loaded(position_in(len(self), index)).value

    def __setitem__(self, index: SupportsIndex | slice, value: Any) -> None:
        if not isinstance(index, slice):
            position = position_in(len(self), index)
            self._replace(position, position + 1, [value])
            return
        positions = range(len(self))[index]
        values = list(value)
        if positions.step == 1:
            self._replace(positions.start, max(positions.stop, positions.start), values)
            return
        if len(values) != len(positions):
            message = f"cannot assign {len(values)} values to a slice of {len(positions)} items"
            raise ValueError(message)
        for position, item in zip(positions, values, strict=True):
            self._replace(position, position + 1, [item])

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        if not isinstance(index, slice):
            position = position_in(len(self), index)
            self._replace(position, position + 1, [])
            return
        positions = range(len(self))[index]
        if positions.step == 1:
            self._replace(positions.start, max(positions.stop, positions.start), [])
            return
        for position in sorted(positions, reverse=True):
            self._replace(position, position + 1, [])

    def insert(self, index: SupportsIndex, value: Any) -> None:
        """Insert `value` before `index`."""
        number, size = operator.index(index), len(self)
        position = max(number + size, 0) if number < 0 else min(number, size)
        self._replace(position, position, [value])

    def pop(self, index: SupportsIndex = -1) -> Any:
        """Remove an item, and return it."""
        if not len(self):
            raise IndexError("pop from empty list")
        position = position_in(len(self), index)
        value = self[position]
        del self[position]
        return value

    def index(self, value: Any, start: SupportsIndex = 0, stop: SupportsIndex = sys.maxsize) -> int:
        """Return the position of the first item that equals a value. Raises ValueError."""
        return super().index(value, operator.index(start), operator.index(stop))

    def __iter__(self) -> Iterator[Any]:
        position = 0
        while position < len(self):
            yield self._loaded(position).value
            position += 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MutableSequence) and plain(self) == plain(other)

    __hash__ = None  # type: ignore[assignment]  # as list

    def copy(self) -> list[Any]:
        """Return a plain, deep copy."""
        return copy.deepcopy(cast("list[Any]", plain(self)))

    def __copy__(self) -> list[Any]:
        return self.copy()

    def __deepcopy__(self, _memo: dict[int, Any]) -> list[Any]:
        return self.copy()

    def __reduce__(self) -> tuple[type, tuple[list[Any]]]:
        """Pickle as a plain list."""
        return list, (self.copy(),)

    def __repr__(self) -> str:
        return repr(plain(self))

    # --- the changes ---------------------------------------------------------------------

    def parts(self, path: str) -> Iterator[tuple[str, Any]]:
        """Yield the path and the item of each new or possibly changed item."""
        place = 0
        for piece in self._pieces:
            if isinstance(piece, list):
                yield from ((f"{path}[{place + offset}]", each.value) for offset, each in enumerate(piece))
            place += len(piece)

    def _compile(self, path: str, depth: int = 0) -> list[tuple[int, int, list[bytes]]]:
        """Return the edits that turn the stored list into this list.

        Raises an error for values that cannot be stored.
        """
        edits: list[tuple[int, int, list[bytes]]] = []
        at = 0
        fresh: list[bytes] = []
        count = 0
        for piece in [*self._pieces, range(self._tree.count, self._tree.count + 1)]:
            for stored, loaded in _stretches(piece):
                if loaded is not None and (loaded.position is None or loaded.is_changed()):
                    fresh.append(cbor.encode(plain(loaded.value), path=f"{path}[{count}]", depth=depth + 1))
                    count += 1
                    continue
                if fresh or stored.start > at:
                    edits.append((at, stored.start, fresh))
                    fresh = []
                at = stored.stop
                count += len(stored)
        return edits

    def is_changed(self) -> bool:
        """Whether the list differs from the stored list."""
        return bool(self._compile("value"))

    def encode(self, path: str, depth: int) -> bool:
        """Encode the changed parts for the commit, and return `is_changed`."""
        self._edits = self._compile(path, depth)
        return bool(self._edits)

    def store(self, workspace: Workspace, *, top: bool) -> ValueSlot:
        """Return the slot of the encoded list."""
        if not self._edits:
            return self._slot
        return sequence.edit(workspace, Tree(workspace, self._tree.node), self._edits, top=top)


def _stretches(piece: range | list[Loaded]) -> Iterator[tuple[range, Loaded | None]]:
    """Yield the stored positions and the loaded item of each part of a piece. A new item has no positions."""
    if isinstance(piece, range):
        yield piece, None
        return
    for loaded in piece:
        start = loaded.position
        yield (range(0) if start is None else range(start, start + 1)), loaded


class MountMap(Lazy, MutableMapping[str, Any]):
    """A stored dict that is changed in place. It has the members that were read or set, besides the stored dict.

    Copies and pickles are plain dicts.
    """

    __slots__ = ("_changes", "_loaded", "_removed", "_slot", "_slots", "_tree", "_whole", "origin")

    def __init__(self, tree: Tree, slot: ValueSlot, origin: Loaded) -> None:
        self.origin = origin
        self._tree = tree
        self._slot = slot
        self._loaded: dict[str, Loaded] = {}
        self._removed: set[str] = set()
        self._slots: dict[object, ValueSlot | None] = {}
        self._changes: list[tuple[str, Loaded | None]] = []
        self._whole: bytes | None = None

    @property
    def tree(self) -> Tree:
        """The stored dict (internal)."""
        return self._tree

    def _stored(self, key: object) -> ValueSlot | None:
        if key not in self._slots:
            self._slots[key] = find_text(self._tree, key)
        return self._slots[key]

    def __getitem__(self, key: str) -> Any:
        loaded = self._loaded.get(key)
        if loaded is None:
            slot = None if key in self._removed else self._stored(key)
            if slot is None:
                raise KeyError(key)
            loaded = self._loaded[key] = self._load(slot)
        return _opened(loaded).value

    def _load(self, slot: ValueSlot) -> Loaded:
        return load_value(self._tree.workspace, slot)

    def __setitem__(self, key: str, value: Any) -> None:
        self._loaded[key] = Loaded(value)
        self._removed.discard(key)

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self._loaded.pop(key, None)
        if self._stored(key) is not None:
            self._removed.add(key)

    def __contains__(self, key: object) -> bool:
        return key in self._loaded or (key not in self._removed and self._stored(key) is not None)

    def __iter__(self) -> Iterator[str]:
        for key in MapView(self._tree):
            if key not in self._removed:
                yield key
        yield from [key for key in self._loaded if self._stored(key) is None]

    def __len__(self) -> int:
        added = sum(1 for key in self._loaded if self._stored(key) is None)
        return self._tree.count - len(self._removed) + added

    def __setattr__(self, name: str, value: object) -> None:
        """Set an internal attribute. Raises AttributeError for a key that was written as an attribute."""
        if not name.startswith("_") and name not in {"origin", "base_version"}:
            message = f'a state is a dict: write state["{name}"] = ..., not state.{name} = ...'
            raise UsageError(message, argument=name, value=value)
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        message = f'a state is a dict: read state["{name}"], not state.{name}'
        raise AttributeError(message, name=name, obj=self)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self))

    def popitem(self) -> tuple[str, Any]:
        """Remove and return the last key and its value, like a dict."""
        for key in reversed(self):
            return key, self.pop(key)
        message = "popitem(): dictionary is empty"
        raise KeyError(message)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MutableMapping | dict) and plain(self) == plain(other)

    __hash__ = None  # type: ignore[assignment]  # as dict

    def __or__(self, other: Any) -> dict[str, Any]:
        return {**self.copy(), **other} if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Any) -> dict[str, Any]:
        return {**other, **self.copy()} if isinstance(other, Mapping) else NotImplemented

    def __ior__(self, other: Any) -> Self:
        self.update(other)
        return self

    def copy(self) -> dict[str, Any]:
        """Return a plain, deep copy."""
        return copy.deepcopy(cast("dict[str, Any]", plain(self)))

    def __copy__(self) -> dict[str, Any]:
        return self.copy()

    def __deepcopy__(self, _memo: dict[int, Any]) -> dict[str, Any]:
        return self.copy()

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        """Pickle as a plain dict."""
        return dict, (self.copy(),)

    def __repr__(self) -> str:
        return repr(plain(self))

    def touched(self) -> Iterator[tuple[str, ValueSlot | None, Loaded | None]]:
        """Yield (key, stored slot, loaded value or None if removed) of each member that was used, sorted by key."""
        for key in sorted(self._loaded.keys() | self._removed, key=str):
            yield key, self._stored(key), None if key in self._removed else self._loaded[key]

    def parts(self, path: str) -> Iterator[tuple[str, Any]]:
        """Yield the path and the value of each new or possibly changed member."""
        yield from ((f"{path}.{key}", loaded.value) for key, loaded in self._loaded.items())

    def is_other(self, loaded: Loaded, stored: ValueSlot | None, path: str | None = None, depth: int = 0) -> bool:
        """Return True if a loaded value differs from the stored value. With a path, also encode the loaded value."""
        if not (loaded.is_changed() if path is None else loaded.encode(path, depth)):
            return False
        if stored is None or loaded.item is not None or loaded.mounted is not None:
            return True
        try:
            final = cbor.encode(plain(loaded.value)) if path is None else loaded.final
        except StatelogError:
            return True
        return final != read_item(self._tree.workspace, stored)

    def is_changed(self) -> bool:
        """Whether the dict differs from the stored dict."""
        return any(loaded is None or self.is_other(loaded, stored) for _key, stored, loaded in self.touched())

    def encode(self, path: str, depth: int) -> bool:
        """Encode the changed parts for the commit, and return `is_changed`."""
        self._changes = []
        self._whole = None
        # A tree has only str keys, so encode the dict as a whole if it has a different key.
        if not TEXT_ONLY.issuperset(map(type, self._loaded)):
            self._whole = cbor.encode(plain(self), path=path, depth=depth)
            return True
        for key, stored, loaded in self.touched():
            if stored is None:
                _check_key(key, path)
            if loaded is None or self.is_other(loaded, stored, f"{path}.{key}", depth + 1):
                self._changes.append((key, loaded))
        return bool(self._changes)

    def store(self, workspace: Workspace, *, top: bool) -> ValueSlot:
        """Return the slot of the encoded dict."""
        if self._whole is not None:
            return encode_slot(workspace, self._whole, top=top)
        batch: mapping.Batch = [
            (cbor.encode(key), None if loaded is None else loaded.store(workspace)) for key, loaded in self._changes
        ]
        return mapping.merge(workspace, self._slot, sorted(batch, key=_first), top=top)


def _check_key(key: str, path: str) -> None:
    """Raise the error that any stored dict raises for an invalid key."""
    if type(key) is not str or len(cbor.encode(key, path=f"{path} key")) > KEY_SIZE_BYTES_MAX:
        cbor.encode({key: None}, path=path)


def _first(pair: tuple[bytes, ValueSlot | None]) -> bytes:
    return pair[0]


def _opened(loaded: Loaded) -> Loaded:
    """Decode a value that is an `Encoded`, because the user may change it from now on. Return the loaded value."""
    if type(loaded.value) is Encoded:
        loaded.value = cbor.decode(loaded.value.item)
    return loaded
