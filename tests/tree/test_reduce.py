"""Reducers in the engine do what they do as plain Python functions, errors included."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelog import reducers
from statelog.errors import ReducerTypeError
from statelog.testing import SCHEMA, StoreModel, floats, identical, integers, large_values, values, writes_to
from statelog.tree.value import read_item

MISMATCHES = st.one_of(values(max_leaves=3), large_values())


def merge(log, slot, reducer, write, cache=None):
    """Merge one write as a commit would."""
    prepared = reducer.prepare("c", write, path="c")
    return log.change(lambda workspace: prepared.merge(workspace, slot, {} if cache is None else cache))


def outcome(act):
    try:
        return act()
    except ReducerTypeError:
        return ReducerTypeError


def merged_plainly(reducer, writes):
    """Return the state of a model after the writes, each alone; refused ones change nothing."""
    thread = StoreModel().thread("t", schema={"c": reducer})
    results = [outcome(lambda write=write: thread.commit({"c": write}).state["c"]) for write in writes]
    return results, thread.state.get("c")


def merged_in_engine(log, reducer, writes):
    slot, results, cache = None, [], {}
    for write in writes:
        made = outcome(lambda write=write, slot=slot: merge(log, slot, reducer, write, cache))
        if made is not ReducerTypeError:
            slot = made
            made = log.get(slot)
        results.append(made)
    return results, slot


@pytest.mark.parametrize("channel", sorted(SCHEMA))
@given(st.data())
def test_engine_and_plain_python_agree(new_log, channel, data):
    log, reducer = new_log(), SCHEMA[channel]
    writes = data.draw(st.lists(writes_to(channel), min_size=1, max_size=8))
    expected, state = merged_plainly(reducer, writes)
    found, slot = merged_in_engine(log, reducer, writes)
    assert len(found) == len(expected)
    assert all(map(identical, found, expected))
    if slot is not None:
        overwrite = reducers.Overwrite(state)
        assert slot.data == merge(log, None, reducer, overwrite).data


@pytest.mark.slow
@pytest.mark.parametrize(
    "reducer",
    [
        reducers.add,
        reducers.append,
        reducers.extend,
        reducers.merge,
        reducers.deep_merge,
        reducers.max,
        reducers.min,
    ],
    ids=lambda reducer: reducer.name,
)
@given(st.lists(MISMATCHES, min_size=2, max_size=3))
def test_engine_and_plain_python_refuse_the_same_writes(new_log, reducer, writes):
    expected, _state = merged_plainly(reducer, writes)
    found, _slot = merged_in_engine(new_log(), reducer, writes)
    assert all(map(identical, found, expected))


@given(st.lists(integers() | floats() | st.booleans() | st.decimals(allow_nan=False, places=3), min_size=2, max_size=4))
def test_numbers_of_all_kinds_add_up_as_in_python(new_log, numbers):
    expected, _state = merged_plainly(reducers.add, numbers)
    found, _slot = merged_in_engine(new_log(), reducers.add, numbers)
    assert all(map(identical, found, expected))


@given(st.sampled_from([reducers.max, reducers.min]), st.lists(integers() | floats() | st.booleans(), min_size=2))
def test_numbers_of_all_kinds_compare_as_in_python(new_log, reducer, numbers):
    expected, _state = merged_plainly(reducer, numbers)
    found, _slot = merged_in_engine(new_log(), reducer, numbers)
    assert all(map(identical, found, expected))


@pytest.mark.slow
def test_numbers_that_are_equal_and_differ_stay_one_element_of_a_set(log):
    for first, second in (({1}, {1.0}), ({1}, {True}), ({0.0}, {-0.0}), ({1.5}, {Decimal("1.5")}), ({(1,)}, {(1.0,)})):
        for count in (0, 40, 3000):
            padding = {f"padding {number}" for number in range(count)}
            slot = merge(log, merge(log, None, reducers.union, first | padding), reducers.union, second)
            assert identical(log.get(slot), first | padding)
            assert slot.data == log.put(first | padding).data


@pytest.mark.parametrize("size", [0, 15_000, 16_382, 20_000, 70_000, 300_000])
@pytest.mark.parametrize("unit", ["x", b"x", "é"])
def test_appending_to_a_long_string_comes_to_the_string_stored_at_once(log, size, unit):
    text = unit * size
    slot = log.put(text)
    for count in (1, 2000, 17_000, 1):
        slot = merge(log, slot, reducers.add, unit * count)
        text += unit * count
        assert slot.data == log.put(text).data
    assert log.get(slot) == text


def test_appending_to_a_long_string_writes_its_end_alone(log):
    text = "".join(f"{number:x}" for number in range(100_000))
    slot = merge(log, log.put(text), reducers.add, "the end")
    _nodes, size = log.nodes_written()
    assert size <= 32_768
    assert log.get(slot) == text + "the end"


def test_replacing_a_list_by_a_changed_one_shares_its_unchanged_items(log):
    items = [f"item {number} " + "x" * 100 for number in range(2000)]
    slot = log.put(items)
    merge(log, slot, reducers.replace, [*items[:1000], "new", *items[1000:]])
    _nodes, size = log.nodes_written()
    assert size <= 100_000  # the chunks, not the 220 KB of items


@pytest.mark.slow
def test_deep_merge_reads_only_the_dicts_it_goes_into(log):
    held = {f"key {number}": {"inner": {str(n): "x" * 50 for n in range(100)}} for number in range(500)}
    slot = log.put(held)
    log.reads = 0
    slot = merge(log, slot, reducers.deep_merge, {"key 250": {"inner": {"new": 1}}})
    assert log.reads <= 40
    held["key 250"]["inner"]["new"] = 1
    assert slot.data == log.put(held).data


def test_a_users_function_gets_values_and_its_result_is_stored(log):
    reducer = reducers.custom(lambda current, write: [*current, write][-3:])
    slot = merge(log, None, reducer, [1])
    for number in range(2, 6):
        slot = merge(log, slot, reducer, number)
    assert log.get(slot) == [3, 4, 5]
    assert slot.data == log.put([3, 4, 5]).data


def test_an_overwrite_replaces_whatever_the_reducer(log):
    for reducer in (reducers.add, reducers.merge, reducers.append, reducers.max, reducers.union):
        slot = merge(log, log.put({"a": 1}), reducer, reducers.Overwrite([1, 2]))
        assert log.get(slot) == [1, 2]


def test_reading_nodes_shared_by_a_merge_returns_the_old_value(log):
    before = log.put(list(range(1000)))
    merge(log, before, reducers.append, 1000)
    assert read_item(log.workspace(), before) == read_item(log.workspace(), log.put(list(range(1000))))
