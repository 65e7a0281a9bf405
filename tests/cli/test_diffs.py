from __future__ import annotations

import pytest

import statelog


def test_without_arguments_the_last_step_is_compared(run, state):
    answer = run("diff", state, "ticket-42")
    assert answer.code == 0
    assert answer.out == """+ notes["a.b"]: {'deep': [1, 2, {'x': 3}]}\n"""
    assert answer.err == "from main@1 to main@2: 1 change\n"


def test_two_versions_are_compared(run, state):
    assert run("diff", state, "ticket-42", 0, 1).out.splitlines() == [
        "~ steps: 1 -> 2",
        "findings: 2 added",
        "  + [0]: 'a'",
        "  + [1]: 'b'",
    ]


def test_removed_values_are_shown(run, state):
    lines = run("diff", state, "ticket-42", 1, 0).out.splitlines()
    assert lines[1:3] == ["findings: 2 removed", "  - [0]: 'a'"]


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


def test_the_first_checkpoint_is_compared_with_an_empty_state(run, path):
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


def test_many_changes_are_cut_with_a_note(run, path):
    with statelog.open(path) as store:
        thread = store.thread("t")
        thread.commit({"items": []})
        thread.commit({"items": list(range(20))})
    answer = run("diff", path, "t", "--limit", 5)
    assert len(answer.out.splitlines()) == 6
    assert "15 more" in answer.err
    assert len(run("diff", path, "t", "--full").out.splitlines()) == 21


def test_a_changed_text_is_shown_by_its_differing_lines(run, path):
    lines = [f"{number}. step {number}" for number in range(8)]
    with statelog.open(path) as store:
        thread = store.thread("t")
        thread.commit({"plan": "\n".join(lines), "name": "short", "prose": "word " * 100 + "old end"})
        lines[3] += ", done"
        thread.commit({"plan": "\n".join(lines), "name": "other", "prose": "word " * 100 + "new end"})
    answer = run("diff", path, "t")
    assert answer.out.splitlines() == [
        "~ name: 'short' -> 'other'",
        "~ plan: text, 79 -> 85 characters",
        "      2. step 2",
        "    - 3. step 3",
        "    + 3. step 3, done",
        "      4. step 4",
        "~ prose: text, 507 -> 507 characters",
        f"    - …{('word ' * 100 + 'old end')[-73:]}",
        f"    + …{('word ' * 100 + 'new end')[-73:]}",
    ]
    assert f"    + {'word ' * 100}new end\n" in run("diff", path, "t", "--full").out


def test_a_changed_text_of_many_lines_is_cut_with_a_note(run, path):
    with statelog.open(path) as store:
        thread = store.thread("t")
        thread.commit({"text": "a\n" * 100})
        thread.commit({"text": "b\n" * 100})
    lines = run("diff", path, "t").out.splitlines()
    assert (len(lines), lines[-1]) == (22, "      … 180 lines more: --full")
    assert len(run("diff", path, "t", "--full").out.splitlines()) == 201


def test_a_changed_text_cannot_steer_the_terminal(run, path):
    with statelog.open(path) as store:
        thread = store.thread("t")
        thread.commit({"text": "one\ntwo"})
        thread.commit({"text": "one\n\x1b[2Jtwo"})
    assert r"    + \x1b[2Jtwo" in run("diff", path, "t").out


def test_an_unknown_checkpoint_is_refused_with_the_branches(run, state):
    answer = run("diff", state, "ticket-42", "nope")
    assert (answer.code, answer.out) == (3, "")
    assert "no branch of that name either (there is main, what-if)" in answer.err
