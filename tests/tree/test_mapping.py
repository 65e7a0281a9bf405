"""Dicts and sets: whatever was done to one, its nodes are those of the same value stored at once."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from statelog import kernels
from statelog.format import cbor
from statelog.tree import mapping
from statelog.tree.node import ValueSlot
from statelog.tree.value import encode_slot, is_tree, open_root

SIZES = st.sampled_from([0, 1, 7, 8, 9, 127, 128, 129, 130, 500, 2000, 6000]) | st.integers(0, 300)
SEEDS = st.integers(0, 2**32)
HEAVY = settings(max_examples=settings.default.max_examples // 10)
"""Of thousands of items each."""

KEYS = {
    "short": lambda rng, reach: f"key {rng.randrange(reach)}",
    "of all lengths": lambda rng, reach: "k" * rng.choice([0, 1, 22, 23, 24, 255, 256]) + str(rng.randrange(reach)),
    "of the largest size": lambda rng, reach: f"{rng.randrange(reach):04000}",
}
VALUES = {
    "numbers": lambda rng: rng.randrange(1 << 20),
    "either side of inline": lambda rng: "x" * rng.randrange(60, 70),
    "files": lambda rng: "line\n" * rng.choice([10, 800, 900, 3500]),
    "trees": lambda rng: {f"{n}": n for n in range(rng.choice([3, 100, 1500]))},
}


def make_dict(keys, values, rng, count):
    reach = 3 * count + 10
    count = min(count, 60) if keys == "of the largest size" or values in ("files", "trees") else count
    return {KEYS[keys](rng, reach): VALUES[values](rng) for _ in range(count)}


def batch_of(workspace, puts, removals):
    pairs = {cbor.encode(key): encode_slot(workspace, cbor.encode(value)) for key, value in puts.items()}
    pairs.update({cbor.encode(key): None for key in removals})
    return sorted(pairs.items())


@pytest.mark.slow
@HEAVY
@given(st.sampled_from(sorted(KEYS)), st.sampled_from(sorted(VALUES)), SIZES, st.lists(SIZES, max_size=4), SEEDS)
@example("short", "numbers", 6000, [1, 8, 2000, 1], 1)
@example("short", "files", 60, [1, 1, 60], 2)
@example("of the largest size", "numbers", 60, [1, 1, 9], 3)
@example("of all lengths", "either side of inline", 2000, [1, 1, 1, 1], 4)
def test_merges_come_to_the_dict_stored_at_once(new_log, keys, values, size, rounds, seed):
    log, rng = new_log(), random.Random(seed)
    held = make_dict(keys, values, rng, size)
    slot = log.put(held)
    for count in rounds:
        puts = make_dict(keys, values, rng, count)
        removals = [key for key in held if rng.random() < rng.choice([0, 0.001, 0.1, 1]) and key not in puts]
        workspace = log.workspace()
        slot = log.commit(workspace, mapping.merge(workspace, slot, batch_of(workspace, puts, removals)))
        held = {key: value for key, value in {**held, **puts}.items() if key not in removals}
        assert slot.data == log.put(held).data
        assert log.get(slot) == held


ELEMENTS = {
    "numbers": lambda rng, reach: rng.randrange(reach),
    "text": lambda rng, reach: f"element {rng.randrange(reach)}",
    "of the largest size": lambda rng, reach: f"{rng.randrange(reach):04000}",
    "tuples": lambda rng, reach: (rng.randrange(reach), "x" * rng.randrange(100)),
}


@pytest.mark.slow
@HEAVY
@given(st.sampled_from(sorted(ELEMENTS)), st.sampled_from([set, frozenset]), SIZES, st.lists(SIZES, max_size=4), SEEDS)
@example("numbers", set, 6000, [1, 2000], 1)
@example("text", frozenset, 2000, [1, 1, 1], 2)
def test_set_merges_come_to_the_set_stored_at_once(new_log, elements, kind, size, rounds, seed):
    log, rng = new_log(), random.Random(seed)
    make = ELEMENTS[elements]
    most = 60 if elements == "of the largest size" else 10_000
    held = kind(make(rng, 2 * size + 5) for _ in range(min(size, most)))
    slot = log.put(held)
    for count in rounds:
        puts = kind(make(rng, 3 * size + 5) for _ in range(min(count, most)))
        removals = {element for element in held if rng.random() < rng.choice([0, 0.01, 1])} - puts
        batch = [(cbor.encode(element), None) for element in removals]
        batch += [(item, ValueSlot(item)) for item in map(cbor.encode, puts)]
        workspace = log.workspace()
        slot = log.commit(workspace, mapping.merge(workspace, slot, sorted(batch)))
        held = (held | puts) - removals
        assert slot.data == log.put(held).data
        assert log.get(slot) == held
        assert type(log.get(slot)) is kind


def test_removing_missing_items_changes_nothing(log):
    for count in (0, 5, 50, 3000):
        slot = log.put({f"{number}": number for number in range(count)})
        workspace = log.workspace()
        same = log.commit(workspace, mapping.merge(workspace, slot, [(cbor.encode("absent"), None)]))
        assert same.data == slot.data


def test_editing_one_of_a_thousand_files_writes_that_one(log):
    slot = log.put({f"file {number}": f"{number}\n" * 2000 for number in range(1000)})
    workspace = log.workspace()
    batch = batch_of(workspace, {"file 500": "changed\n" * 1200}, [])
    slot = log.commit(workspace, mapping.merge(workspace, slot, batch))
    _nodes, size = log.nodes_written()
    assert size <= len("changed\n" * 1200) + 32_768


@pytest.mark.slow
def test_a_key_is_found_by_one_path(log):
    slot = log.put({f"key {number}": number for number in range(20_000)})
    tree = open_root(log.workspace(), slot)
    log.reads = 0
    _position, found = tree.find(cbor.encode("key 12345"))
    assert cbor.decode(found.data) == 12_345
    assert log.reads <= 3 * len(tree.head.levels) + 1


@pytest.mark.parametrize("count", [1, 8, 129, 5000])
def test_every_key_is_at_the_position_it_says(log, count):
    held = {f"key {number}": number for number in range(count)}
    tree = open_root(log.workspace(), log.put({**held, "padding": "x" * 64}))
    keys = sorted(map(cbor.encode, [*held, "padding"]))
    for position in {0, 1, count // 2, count - 1, count} & set(range(count + 1)):
        assert tree.find(keys[position])[0] == position
    for absent in (b"\x60", b"\x7a\xff\xff\xff\xff", cbor.encode("key 7x")):
        position, found = tree.find(absent)
        assert found is None
        assert position == sum(key < absent for key in keys)


def test_an_empty_root_is_the_root_of_an_empty_dict(log):
    node = mapping.empty_root(kernels.KIND_DICT)
    assert kernels.root_read(*node).count == 0
    assert not is_tree(log.put({}))
