"""The answers of the screen of the board."""

from __future__ import annotations

from datetime import datetime

import pytest
from served import HOSTILE, OVERRIDE

import statelog
from statelog import guard


def ask(client, address, **query):
    answer = client.get(f"/api/{address}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def keys(answer):
    return [row["key"] for row in answer["entries"]]


TASKS = [f"tasks/open/{number}" for number in range(5)]
NOTES = ["notes/brief", f"notes/{OVERRIDE}", "notes/plan"]


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("", NOTES + TASKS),
        ("tasks/", TASKS),
        ("tasks/open/3", ["tasks/open/3"]),
        ("notes/p", ["notes/plan"]),
        ("notes/b", ["notes/brief"]),
        ("tasks/*/2", ["tasks/open/2"]),
        ("nothing", []),
        ("durabl", []),
    ],
)
def test_entries_are_those_of_the_prefix(inspect, worked_path, prefix, expected):
    assert keys(ask(inspect(worked_path), "board", prefix=prefix)) == expected


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 9])
def test_pages_have_every_entry_once(inspect, worked_path, limit):
    client, seen, after = inspect(worked_path), [], ""
    while after is not None:
        answer = ask(client, "board", limit=limit, after=after)
        assert len(answer["entries"]) <= limit
        seen += keys(answer)
        after = answer["next"]
    assert seen == NOTES + TASKS


def test_entries_of_runs_are_listed_if_asked_for(inspect, worked_path):
    assert "durable/runs/shop-1" in keys(ask(inspect(worked_path), "board", prefix="durable/", limit=500))
    assert keys(ask(inspect(worked_path), "board", prefix="durable/runs/sa")) == ["durable/runs/saga-1"]


def test_a_history_is_paged_from_the_newest_record(inspect, worked_path):
    client = inspect(worked_path)
    whole = ask(client, "board/entry", key="notes/plan")
    assert [record["kind"] for record in whole["history"]] == ["set", "delete", "set", "set"]
    assert whole["entry"]["version"] == whole["history"][0]["version"]
    pages, offset = [], 0
    while offset is not None:
        answer = ask(client, "board/entry", key="notes/plan", limit=1, offset=offset)
        pages += answer["history"]
        offset = answer["next"]
    assert [page["version"] for page in pages] == [record["version"] for record in whole["history"]]


def test_claims_have_holder_deadline_and_the_clock_of_the_server(inspect, worked_path):
    answer = ask(inspect(worked_path), "board/claims")
    claims = {row["key"]: row for row in answer["claims"] if row["key"].startswith("tasks/")}
    assert sorted(claims) == ["tasks/open/1", "tasks/open/4"]
    now = datetime.fromisoformat(answer["now"])
    assert claims["tasks/open/4"]["claim"]["holder"] == f"worker {HOSTILE}"
    assert datetime.fromisoformat(claims["tasks/open/1"]["claim"]["expires"]) < now
    assert 3000 < (datetime.fromisoformat(claims["tasks/open/4"]["claim"]["expires"]) - now).total_seconds() < 3600
    (lease,) = ask(inspect(worked_path), "board/leases")["leases"]
    assert (lease["name"], lease["is_over"]) == (f"deploy/{OVERRIDE}", False)


def test_claims_are_paged(inspect, worked_path):
    client, seen, after = inspect(worked_path), [], ""
    while after is not None:
        answer = ask(client, "board/claims", limit=1, after=after)
        seen += [row["key"] for row in answer["claims"]]
        after = answer["next"]
    assert seen == [row["key"] for row in ask(client, "board/claims")["claims"]]
    assert len(seen) > 1


def test_a_failed_attempt_shows_its_error(inspect, worked_path):
    entry = ask(inspect(worked_path), "board/entry", key="tasks/open/0")["entry"]
    assert (entry["error"], entry["attempts"], entry["claim"]) == (f"no answer {HOSTILE}", 1, None)


def test_the_rest_of_a_long_value_is_answered_by_path(inspect, path):
    with statelog.open(path) as store:
        store.board().set("long", {"texts": ["x" * 5000] * 3})
    client = inspect(path)
    answer = ask(client, "board/entry", key="long")
    cut = answer["entry"]["value"]["items"][0][1]["items"][2]
    assert len(cut["v"]) < cut["size"] == 5000
    assert ask(client, "board/value", key="long", path="0.2")["v"] == "x" * 5000


def test_a_quarantined_value_stays_hidden(inspect, path):
    def poison(value, _where):
        return guard.quarantine("poisoned") if "secret plan" in str(value) else guard.allow()

    with statelog.open(path, guard=statelog.Guard(on_write=[poison])) as store:
        store.board().set("note", "the secret plan")
    client = inspect(path)
    for asked in (("board", {}), ("board/entry", {"key": "note"}), ("board/value", {"key": "note"}), ("log", {})):
        assert "secret plan" not in client.get(f"/api/{asked[0]}", params=asked[1]).text
    assert ask(client, "board/entry", key="note")["entry"]["value"]["t"] == "quarantined"


@pytest.mark.parametrize(
    ("path", "query", "argument"),
    [
        ("board", {"limit": "x"}, "limit"),
        ("board", {"after": "a//b"}, "after"),
        ("board/entry", {}, "key"),
        ("board/entry", {"key": "a//b"}, "key"),
        ("board/entry", {"key": "a", "offset": "10001"}, "offset"),
        ("board/value", {"key": "notes/plan", "path": "x"}, "path"),
        ("board/value", {"key": "notes/plan", "version": "-1"}, "version"),
        ("board/value", {"key": "notes/plan", "version": "999999"}, "at"),
    ],
)
def test_a_bad_parameter_is_refused_by_name(inspect, worked_path, path, query, argument):
    answer = inspect(worked_path).get(f"/api/{path}", params=query)
    assert answer.status_code == 400
    assert answer.json()["error"] == "UsageError"
    assert answer.json()["facts"]["argument"] == argument
