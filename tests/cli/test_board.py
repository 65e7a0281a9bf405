"""`statelog board` and `statelog lease`: entries, claims and leases from the shell."""

import json
import re
import signal
import time

import pytest

import statelog
from statelog.cli import exits


@pytest.fixture
def shared(path):
    """A store with a task, and the history of another task."""
    with statelog.open(path) as store:
        board = store.board(agent="planner")
        board.set("tasks/1", "mend the roof")
        board.set("notes/a", {"n": 1})
        board.delete("notes/a")
    return path


def test_entries_can_be_set_shown_and_rolled_back(run, tmp_path):
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
    assert run("board", "set", path, "tasks/2", '"x"').code == 0
    down = ("board", "ls", path, "--reverse", "--limit", "1", "--no-values", "--json")
    assert [(each["key"], "value" in each) for each in run(*down).documents] == [("tasks/2", False)]
    assert [each["key"] for each in run(*down, "--before", "tasks/2").documents] == ["tasks/1"]
    assert '"x"' not in run("board", "ls", path, "--no-values").out
    assert run("board", "delete", path, "tasks/2").code == 0
    taken = run("board", "rollback", path, "tasks/", "--to", made["version"], "--json").document
    assert taken["changed"] == ["tasks/1"]
    assert "1 entries are as they were" in run("board", "rollback", path, "", "--to", taken["undo_to"]).out
    assert run("board", "get", path, "tasks/1").out == "2\n"
    lines = run("board", "history", path, "tasks/1").out.splitlines()
    assert len(lines) == 5
    assert max(map(len, lines)) <= 80


def test_invalid_commands_are_refused_with_the_reason(run, tmp_path):
    path = tmp_path / "a.state"
    assert run("board", "set", path, "a", "1").code != 0
    assert not path.exists()
    statelog.open(path).close()
    for arguments, why in (
        (["get", path, "a"], "no entry 'a'"),
        (["set", path, "a", "done"], "not valid JSON"),
        (["set", path, "a*", "1"], "which only patterns may contain"),
        (["set", path, "a", "1", "--ttl", "0"], "above 0"),
        (["ls", path, "a//b"], "empty segment"),
        (["rollback", path, "", "--to", "99"], "an LSN of this store"),
    ):
        answer = run("board", *arguments)
        assert (answer.code != 0, why in " ".join(answer.err.split())) == (True, True), answer


# --- watches ----------------------------------------------------------------------------


def test_a_watch_prints_events(run, shared):
    lines = run("board", "watch", shared, "--no-follow").out.splitlines()
    assert [line.split()[2:5] for line in lines] == [
        ["set", "tasks/1", "planner"],
        ["set", "notes/a", "planner"],
        ["delete", "notes/a", "planner"],
    ]
    assert "'mend the r…" in lines[0]
    assert max(map(len, lines)) <= 80
    assert len(run("board", "watch", shared, "notes/*", "--no-follow").out.splitlines()) == 2


def test_a_watch_continues_after_a_cursor_or_a_record(run, shared):
    events = run("board", "watch", shared, "--no-follow", "--json").documents
    assert [(each["kind"], each["key"], each["old"], each["new"], each["more"]) for each in events] == [
        ("set", "tasks/1", None, "mend the roof", False),
        ("set", "notes/a", None, {"n": 1}, False),
        ("delete", "notes/a", {"n": 1}, None, False),
    ]
    for after in (events[0]["cursor"], events[0]["version"]):
        assert run("board", "watch", shared, "--after", after, "--no-follow", "--json").documents == events[1:]
    answer = run("board", "watch", shared, "--after", events[1]["cursor"], "--timeout", 0.05, "--json")
    assert (answer.code, answer.documents) == (0, events[2:])


def test_a_watch_without_a_cursor_begins_with_future_events(run, shared):
    assert run("board", "watch", shared, "--timeout", 0.05).out == ""


def test_a_watch_reports_changes_of_another_process_until_ctrl_c(start, shared):
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # A background job ignores the signal, and then
    try:  # its children ignore it as well.
        process = start("board", "watch", shared, "tasks/**", "--after", 0, "--json")
    finally:
        signal.signal(signal.SIGINT, handler)
    assert json.loads(process.stdout.readline())["new"] == "mend the roof"
    with statelog.open(shared) as store:
        store.board(agent="late").set("tasks/2", 2)
    event = json.loads(process.stdout.readline())
    assert (event["key"], event["agent"]) == ("tasks/2", "late")
    process.send_signal(signal.SIGINT)
    _out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (exits.INTERRUPTED, "")


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["--after", "99-abc"], 2, "a different history"),
        (["--after", 99], 2, "no record 99"),
        (["--after", "x"], 2, "not a cursor"),
        (["a//b"], 2, "empty segment"),
        (["--timeout", -1], 2, "timeout_s"),
    ],
)
def test_an_invalid_watch_is_refused(run, shared, arguments, code, why):
    answer = run("board", "watch", shared, *arguments)
    assert (answer.code, why in answer.err) == (code, True), answer


