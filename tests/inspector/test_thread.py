"""One thread by the API: branches, versions, states, differences, conversations, and writes."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

import statelog
from statelog.inspector.server import make_app

HOST = "127.0.0.1:7777"


@pytest.fixture
def client_of(store_path):
    stores = []

    def make(*, read_only=True, path=store_path):
        store = statelog.open(path, read_only=read_only)
        stores.append(store)
        headers = {"x-statelog": "1", "origin": f"http://{HOST}"}
        client = TestClient(make_app(store, token="t", host=HOST), base_url=f"http://{HOST}", headers=headers)
        client.cookies.set("statelog-7777", "t")
        return client

    yield make
    for store in stores:
        store.close()


def get(client, path, **query):
    answer = client.get(f"/api/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_thread_has_its_branches_and_tags(client_of, store_path):
    with statelog.open(store_path) as store:
        store.thread("ticket-42").tag("good", 1)
    found = get(client_of(), "thread", id="ticket-42")
    assert [(each["name"], each["base"], each["head"]) for each in found["branches"]] == [
        ("main", -1, 5),
        ("careful", 2, 3),
    ]
    assert found["tags"] == [{"name": "good", "branch": "main", "version": 1}]
    assert found["version"] == 5


def test_versions_come_in_pages_newest_first(client_of):
    client = client_of()
    first = get(client, "thread/versions", id="ticket-42", limit=4)["versions"]
    assert [each["version"] for each in first] == [5, 4, 3, 2]
    assert (first[0]["kind"], first[0]["parent"]) == ("rollback", {"branch": "main", "version": 3})
    rest = get(client, "thread/versions", id="ticket-42", limit=4, before=2)["versions"]
    assert [each["version"] for each in rest] == [1, 0]


def test_a_version_has_its_state_and_the_code_that_opens_it(client_of):
    found = get(client_of(), "thread/version", id="ticket-42", branch="careful", version=3)
    assert dict(found["state"]["items"])["step"] == {"t": "int", "v": "20"}
    printed = []
    exec(found["python"], {"print": printed.append})
    assert printed[0]["step"] == 20


def test_the_code_of_a_hostile_id_is_one_literal(client_of):
    hostile = '"); import os; os.abort() #\u202e\n'
    client = client_of(read_only=False)
    with statelog.open(client_path(client)) as store:
        store.thread(hostile).commit({"a": 1})
    code = get(client, "thread/version", id=hostile)["python"]
    assert code.isascii()
    exec(code.replace(", read_only=True", ""), {"print": lambda _: None})


def client_path(client):
    return get(client, "store")["path"]


def test_the_difference_is_that_to_the_parent_or_to_any_version(client_of):
    client = client_of()
    to_parent = get(client, "thread/diff", id="ticket-42", version=2)
    assert [(each["path"], each["kind"]) for each in to_parent["changes"]] == [
        (["step"], "changed"),
        (["messages", 0, "content"], "changed"),
    ]
    across = get(client, "thread/diff", id="ticket-42", version=4, against_version=3, against_branch="careful")
    assert across["old"] == {"branch": "careful", "version": 3}
    assert [each["old"]["v"] for each in across["changes"] if each["path"] == ["step"]] == ["20"]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"id": "none"}, 404),
        ({}, 400),
        ({"id": ""}, 400),
        ({"id": "ticket-42", "branch": "none"}, 404),
        ({"id": "ticket-42", "version": "99"}, 404),
        ({"id": "ticket-42", "version": "-1"}, 400),
        ({"id": "ticket-42", "version": "9" * 50}, 400),
        ({"id": "statelog:board"}, 400),
    ],
)
def test_a_missing_object_is_an_error_with_facts(client_of, query, status):
    answer = client_of().get("/api/thread/version", params=query)
    assert answer.status_code == status
    assert {"error", "message", "facts"} == {*answer.json()}


def test_a_store_that_is_read_only_is_not_written(client_of):
    answer = client_of().post("/api/thread/rollback", json={"id": "ticket-42", "version": 0})
    assert answer.status_code == 403


def test_a_rollback_appends_a_version_and_refuses_a_head_that_has_moved(client_of):
    client = client_of(read_only=False)
    asked = {"id": "ticket-42", "branch": "main", "version": 1, "expected_version": 5}
    assert client.post("/api/thread/rollback", json=asked).json() == {"branch": "main", "version": 6}
    late = client.post("/api/thread/rollback", json=asked)
    assert (late.status_code, late.json()["error"]) == (409, "ConflictError")


def test_a_value_is_edited_into_a_fork_and_the_branch_stays(client_of):
    client = client_of(read_only=False)
    edit = {"channel": "messages", "path": [0, 0], "json": '"user 2"'}
    asked = {"id": "ticket-42", "version": 2, "name": "edited", "edit": edit}
    assert client.post("/api/thread/fork", json=asked).json() == {"branch": "edited", "version": 3}
    store = statelog.open(client_path(client))
    thread = store.thread("ticket-42", branch="edited")
    assert thread.state["messages"][0] == {"role": "user 2", "content": "hello 2"}
    assert thread.at(2).state["messages"][0]["role"] == "user"
    assert store.thread("ticket-42").version == 5
    store.close()


@pytest.mark.parametrize(
    "edit",
    [
        {"channel": "none", "path": [0], "json": "1"},
        {"channel": "messages", "path": [7], "json": "1"},
        {"channel": "messages", "path": ["0"], "json": "1"},
        {"channel": "messages", "path": [0, 0, 0], "json": "1"},
        {"channel": "messages", "path": [0], "json": "{"},
        {"channel": "messages", "path": 3, "json": "1"},
        {"path": [0], "json": "1"},
        "text",
    ],
)
def test_an_edit_that_means_nothing_begins_no_branch(client_of, edit):
    client = client_of(read_only=False)
    answer = client.post("/api/thread/fork", json={"id": "ticket-42", "version": 2, "name": "edited", "edit": edit})
    assert answer.status_code in (400, 404), answer.text
    assert "edited" not in [each["name"] for each in get(client, "thread", id="ticket-42")["branches"]]


def test_an_integer_keeps_its_digits_in_an_edit(client_of):
    client = client_of(read_only=False)
    edit = {"channel": "step", "path": [], "json": str(2**60 + 1)}
    client.post("/api/thread/fork", json={"id": "ticket-42", "version": 2, "name": "edited", "edit": edit})
    found = get(client, "thread/version", id="ticket-42", branch="edited")
    assert dict(found["state"]["items"])["step"]["v"] == str(2**60 + 1)


def test_a_tag_is_set_and_removed(client_of):
    client = client_of(read_only=False)
    client.post("/api/thread/tag", json={"id": "ticket-42", "version": 2, "name": "good"})
    assert [each["name"] for each in get(client, "thread", id="ticket-42")["tags"]] == ["good"]
    client.post("/api/thread/untag", json={"id": "ticket-42", "version": 2, "name": "good"})
    assert get(client, "thread", id="ticket-42")["tags"] == []


def test_a_conversation_comes_in_pages_from_its_end(client_of, tmp_path):
    path = tmp_path / "chat.state"
    with statelog.open(path) as store:
        store.thread("t").commit({"messages": [{"role": "user", "content": str(n)} for n in range(120)]})
    client = client_of(path=path)
    (last,) = get(client, "thread/messages", id="t", limit=50)["channels"]
    assert (last["start"], last["total"], last["messages"][-1]["text"]) == (70, 120, "119")
    (before,) = get(client, "thread/messages", id="t", limit=50, before=70)["channels"]
    assert (before["start"], before["messages"][-1]["text"]) == (20, "69")
