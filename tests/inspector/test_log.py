"""The answers of the screen of the log, and what a damaged store shows."""

from __future__ import annotations

import pytest
from served import OVERRIDE
from worked import make_damaged_store

import statelog
from statelog.errors import CorruptionError
from statelog.inspector.live import changes


def ask(client, address, **query):
    answer = client.get(f"/api/{address}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def lsns(answer):
    return [record["lsn"] for record in answer["records"]]


@pytest.mark.parametrize("limit", [1, 7, 50, 500])
def test_pages_go_back_from_the_newest_record_to_the_first(inspect, worked_path, limit):
    client = inspect(worked_path)
    seen, before = [], 0
    while before is not None:
        answer = ask(client, "log", limit=limit, before=before)
        seen += lsns(answer)
        before = answer["next"]
    assert seen == list(range(client.store.last_lsn, 0, -1))


def test_filters_of_kind_thread_and_range_hold(inspect, worked_path):
    client = inspect(worked_path)
    whole = ask(client, "log", limit=500)["records"]

    def expected(fits):
        return [record["lsn"] for record in whole if fits(record)]

    assert lsns(ask(client, "log", type="checkpoint", limit=500)) == expected(lambda each: each["type"] == "checkpoint")
    assert lsns(ask(client, "log", thread="saga-1", limit=500)) == expected(
        lambda each: "saga-1" in (each["thread"] or "") or "saga-1" in (each["key"] or "")
    )
    assert lsns(ask(client, "log", thread=OVERRIDE, limit=500)) == expected(
        lambda each: OVERRIDE in (each["key"] or "")
    )
    assert lsns(ask(client, "log", **{"from": 10, "to": 20})) == list(range(20, 9, -1))
    assert lsns(ask(client, "log", **{"from": 10**9})) == []


def test_a_filter_that_fits_nothing_looks_at_a_bounded_part(inspect, path):
    with statelog.open(path, durability="interval") as store:
        thread = store.thread("t")
        for step in range(4300):
            thread.commit({"n": step})
    client = inspect(path)
    first = ask(client, "log", type="tag")
    assert first["records"] == []
    assert 4096 <= first["read"] < 4300
    assert ask(client, "log", type="tag", before=first["next"])["next"] is None


def test_records_that_are_appended_meanwhile_are_above_the_last_one(inspect, worked_path):
    client = inspect(worked_path, read_only=False)
    last = ask(client, "log", limit=1)["last"]
    client.store.thread("fresh").commit({"a": 1})
    assert [each["thread"] for each in ask(client, "log", **{"from": last + 1})["records"]] == ["fresh", "fresh"]


def test_the_body_of_a_record_is_answered_by_path(inspect, worked_path):
    client = inspect(worked_path)
    record = ask(client, "log", type="checkpoint", limit=1)["records"][0]
    names = [name for name, _node in record["body"]["items"]]
    answer = ask(client, "log/body", lsn=record["lsn"], path=str(names.index("channels")))
    assert answer["t"] == "list"


@pytest.mark.parametrize(
    ("address", "query", "argument"),
    [
        ("log", {"before": "x"}, "before"),
        ("log", {"from": "-1"}, "from"),
        ("log", {"to": "1.5"}, "to"),
        ("log", {"limit": ""}, "limit"),
        ("log/body", {}, "lsn"),
        ("log/body", {"lsn": "999999"}, "lsn"),
        ("log/body", {"lsn": "1", "path": "a"}, "path"),
    ],
)
def test_a_bad_parameter_is_refused_by_name(inspect, worked_path, address, query, argument):
    answer = inspect(worked_path).get(f"/api/{address}", params=query)
    assert (answer.status_code, answer.json()["facts"]["argument"]) == (400, argument)


# --- a damaged store -------------------------------------------------------------------


@pytest.fixture
def damaged_path(path):
    return make_damaged_store(path)


def damaged_lsns(path):
    with statelog.open(path, read_only=True) as store:
        return sorted(problem.lsn for problem in store.verify().problems)


def test_the_records_before_a_damaged_one_are_yielded_first(damaged_path):
    first = damaged_lsns(damaged_path)[0]
    with statelog.open(damaged_path, read_only=True) as store:
        records = store.log()
        assert [next(records).lsn for _ in range(1, first)] == list(range(1, first))
        with pytest.raises(CorruptionError, match=f"record {first}"):
            next(records)


def test_the_log_shows_every_record_but_the_damaged_ones(inspect, damaged_path):
    client = inspect(damaged_path)
    records = ask(client, "log", limit=500)["records"]
    assert [record["lsn"] for record in records] == list(range(client.store.last_lsn, 0, -1))
    assert sorted(record["lsn"] for record in records if "problem" in record) == damaged_lsns(damaged_path)


def test_the_board_names_the_entry_that_is_damaged_and_shows_the_others(inspect, damaged_path):
    rows = {row["key"]: row for row in ask(inspect(damaged_path), "board")["entries"]}
    assert sorted(rows) == [f"tasks/{number}" for number in range(6)]
    assert [key for key, row in rows.items() if "problem" in row] == ["tasks/3"]
    assert rows["tasks/3"]["problem"]["facts"]["lsn"] == damaged_lsns(damaged_path)[0]
    entry = ask(inspect(damaged_path), "board/entry", key="tasks/3")
    assert [problem["error"] for problem in entry["problems"]] == ["CorruptionError"]


def test_a_page_of_a_damaged_board_goes_on_behind_the_damage(inspect, damaged_path):
    client, seen, after = inspect(damaged_path), [], ""
    while after is not None:
        answer = ask(client, "board", limit=2, after=after, prefix="tasks/")
        seen += [row["key"] for row in answer["entries"]]
        after = answer["next"]
    assert seen == [f"tasks/{number}" for number in range(6)]


def test_the_history_of_a_key_ends_at_its_damaged_record(inspect, path):
    with statelog.open(path) as store:
        board = store.board()
        for number in range(9):
            board.set("key", "to be damaged" if number == 3 else number)
    path.write_bytes(path.read_bytes().replace(b"to be damaged", b"to be d\x00maged"))
    answer = ask(inspect(path), "board/entry", key="key")
    assert [record["value"]["v"] for record in answer["history"]] == ["8", "7", "6", "5", "4"]
    assert len(answer["problems"]) == 1


def test_runs_and_threads_of_a_damaged_store_are_listed(inspect, damaged_path):
    client = inspect(damaged_path)
    runs = {row["id"]: row.get("problem") for row in ask(client, "runs")["runs"]}
    assert sorted(runs) == ["leaf-1", "shop-1"]
    assert runs["leaf-1"] is None
    assert runs["shop-1"]["error"] == "CorruptionError"
    assert "ticket-42" in [row["id"] for row in ask(client, "threads")["threads"]]


def test_a_stream_of_changes_passes_over_damage(damaged_path):
    with statelog.open(damaged_path, read_only=True) as store:
        last, event = changes(store, 0)
        assert last == store.last_lsn
        assert "ticket-42" in event["threads"]
