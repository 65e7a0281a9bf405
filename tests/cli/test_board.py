"""`statelog board`: entries from the shell."""

import statelog


def test_entries_are_set_shown_and_taken_back(run, tmp_path):
    path = tmp_path / "a.state"
    statelog.open(path).close()
    assert run("board", "ls", path).out == "no entries\n"
    made = run("board", "set", path, "tasks/1", '{"n": 1}', "--agent", "me", "--ttl", "1000", "--json").document
    assert (made["key"], made["value"], made["agent"]) == ("tasks/1", {"n": 1}, "me")
    assert run("board", "cas", path, "tasks/1", "2", "--expected-version", made["version"]).code == 0
    refused = run("board", "cas", path, "tasks/1", "3", "--expected-version", "1")
    assert (refused.code != 0, "is at version" in refused.err) == (True, True)
    assert run("board", "get", path, "tasks/1").out == "2\n"
    assert run("board", "get", path, "tasks/1", "--at", made["version"], "--json").document["value"] == {"n": 1}
    assert [each["value"] for each in run("board", "history", path, "tasks/1", "--json").documents] == [2, {"n": 1}]
    assert "tasks/1" in run("board", "ls", path, "tasks/*").out
    assert [each["value"] for each in run("board", "ls", path, "--json").documents] == [2]
    taken = run("board", "rollback", path, "tasks/", "--to", made["version"], "--json").document
    assert taken["changed"] == ["tasks/1"]
    assert "1 entries are as they were" in run("board", "rollback", path, "", "--to", taken["undo_to"]).out
    assert run("board", "get", path, "tasks/1").out == "2\n"
    lines = run("board", "history", path, "tasks/1").out.splitlines()
    assert len(lines) == 5
    assert max(map(len, lines)) <= 80


def test_what_cannot_be_is_said(run, tmp_path):
    path = tmp_path / "a.state"
    assert run("board", "set", path, "a", "1").code != 0
    assert not path.exists()
    statelog.open(path).close()
    for arguments, why in (
        (["get", path, "a"], "no entry 'a'"),
        (["set", path, "a", "done"], "no JSON"),
        (["set", path, "a*", "1"], "which is for patterns"),
        (["set", path, "a", "1", "--ttl", "0"], "above 0"),
        (["ls", path, "a//b"], "empty segment"),
        (["rollback", path, "", "--to", "99"], "an LSN of this store"),
    ):
        answer = run("board", *arguments)
        assert (answer.code != 0, why in " ".join(answer.err.split())) == (True, True), answer
