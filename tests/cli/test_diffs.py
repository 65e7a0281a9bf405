from __future__ import annotations

import pytest

import statelog


def test_without_sides_the_last_step_is_shown(run, state):
    answer = run("diff", state, "ticket-42")
    assert answer.code == 0
    assert answer.out == """+ notes["a.b"]: {'deep': [1, 2, {'x': 3}]}\n"""
    assert answer.err == "from main@1 to main@2: 1 change\n"


def test_two_versions_are_compared(run, state):
    assert sorted(run("diff", state, "ticket-42", 0, 1).out.splitlines()) == [
        "+ findings[0]: 'a'",
        "+ findings[1]: 'b'",
        "~ steps: 1 -> 2",
    ]


def test_removed_values_are_shown(run, state):
    lines = run("diff", state, "ticket-42", 1, 0).out.splitlines()
    assert "- findings[0]: 'a'" in lines


@pytest.mark.parametrize(
    ("old", "new", "sides"),
    [
        ("main", "what-if", ("main", 2, "what-if", 2)),
        ("main@0", "what-if@2", ("main", 0, "what-if", 2)),
        ("what-if@good", "head", ("main", 1, "main", 2)),
        ("what-if@head", "mine", ("what-if", 2, "main", 2)),
    ],
)
def test_branches_are_compared(run, state, old, new, sides):
    document = run("diff", state, "ticket-42", old, new, "--json").document
    before, after = document["old"], document["new"]
    assert (before["branch"], before["version"], after["branch"], after["version"]) == sides


def test_changes_as_json_have_path_steps_and_values(run, state):
    document = run("diff", state, "ticket-42", "main", "what-if", "--json").document
    assert {"path": "query", "steps": ["query"], "kind": "changed", "old": "lmdb", "new": "redb"} in document["changes"]
    removed = [change for change in document["changes"] if change["kind"] == "removed"]
    assert removed == [
        {
            "path": 'notes["a.b"]',
            "steps": ["notes", "a.b"],
            "kind": "removed",
            "old": {"deep": [1, 2, {"x": 3}]},
        }
    ]


def test_the_first_checkpoint_is_compared_with_nothing(run, path):
    with statelog.open(path) as store:
        store.thread("t").commit({"x": 1})
    document = run("diff", path, "t", "--json").document
    assert document["old"] is None
    assert document["changes"] == [{"path": "x", "steps": ["x"], "kind": "added", "new": 1}]
    assert "from nothing to main@0" in run("diff", path, "t").err


def test_equal_states_have_no_changes(run, state):
    answer = run("diff", state, "ticket-42", "good", "1")
    assert (answer.code, answer.out) == (0, "")
    assert "0 changes" in answer.err


def test_many_changes_are_cut_and_say_so(run, path):
    with statelog.open(path) as store:
        thread = store.thread("t")
        thread.commit({"items": []})
        thread.commit({"items": list(range(20))})
    answer = run("diff", path, "t", "--limit", 5)
    assert len(answer.out.splitlines()) == 5
    assert "15 more" in answer.err
    assert len(run("diff", path, "t", "--full").out.splitlines()) == 20


def test_an_unknown_side_names_the_branches(run, state):
    answer = run("diff", state, "ticket-42", "nope")
    assert (answer.code, answer.out) == (3, "")
    assert "no branch of that name either (there is main, what-if)" in answer.err
