from __future__ import annotations

import pytest

import statelog


@pytest.fixture
def grown(path):
    """A store with a thread that has every kind of mark."""
    with statelog.open(path) as store:
        thread = store.thread("t")
        for number in range(8):
            thread.commit({"n": number})
        thread.tag("good", 2)
        thread.rollback(3)
        aside = thread.fork("aside", at=2, update={"n": 20})
        aside.commit({"n": 21})
        aside.commit({"n": 22})
        aside.rollback(1)
        aside.fork("from-main", at=1, update={"n": 30})
        aside.fork("deeper", at=4)
        thread.commit({"n": 9})
        store.thread("other").commit({"n": 0})
    return path


def without_times(text):
    """Return the lines of a tree drawn with `--relative`."""
    return [line.replace("  0s ago", "") for line in text.splitlines()]


def test_a_tree_has_branches_rollbacks_tags_and_heads(run, grown, monkeypatch):
    monkeypatch.setattr("statelog.cli.output.format_age", lambda _time, _now: "0s ago")
    answer = run("tree", grown, "t", "--relative")
    assert (answer.code, answer.err) == (0, "")
    assert without_times(answer.out) == [
        "t",
        "main",
        "├─ 0",
        "├─ 1",
        "│  └─ from-main",
        "│     └─ 2  head",
        "├─ 2  tag good",
        "│  └─ aside",
        "│     ├─ 3",
        "│     ├─ 4",
        "│     │  └─ deeper",
        "│     ├─ 5",
        "│     └─ 6  head, back to main@1",
        "├─ 3-7",
        "├─ 8  back to 3",
        "└─ 9  head",
    ]


def test_a_tree_accepts_time_options(run, grown):
    lines = run("tree", grown, "t").out.splitlines()
    shown = next(line for line in lines if "back to 3" in line)
    time = " ".join(shown.split()[2:4])
    assert run("show", grown, "t", "--at", time, "--json").document["checkpoint"]["version"] == 8


def test_without_a_thread_all_threads_are_drawn(run, grown):
    lines = run("tree", grown).out.splitlines()
    assert [line for line in lines if line in ("t", "other", "main")] == ["t", "main", "other", "main"]
    assert lines[-1].endswith("Z  head")


@pytest.mark.slow
def test_a_tree_without_utf_8_is_drawn_in_ascii(start, grown):
    process = start("tree", grown, "t", env={"PYTHONIOENCODING": "ascii"})
    out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, "")
    assert out.isascii()
    assert "|  `- aside\n" in out


def test_more_marks_than_the_limit_are_counted(run, path):
    with statelog.open(path) as store:
        thread = store.thread("t")
        for number in range(30):
            thread.commit({"n": number})
            thread.tag(f"tag {number}", number)
    lines = run("tree", path, "t", "--limit", 3).out.splitlines()
    assert lines[3] == "├─ 1-26, 26 marks among them"
    assert [line.split()[1] for line in lines[4:]] == ["27", "28", "29"]


def test_deeply_nested_branches_are_only_counted(run, path):
    with statelog.open(path) as store:
        thread = store.thread("t")
        thread.commit({"n": 0})
        for number in range(40):
            thread = thread.fork(f"b{number}", update={"n": number})
    answer = run("tree", path, "t")
    assert answer.code == 0
    assert answer.out.splitlines()[-1].endswith("└─ 32 more branches")
    assert max(map(len, answer.out.splitlines())) <= 80


def test_a_tree_as_json_has_branches_rollbacks_and_tags(run, grown):
    first, second = run("tree", grown, "--json").documents
    assert [branch["name"] for branch in first["branches"]] == ["main", "aside", "from-main", "deeper"]
    assert first["branches"][0]["rollbacks"] == [{"version": 8, "to_branch": "main", "to_version": 3}]
    assert first["branches"][1]["rollbacks"] == [{"version": 6, "to_branch": "main", "to_version": 1}]
    assert first["branches"][2]["base_version"] == 1
    assert first["tags"] == {"good": {"branch": "main", "version": 2}}
    assert second["thread"] == "other"


def test_a_tree_of_nothing_says_so(run, path):
    statelog.open(path).close()
    assert run("tree", path).out == "no threads\n"
    answer = run("tree", path, "t")
    assert (answer.code, answer.out) == (3, "")


def test_expired_versions_are_not_a_failure(run, grown):
    with statelog.open(grown) as store:
        store.prune(keep_last=1, keep_tags=False)
    answer = run("tree", grown, "t")
    assert (answer.code, answer.err) == (0, "")
    assert "head" in answer.out