def test_a_watch_from_before_removed_events_names_the_oldest(run, shared):
    with statelog.open(shared) as store:
        store.board().set("tasks/1", "again")
        store.board().prune("**", keep_last=1)
    answer = run("board", "watch", shared, "--after", 1, "--timeout", 0.05, "--json")
    facts = json.loads(answer.err)["facts"]
    assert (answer.code, facts["oldest"] > 1) == (3, True), answer


def test_stored_text_in_an_event_cannot_steer_the_terminal(run, shared):
    with statelog.open(shared) as store:
        store.board(agent="\x1b[2J").set("k\x07", "\x1b[31m")
    assert run("board", "watch", shared, "--no-follow").out.replace("\n", "").isprintable()


# --- claims -----------------------------------------------------------------------------


def test_an_entry_is_claimed_and_completed(run, shared):
    said = run("board", "claim", shared, "tasks/*", "--agent", "worker").out.splitlines()
    facts = dict(line.split(maxsplit=1) for line in said)
    assert (facts["key"], facts["attempt"], facts["value"]) == ("tasks/1", "1", "'mend the roof'")
    entry = run("board", "get", shared, "tasks/1", "--json").document
    assert (entry["claim"]["token"], entry["claim"]["holder"]) == (int(facts["token"]), "worker")
    assert entry["attempts"] == 1
    how = ["--token", facts["token"], "--result", '{"ok": true}', "--to", "tasks/done/", "--agent", "worker"]
    done = run("board", "complete", shared, "tasks/1", *how)
    assert done.out == "tasks/1 is completed; its result is tasks/done/1\n"
    assert run("board", "get", shared, "tasks/1").code == 3
    assert run("board", "get", shared, "tasks/done/1", "--json").document["value"] == {"ok": True}


def test_a_completed_entry_without_a_result_keeps_its_value(run, shared):
    claim = run("board", "claim", shared, "tasks/*", "--json").document
    assert claim == {"key": "tasks/1", "token": claim["token"], "attempt": 1, "value": "mend the roof"}
    how = ["--token", claim["token"], "--to", "done/", "--json"]
    assert run("board", "complete", shared, "tasks/1", *how).document["to"] == "done/1"
    assert run("board", "get", shared, "done/1").out == "'mend the roof'\n"


def test_a_completed_entry_without_a_result_prefix_is_only_in_the_history(run, shared):
    token = run("board", "claim", shared, "tasks/*", "--json").document["token"]
    assert run("board", "complete", shared, "tasks/1", "--token", token).out == "tasks/1 is completed\n"
    last = run("board", "history", shared, "tasks/1", "--json").documents[0]
    assert (last["kind"], last["value"]) == ("complete", "mend the roof")
    assert [each["key"] for each in run("board", "ls", shared, "--json").documents] == []


def test_nothing_to_claim_is_not_found(run, shared):
    answer = run("board", "claim", shared, "none/*", "--json")
    assert (answer.code, answer.out, json.loads(answer.err)["kind"]) == (3, "", "NotFoundError")
    assert run("board", "claim", shared, "tasks/*").code == 0
    assert "no entry to claim matches 'tasks/*'" in run("board", "claim", shared, "tasks/*").err


def test_a_claim_past_its_deadline_is_taken_over_and_its_token_is_refused(run, shared):
    first = run("board", "claim", shared, "tasks/*", "--lease", 0.01, "--json").document
    time.sleep(0.02)
    again = run("board", "claim", shared, "tasks/*", "--wait", 5, "--json").document
    assert (again["attempt"], again["token"] > first["token"]) == (2, True)
    late = run("board", "complete", shared, "tasks/1", "--token", first["token"])
    assert (late.code, late.out, "has ended" in late.err) == (4, "", True)


def test_higher_priorities_are_claimed_first_and_delays_are_respected(run, shared):
    assert run("board", "set", shared, "tasks/high", "1", "--priority", 5, "--json").document["priority"] == 5
    assert run("board", "set", shared, "tasks/late", "2", "--priority", 9, "--delay", 0.3).code == 0
    keys = [run("board", "claim", shared, "tasks/*", "--json").document["key"] for _ in range(2)]
    assert keys in (["tasks/high", "tasks/1"], ["tasks/high", "tasks/late"], ["tasks/late", "tasks/high"])
    assert run("board", "claim", shared, "tasks/*", "--wait", 5).code == 0


