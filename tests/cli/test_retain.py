"""`statelog retain` and `delete`: removing versions and threads."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import statelog
from statelog.cli.application import main


@pytest.fixture
def filled(tmp_path):
    path = tmp_path / "a.state"
    with statelog.open(path) as store:
        for name in ("chat-1", "job"):
            for number in range(8):
                store.thread(name).commit({"x": number})
    return path


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_retain_keeps_the_last_versions_of_matching_threads(filled):
    answer = run("retain", filled, "--keep-last", 3, "--threads", "chat-*", "--json")
    assert answer.exit_code == 0
    assert json.loads(answer.output)["expired_versions"] == 5
    with statelog.open(filled) as store:
        assert [len(list(store.thread(name).history())) for name in ("chat-1", "job")] == [3, 8]


def test_a_pattern_that_matches_no_thread_is_named(filled):
    assert "no thread's id matches 'chta'" in run("retain", filled, "--keep-last", 3, "--threads", "chta").stderr
    waits = run("retain", filled, "--keep-last", 3, "--threads", "new-*", "--as-policy")
    assert "applies to future threads" in waits.stderr


def test_retain_works_by_age_and_as_a_policy(filled):
    assert run("retain", filled, "--max-age", "30d", "--as-policy").exit_code == 0
    assert "0 versions expired" in run("retain", filled, "--max-age", "1h").output
    assert "14 versions expired" in run("retain", filled, "--max-age", "0s").output


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "retain needs --keep-last or --max-age: "),
        (("--max-age", "soon"), "--max-age"),
        (("--keep-last", "0"), "--keep-last"),
    ],
)
def test_retain_without_a_rule_is_refused_with_the_names_of_the_options(filled, options, told):
    answer = run("retain", filled, *options)
    assert (answer.exit_code, told in answer.output, "keep_last" in answer.output) == (2, True, False)


def test_delete_removes_a_thread_and_reports_a_missing_one(filled):
    answer = run("delete", filled, "job")
    assert answer.exit_code == 0
    assert answer.output.startswith("deleted 'job': 8 versions, ")
    assert json.loads(run("delete", filled, "chat-1", "--json").output)["expired_versions"] == 8
    answer = run("delete", filled, "job")
    assert (answer.exit_code, answer.output.count("\n")) == (3, 1)
    with statelog.open(filled) as store:
        assert list(store.threads()) == []


def test_policies_are_shown_for_each_thread_and_for_future_threads(filled):
    assert run("retain", filled, "--keep-last", 3, "--threads", "chat-*", "--as-policy").exit_code == 0
    assert run("retain", filled, "--max-age", "30d", "--threads", "new", "--as-policy").exit_code == 0
    with statelog.open(filled) as store:
        store.thread("chat-2").commit({"x": 1})
    policy = {"keep_last": 3, "max_age_s": None, "keep_tags": True}
    documents = [json.loads(line) for line in run("threads", filled, "--json").output.splitlines()]
    assert {each["id"]: each["policy"] for each in documents} == {"chat-1": policy, "job": {}, "chat-2": policy}
    chat, new = json.loads(run("stat", filled, "--json").output)["policies"]
    assert chat == {"pattern": "chat-*", "id_digest": None, "policy": policy}
    assert (new["pattern"], new["policy"]["max_age_s"]) == (None, 2_592_000)
    assert "last 3, tagged" in run("threads", filled).output
    told = run("stat", filled).output
    assert "chat-* to come: last 3, tagged; the thread with id digest" in told
    assert "30d old, tagged" in told


def test_a_policy_can_be_removed(filled):
    for options in (("--keep-last", 3), ()):
        assert run("retain", filled, "--threads", "chat-*", "--as-policy", *options).exit_code == 0
    assert json.loads(run("stat", filled, "--json").output)["policies"] == []
    assert "tagged" not in run("threads", filled).output
