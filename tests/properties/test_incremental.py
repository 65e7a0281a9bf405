"""The digest of a state does not depend on the changes that have made it."""

from __future__ import annotations

import random
from itertools import count

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from statelog import reducers
from statelog.errors import ReducerTypeError
from statelog.testing import SCHEMA, identical, writes
from statelog.testing.strategies import THRESHOLDS_BYTES

HEAVY = settings(max_examples=settings.default.max_examples // 5)
"""Of many commits each."""

NUMBERS = count()


@pytest.fixture(scope="module")
def fresh(shared_store):
    """Unused threads."""

    def thread(schema):
        return shared_store.thread(f"thread {next(NUMBERS)}", schema=schema)

    return thread


def digest_from_scratch(fresh, schema, state):
    """Commit a state at once, whatever its reducers, and return its digest."""
    whole = {channel: reducers.Overwrite(value) for channel, value in state.items()}
    return fresh(schema).commit(whole).state_digest


@HEAVY
@given(st.lists(st.lists(writes(), min_size=1, max_size=2), min_size=1, max_size=10), st.randoms(use_true_random=False))
def test_any_history_comes_to_the_state_committed_at_once(fresh, steps, rng):
    thread = fresh(SCHEMA)
    for step in steps:
        for write in step:  # a refused write changes nothing else
            try:
                thread.commit(write)
            except ReducerTypeError:
                continue
        if rng.random() < 0.2 and thread.version > 0:
            thread.rollback(rng.randrange(thread.version))
    head = thread.head
    if head is not None:
        assert head.state_digest == digest_from_scratch(fresh, SCHEMA, head.state.to_python())


def texts_for(rng, sizes):
    return ["".join(rng.choices("abcdefgh \n", k=20)) * (size // 20 + 1) for size in sizes]


@HEAVY
@given(st.integers(0, 2**32), st.sampled_from([0, *THRESHOLDS_BYTES, 65_536, 200_000]))
@example(1, 200_000)
def test_text_that_grows_comes_to_the_text_committed_at_once(fresh, seed, size):
    rng, schema = random.Random(seed), {"text": reducers.add}
    thread = fresh(schema)
    whole = "x" * size
    thread.commit({"text": whole})
    for piece in texts_for(rng, rng.choices([1, 60, 4000, 16_400], k=6)):
        thread.commit({"text": piece})
        whole += piece
    assert thread.state["text"] == whole
    assert thread.head.state_digest == digest_from_scratch(fresh, schema, {"text": whole})


@pytest.mark.slow
@HEAVY
@given(st.integers(0, 2**32), st.sampled_from([3, 127, 128, 129, 1000, 5000]), st.sampled_from([5, 70, 4100]))
@example(1, 5000, 5)
@example(2, 1000, 70)
def test_mounted_edits_come_to_the_list_committed_at_once(fresh, seed, size, item_size):
    rng = random.Random(seed)
    size = min(size, 300) if item_size > 100 else size
    thread = fresh(None)
    model = [f"{number:0{item_size}}" for number in range(size)]
    thread.commit({"items": model})
    for _ in range(4):
        with thread.mount() as state:
            edit_alike(rng, state["items"], model)
        assert thread.state["items"].to_python() == model
        assert thread.head.state_digest == digest_from_scratch(fresh, None, {"items": model})


def edit_alike(rng, *lists):
    """Do the same random edits to several lists."""
    for _ in range(rng.randrange(1, 5)):
        at, width, value = rng.random(), rng.randrange(4), rng.randrange(1000)
        action = rng.choice(["append", "insert", "set", "delete", "slice", "extend"])
        for items in lists:
            position = int(at * len(items))
            if action == "append":
                items.append(value)
            elif action == "extend":
                items.extend([value] * 20)
            elif action == "insert":
                items.insert(position, value)
            elif action == "set" and items:
                items[position] = value
            elif action == "delete" and items:
                del items[position]
            else:
                items[position : position + width] = [value] * (3 - width)


@pytest.mark.slow
@HEAVY
@given(st.integers(0, 2**32), st.sampled_from([3, 129, 2000]), st.sampled_from([5, 70, 5000]))
@example(1, 2000, 70)
def test_mounted_edits_come_to_the_dict_committed_at_once(fresh, seed, size, item_size):
    rng = random.Random(seed)
    thread = fresh(None)
    model = {f"key {number}": "x" * item_size for number in range(min(size, 100) if item_size > 100 else size)}
    thread.commit({"files": model, "nested": {"inner": {"deep": [1]}}})
    for _ in range(4):
        with thread.mount() as state:
            for _ in range(rng.randrange(1, 4)):
                key, value = f"key {rng.randrange(2 * len(model) + 2)}", ["y" * rng.choice([1, 70, 5000])]
                if key in model and rng.random() < 0.5:
                    del state["files"][key], model[key]
                else:
                    state["files"][key] = model[key] = value
            state["nested"]["inner"]["deep"].append(rng.random())
        nested = thread.state["nested"].to_python()
        assert identical(thread.state["files"], model)
        assert thread.head.state_digest == digest_from_scratch(fresh, None, {"files": model, "nested": nested})


def test_a_value_put_back_has_the_digest_it_had(fresh):
    thread = fresh({"m": reducers.upsert("id"), "d": reducers.deep_merge})
    messages = [{"id": number, "x": "y" * 80} for number in range(300)]
    first = thread.commit({"m": messages, "d": {"a": {"b": {str(number): number for number in range(200)}}}})
    thread.commit({"m": [{"id": 7, "x": "changed"}, {"id": "new"}], "d": {"a": {"b": {"5": "changed"}}}})
    last = thread.commit({"m": [{"id": 7, "x": "y" * 80}, reducers.Remove("new")], "d": {"a": {"b": {"5": 5}}}})
    assert last.state_digest == first.state_digest
    assert last.digest != first.digest


def test_equal_states_of_different_threads_and_stores_have_equal_digests(fresh, store):
    state = {"list": list(range(3000)), "text": "x" * 100_000, "dict": {str(n): [n] * 20 for n in range(500)}}
    mine = fresh(None).commit(state).state_digest
    assert mine == store.thread("another").commit(dict(reversed(state.items()))).state_digest
    assert mine != store.thread("a third").commit({**state, "text": "x" * 99_999}).state_digest
