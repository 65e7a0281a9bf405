from __future__ import annotations

import statelog


def test_threads_are_listed_in_order_of_creation(run, state):
    answer = run("threads", state)
    assert (answer.code, answer.err) == (0, "")
    assert [line.split()[0] for line in answer.out.splitlines()] == ["thread", "ticket-42", "other"]


def test_threads_as_json_are_one_object_per_line(run, state):
    first, second = run("threads", state, "--json").documents
    assert (first["id"], first["branches"], first["versions"]) == ("ticket-42", 2, 4)
    assert first["channels"]["findings"] == "add"
    assert (second["id"], second["channels"]) == ("other", {})


def test_a_limited_list_notes_that_there_are_more(run, state):
    answer = run("threads", state, "--limit", 1)
    assert "other" not in answer.out
    assert "there are more" in answer.err


def test_an_empty_store_has_no_threads(run, path):
    statelog.open(path).close()
    assert run("threads", path).out == "no threads\n"
    assert run("threads", path, "--json").out == ""


def test_a_thread_id_cannot_steer_the_terminal(run, path):
    with statelog.open(path) as store:
        store.thread("\x1b[2J\nevil").commit({"x": 1})
    assert r"\x1b[2J\nevil" in run("threads", path).out


def test_history_is_newest_first_with_tags_and_metadata(run, state):
    lines = run("history", state, "ticket-42").out.splitlines()
    assert [line.split()[0] for line in lines] == ["version", "2", "1", "0"]
    assert "tag good" in lines[2]
    assert "node=search" in lines[2]
    assert "mine" not in lines[1]
    assert "mine" in run("history", state, "ticket-42", "--ids").out.splitlines()[1]


def test_history_as_json_has_every_checkpoint(run, state):
    documents = run("history", state, "ticket-42", "--json").documents
    assert [document["version"] for document in documents] == [2, 1, 0]
    assert documents[0]["id"] == "mine"
    assert documents[1]["metadata"] == {"node": "search"}
    assert documents[1]["channels"] == ["findings", "steps"]
    assert {document["kind"] for document in documents} == {"commit"}


def test_history_of_a_branch_continues_in_its_parent(run, state):
    answer = run("history", state, "ticket-42", "--branch", "what-if")
    assert "on main" in answer.out.splitlines()[2]
    documents = run("history", state, "ticket-42", "--branch", "what-if", "--json").documents
    assert [(each["branch"], each["version"]) for each in documents] == [("what-if", 2), ("main", 1), ("main", 0)]


def test_history_stops_at_its_limit_with_a_note(run, state):
    answer = run("history", state, "ticket-42", "--limit", 1)
    assert len(answer.out.splitlines()) == 2
    assert "--before 2" in answer.err
    assert [each["version"] for each in run("history", state, "ticket-42", "--before", 2, "--json").documents] == [1, 0]
    assert len(run("history", state, "ticket-42", "--limit", 1, "--all", "--json").documents) == 3


def test_history_of_an_unknown_branch_is_not_found(run, state):
    answer = run("history", state, "ticket-42", "--branch", "nope")
    assert (answer.code, answer.out) == (3, "")
    assert answer.err == "statelog: thread 'ticket-42' has no branch 'nope' (there is main, what-if)\n"


def test_history_and_show_have_schema_versions(path, run):
    schema = statelog.versioned({"n": int}, name="counted", version=2)
    with statelog.open(path) as store:
        store.thread("t", schema=schema).commit({"n": 1})
    assert "schema 2" in run("history", path, "t").out
    assert run("history", path, "t", "--json").document["schema_version"] == 2
    assert "schema version 2" in run("show", path, "t").err
    assert run("threads", path, "--json").document["schema"] == "counted:2"
