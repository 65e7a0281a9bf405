"""Empty ids, and stores that refuse writes: caches and teams raise, and are unchanged."""

from __future__ import annotations

import asyncio
import json
import math

import pytest

pytest.importorskip("autogen_core")

import statelog
from statelog.adapters.autogen import StatelogCacheStore, load_team, save_team
from statelog.errors import ClosedError, ReadOnlyError, StoreFullError, UsageError, ValueTypeError

NESTED = {"z": 1, "a": {"y": [{"q": 1, "b": 2}], "b": 3}, "m": None}


class Held:
    """A team whose state the test sets."""

    def __init__(self, state=None):
        self.state = state

    async def save_state(self):
        return self.state

    async def load_state(self, state):
        self.state = state


def holding_itself():
    value = {}
    value["self"] = value
    return value


def loaded(store):
    team = Held()
    asyncio.run(load_team(store, "t", team))
    return team.state


def test_caches_and_teams_keep_the_order_of_keys(store):
    StatelogCacheStore(store).set("k", NESTED)
    asyncio.run(save_team(store, "t", Held(NESTED)))
    assert [json.dumps(each) for each in (StatelogCacheStore(store).get("k"), loaded(store))] == [
        json.dumps(NESTED)
    ] * 2


@pytest.mark.parametrize("id", [None, 7, "\ud800"])
def test_an_id_that_is_not_a_text_is_refused_and_nothing_is_written(store, id):
    for call in (
        lambda: asyncio.run(save_team(store, id, Held({}))),
        lambda: asyncio.run(load_team(store, id, Held())),
        lambda: StatelogCacheStore(store).get(id),
    ):
        with pytest.raises(UsageError, match="name"):
            call()
    assert store.last_lsn == 0


@pytest.mark.parametrize(
    "value", [math.nan, b"x", holding_itself(), [holding_itself()]], ids=["not a number", "bytes", "cycle", "list"]
)
def test_a_state_that_is_not_json_is_refused_and_the_former_one_is_kept(store, value):
    asyncio.run(save_team(store, "t", Held({"n": 1})))
    cache = StatelogCacheStore(store)
    cache.set("k", 1)
    before = store.last_lsn
    with pytest.raises(ValueTypeError):
        asyncio.run(save_team(store, "t", Held({"n": 2, "k": value})))
    with pytest.raises(ValueTypeError):
        cache.set("k", value)
    assert store.last_lsn == before
    assert (loaded(store), cache.get("k")) == ({"n": 1}, 1)


def test_closed_read_only_and_full_stores_raise_and_are_unchanged(path):
    def writes(store):
        cache = StatelogCacheStore(store)
        return (
            lambda text: cache.set("k", text),
            lambda text: cache.set("new" if len(text) > 1 else "k", text),
            lambda text: asyncio.run(save_team(store, "t", Held({"t": text, "l": [text]}))),
        )

    with statelog.open(path, max_size_bytes=1 << 20) as store:
        for write in writes(store):
            write("x")
        before = store.last_lsn
        for write in writes(store):
            with pytest.raises(StoreFullError):
                write("x" * (1 << 21))
        assert store.last_lsn == before
        assert StatelogCacheStore(store).get("new") is None
        assert (StatelogCacheStore(store).get("k"), loaded(store)) == ("x", {"t": "x", "l": ["x"]})
    for call in (*writes(store), lambda _text: loaded(store)):
        with pytest.raises(ClosedError):
            call("y")
    with statelog.open(path, read_only=True) as store:
        for write in writes(store):
            with pytest.raises(ReadOnlyError):
                write("y")
        assert (StatelogCacheStore(store).get("k"), loaded(store)) == ("x", {"t": "x", "l": ["x"]})
