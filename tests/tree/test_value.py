"""Slots: where FORMAT.md 4.1 puts a value follows from its size and kind alone (T2)."""

from __future__ import annotations

import pytest
from hypothesis import given

from statelog.errors import CorruptionError, ReducerTypeError
from statelog.format import cbor
from statelog.testing import identical, large_values, values
from statelog.tree import mapping
from statelog.tree.node import REF_LEAF, REF_ROOT, ROOT, ValueSlot
from statelog.tree.tree import Tree
from statelog.tree.value import (
    container_head,
    encode_slot,
    identity_of,
    open_root,
    read_item,
    read_string,
    small_item,
    split,
    text_item,
)

INLINE, LEAF_REF, ROOT_REF = "inline", "leaf", "root"


def form_of(slot):
    return {REF_LEAF: LEAF_REF, REF_ROOT: ROOT_REF}.get(slot.data[:1], INLINE)


def parts_of(size):
    """Return strings of about that size in all, the last one still to be padded."""
    return [f"{number:030}" for number in range(max(size - 60, 0) // 34)]


MAKERS = {
    list: lambda size, padding: [*parts_of(size), padding],
    tuple: lambda size, padding: (*parts_of(size), padding),
    dict: lambda size, padding: {**dict.fromkeys(parts_of(size)), "last": padding},
    set: lambda size, padding: {*parts_of(size), padding},
    frozenset: lambda size, padding: frozenset({*parts_of(size), padding}),
    str: lambda size, padding: "x" * max(size - 60, 0) + padding,
    bytes: lambda size, padding: b"x" * max(size - 60, 0) + padding.encode(),
}


def sized(kind, size):
    """Return a value of a kind whose encoding has exactly `size` bytes."""
    made = (MAKERS[kind](size, "z" * padding) for padding in range(400))
    return next(value for value in made if len(cbor.encode(value)) == size)


@pytest.mark.parametrize("kind", [list, tuple, dict, set, frozenset])
@pytest.mark.parametrize(
    ("size", "top", "form"),
    [
        (63, True, INLINE),
        (64, True, INLINE),
        (65, True, ROOT_REF),
        (4097, True, ROOT_REF),
        (64, False, INLINE),
        (65, False, LEAF_REF),
        (4096, False, LEAF_REF),
        (4097, False, ROOT_REF),
    ],
)
def test_containers_stand_where_their_size_says(log, kind, size, top, form):
    value = sized(kind, size)
    slot = log.put(value, top=top)
    assert form_of(slot) == form
    assert log.get(slot) == value


@pytest.mark.parametrize("kind", [str, bytes])
@pytest.mark.parametrize("top", [True, False])
@pytest.mark.parametrize(
    ("size", "form"),
    [(64, INLINE), (66, LEAF_REF), (4097, LEAF_REF), (16_384, LEAF_REF), (16_385, ROOT_REF), (70_000, ROOT_REF)],
)
def test_strings_stand_where_their_size_says(log, kind, top, size, form):
    value = sized(kind, size)
    slot = log.put(value, top=top)
    assert form_of(slot) == form
    assert log.get(slot) == value


def test_a_large_number_is_a_leaf(log):
    assert form_of(log.put(2**5000)) == LEAF_REF
    assert log.get(log.put(2**5000)) == 2**5000


@given(values() | large_values())
def test_every_value_is_read_as_it_was_stored(new_log, value):
    log = new_log()
    slot = log.put(value)
    assert identical(log.get(slot), value)
    inside = log.put([value])
    assert identical(log.get(inside), [value])
    assert log.put(value).data == slot.data


@pytest.mark.parametrize("size", [0, 1, 2047, 2048, 16_384, 16_385, 65_536, 300_000])
def test_stretches_of_a_string_are_slices(log, size):
    data = bytes(number * 7919 % 251 for number in range(size)) + bytes(20_000)
    tree = open_root(log.workspace(), log.put(data))
    for start, stop in ((0, 0), (0, 1), (0, len(data)), (1, 2048), (size // 2, size), (size, size + 5000)):
        assert read_string(tree, start, stop) == data[start:stop]


def test_a_tree_that_has_become_small_is_not_stored_as_a_tree(log):
    slot = log.put({f"{number}": number for number in range(500)})
    workspace = log.workspace()
    batch = [(key, None) for key in sorted(cbor.encode(f"{number}") for number in range(3, 500))]
    small = log.commit(workspace, mapping.merge(workspace, slot, batch))
    assert form_of(small) == INLINE
    assert log.nodes_written() == (0, 0)
    assert log.get(small) == {"0": 0, "1": 1, "2": 2}


def test_a_small_item_is_found_without_reading_a_large_one(log):
    slot = log.put([["x" * 100] * 50] * 100)
    tree = open_root(log.workspace(), slot)
    log.reads = 0
    assert small_item(tree, 4096) is None
    assert log.reads <= 8


def test_children_of_a_container_are_its_items():
    assert split(cbor.encode([1, "a", None])) == [b"\x01", b"\x61a", b"\xf6"]
    assert split(cbor.encode({"b": 2, "a": 1})) == [b"\x61a", b"\x01", b"\x61b", b"\x02"]
    assert split(cbor.encode({2, 1})) == [b"\x01", b"\x02"]
    for value in ([1] * 30, (1,) * 300, {"a": 1}, {1, 2}, frozenset("abc")):
        item = cbor.encode(value)
        kind = {list: 0, tuple: 1, dict: 2, set: 3, frozenset: 4}[type(value)]
        assert container_head(kind, len(value)) + b"".join(split(item)) == item


def test_the_identity_of_an_item_is_its_encoded_key():
    item = cbor.encode({"id": [1, 2], "x": 3})
    assert identity_of(item, text_item(b"id")) == cbor.encode([1, 2])
    with pytest.raises(ReducerTypeError, match="'key'"):
        identity_of(item, text_item(b"key"))


def test_a_slot_that_begins_with_a_reserved_byte_is_damage(log):
    with pytest.raises(CorruptionError):
        read_item(log.workspace(), ValueSlot(b"\xfe" + bytes(20), 1, 0))


def test_equal_values_share_their_nodes_within_a_record(log):
    large = ["x" * 100] * 200
    log.put([large, large, large])
    three = log.nodes_written()[0]
    log.put([large])
    assert three == log.nodes_written()[0]


def test_a_root_reads_back_as_the_tree_it_was(log):
    workspace = log.workspace()
    slot = encode_slot(workspace, cbor.encode(list(range(100))), top=True)
    tree = Tree(workspace, workspace.read(ROOT, slot.data[1:], slot.lsn, slot.number))
    assert (tree.count, tree.kind) == (100, 0)
