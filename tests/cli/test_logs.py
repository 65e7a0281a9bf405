from __future__ import annotations

import json
from itertools import pairwise

import statelog


def test_the_log_is_printed_in_order(run, state):
    lines = run("log", state).out.splitlines()
    assert [int(line.split()[0]) for line in lines] == list(range(1, len(lines) + 1))
    assert [line.split()[3] for line in lines[:3]] == ["thread", "checkpoint", "checkpoint"]


def test_records_as_json_continue_each_others_digest(run, state):
    documents = run("log", state, "--json").documents
    assert [document["type"] for document in documents].count("fork") == 1
    for previous, document in pairwise(documents):
        assert document["previous_digest"] == previous["digest"]
    assert documents[2]["body"]["metadata"] == {"node": "search"}


def test_records_are_selected_by_number_thread_and_limit(run, state):
    assert [each["lsn"] for each in run("log", state, "--after", 2, "--limit", 2, "--json").documents] == [3, 4]
    assert {each["thread"] for each in run("log", state, "--thread", "other", "--json").documents} == {"other"}
    assert run("log", state, "--after", 9999, "--json").out == ""


def test_a_missing_thread_is_not_an_empty_log(run, state):
    answer = run("log", state, "--thread", "nope", "--json")
    assert (answer.code, answer.out) == (3, "")
    assert "no thread 'nope'" in json.loads(answer.err)["error"]
    assert run("log", state, "--thread", "other", "--after", 9999).code == 0
    assert (
        run("log", state, "--thread", "nope", "--follow", "--timeout", 0.05).code == 0
    )  # The thread may be created later.


def test_following_sees_commits_of_another_process(start, state):
    process = start("log", state, "--follow", "--json")
    with statelog.open(state) as store:
        store.thread("late").commit({"x": 1})
        last = store.last_lsn
        seen = [json.loads(process.stdout.readline())["lsn"] for _ in range(last)]
    assert seen == list(range(1, last + 1))


def test_following_ends_after_a_quiet_time(run, state):
    answer = run("log", state, "--follow", "--timeout", 0.05)
    assert answer.code == 0
    assert answer.out == run("log", state).out


def test_stored_text_in_the_log_cannot_steer_the_terminal(run, path):
    with statelog.open(path) as store:
        store.thread("\x1b[2J").commit({"\x1b[31m": 1}, metadata={"\x07": "\n"})
    assert run("log", path).out.replace("\n", "").isprintable()
