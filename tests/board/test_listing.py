"""Compares lists of the board, in pages and in both directions, with a plain model."""

from __future__ import annotations

import asyncio
import copy
import pickle
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import statelog
from statelog import aio
from statelog.board.names import compile_pattern
from statelog.errors import LimitError, UsageError
from statelog.store import board_reads
from statelog.store.board import own_board

KEYS = st.sampled_from(
    ["a", "a/b", "a/c", "a!", "d", "durable", "duration/x", "durability", "e/1", "e/2", "e/é", "tasks/1", "tasks/2"]
)
OWN_KEYS = ["durable/runs/1", "durable/runs/2", "durable/z"]
PATTERNS = st.sampled_from(
    ["**", "*", "a", "a/*", "d*", "d*/*", "e/?", "tasks/**", "durable/**", "durable/runs/*", "none/*"]
)
VALUES = st.one_of(
    st.integers(-3, 3),
    st.none(),
    st.text(max_size=90),
    st.lists(st.one_of(st.integers(), st.text(max_size=90)), max_size=20),
    st.sets(st.text(max_size=9), max_size=20),
    st.tuples(st.integers(), st.text(max_size=90)),
    st.dictionaries(st.text(max_size=9), st.one_of(st.integers(), st.text(max_size=90)), max_size=20),
    st.sampled_from(["x" * 5000, "x" * 70_000, {"k": ["y" * 900] * 9}, list(range(3000))]),
)
BOUNDS = st.one_of(st.just(""), KEYS, st.sampled_from(["b", "durable/q", "zz"]))


def shown(entries, *, values):
    return [(entry.key, entry.version, *([entry.value] if values else [])) for entry in entries]


def wanted(model, pattern, *, limit, after, before, reverse, values):
    """Return the expected list of a model, which maps keys to (version, value)."""
    fits = compile_pattern(pattern).fits
    keys = [key for key in model if fits(key) and key > after and (not before or key < before)]
    return [
        (key, model[key][0], *([model[key][1]] if values else []))
        for key in sorted(keys, key=str.encode, reverse=reverse)[:limit]
    ]


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture(scope="module")
def counter():
    return iter(range(1 << 30))


@pytest.mark.slow
@given(
    entries=st.dictionaries(KEYS, VALUES, max_size=13),
    claimed=st.sets(KEYS, max_size=2),
    expired=st.sets(KEYS, max_size=2),
    own=st.sets(st.sampled_from(OWN_KEYS)),
    asked=st.lists(
        st.tuples(PATTERNS, st.none() | st.integers(0, 5), BOUNDS, BOUNDS, st.booleans(), st.booleans()),
        min_size=1,
        max_size=8,
    ),
)
def test_a_list_equals_a_plain_model(folder, counter, entries, claimed, expired, own, asked):
    path = folder / f"{next(counter)}.state"
    with statelog.open(path, durability="interval") as store, pytest.MonkeyPatch.context() as patch:
        board = store.board(agent="me")
        there = {}
        for key, value in entries.items():
            made = board.set(key, value, ttl_s=3600 if key in expired else None)
            if key in claimed:
                made = replace(made, version=board.claim(key).token)
            there[key] = (made.version, value)
        for key in own:
            there[key] = (own_board(store).set(key, 7).version, 7)
        later_us = board_reads.now_us() + 7_200_000_000
        patch.setattr(board_reads, "now_us", lambda: later_us)
        there = {key: found for key, found in there.items() if key not in expired}
        with store.transaction() as tx, store.snapshot() as snapshot:
            staged = dict(there)
            for key in ("a/b", "new"):
                staged[key] = (tx.board().set(key, "staged").version, "staged")
            tx.board().delete("e/1")
            staged.pop("e/1", None)
            for handle, model in ((board, there), (snapshot.board(), there), (tx.board(), staged)):
                for pattern, limit, after, before, reverse, values in asked:
                    how = {"limit": limit, "after": after, "before": before, "reverse": reverse, "values": values}
                    assert shown(handle.list(pattern, **how), values=values) == wanted(model, pattern, **how)
                for key, (version, value) in model.items():
                    assert shown([handle.get(key)], values=True) == [(key, version, value)]


