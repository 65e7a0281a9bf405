"""Lists of a state of any size accept and refuse the same indices as Python's lists."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
import pytest

import statelog


class Index:
    """An index that is not an int."""

    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number

    def __repr__(self):
        return f"Index({self.number})"


class Broken:
    def __index__(self):
        raise ZeroDivisionError


class State(TypedDict, total=False):
    items: list[int]


SIZES = [0, 3, 600]
NUMBERS = [0, 1, -1, 2, -3, 3, -4, 599, -600, 600, 1 << 60, -(1 << 60)]
INDICES = [kind(number) for number in NUMBERS for kind in (int, Index)] + [np.int64(1), np.uint8(0), True, False]
WRONG = [1.0, "1", None, b"", [], Broken(), np.float64(1), 1j]
SLICES = [
    slice(Index(1), Index(3)),
    slice(Index(-2), None),
    slice(None, Index(-1), Index(2)),
    slice(None, None, Index(-1)),
    slice(np.int64(0), np.int64(2)),
    slice(Index(3), Index(1)),
    slice(0, "a"),
    slice(1.0),
    slice(None, None, 0),
]


@pytest.fixture
def store(tmp_path):
    with statelog.open(tmp_path / "s.state") as opened:
        yield opened


def outcome(act, items):
    """Return the result of an act and the list after it, or the type of its error."""
    try:
        given = act(items)
    except Exception as error:  # noqa: BLE001 - whatever a list raises
        return type(error)
    return given, list(items)


def mounted(thread, act, *, lazy):
    """Return the outcome of an act on the mounted list, and the committed list."""
    with thread.mount(lazy=lazy) as state:
        found = outcome(act, state["items"])
    assert isinstance(found, type) or thread.state["items"] == found[1]
    return found


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("schema", [None, State], ids=["plain", "typed"])
def test_a_view_is_read_like_a_list(store, size, schema):
    items = list(range(size))
    thread = store.thread("t", schema=schema)
    thread.commit({"items": items})
    for state in (thread.state, thread.state.lazy):
        for index in [*INDICES, *WRONG, *SLICES]:
            get = ACTS["get"](index)
            assert outcome(get, state["items"]) == outcome(get, items), index
        for start, stop in (
            (Index(0), Index(3)),
            (Index(-2), np.int64(600)),
            (Index(2), Index(1)),
            ("a", 1),
            (0, 1.0),
        ):
            act = lambda some: some.index(1, start, stop)  # noqa: B023, E731 - called at once
            assert outcome(act, state["items"]) == outcome(act, items), (start, stop)


ACTS = {
    "get": lambda index: lambda items: items[index],
    "set": lambda index: lambda items: items.__setitem__(index, 7),
    "delete": lambda index: lambda items: items.__delitem__(index),
    "insert": lambda index: lambda items: items.insert(index, 7),
    "pop": lambda index: lambda items: items.pop(index),
}


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("lazy", [False, True], ids=["whole", "lazy"])
def test_a_mounted_list_is_changed_like_a_list(store, size, act, lazy):
    for number, index in enumerate([*INDICES, *WRONG]):
        thread = store.thread(f"t{number}")
        thread.commit({"items": list(range(size))})
        done = ACTS[act](index)
        assert mounted(thread, done, lazy=lazy) == outcome(done, list(range(size))), index


SLICE_ACTS = {
    "get": lambda part: lambda items: items[part],
    "set": lambda part: lambda items: items.__setitem__(part, [7, 8]),
    "delete": lambda part: lambda items: items.__delitem__(part),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("act", SLICE_ACTS)
@pytest.mark.parametrize("lazy", [False, True], ids=["whole", "lazy"])
def test_slices_of_a_mounted_list_equal_those_of_a_list(store, size, act, lazy):
    for number, part in enumerate(SLICES):
        thread = store.thread(f"t{number}")
        thread.commit({"items": list(range(size))})
        done = SLICE_ACTS[act](part)
        assert mounted(thread, done, lazy=lazy) == outcome(done, list(range(size))), part


@pytest.mark.parametrize("size", [3, 600])
def test_invalid_indices_raise_the_error_of_a_list(store, size):
    thread = store.thread("t")
    thread.commit({"items": list(range(size))})
    for wrong in ("1", 1.5, None):
        with pytest.raises(TypeError, match=f"list indices must be integers or slices, not {type(wrong).__name__}"):
            thread.state["items"][wrong]
