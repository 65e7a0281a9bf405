"""The answers of the screens of runs, and what a person does to a run."""

from __future__ import annotations

import pytest
from served import HOSTILE, OVERRIDE
from worked import WORKFLOWS, approval, leaf, shopping

import statelog
from statelog import durable
from statelog.inspector import runs
from statelog.inspector.runs import RunFilter, RunIndex


def ask(client, address, **query):
    answer = client.get(f"/api/{address}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def ids(answer):
    return [row["id"] for row in answer["runs"]]


NEWEST_FIRST = ["killed-1", "leaf-queued", "pay-1", "saga-1", "shop-2", "leaf-1", "shop-1"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, NEWEST_FIRST),
        ({"status": "failed"}, ["saga-1"]),
        ({"status": "suspended"}, ["pay-1"]),
        ({"workflow": "leaf"}, ["leaf-queued", "leaf-1"]),
        ({"queue": "slow"}, ["leaf-queued"]),
        ({"error": "TRAVELLER is"}, ["saga-1"]),
        ({"error": OVERRIDE}, ["saga-1"]),
        ({"newer_s": "86400"}, NEWEST_FIRST),
        ({"older_s": "86400"}, []),
        ({"status": "completed", "workflow": "leaf"}, ["leaf-1"]),
        ({"workflow": "nothing"}, []),
    ],
)
def test_runs_are_listed_newest_first_and_filtered(inspect, worked_path, query, expected):
    assert ids(ask(inspect(worked_path), "runs", **query)) == expected


def test_a_list_that_was_read_before_knows_new_and_purged_runs(inspect, worked_path):
    client = inspect(worked_path, read_only=False)
    assert ids(ask(client, "runs")) == NEWEST_FIRST
    durable.start(client.store, leaf, 1, id="fresh")
    durable.purge_run(client.store, "shop-2")
    assert ids(ask(client, "runs")) == ["fresh", *(id for id in NEWEST_FIRST if id != "shop-2")]
    durable.start(client.store, leaf, 1, id="shop-2")
    assert ids(ask(client, "runs"))[0] == "shop-2"
    followed = [row["id"] for row in ask(client, "runs")["runs"]]
    read = [key.rpartition("/")[2] for _time, key in RunIndex(client.store).newest_first(RunFilter())]
    assert followed == read


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_pages_have_every_run_once(inspect, worked_path, limit):
    client, seen, after = inspect(worked_path), [], ""
    while after is not None:
        answer = ask(client, "runs", limit=limit, after=after)
        seen += ids(answer)
        after = answer["next"]
    assert seen == NEWEST_FIRST


def test_a_run_has_its_attempts_children_events_and_results(inspect, worked_path):
    run = ask(inspect(worked_path), "run", id="shop-1")
    steps = {step["name"]: step for step in run["steps"]["rows"]}
    assert [step["name"] for step in run["steps"]["rows"]] == ["progress", "flaky", "leaf", "price_of", "advise"]
    attempts = steps["flaky"]["failed_attempts"]
    assert [each["number"] for each in attempts] == [1, 2]
    assert attempts[0]["error"] == f"ConnectionError: no answer {HOSTILE}{OVERRIDE}"
    assert attempts[0]["time"] <= attempts[0]["next"] <= attempts[1]["time"] <= steps["flaky"]["ended"]
    assert steps["leaf"]["child"]["id"] == "leaf-1"
    assert run["events"]["rows"][0]["name"] == "progress"
    assert run["value"] == {"t": "text", "v": "wait", "size": 4}
    assert run["problems"] == []


def test_a_failed_saga_has_its_compensations_and_uncompensated_steps(inspect, worked_path):
    run = ask(inspect(worked_path), "run", id="saga-1")
    undone = [(step["name"], step["status"]) for step in run["steps"]["rows"] if step["is_compensation"]]
    assert undone == [("undo_badly", "failed"), ("undo", "done")]
    assert len(run["parked"]) == 1
    assert "ValueError" in run["traceback"]
    assert len(run["chunks"]["rows"]) == 2


def test_a_gate_and_unread_mail_are_shown(inspect, worked_path):
    run = ask(inspect(worked_path), "run", id="pay-1")
    (gate,) = run["gates"]
    assert (gate["status"], gate["place"], gate["approved"]) == ("pending", "1", None)
    assert [each["name"] for each in run["mail"]["rows"]] == ["notes"]


def test_a_killed_run_shows_the_step_in_flight(inspect, worked_path):
    run = ask(inspect(worked_path), "run", id="killed-1")
    assert run["status"] in ("running", "queued")
    assert [(step["place"], step["status"]) for step in run["steps"]["rows"]] == [("0", "done"), ("1", "begun")]


