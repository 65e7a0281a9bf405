"""Reducers on encoded values: each merges one prepared write into a slot.

A reducer reads only the entries that change. Values that the kernels do not support (integers beyond 64 bits, Decimals,
NaN) are decoded, merged in Python, and encoded, with the same result.
"""

from __future__ import annotations

import builtins
import operator
from typing import TYPE_CHECKING, Any, TypeVar

from statelog import kernels
from statelog.errors import ReducerTypeError
from statelog.format import cbor
from statelog.format.unstorable import is_uuid
from statelog.limits import BLOB_SIZE_BYTES_MIN, LEAF_SIZE_BYTES_MAX
from statelog.tree import mapping, sequence
from statelog.tree.builder import Builder
from statelog.tree.node import REF_ROOT, ValueSlot, Workspace
from statelog.tree.tree import LISTS, STRINGS
from statelog.tree.value import (
    add_root,
    container_head,
    container_kind,
    encode_slot,
    is_tree,
    open_root,
    read_item,
    root_kind,
    split,
    string_body,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from statelog.tree.tree import Tree

T = TypeVar("T")

_EMPTY_LIST = ValueSlot(b"\x80")
_MAJOR_DICT = 5
_SEQUENCES = (kernels.KIND_LIST, kernels.KIND_TUPLE)
"""The kinds of values that `+` concatenates."""


def replace(workspace: Workspace, current: ValueSlot | None, item: bytes, *, key: bytes = b"") -> ValueSlot:
    """Replace the value with the write. Reuse pieces of the old value that recur in the new value."""
    if current is not None and is_tree(current) and len(item) > LEAF_SIZE_BYTES_MAX:
        open_root(workspace, current).know_all()
    return encode_slot(workspace, item, top=True, key=key)


def add(workspace: Workspace, current: ValueSlot | None, item: bytes | list[bytes]) -> ValueSlot:
    """Add numbers, or concatenate lists, tuples, str and bytes, like `operator.add`. A list is passed as its items."""
    current = _without_key(workspace, current) if current else None
    if isinstance(item, list):
        if current is None or _is_list(workspace, current):
            return sequence.append(workspace, current or _EMPTY_LIST, item)
        item = container_head(kernels.KIND_LIST, len(item)) + b"".join(item)
    if current is None:
        return encode_slot(workspace, item, top=True)
    if not is_tree(current):
        held = read_item(workspace, current)
        kind = container_kind(held) if not current.is_ref else -1
        if kind in _SEQUENCES and container_kind(item) == kind:
            return sequence.append(workspace, current, split(item))
        summed = _of_kinds("add", kernels.add, held, item)
        if summed is None:
            summed = _in_python(operator.add, held, item)
        return encode_slot(workspace, summed, top=True)
    kind = root_kind(workspace, current)
    if kind in _SEQUENCES and container_kind(item) == kind:
        return sequence.append(workspace, current, split(item))
    tree = open_root(workspace, current)
    if kind in STRINGS:
        return _add_string(tree, item)
    message = f"cannot add {_name(item)} to {_tree_name(tree)}"
    raise ReducerTypeError(message)


def _add_string(tree: Tree, item: bytes) -> ValueSlot:
    wanted = 3 if tree.kind == kernels.KIND_STR else 2
    if item[0] >> 5 != wanted:
        message = f"cannot add {_name(item)} to {_tree_name(tree)}"
        raise ReducerTypeError(message)
    builder = Builder(tree.workspace, tree.kind)
    tree.feed(builder, 0, tree.count)
    builder.push_bytes(bytes(string_body(item)))
    return add_root(tree.workspace, builder.finish())


def extend(workspace: Workspace, current: ValueSlot | None, items: Sequence[bytes]) -> ValueSlot:
    """Append items to a list."""
    slot = _without_key(workspace, current) if current else _EMPTY_LIST
    if _kind(workspace, slot) != kernels.KIND_LIST:
        message = f"cannot append to {_slot_name(workspace, slot)}, a list is needed"
        raise ReducerTypeError(message)
    return sequence.append(workspace, slot, items)


def union(workspace: Workspace, current: ValueSlot | None, item: bytes) -> ValueSlot:
    """Add the elements of a set or frozenset to a set."""
    if current is None:
        return encode_slot(workspace, item, top=True)
    kind = _kind(workspace, current)
    if kind not in (kernels.KIND_SET, kernels.KIND_FROZENSET):
        message = f"cannot unite {_slot_name(workspace, current)} with {_name(item)}, a set is needed"
        raise ReducerTypeError(message)
    elements = split(item)
    if not _are_told_apart_by_bytes(workspace, current, elements):
        united = cbor.decode(read_item(workspace, current)) | cbor.decode(item)
        return replace(workspace, current, cbor.encode(united))
    return mapping.merge(workspace, current, [(element, ValueSlot(element)) for element in elements])


def _are_told_apart_by_bytes(workspace: Workspace, current: ValueSlot, elements: list[bytes]) -> bool:
    """Return True if no two elements are equal in Python but differ in bytes, as 1, 1.0, True and Decimal(1) do.

    Strings, bytes, None and UUIDs equal only values of their own kind. An integer may equal a number of a different
    kind that is already in the set. Elements are sorted by bytes, so a search by prefix finds numbers of these kinds.
    """
    majors = {element[0] >> 5 for element in elements}
    if not majors <= {0, 1, 2, 3}:
        return all(_is_plain(cbor.decode(element)) for element in elements)
    if not majors & {0, 1}:
        return True
    if not is_tree(current):
        return not any(element.startswith(_OTHER_NUMBERS) for element in split(read_item(workspace, current)))
    tree = open_root(workspace, current)
    return not any(mapping.holds_prefix(tree, prefix) for prefix in _OTHER_NUMBERS)


_OTHER_NUMBERS = (b"\xd8\x1b", b"\xd9\xc8\x67", b"\xf4", b"\xf5", b"\xf9", b"\xfa", b"\xfb")
"""The first bytes of codec values, Decimals, bools and floats."""


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(_is_plain(member) for member in value)
    return value is None or isinstance(value, str | bytes) or is_uuid(type(value))


def merge(workspace: Workspace, current: ValueSlot | None, item: bytes) -> ValueSlot:
    """Merge the keys of a written dict into a dict. A key of the write replaces an existing key."""
    if current is None:
        return encode_slot(workspace, item, top=True)
    if _has_other_keys(workspace, current, item):
        return _merge_in_python(workspace, current, item, deep=False, top=True)
    _require_dict(workspace, current, item)
    if not is_tree(current):
        merged = kernels.merge_maps(read_item(workspace, current), item, deep=False)
        return encode_slot(workspace, merged, top=True)
    children = split(item)
    pairs = [(children[at], children[at + 1]) for at in range(0, len(children), 2)]
    return mapping.update(current, workspace, pairs)


def deep_merge(workspace: Workspace, current: ValueSlot | None, item: bytes) -> ValueSlot:
    """Merge like `merge`. If both sides have a dict under a key, merge the two dicts recursively."""
    if current is None:
        return encode_slot(workspace, item, top=True)
    if not _has_other_keys(workspace, current, item):
        _require_dict(workspace, current, item)
    return _deep_merge(workspace, current, item, top=True)


def _deep_merge(workspace: Workspace, current: ValueSlot, item: bytes, *, top: bool) -> ValueSlot:
    if cbor.PAIRS_PREFIX in item or (not is_tree(current) and cbor.PAIRS_PREFIX in read_item(workspace, current)):
        return _merge_in_python(workspace, current, item, deep=True, top=top)
    if not is_tree(current):
        merged = kernels.merge_maps(read_item(workspace, current), item, deep=True)
        return encode_slot(workspace, merged, top=top)
    tree = open_root(workspace, current)
    children = split(item)
    batch: mapping.Batch = []
    for at in range(0, len(children), 2):
        key, member = children[at], children[at + 1]
        held = mapping.get(tree, key) if member[0] >> 5 == _MAJOR_DICT else None
        if held is not None and (_kind(workspace, held) == kernels.KIND_DICT or _has_other_keys(workspace, held, b"")):
            batch.append((key, _deep_merge(workspace, held, member, top=False)))
        else:
            batch.append((key, encode_slot(workspace, member)))
    return mapping.merge(workspace, current, batch, top=top)


def _has_other_keys(workspace: Workspace, current: ValueSlot, item: bytes) -> bool:
    """Return True if the write or the current value is a dict with a key that is not a str."""
    return item.startswith(cbor.PAIRS_PREFIX) or (
        not is_tree(current) and read_item(workspace, current).startswith(cbor.PAIRS_PREFIX)
    )


def _merge_in_python(workspace: Workspace, current: ValueSlot, item: bytes, *, deep: bool, top: bool) -> ValueSlot:
    """Merge dicts with keys that are not strings, which the kernels do not support."""
    held, write = cbor.decode(read_item(workspace, current)), cbor.decode(item)
    if type(held) is not dict or type(write) is not dict:
        message = f"cannot merge {_name(item)} into {_slot_name(workspace, current)}, dicts are needed"
        raise ReducerTypeError(message)
    merged = merge_plain(held, write) if deep else {**held, **write}
    return encode_slot(workspace, cbor.encode(merged), top=top)


def merge_plain(current: dict[Any, Any], write: dict[Any, Any]) -> dict[Any, Any]:
    """Return the deep merge of two Python dicts."""
    merged = dict(current)
    for key, value in write.items():
        held = merged.get(key)
        both = isinstance(held, dict) and isinstance(value, dict)
        merged[key] = merge_plain(held, value) if both else value  # type: ignore[arg-type]  # Both are dicts.
    return merged


def extreme(workspace: Workspace, current: ValueSlot | None, item: bytes, *, largest: bool) -> ValueSlot:
    """Keep the larger (or smaller) of two values. If they are equal, keep the current one."""
    if current is None:
        return encode_slot(workspace, item, top=True)
    held = read_item(workspace, current)
    order = _of_kinds("compare", kernels.compare, held, item)
    if order is None:
        chosen = _in_python(builtins.max if largest else builtins.min, held, item)
        return current if chosen == held else encode_slot(workspace, chosen, top=True)
    write_wins = order < 0 if largest else order > 0
    return encode_slot(workspace, item, top=True) if write_wins else current


def upsert(
    workspace: Workspace,
    current: ValueSlot | None,
    operations: Sequence[tuple[bool, bytes]],
    *,
    key: bytes,
    cache: dict[bytes, bytes],
) -> ValueSlot:
    """Apply operations to a keyed list: replace items with the same value under `key`, append items, remove items."""
    slot = current or _EMPTY_LIST
    if _kind(workspace, slot) not in LISTS:
        message = f"cannot upsert into {_slot_name(workspace, slot)}, a list is needed"
        raise ReducerTypeError(message)
    return sequence.upsert(workspace, slot, key, operations, cache)


def custom(
    workspace: Workspace,
    current: ValueSlot | None,
    item: bytes,
    function: Callable[[Any, Any], Any],
    encode: Callable[[Any], bytes],
) -> ValueSlot:
    """Merge with a user's function on decoded values. The first write becomes the value."""
    if current is None:
        return encode_slot(workspace, item, top=True)
    merged = encode(function(cbor.decode(read_item(workspace, current)), cbor.decode(item)))
    return replace(workspace, current, merged)


def _in_python(function: Callable[[Any, Any], Any], held: bytes, item: bytes) -> bytes:
    a, b = cbor.decode(held), cbor.decode(item)
    return cbor.encode(_merged(function, a, b))


def sum_in_python(a: Any, b: Any) -> Any:
    """Return the sum of two values like `operator.add`. Raises ReducerTypeError."""
    return _merged(operator.add, a, b)


def _merged(function: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    try:
        return function(a, b)
    except TypeError as error:
        message = f"cannot merge {type(b).__name__} into {type(a).__name__}: {error}"
        raise ReducerTypeError(message) from error
    except ArithmeticError as error:
        message = f"cannot merge {b!r:.40} into {a!r:.40}: {error!r}"
        raise ReducerTypeError(message) from error


def _require_dict(workspace: Workspace, current: ValueSlot, item: bytes) -> None:
    if _kind(workspace, current) != kernels.KIND_DICT or item[0] >> 5 != _MAJOR_DICT:
        message = f"cannot merge {_name(item)} into {_slot_name(workspace, current)}, dicts are needed"
        raise ReducerTypeError(message)


def _of_kinds(verb: str, kernel: Callable[[bytes, bytes], T], held: bytes, item: bytes) -> T:
    """Call a kernel on two items. If the kernel fails, the error names the kinds of both items."""
    try:
        return kernel(held, item)
    except ReducerTypeError:
        message = f"cannot {verb} {_name(held)} and {_name(item)}"
        raise ReducerTypeError(message, current=_name(held), write=_name(item)) from None


def _without_key(workspace: Workspace, slot: ValueSlot) -> ValueSlot:
    """Convert a keyed list, which exists if an earlier schema version used `upsert`, to a list.

    Return other slots unchanged.
    """
    if not is_tree(slot) or root_kind(workspace, slot) != kernels.KIND_KEYED:
        return slot
    workspace.has_garbage = True
    return encode_slot(workspace, read_item(workspace, slot), top=True)


def _is_list(workspace: Workspace, slot: ValueSlot) -> bool:
    if slot.data[:1] == REF_ROOT:
        return root_kind(workspace, slot) == kernels.KIND_LIST
    return container_kind(slot.data) == kernels.KIND_LIST


def _kind(workspace: Workspace, slot: ValueSlot) -> int:
    """Return the container kind of a slot's value, or -1 for a scalar."""
    if is_tree(slot):
        return root_kind(workspace, slot)
    return container_kind(read_item(workspace, slot))


def _name(item: bytes) -> str:
    return (
        type(cbor.decode(item)).__name__
        if len(item) < BLOB_SIZE_BYTES_MIN
        else _KIND_NAMES.get(container_kind(item), "str" if item[0] >> 5 == 3 else "bytes")
    )


def _slot_name(workspace: Workspace, slot: ValueSlot) -> str:
    return _tree_name(open_root(workspace, slot)) if is_tree(slot) else _name(read_item(workspace, slot))


def _tree_name(tree: Tree) -> str:
    return _KIND_NAMES[tree.kind]


_KIND_NAMES = {
    kernels.KIND_LIST: "list",
    kernels.KIND_KEYED: "list",
    kernels.KIND_TUPLE: "tuple",
    kernels.KIND_DICT: "dict",
    kernels.KIND_SET: "set",
    kernels.KIND_FROZENSET: "frozenset",
    kernels.KIND_STR: "str",
    kernels.KIND_BYTES: "bytes",
}
