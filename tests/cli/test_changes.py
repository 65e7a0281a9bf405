from __future__ import annotations

import pytest

import statelog


def head(run, state, branch="main"):
    return run("history", state, "ticket-42", "--branch", branch, "--limit", 1, "--json").documents[0]


def test_a_rollback_appends_a_version_with_the_old_state(run, state):
    answer = run("rollback", state, "ticket-42", "good", "--metadata", '{"why": "it was better"}')
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("version 3 of main is version 1 again (")
    made = head(run, state)
    assert (made["version"], made["kind"], made["metadata"]) == (3, "rollback", {"why": "it was better"})
    assert run("show", state, "ticket-42", "--path", "notes", "--json").document["value"] == {}


def test_a_negative_version_is_not_parsed_as_an_option(run, state):
    made = run("rollback", state, "ticket-42", "-3", "--json").document["checkpoint"]
    assert made["version"] == 3
    assert run("diff", state, "ticket-42", "-4", "-2", "--limit", "0").code == 0
    assert "No such option" in run("rollback", state, "ticket-42", "-x").err


def test_a_rollback_is_undone_by_a_rollback(run, state):
    before = head(run, state)
    run("rollback", state, "ticket-42", 0)
    document = run("rollback", state, "ticket-42", 2, "--json").document
    assert document["checkpoint"]["state_digest"] == before["state_digest"]
    assert document["target"]["version"] == 2
    assert document["duration_s"] > 0


def test_a_rollback_of_a_moved_head_is_a_conflict(run, state):
    answer = run("rollback", state, "ticket-42", 0, "--expected-version", 1)
    assert (answer.code, answer.out) == (4, "")
    assert head(run, state)["version"] == 2


def test_a_fork_shares_versions_and_takes_an_update(run, state):
    update = '{"query": "sled", "findings": ["c"]}'
    answer = run("fork", state, "ticket-42", "third", "--at", 1, "--update", update)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "branch third begins at version 1 of main; its head is version 2\n"
    value = run("show", state, "ticket-42", "--branch", "third", "--json").document["value"]
    assert (value["query"], value["findings"]) == ("sled", ["a", "b", "c"])


def test_a_fork_as_json_has_base_and_head(run, state):
    document = run("fork", state, "ticket-42", "third", "--branch", "what-if", "--json").document
    assert (document["branch"], document["base"]["version"], document["head"]["version"]) == ("third", 2, 2)
    assert document["base"]["branch"] == "what-if"


def test_an_update_can_have_every_type(run, state):
    update = '{"notes": {"raw": {"$bytes": "AAE="}, "pair": {"$tuple": [1]}}}'
    assert run("fork", state, "ticket-42", "typed", "--update", update).code == 0
    with statelog.open(state, read_only=True) as store:
        notes = store.thread("ticket-42", branch="typed").state["notes"].to_python()
    assert (notes["raw"], notes["pair"]) == (b"\x00\x01", (1,))


def test_an_update_can_come_from_a_file_or_stdin(run, state, tmp_path):
    (tmp_path / "update.json").write_text('{"query": "from a file"}')
    assert run("fork", state, "ticket-42", "f", "--update", f"@{tmp_path / 'update.json'}").code == 0
    assert run("fork", state, "ticket-42", "s", "--update", "-", stdin='{"query": "from stdin"}').code == 0
    assert run("show", state, "ticket-42", "--branch", "f", "--path", "query").out == "from a file\n"
    assert run("show", state, "ticket-42", "--branch", "s", "--path", "query").out == "from stdin\n"


def test_a_taken_branch_name_is_a_conflict(run, state):
    answer = run("fork", state, "ticket-42", "what-if")
    assert (answer.code, answer.out, answer.err.count("\n")) == (4, "", 1)


@pytest.mark.parametrize(
    ("update", "code", "message"),
    [
        ("{", 2, "--update is not valid JSON"),
        ("[1]", 2, "--update must be a JSON object"),
        ("@/nowhere.json", 2, "cannot read '/nowhere.json'"),
        ('{"nope": 1}', 2, "no channel 'nope'"),
        ('{"steps": "x"}', 2, "steps"),
        ('{"notes": {"$what": 1}}', 2, "$what"),
        ("[" * 100_000, 2, "--update is not valid JSON"),
    ],
)
def test_an_invalid_update_changes_nothing(run, state, update, code, message):
    answer = run("fork", state, "ticket-42", "new", "--update", update)
    assert (answer.code, answer.out, answer.err.count("\n")) == (code, "", 1)
    assert message in answer.err
    assert run("history", state, "ticket-42", "--branch", "new").code == 3


def test_metadata_beyond_its_limit_is_refused(run, state, tmp_path):
    (tmp_path / "large.json").write_text('{"x": "' + "y" * 70_000 + '"}')
    answer = run("rollback", state, "ticket-42", 0, "--metadata", f"@{tmp_path / 'large.json'}")
    assert (answer.code, answer.out) == (5, "")
    assert answer.err.startswith("statelog: metadata has ")


def test_a_copy_has_the_same_branches(run, state):
    answer = run("copy", state, "ticket-42", "again")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "thread again is a copy of ticket-42: 2 branches; its head is version 2\n"
    shown = [run("show", state, name, "--branch", "what-if", "--json").document for name in ("ticket-42", "again")]
    assert shown[0]["value"] == shown[1]["value"]
    document = run("copy", state, "again", "third", "--json").document
    assert (document["source"], document["thread"], document["head"]["version"]) == ("again", "third", 2)
    assert [branch["name"] for branch in document["branches"]] == ["main", "what-if"]


@pytest.mark.parametrize(("source", "target", "code"), [("ticket-42", "ticket-42", 4), ("ticket-43", "new", 3)])
def test_an_invalid_copy_is_refused(run, state, source, target, code):
    before = run("threads", state).out
    answer = run("copy", state, source, target)
    assert (answer.code, answer.out) == (code, "")
    assert run("threads", state).out == before


def test_tags_are_listed(run, state):
    assert "good" in run("tag", state, "ticket-42").out
    document = run("tag", state, "ticket-42", "--json").document
    assert document["tags"]["good"]["version"] == 1
    assert run("tag", state, "other").out == "no tags\n"
    assert run("tag", state, "other", "--json").document == {"thread": "other", "tags": {}}


def test_a_tag_is_set_moved_and_removed(run, state):
    assert run("tag", state, "ticket-42", "best").out == "tag best is version 2 of branch main\n"
    document = run("tag", state, "ticket-42", "best", "--at", 0, "--json").document
    assert (document["tag"], document["checkpoint"]["version"]) == ("best", 0)
    assert run("tag", state, "ticket-42", "best", "--remove", "--json").document["checkpoint"] is None
    answer = run("tag", state, "ticket-42", "best", "--remove")
    assert (answer.code, answer.err) == (3, "statelog: thread 'ticket-42' has no tag 'best'\n")
    assert run("tag", state, "ticket-42", "good", "--remove").out == "tag good is removed\n"


@pytest.mark.parametrize("options", [["--remove"], ["--at", "1"], ["good", "--remove", "--at", "1"]])
def test_conflicting_options_of_tag_are_refused(run, state, options):
    assert run("tag", state, "ticket-42", *options).code == 2
