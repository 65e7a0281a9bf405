"""Views of any size can be read like lists and dicts."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelog import reducers
from statelog.testing import identical, values

NUMBERS = count()
LISTS = st.one_of(
    st.lists(values(max_leaves=3), max_size=20),
    st.builds(lambda item, size: [item] * size, values(max_leaves=3), st.sampled_from([8, 129, 300])),
    st.integers(0, 3000).map(lambda size: list(range(size))),
)
DICTS = st.one_of(
    st.dictionaries(st.text(max_size=20), values(max_leaves=3), max_size=20),
    st.builds(lambda item, size: {f"{n}": item for n in range(size)}, values(max_leaves=3), st.sampled_from([8, 300])),
    st.integers(0, 2000).map(lambda size: {f"key {n}": n for n in range(size)}),
)


@pytest.fixture(scope="module")
def view_of(shared_store):
    def view(value, *, reducer=reducers.replace):
        thread = shared_store.thread(f"thread {next(NUMBERS)}", schema={"value": reducer})
        return thread.commit({"value": value}).state["value"]

    return view


def outcome(act):
    try:
        return act()
    except (IndexError, KeyError, ValueError) as error:
        return type(error)


@pytest.mark.slow
@given(LISTS, st.data())
def test_list_views_read_as_lists(view_of, value, data):
    view = view_of(value)
    assert isinstance(view, Sequence)
    assert len(view) == len(value)
    for index in data.draw(st.lists(st.integers(-len(value) - 2, len(value) + 1), max_size=5)):
        assert identical(outcome(lambda index=index: view[index]), outcome(lambda index=index: value[index]))
    for part in data.draw(st.lists(st.slices(len(value)), max_size=5)):
        found = view[part]
        assert type(found) is list
        assert identical([each for each in found], value[part])  # noqa: C416 - nested views come out as plain
    assert identical(list(view), value)
    assert identical(list(reversed(view)), value[::-1])
    assert bool(view) == bool(value)


@given(st.lists(st.integers() | st.text(), max_size=300), st.integers())
def test_list_views_compare_and_search_as_lists(view_of, value, other):
    view = view_of(value)
    assert view == value
    assert value == view
    assert view == view_of(value)
    assert view != [*value, other]
    assert view != tuple(value)
    assert (other in view) == (other in value)
    assert view.count(other) == value.count(other)
    for item in value[:3]:
        assert item in view
        assert view.index(item) == value.index(item)
    assert [*view, other] == [*value, other]
    assert view + value == value + value
    with pytest.raises(TypeError):
        hash(view)


@pytest.mark.slow
@given(DICTS, st.data())
def test_map_views_read_as_dicts(view_of, value, data):
    view = view_of(value)
    assert isinstance(view, Mapping)
    assert len(view) == len(value)
    assert sorted(view) == sorted(value)
    assert sorted(view, key=str.encode) == sorted(view.keys(), key=str.encode)
    assert identical(dict(view.items()), value)
    assert identical(list(view.values()), [value[key] for key in view])
    for key in data.draw(st.lists(st.sampled_from(sorted(value)) if value else st.just("x"), max_size=5)):
        assert identical(outcome(lambda key=key: view[key]), outcome(lambda key=key: value[key]))
        assert (key in view) == (key in value)
    for key in ("absent", "", 1, None, "\ud800"):
        assert (key in view) == (key in value)
        assert identical(view.get(key, "default"), value.get(key, "default"))
    assert bool(view) == bool(value)


@given(st.dictionaries(st.text(max_size=5), st.integers(), max_size=200))
def test_map_views_compare_as_dicts(view_of, value):
    view = view_of(value)
    assert view == value
    assert value == view
    assert view == view_of(value)
    assert view != {**value, "one": "more"}
    assert view != list(value.items())
    with pytest.raises(TypeError):
        hash(view)


@pytest.mark.slow
@given(LISTS | DICTS)
def test_to_python_is_the_whole_value_copied(view_of, value):
    view = view_of(value)
    copied = view.to_python()
    assert type(copied) is type(value)
    assert identical(copied, value)
    copied.clear()
    assert identical(view, value)


def test_a_lazy_view_shows_large_values_as_views(view_of):
    value = [[1, 2], {"a": 1}, list(range(3000)), {f"{n}": n for n in range(2000)}]
    view = view_of(value).lazy
    assert [type(item).__name__ for item in view] == ["list", "dict", "ListView", "MapView"]
    assert [type(item).__name__ for item in view_of(value)] == ["list", "dict", "list", "dict"]
    assert view[2][2999] == 2999
    assert view[3]["1999"] == 1999
    assert view[-1] == {f"{n}": n for n in range(2000)}


@pytest.mark.parametrize("value", [[], [1], list(range(20)), {}, {"a": [1]}, {f"{n}": n for n in range(20)}])
def test_small_views_look_like_their_values(view_of, value):
    assert eval(repr(view_of(value))) == value


def test_large_views_look_short(view_of):
    assert repr(view_of(list(range(10_000)))) == f"[{', '.join(map(str, range(20)))}, ... 9980 more]"
    assert repr(view_of({f"{n}": n for n in range(1000)})).endswith(", ... 980 more}")


@pytest.mark.parametrize("size", [3, 3000])
def test_items_of_a_view_cannot_change_it(view_of, size):
    view = view_of([[number, {"k": [1]}] for number in range(size)])
    view[1].append("mine")
    view[1][1]["k"].append("mine")
    view[0:2][1].append("mine")
    next(iter(view)).append("mine")
    assert view == [[number, {"k": [1]}] for number in range(size)]


def test_keyed_lists_show_as_lists(view_of):
    items = [{"id": number, "text": "x" * (number % 90)} for number in range(1000)]
    view = view_of(items, reducer=reducers.upsert("id"))
    assert view == items
    assert view[500:510] == items[500:510]


@pytest.mark.parametrize(
    "value", [(1, 2) * 50, {1, 2, 3}, frozenset(range(500)), "x" * 100_000, b"y" * 100_000, 2**900]
)
def test_other_values_come_whole_and_plain(view_of, value):
    shown = view_of(value)
    assert type(shown) is type(value)
    assert shown == value


def test_random_reads_of_a_long_list_are_its_items(view_of):
    rng = random.Random(1)
    view = view_of([f"item {number}" for number in range(20_000)])
    assert all(view[at] == f"item {at}" for at in (rng.randrange(20_000) for _ in range(200)))
