"""Lists: whatever was done to one, its nodes are those of the same list stored at once."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from statelog.errors import ReducerTypeError
from statelog.format import cbor
from statelog.tree import sequence
from statelog.tree.tree import Tree
from statelog.tree.value import is_tree, open_root

SIZES = st.sampled_from([0, 1, 7, 8, 9, 63, 127, 128, 129, 130, 500, 2000, 6000]) | st.integers(0, 300)
SEEDS = st.integers(0, 2**32)
HEAVY = settings(max_examples=settings.default.max_examples // 5)
"""Of thousands of items each."""

MAKERS = {
    "numbers": lambda rng: rng.randrange(1 << 30),
    "the same": lambda _rng: 7,
    "few": lambda rng: rng.randrange(3),
    "inline of 64 bytes": lambda rng: f"{rng.randrange(10**6):062}",
    "leaves of 65 bytes": lambda rng: f"{rng.randrange(10**6):063}",
    "either side of inline": lambda rng: "x" * rng.randrange(60, 70),
    "messages": lambda rng: {"id": str(rng.randrange(10**6)), "text": "word " * rng.randrange(20)},
    "nested trees": lambda rng: [rng.randrange(100)] * rng.choice([3, 100, 2100]),
}
MAKER = st.sampled_from(sorted(MAKERS))


def make_items(name, rng, count):
    return [MAKERS[name](rng) for _ in range(min(count, 200) if name == "nested trees" else count)]


def encoded(items):
    return [cbor.encode(item) for item in items]


@pytest.mark.slow
@HEAVY
@given(MAKER, SIZES, st.lists(SIZES, max_size=5), SEEDS)
@example("numbers", 6000, [1, 129, 2000, 8], 1)
@example("leaves of 65 bytes", 130, [500, 2000], 2)
@example("nested trees", 130, [9], 3)
def test_appends_come_to_the_list_stored_at_once(new_log, maker, size, appends, seed):
    log, rng = new_log(), random.Random(seed)
    items = make_items(maker, rng, size)
    slot = log.put(items)
    for count in appends:
        more = make_items(maker, rng, count)
        slot = log.change(sequence.append, slot, encoded(more))
        items += more
    assert slot.data == log.put(items).data
    assert log.get(slot) == items


@pytest.mark.slow
@HEAVY
@given(MAKER, st.integers(1, 700), SEEDS)
@example("numbers", 700, 1)
@example("the same", 300, 2)
@example("messages", 300, 3)
def test_one_by_one_appends_come_to_the_list_stored_at_once(new_log, maker, count, seed):
    log, rng = new_log(), random.Random(seed)
    items, slot = [], log.put([])
    for _ in range(min(count, 200) if maker == "nested trees" else count):
        more = make_items(maker, rng, rng.choice([1, 1, 2, 3]))
        slot = log.change(sequence.append, slot, encoded(more))
        items += more
    assert slot.data == log.put(items).data


def draw_edits(rng, size, count, maker):
    """Ascending edits that do not overlap, as [start, stop) and new items."""
    cuts = sorted(rng.randrange(size + 1) for _ in range(2 * count))
    edits, last = [], -1
    for start, stop in zip(cuts[::2], cuts[1::2], strict=True):
        near = min(stop, start + rng.choice([0, 0, 1, 1, 2, 50]))
        if start > last:
            edits.append((start, near, make_items(maker, rng, rng.choice([0, 1, 1, 2, 30]))))
            last = near
    return edits


def edited(items, edits):
    items = list(items)
    for start, stop, new in reversed(edits):
        items[start:stop] = new
    return items


@pytest.mark.slow
@HEAVY
@given(MAKER, SIZES.filter(lambda size: size > 8), st.lists(st.integers(1, 4), min_size=1, max_size=4), SEEDS)
@example("numbers", 6000, [1, 2, 4], 1)
@example("numbers", 2000, [1, 1, 1, 1], 2)
@example("messages", 2000, [1, 3], 3)
@example("inline of 64 bytes", 2000, [1, 1, 1], 4)
def test_edits_anywhere_come_to_the_list_stored_at_once(new_log, maker, size, rounds, seed):
    log, rng = new_log(), random.Random(seed)
    items = make_items(maker, rng, size)
    slot = log.put(items)
    for count in rounds:
        if not is_tree(slot):
            break
        edits = draw_edits(rng, len(items), count, maker)
        tree = open_root(log.workspace(), slot)
        workspace = tree.workspace
        made = [(start, stop, encoded(new)) for start, stop, new in edits]
        slot = log.commit(workspace, sequence.edit(workspace, tree, made))
        items = edited(items, edits)
        assert slot.data == log.put(items).data
        assert log.get(slot) == items


@pytest.mark.slow
@HEAVY
@given(SIZES, st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 7000)), max_size=8), max_size=4), SEEDS)
@example(6000, [[(1, 5999), (0, 3), (1, 8000)], [(0, 5000)], [(1, 3), (2, 3)]], 1)
def test_upserts_come_to_the_list_stored_at_once(new_log, size, rounds, seed):
    log, rng = new_log(), random.Random(seed)
    model = {number: {"id": number, "text": "x" * rng.randrange(90)} for number in range(size)}
    slot, cache = log.put(list(model.values()), key=b"id"), {}
    for operations in rounds:
        steps = []
        for action, number in operations:
            if action == 0 and number in model:
                del model[number]
                steps.append((True, cbor.encode(number)))
            else:
                model[number] = {"id": number, "text": "y" * rng.randrange(90)}
                steps.append((False, cbor.encode(model[number])))
        slot = log.change(sequence.upsert, slot, b"id", steps, cache)
        assert slot.data == log.put(list(model.values()), key=b"id").data
        assert log.get(slot) == list(model.values())


@pytest.mark.slow
def test_identities_of_equal_fingerprint_are_told_apart(log):
    # 70,000 identities must share some of the 65,536 fingerprints.
    items = [{"id": number} for number in range(70_000)]
    slot = log.put(items, key=b"id")
    for number in (0, 1, 34_567, 65_535, 65_536, 69_999):
        changed = log.change(sequence.upsert, slot, b"id", [(False, cbor.encode({"id": number, "new": True}))], {})
        read = log.get(changed)
        assert read[number] == {"id": number, "new": True}
        assert len(read) == 70_000


def test_removing_an_absent_identity_names_it(log):
    slot = log.put([{"id": number} for number in range(100)], key=b"id")
    with pytest.raises(ReducerTypeError, match="'ghost'"):
        log.change(sequence.upsert, slot, b"id", [(True, cbor.encode("ghost"))], {})
    with pytest.raises(ReducerTypeError, match="5"):
        log.change(sequence.upsert, slot, b"id", [(True, cbor.encode(5)), (True, cbor.encode(5))], {})


# --- what sharing is for ------------------------------------------------------------


def test_an_append_to_a_long_list_writes_its_tail_alone(log):
    slot = log.put([f"message {number}" for number in range(20_000)])
    most_nodes = most_bytes = 0
    for number in range(100):
        slot = log.change(sequence.append, slot, [cbor.encode(f"new message {number}")])
        nodes, size = log.nodes_written()
        most_nodes, most_bytes = max(most_nodes, nodes), max(most_bytes, size)
    assert most_nodes <= 8
    assert most_bytes <= 16_384


def test_trimming_the_head_of_a_long_list_writes_a_path(log):
    items = [f"message {number}" for number in range(8000)]
    slot = log.put(items)
    tree = open_root(log.workspace(), slot)
    slot = log.commit(tree.workspace, sequence.edit(tree.workspace, tree, [(0, 100, [])]))
    _nodes, size = log.nodes_written()
    assert size <= 32_768
    assert log.get(slot) == items[100:]


def test_the_last_items_of_a_long_list_are_read_from_few_nodes(log):
    slot = log.put([{"n": number, "text": "x" * 80} for number in range(10_000)])
    log.reads = 0
    tree = open_root(log.workspace(), slot)
    assert sum(run.stop - run.start for run in tree.runs(9980, 10_000)) == 20
    assert log.reads <= 12


def test_a_position_is_found_by_one_path(log):
    slot = log.put(list(range(20_000)))
    tree = open_root(log.workspace(), slot)
    levels = len(tree.head.levels)
    assert levels >= 3
    log.reads = 0
    assert cbor.decode(tree.at(12_345).data) == 12_345
    assert log.reads <= 2 * levels + 1


@pytest.mark.parametrize("count", [1, 7, 8, 9, 127, 128, 129, 10_000])
def test_every_position_of_a_tree_is_its_item(log, count):
    tree = open_root(log.workspace(), log.put([f"{number:070}" for number in range(count)]))
    for position in {0, 1, count // 2, count - 1} & set(range(count)):
        item = log.get(tree.at(position))
        assert item == f"{position:070}"
    with pytest.raises(IndexError):
        tree.at(count)


def test_ranges_of_a_tree_are_slices(log):
    items = list(range(3000))
    tree = open_root(log.workspace(), log.put(items))
    for start, stop in ((0, 0), (0, 1), (0, 3000), (1, 2999), (1499, 1501), (2990, 3000)):
        read = [
            cbor.decode(tree.slot(run.node, run.table, index).data)
            for run in tree.runs(start, stop)
            for index in range(run.start, run.stop)
        ]
        assert read == items[start:stop]


def test_constant_items_close_chunks_at_128_entries_or_8192_bytes(log):
    for item in (0, "x" * 62, ["y" * 30] * 2):
        tree = open_root(log.workspace(), log.put([item] * 1000))
        assert isinstance(tree, Tree)
        rows = [row for row in log.records[-1] if row.type == 3 and row.data[1] == 0]
        assert len(rows) in (1, 2)  # every chunk is the same node
        assert log.get(log.put([item] * 1000)) == [item] * 1000