@durable.workflow
def talkative(run):
    for number in range(5):
        run.set_event(f"event-{number}", number)
    run.step(speak)
    run.gate("go on?")


def speak():
    for number in range(5):
        durable.current_step().stream(number)


def test_mail_events_and_chunks_are_paged_and_each_is_listed_once(inspect, path, monkeypatch):
    monkeypatch.setattr(runs, "_LISTED_MAX", 2)
    with statelog.open(path) as store:
        durable.run(store, talkative, id="t")
        for number in range(5):
            durable.send(store, "t", number, topic="n")
    client = inspect(path)
    page = ask(client, "run", id="t")
    for of in ("events", "mail", "chunks"):
        seen, after = [*page[of]["rows"]], page[of]["next"]
        while after is not None:
            answer = ask(client, "run/list", id="t", of=of, after=after)
            assert len(answer["rows"]) <= 2
            seen, after = seen + answer["rows"], answer["next"]
        assert sorted(each["value"]["v"] for each in seen) == ["0", "1", "2", "3", "4"], of
    assert client.get("/api/run/list", params={"id": "t", "of": "secrets"}).status_code == 400
    assert client.get("/api/run/list", params={"id": "t", "of": "chunks", "after": "x"}).status_code == 400
    assert client.get("/api/run/list", params={"id": "nobody", "of": "chunks"}).status_code == 404


def test_a_page_of_steps_has_the_gates_of_these_steps(inspect, worked_path):
    client = inspect(worked_path)
    assert ask(client, "run", id="pay-1", limit=1)["gates"] == []
    assert [each["place"] for each in ask(client, "run", id="pay-1", offset=1)["gates"]] == ["1"]


def test_steps_are_paged(inspect, worked_path):
    client, places, offset = inspect(worked_path), [], 0
    while offset is not None:
        steps = ask(client, "run", id="shop-1", limit=2, offset=offset)["steps"]
        places += [step["place"] for step in steps["rows"]]
        offset = steps["next"]
    assert places == ["0", "1", "2", "3", "4"]


def test_the_first_difference_of_two_runs_is_marked(inspect, worked_path):
    answer = ask(inspect(worked_path), "runs/compare", left="shop-1", right="shop-2")
    assert [row["what"] for row in answer["rows"]] == [None, None, None, "outcome", "arguments"]
    assert (answer["first"], answer["count"], answer["runs"]) == (3, 2, ["outcome"])
    same = ask(inspect(worked_path), "runs/compare", left="shop-1", right="shop-1")
    assert (same["first"], same["count"], same["runs"]) == (None, 0, [])


def test_a_value_that_json_would_change_is_not_offered_for_editing(inspect, path):
    @durable.workflow
    def pair(run):
        return [run.step(divmod, 7, 2), run.step(abs, -(10**30))]

    with statelog.open(path) as store:
        durable.run(store, pair, id="pair-1")
    client = inspect(path)
    assert ask(client, "run/text", id="pair-1", part="result 0")["json"] is None
    assert "tuple" in ask(client, "run/text", id="pair-1", part="result 0")["why"]
    assert ask(client, "run/text", id="pair-1", part="result 1") == {"json": str(10**30), "why": None}


@pytest.mark.parametrize(
    ("path", "query", "status", "fact"),
    [
        ("runs", {"status": "x"}, 400, ("argument", "status")),
        ("runs", {"after": "x"}, 400, ("argument", "after")),
        ("runs", {"older_s": "-1"}, 400, ("argument", "older_s")),
        ("run", {}, 400, ("argument", "id")),
        ("run", {"id": "nothing"}, 404, ("run", "nothing")),
        ("run/value", {"id": "shop-1", "part": "nothing"}, 404, ("part", "nothing")),
        ("run/value", {"id": "shop-1", "part": "result 99"}, 404, ("part", "result 99")),
        ("run/text", {"id": "shop-1"}, 400, ("argument", "part")),
        ("runs/compare", {"left": "shop-1"}, 400, ("argument", "right")),
        ("runs/compare", {"left": "shop-1", "right": "nothing"}, 404, ("run", "nothing")),
    ],
)
def test_a_bad_parameter_is_refused_with_its_facts(inspect, worked_path, path, query, status, fact):
    answer = inspect(worked_path).get(f"/api/{path}", params=query)
    assert answer.status_code == status
    assert answer.json()["facts"][fact[0]] == fact[1]


# --- what a person does --------------------------------------------------------------