@pytest.mark.slow
def test_descending_pages_return_every_entry_once(tmp_path):
    with statelog.open(tmp_path / "a.state", durability="interval") as store:
        board = store.board()
        keys = [f"k/{number:05d}" for number in range(1000)]
        for key in keys:
            board.set(key, key)
        for reverse, bound in ((True, "before"), (False, "after")):
            met, page = [], [None]
            while page:
                page = board.list("k/*", limit=77, reverse=reverse, **({bound: met[-1]} if met else {}))
                assert all(entry.value == entry.key for entry in page)
                met += [entry.key for entry in page]
            assert met == sorted(keys, reverse=reverse)


@pytest.mark.parametrize(
    ("error", "argument", "how"),
    [
        (UsageError, "before", {"before": "a/"}),
        (UsageError, "before", {"before": None}),
        (UsageError, "before", {"before": 7}),
        (UsageError, "before", {"before": "a*"}),
        (LimitError, "before", {"before": "k" * 401}),
        (UsageError, "after", {"after": "a//b"}),
        (UsageError, "reverse", {"reverse": "no"}),
        (UsageError, "reverse", {"reverse": 1}),
        (UsageError, "values", {"values": None}),
    ],
)
def test_an_invalid_argument_is_named(tmp_path, error, argument, how):
    with statelog.open(tmp_path / "a.state") as store, pytest.raises(error) as caught:
        store.board().list(**how)
    assert caught.value.argument == argument


@pytest.fixture
def store(tmp_path):
    with statelog.open(tmp_path / "a.state", durability="interval") as opened:
        opened.board(agent="me").set("a", [1], ttl_s=60, priority=3, delay_s=1)
        yield opened


def test_reading_the_value_of_an_entry_listed_without_values_raises(store):
    [entry] = store.board().list(values=False)
    [other] = store.board().list(values=False)
    [whole] = store.board().list()
    with pytest.raises(UsageError, match="values=False") as caught:
        entry.value  # noqa: B018 - asks
    assert caught.value.key == "a"
    assert (entry.key, entry.agent, entry.priority, entry.time) == ("a", "me", 3, whole.time)
    assert (entry == other, hash(entry) == hash(other), entry == whole, entry != whole) == (True, True, False, True)
    assert repr(entry) == f"<Entry 'a' {entry.version}>"
    assert pickle.loads(pickle.dumps(entry)) == copy.deepcopy(entry) == entry
    with pytest.raises(UsageError):
        asdict(entry)


def test_a_claimed_entry_can_be_listed_without_its_value(store):
    store.board().set("b", 1)
    claim = store.board(agent="you").claim("b")
    [entry] = store.board().list("b", values=False)
    assert (entry.claim.holder, entry.claim.token) == ("you", claim.token)
    with pytest.raises(UsageError):
        entry.value  # noqa: B018 - asks


def test_get_list_and_history_return_equal_entries(store):
    [listed] = store.board().list()
    read, past = store.board().get("a"), store.board().get("a", at=store.last_lsn)
    again = pickle.loads(pickle.dumps(store.board().get("a")))
    assert listed == read == past == again == replace(past)
    assert (repr(listed), asdict(listed)) == (repr(past), asdict(past))
    names = ("created", "expires", "claim", "attempts", "kind", "error", "ready")
    assert [getattr(listed, name) for name in names] == [getattr(past, name) for name in names]
    with pytest.raises(TypeError, match="unhashable"):
        hash(listed)
    with pytest.raises(AttributeError, match="'Entry' object has no attribute 'owner'"):
        listed.owner  # noqa: B018 - asks
    with pytest.raises(AttributeError):
        listed.key = "b"


def test_rights_hold_in_both_directions(store):
    for key in ("r/1", "r/2", "s/1"):
        store.board().set(key, key)
    board = store.board(agent="me", rules=statelog.Rules({"me": {"read": ["r/*"]}}))
    for values in (True, False):
        assert [entry.key for entry in board.list(reverse=True, limit=1, values=values)] == ["r/2"]
        assert [entry.key for entry in board.list(before="s/1", values=values)] == ["r/1", "r/2"]


def test_async_lists_take_the_same_arguments(store):
    async def listed():
        async with aio.open(store.path, durability="interval") as opened:
            return await opened.board().list(before="b", after="0", reverse=True, limit=3, values=False)

    assert asyncio.run(listed()) == store.board().list(values=False)