def test_a_claim_waits_for_an_entry(start, shared):
    process = start("board", "claim", shared, "new/*", "--wait", 30, "--json")
    with statelog.open(shared) as store:
        store.board().set("new/1", 1)
    out, _err = process.communicate(timeout=300)
    assert json.loads(out)["key"] == "new/1"


def test_entries_claimed_too_often_stay_or_are_moved(run, shared):
    run("board", "claim", shared, "tasks/*", "--lease", 0.01)
    time.sleep(0.02)
    assert run("board", "claim", shared, "tasks/*", "--max-attempts", 1).code == 3
    assert run("board", "get", shared, "tasks/1").code == 0
    assert run("board", "claim", shared, "tasks/*", "--max-attempts", 1, "--dead", "dead/").code == 3
    assert run("board", "get", shared, "dead/1").out == "'mend the roof'\n"


def test_history_as_json_has_the_error(run, shared):
    with statelog.open(shared) as store:
        store.board().claim("tasks/*").fail("no ladder")
    assert run("board", "history", shared, "tasks/1", "--json").documents[0]["error"] == "no ladder"


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["claim", "tasks/*", "--lease", 0], 2, "lease_s"),
        (["claim", "tasks/*", "--lease", "nan"], 2, "lease_s"),
        (["claim", "tasks/*", "--wait", -1], 2, "wait_s"),
        (["claim", "tasks/*", "--max-attempts", 0], 2, "max_attempts"),
        (["claim", "tasks/*", "--dead", "dead/"], 2, "--dead needs --max-attempts"),
        (["claim", "tasks/*", "--max-attempts", 1, "--dead", "dead"], 2, "does not end in '/'"),
        (["claim", "a//b"], 2, "empty segment"),
        (["complete", "tasks/1"], 2, "--token"),
        (["complete", "tasks/1", "--token", 1], 4, "has ended"),
        (["complete", "tasks/1", "--token", 1, "--result", "done"], 2, "the result is not valid JSON"),
        (["complete", "a*", "--token", 1], 2, "only patterns"),
        (["set", "a", "1", "--priority", 128], 2, "priority"),
        (["set", "a", "1", "--delay", -1], 2, "delay_s"),
    ],
)
def test_invalid_claims_are_refused(run, shared, arguments, code, why):
    answer = run("board", arguments[0], shared, *arguments[1:])
    assert (answer.code, why in answer.err) == (code, True), answer


def test_an_invalid_result_prefix_leaves_the_claim(run, shared):
    token = run("board", "claim", shared, "tasks/*", "--json").document["token"]
    assert run("board", "complete", shared, "tasks/1", "--token", token, "--to", "done").code == 2
    assert run("board", "complete", shared, "tasks/1", "--token", token).code == 0


# --- leases -----------------------------------------------------------------------------


def test_leases_are_listed(run, shared):
    assert run("lease", "ls", shared).out == "no leases\n"
    assert run("lease", "ls", shared, "--json").out == ""
    with statelog.open(shared) as store:
        held = store.board(agent="leader").lease("thread/42", ttl_s=600, auto_renew=False)
        store.board().lease("old", ttl_s=0.01, auto_renew=False)
    time.sleep(0.02)
    lines = run("lease", "ls", shared).out.splitlines()
    assert lines[0].split() == ["name", "holder", "token", "until"]
    assert re.fullmatch(r"old +\d+ .*its time is up", lines[1])
    assert lines[2].split()[:3] == ["thread/42", "leader", str(held.token)]
    [old, thread] = run("lease", "ls", shared, "--json").documents
    assert (old["name"], old["is_over"], old["holder"]) == ("old", True, None)
    assert (thread["token"], thread["is_over"], thread["expires"] > thread["acquired"]) == (held.token, False, True)
    assert run("lease", "ls", shared, "--absolute").out.splitlines() == lines


def test_leases_of_a_missing_store_are_refused(run, tmp_path):
    assert run("lease", "ls", tmp_path / "none.state").code == 11


# --- what ends a claim, and what deletes -------------------------------------------------------------


def claimed(run, path, *more):
    return run("board", "claim", path, "tasks/*", "--json", *more).document["token"]


