"""The answers of the screen of health."""

from __future__ import annotations

import time

import httpx
import pytest
from served import serving
from worked import make_damaged_store

import statelog
from statelog.cli import main
from statelog.inspector.health import StoreJob, list_due
from statelog.inspector.opened import Inspected
from statelog.store.retain import count_due
from statelog.store.session import session_of


def ask(client, address, **query):
    answer = client.get(f"/api/{address}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def finished(client, job):
    status = ask(client, f"health/{job}", start=1)
    deadline = time.monotonic() + 30
    while status["state"] == "running" and time.monotonic() < deadline:
        time.sleep(0.02)
        status = ask(client, f"health/{job}")
    return status


def test_a_verification_is_idle_until_it_is_started_and_then_ends(inspect, worked_path):
    client = inspect(worked_path)
    assert ask(client, "health/verify")["state"] == "idle"
    status = finished(client, "verify")
    assert status["state"] == "done"
    assert (status["result"]["ok"], status["result"]["records"]) == (True, client.store.last_lsn)
    assert status["result"]["problems"] == []


def test_a_verification_names_the_damaged_records(inspect, path):
    client = inspect(make_damaged_store(path))
    result = finished(client, "verify")["result"]
    assert result["ok"] is False
    assert [problem["lsn"] for problem in result["problems"]] == sorted({each["lsn"] for each in result["problems"]})
    assert all("checksum" in problem["message"] for problem in result["problems"])
    failed = finished(client, "statistics")
    assert (failed["state"], failed["problem"]["error"]) == ("failed", "CorruptionError")


def test_pages_are_answered_while_a_job_runs(inspect, worked_path):
    client = inspect(worked_path)
    is_over = []

    def wait(_store, _tell):
        while not is_over:
            time.sleep(0.01)
        return {}

    job = StoreJob(Inspected(client.store), wait)
    job.start()
    job.start()
    assert job.status()["state"] == "running"
    assert ask(client, "health")["last_lsn"] == client.store.last_lsn
    is_over.append(True)


def test_a_job_ends_when_the_server_stops(inspect, worked_path):
    client = inspect(worked_path)
    calls = []

    def work(_store, tell):
        while len(calls) < 1000:
            calls.append(tell(len(calls), 1000))
        return {}

    job = StoreJob(Inspected(client.store, lambda: len(calls) >= 3), work)
    job.start()
    deadline = time.monotonic() + 10
    while job.status()["state"] == "running" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (job.status()["state"], len(calls)) == ("idle", 3)


def test_statistics_have_sizes_by_thread(inspect, worked_path):
    result = finished(inspect(worked_path), "statistics")["result"]
    assert result["file_size_bytes"] == worked_path.stat().st_size
    assert "saga-1" in [each["id"] for each in result["threads"]]
    assert result["threads"][0]["records_size_bytes"] >= result["threads"][-1]["records_size_bytes"]


def test_channels_are_measured_the_largest_first(inspect, path):
    with statelog.open(path) as store:
        store.thread("t").commit({"small": 1, "large": ["x" * 100] * 50, "text": "abc"})
    answer = ask(inspect(path), "health/channels", thread="t")
    assert [each["name"] for each in answer["channels"]] == ["large", "text", "small"]
    assert [each["size_bytes"] for each in answer["channels"]] == [50 * 102 + 2, 4, 1]


def test_retention_counts_exactly_the_removed_versions(path):
    with statelog.open(path) as store:
        for name in ("kept", "due"):
            for step in range(20):
                store.thread(name).commit({"step": step})
        store.thread("due").tag("release", 3)
        store.thread("due").fork("other", at=5)
        store.thread("due", branch="other").commit({"step": 99})
        store.set_retention(keep_last=1000, threads="due")
        assert [each["due"] for each in list_due(store, offset=0, limit=50)["threads"]] == [0]
        engine = session_of(store).owner
        due = count_due(engine, "due", {"keep_last": 4, "max_age_s": None, "keep_tags": True}, count_max=1000)
        assert due == store.prune(keep_last=4, threads="due").expired_versions == 13
        by_age = {"keep_last": None, "max_age_s": 3600, "keep_tags": True}
        assert count_due(engine, "kept", by_age, count_max=1000) == 0
        both = {"keep_last": 3, "max_age_s": 0, "keep_tags": True}
        assert count_due(engine, "kept", both, count_max=1000) == 17
        assert count_due(engine, "kept", both, count_max=5) == 5


def test_retention_is_paged_by_threads(inspect, path):
    with statelog.open(path) as store:
        for number in range(5):
            store.thread(f"t{number}").commit({"n": number})
        store.set_retention(keep_last=1, threads="t[13]")
    client, seen, offset = inspect(path), [], 0
    while offset is not None:
        answer = ask(client, "health/retention", limit=2, offset=offset)
        seen += [each["id"] for each in answer["threads"]]
        offset = answer["next"]
    assert seen == ["t1", "t3"]


def test_a_store_of_a_fleet_shows_its_owner_and_lag(tmp_path, inspect):
    fleet = pytest.importorskip("statelog.fleet")
    from starlette.testclient import TestClient

    from statelog.inspector.server import make_app

    (tmp_path / "bucket").mkdir()
    with (
        fleet.connect((tmp_path / "bucket").as_uri(), tmp_path / "cache") as connected,
        connected.open("agent") as store,
    ):
        store.thread("t").commit({"a": 1})
        store.remote.wait(timeout_s=10)
        client = TestClient(make_app(store, token="t", host="h:1"), base_url="http://h:1")
        client.cookies.set("statelog-1", "t")
        shown = ask(client, "health/fleet")["fleet"]
        path = store.path
    copy = ask(inspect(path), "health/fleet")
    assert copy == {"fleet": None, "is_copy": True}
    assert (shown["role"], shown["epoch"], shown["parked"]) == ("owner", 1, False)
    assert shown["shipped_lsn"] == shown["last_lsn"]


@pytest.mark.parametrize(
    ("address", "query", "status", "fact"),
    [
        ("health/verify", {"start": "yes"}, 400, ("argument", "start")),
        ("health/channels", {}, 400, ("argument", "thread")),
        ("health/channels", {"thread": "shop-1", "branch": "nothing"}, 404, ("branch", "nothing")),
        ("health/channels", {"thread": "nothing"}, 404, ("thread", "nothing")),
        ("health/retention", {"offset": "x"}, 400, ("argument", "offset")),
    ],
)
def test_a_bad_parameter_is_refused_with_its_facts(inspect, worked_path, address, query, status, fact):
    answer = inspect(worked_path).get(f"/api/{address}", params=query)
    assert (answer.status_code, answer.json()["facts"].get(fact[0])) == (status, fact[1])


@pytest.mark.parametrize("address", ["board", "log", "health", "health/verify", "runs", "run/cancel"])
def test_a_post_is_refused_if_the_store_is_read_only(inspect, worked_path, address):
    answer = inspect(worked_path).post(f"/api/{address}", json={})
    assert (answer.status_code, "--allow-writes" in answer.text) == (403, True)


def test_the_page_of_a_copy_shows_the_owner_and_unshipped_records(tmp_path):
    fleet = pytest.importorskip("statelog.fleet", reason="the extra `fleet` is not installed")
    (tmp_path / "bucket").mkdir()
    url, cache = f"file://{tmp_path}/bucket", tmp_path / "cache"
    with fleet.connect(url, cache) as connected, connected.open("agent é", ship_ms=60_000) as owned:
        owned.thread("t").commit({"a": 1}, durable="remote")
        shipped = owned.last_lsn
        owned.thread("t").commit({"a": 2})
        path = connected.path("agent é")
        with serving(path, "--fleet", url) as address, httpx.Client(follow_redirects=True) as client:
            client.get(address)
            found = client.get(f"{address.partition('?')[0]}api/health/fleet").json()["fleet"]
    assert (found["state"], found["epoch"], found["shipped_lsn"]) == ("open", 1, shipped)
    assert found["last_lsn"] == shipped + 1
    assert found["owner"].endswith(str(path))


def test_a_copy_of_another_fleet_is_refused(tmp_path, store_path, capsys):
    pytest.importorskip("statelog.fleet", reason="the extra `fleet` is not installed")
    (tmp_path / "bucket").mkdir()
    with pytest.raises(SystemExit):
        main(["ui", str(store_path), "--fleet", f"file://{tmp_path}/bucket"])
    assert "this fleet has no store 'agent'" in capsys.readouterr().err
