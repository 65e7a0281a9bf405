"""The answers of the screen of the search."""

from __future__ import annotations

import pytest
from served import OVERRIDE

import statelog


def ask(client, **query):
    answer = client.get("/api/search", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["hits"]


def test_hits_have_their_places_and_filters_hold(inspect, store_path):
    client = inspect(store_path)
    assert [(hit["thread"], hit["path"]) for hit in ask(client, query="hello 3")] == [("ticket-42", ["messages", 0])]
    assert len(ask(client, query="hello", history="yes")) == 6  # The rollback brought one of five back.
    assert ask(client, query="hello", threads="none-*") == []
    assert ask(client, query="hello", role="tool") == []
    assert ask(client, query="") == []
    assert ask(client, query=OVERRIDE)[0]["thread"] == OVERRIDE


def test_a_bad_pattern_is_refused(inspect, store_path):
    answer = inspect(store_path).get("/api/search", params={"query": "hello", "where": "threads:"})
    assert answer.status_code == 400


def test_values_hidden_by_a_check_are_not_shown(inspect, store_path):
    pytest.importorskip("re2")

    def check(value, _where):
        return statelog.guard.quarantine("a word") if "evil" in repr(value) else statelog.guard.allow()

    with statelog.open(store_path, guard=statelog.Guard(on_write=[check])) as store:
        store.thread("t").commit({"note": "evil hello"})
    assert all(hit["thread"] != "t" for hit in ask(inspect(store_path), query="hello"))