def test_an_entry_is_deleted_once_and_only_at_the_expected_version(run, shared):
    refused = run("board", "delete", shared, "tasks/1", "--expected-version", 99, "--json")
    assert (refused.code, json.loads(refused.err)["kind"]) == (4, "ConflictError")
    assert run("board", "delete", shared, "tasks/1", "--agent", "me").out == "tasks/1 is deleted\n"
    last = run("board", "history", shared, "tasks/1", "--json").documents[0]
    assert (last["kind"], last["agent"]) == ("delete", "me")
    again = run("board", "delete", shared, "tasks/1", "--json")
    assert (again.code, again.out, json.loads(again.err)["facts"]) == (3, "", {"key": "tasks/1"})


def test_a_released_entry_can_be_claimed_at_once_and_counts_the_attempt_unless_told_otherwise(run, shared):
    token = claimed(run, shared)
    assert run("board", "release", shared, "tasks/1", "--token", token).out == "tasks/1 may be claimed again\n"
    assert run("board", "get", shared, "tasks/1", "--json").document["attempts"] == 1
    token = claimed(run, shared)
    how = ("--token", token, "--uncounted", "--json")
    assert run("board", "release", shared, "tasks/1", *how).document == {"key": "tasks/1", "token": token}
    assert run("board", "get", shared, "tasks/1", "--json").document["attempts"] == 1


def test_a_failed_entry_keeps_its_error_and_waits_for_the_given_time(run, shared):
    token = claimed(run, shared)
    how = ("--token", token, "--error", "no \x1b[2J ladder", "--retry-in", 600)
    assert run("board", "fail", shared, "tasks/1", *how).out == "tasks/1 has failed\n"
    assert run("board", "get", shared, "tasks/1", "--json").document["error"] == "no \x1b[2J ladder"
    assert run("board", "claim", shared, "tasks/*").code == 3


def test_an_entry_that_has_failed_too_often_moves_to_the_dead(run, shared):
    how = ("--max-attempts", 2, "--dead", "dead/", "--error", "no ladder", "--json")
    first = run("board", "fail", shared, "tasks/1", "--token", claimed(run, shared), *how)
    assert first.document["to"] is None
    second = run("board", "fail", shared, "tasks/1", "--token", claimed(run, shared), *how)
    assert second.document["to"] == "dead/1"
    assert run("board", "get", shared, "dead/1", "--json").document["error"] == "no ladder"


def test_a_renewed_claim_lasts_for_the_given_time(run, shared):
    token = claimed(run, shared, "--lease", 5)
    before = run("board", "get", shared, "tasks/1", "--json").document["claim"]["expires"]
    how = ("--token", token, "--lease", 3600)
    assert run("board", "renew", shared, "tasks/1", *how, "--json").document["expires"] > before
    said = run("board", "renew", shared, "tasks/1", "--token", token, "--absolute").out
    assert said.startswith("tasks/1 is claimed until 2")
    assert run("board", "get", shared, "tasks/1", "--json").document["claim"]["token"] == token


@pytest.mark.parametrize(
    ("command", "more", "code", "why"),
    [
        ("release", [], 4, "has ended"),
        ("fail", ["--error", "no"], 4, "has ended"),
        ("renew", [], 4, "has ended"),
        ("fail", [], 2, "--error"),
        ("fail", ["--error", "no", "--dead", "dead/"], 2, "--max-attempts"),
        ("fail", ["--error", "no", "--dead", "dead", "--max-attempts", "1"], 2, "does not end in '/'"),
    ],
)
def test_invalid_commands_on_a_claim_are_refused_without_effect(run, shared, command, more, code, why):
    before = run("log", shared, "--json").out
    answer = run("board", command, shared, "tasks/1", "--token", 7, *more, "--json")
    assert (answer.code, answer.out, why in answer.err) == (code, "", True), answer
    assert run("log", shared, "--json").out == before


@pytest.mark.parametrize(
    ("command", "more"), [("fail", ["--error", "no", "--retry-in", "-1"]), ("renew", ["--lease", "nan"])]
)
def test_an_invalid_time_does_not_change_a_claim(run, shared, command, more):
    token = claimed(run, shared)
    answer = run("board", command, shared, "tasks/1", "--token", token, *more)
    assert (answer.code, answer.out) == (2, "")
    assert run("board", "release", shared, "tasks/1", "--token", token).code == 0


@pytest.mark.parametrize("command", ["delete", "release", "renew"])
def test_ending_a_claim_does_not_create_a_missing_store(run, tmp_path, command):
    more = [] if command == "delete" else ["--token", 7]
    assert run("board", command, tmp_path / "none.state", "tasks/1", *more).code == 11
    assert list(tmp_path.iterdir()) == []