@pytest.mark.parametrize("action", ["answer", "cancel", "retry", "resume", "fork"])
def test_every_action_is_refused_if_the_store_is_read_only(inspect, worked_path, action):
    client = inspect(worked_path)
    before = client.store.last_lsn
    answer = client.post(f"/api/run/{action}", json={"run": "pay-1", "gate": "pay-1/1", "approved": True})
    assert answer.status_code == 403
    assert "--allow-writes" in answer.text
    assert client.store.last_lsn == before


def test_an_answered_gate_lets_a_worker_finish_the_run(inspect, worked_path):
    client = inspect(worked_path, read_only=False)
    answer = client.post("/api/run/answer", json={"gate": "pay-1/1", "approved": True, "by": "ann", "payload": "[1]"})
    assert answer.status_code == 200
    assert answer.json()["worker"] == "durable.run_worker(store, [approval])"
    assert durable.gates(client.store, run="pay-1")[0].by == "ann"
    assert durable.run(client.store, approval, 840, id="pay-1").value is True
    again = client.post("/api/run/answer", json={"gate": "pay-1/1", "approved": False})
    assert again.status_code == 409
    assert again.json()["facts"]["by"] == "ann"


def test_a_cancelled_run_ends_and_is_not_cancelled_twice(inspect, worked_path):
    client = inspect(worked_path, read_only=False)
    assert client.post("/api/run/cancel", json={"run": "leaf-queued"}).json()["run"]["status"] == "cancelled"
    again = client.post("/api/run/cancel", json={"run": "leaf-queued"})
    assert (again.status_code, again.json()["facts"]) == (400, {"run": "leaf-queued"})


def test_a_retried_run_waits_for_a_worker(inspect, worked_path):
    client = inspect(worked_path, read_only=False)
    answer = client.post("/api/run/retry", json={"run": "saga-1"}).json()
    assert (answer["run"]["status"], answer["worker"]) == ("queued", "durable.run_worker(store, [saga])")
    assert client.post("/api/run/retry", json={"run": "shop-1"}).json()["error"] == "RunEndedError"


def test_a_run_begins_again_with_another_result_and_shows_the_difference(inspect, worked_path):
    client = inspect(worked_path, read_only=False)
    body = {"run": "shop-1", "at": "3", "id": "shop-3", "replace": {"3": "499"}}
    answer = client.post("/api/run/fork", json=body)
    assert answer.status_code == 200
    assert answer.json()["run"]["status"] == "queued"
    durable.resume_all(client.store, WORKFLOWS)
    assert durable.get_run(client.store, "shop-3").value == "buy"
    compared = ask(client, "runs/compare", left="shop-1", right="shop-3")
    assert compared["rows"][compared["first"]]["place"] == "3"


def test_a_run_begins_again_with_other_arguments(inspect, worked_path):
    client = inspect(worked_path, read_only=False)
    body = {"run": "shop-1", "at": "1", "id": "shop-4", "args": '["boat"]', "kwargs": '{"limit": 1000}'}
    assert client.post("/api/run/fork", json=body).status_code == 200
    durable.resume_all(client.store, [shopping, leaf])
    info = durable.get_run(client.store, "shop-4")
    assert (info.args, info.kwargs, info.value) == (("boat",), {"limit": 1000}, "buy")


@pytest.mark.parametrize(
    ("action", "body", "argument"),
    [
        ("answer", {"gate": "pay-1/1"}, "approved"),
        ("answer", {"gate": "pay-1/1", "approved": "yes"}, "approved"),
        ("answer", {"approved": True}, "gate"),
        ("answer", {"gate": "pay-1/1", "approved": True, "payload": "{"}, "payload"),
        ("answer", {"gate": "pay-1/1", "approved": True, "by": 7}, "by"),
        ("cancel", {}, "run"),
        ("retry", {"run": 7}, "run"),
        ("fork", {"run": "shop-1", "at": "1"}, "id"),
        ("fork", {"run": "shop-1", "at": "99", "id": "x"}, "at"),
        ("fork", {"run": "shop-1", "at": "1", "id": "x", "args": "{}"}, "args"),
        ("fork", {"run": "shop-1", "at": "1", "id": "x", "kwargs": "[1]"}, "kwargs"),
        ("fork", {"run": "shop-1", "at": "1", "id": "x", "replace": "[]"}, "replace"),
        ("fork", {"run": "shop-1", "at": "1", "id": "x", "replace": {"1": "nan,"}}, "1"),
        ("fork", {"run": "shop-1", "at": "3", "id": "x", "replace": {"0": "1"}}, "replace"),
    ],
)
def test_a_bad_request_is_refused_by_name_and_changes_nothing(inspect, worked_path, action, body, argument):
    client = inspect(worked_path, read_only=False)
    before = client.store.last_lsn
    answer = client.post(f"/api/run/{action}", json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["facts"]["argument"] == argument
    assert client.store.last_lsn == before
