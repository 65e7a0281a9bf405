"""`statelog runs`, `gates`, `queue`, `outbox` and `schedules`: showing and controlling runs."""

from __future__ import annotations

import base64
import importlib
import json
import logging
import sys

import pytest

import statelog
from statelog import durable
from statelog.cli.completion import complete_gate, complete_place, complete_run
from statelog.store.board import own_board

FLOWS = """
from statelog import durable

print("flows are imported")

def plan(city):
    return {"city": city, "long": "b" * 300}

def book(number):
    return f"F{number}"

def unbook(result, number):
    return f"{result} is cancelled"

def flaky():
    if durable.current_step().attempt < 2:
        raise ValueError("busy")
    return "at last"

def charge():
    raise ValueError("no \\x1b[2J funds")

@durable.workflow
def search(run, city):
    return run.step(plan, city)

@durable.workflow
def trip(run, city):
    run.step_with(durable.StepOptions(compensate=unbook), book, 1)
    run.step_with(durable.StepOptions(retry=durable.Retry(attempts=2, first_delay_s=0.001)), flaky)
    run.child(search, city, id=f"{run.id}-search")
    run.emit("trip/booked", {"number": 1})
    if not run.gate("approve", {"total": 840, "text": "\\x1b[31m"}).approved:
        raise durable.Abort("declined")
    print("charging")
    run.step(charge)

@durable.workflow
def chat(run):
    return run.recv("chat")
"""
OTHER = """
from statelog import durable
import flows

@durable.workflow
def trip(run, city):
    return run.step(flows.book, 2)
"""
ASYNC = """
from statelog import durable

@durable.workflow
async def chat(run):
    return await run.recv("chat")
"""
GROUPS = ("runs", "gates", "queue", "outbox", "schedules")
SECRET = "whsec_" + base64.b64encode(bytes(32)).decode()


@pytest.fixture
def flows(tmp_path, monkeypatch):
    """A directory with modules of workflows, and the first module."""
    for name, text in (("flows", FLOWS), ("other", OTHER), ("later", ASYNC), ("empty", "x = 1\n")):
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names = ("flows", "other", "later", "empty", "broken")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)  # tests/durable also has a module `flows`.
    yield importlib.import_module("flows")
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def trips(path, flows):
    """A store with a run that waits at its gate, its child, and a run that waits for a message."""
    with statelog.open(path) as store:
        durable.run(store, flows.trip, "Rome", id="evt-1", thread="ticket-42")
        durable.run(store, flows.chat, id="c-1")
    return path


def edit(path, work):
    """Call a function with an open store."""
    with statelog.open(path) as store:
        return work(store)


# --- runs ---------------------------------------------------------------------------------------


def test_runs_are_listed_with_the_newest_first(run, trips):
    lines = run("runs", "ls", trips).out.splitlines()
    assert lines[0].split() == ["run", "created", "status", "workflow", "outcome"]
    assert [line.split()[0] for line in lines[1:]] == ["c-1", "evt-1-search", "evt-1"]
    assert max(map(len, lines)) <= 80


def test_a_run_as_json_has_its_wait(run, trips):
    found = run("runs", "ls", trips, "--workflow", "trip", "--json").document
    assert (found["id"], found["status"], found["waiting_for"]) == ("evt-1", "suspended", ["gate evt-1/4"])
    assert (found["thread"], found["args"], found["due"]) == ("ticket-42", ["Rome"], None)


def test_runs_are_selected_by_status_and_limited(run, trips):
    assert [each["id"] for each in run("runs", "ls", trips, "--status", "completed", "--json").documents] == [
        "evt-1-search"
    ]
    cut = run("runs", "ls", trips, "--limit", 1)
    assert (len(cut.out.splitlines()), "there are 3" in cut.err) == (2, True)
    assert len(run("runs", "ls", trips, "--limit", 1, "--json").documents) == 1


def test_a_store_without_runs_is_reported(run, path):
    statelog.open(path).close()
    said = [run(command, "ls", path).out for command in GROUPS]
    assert said == [
        "no runs\n",
        "no gates are waiting\n",
        "no queues: no runs are waiting\n",
        "no messages\n",
        "no schedules\n",
    ]
    assert [run(command, "ls", path, "--json").out for command in GROUPS] == [""] * 5


def test_a_run_is_drawn_with_attempts_gates_and_its_child_below(run, trips):
    out = run("runs", "show", trips, "evt-1").out
    lines = out.splitlines()
    assert lines[0] == "evt-1  trip  suspended"
    assert "now  waits for gate evt-1/4" in out
    assert "step flaky  (2 attempts)  -> 'at last'" in out
    assert "gate approve  waits: evt-1/4" in out
    at = next(number for number, line in enumerate(lines) if "child search" in line)
    assert lines[at + 1] == "│   └── evt-1-search  search  completed"
    assert max(map(len, lines)) <= 80


def test_a_long_result_is_cut_unless_full_is_given(run, trips):
    assert "b" * 300 not in run("runs", "show", trips, "evt-1").out
    assert "b" * 300 in run("runs", "show", trips, "evt-1", "--full").out


@pytest.mark.slow
def test_a_failed_run_is_drawn_with_its_compensations(run, trips):
    run("gates", "answer", trips, "evt-1/4", "--approve", "--by", "ann", "--payload", '{"n": 1}')
    run("runs", "resume", trips, "evt-1", "--with", "flows")
    out = run("runs", "show", trips, "evt-1", "--full").out
    assert "gate approve  -> approved by ann  {'n': 1}" in out
    assert "step charge  failed: ValueError" in out
    assert "step unbook  -> 'F1 is cancelled'" in out
    lines = [line.lstrip(" └─") for line in out[out.index("└── failed  ") :].splitlines()]
    assert lines[0].startswith("failed  ")
    assert lines[1] == "Traceback (most recent call last):"
    assert any(line.startswith("File ") and line.endswith("in charge") for line in lines)
    assert lines[-1] == r"ValueError: no \x1b[2J funds"


@pytest.mark.slow
def test_a_failed_run_can_be_retried(run, trips):
    run("gates", "answer", trips, "evt-1/4", "--approve", "--by", "ann")
    run("runs", "resume", trips, "evt-1", "--with", "flows")
    answer = run("runs", "retry", trips, "evt-1")
    assert "evt-1: queued" in answer.out
    assert run("runs", "show", trips, "evt-1", "--json").document["traceback"] is None
    answer = run("runs", "retry", trips, "evt-1")
    assert "has not failed" in answer.err
    assert answer.code == 2


def test_stored_text_of_a_run_cannot_steer_the_terminal(run, trips):
    run("gates", "answer", trips, "evt-1/4", "--approve", "--by", "\x1b[31m")
    run("runs", "resume", trips, "evt-1", "--with", "flows")
    for arguments in (["runs", "ls"], ["runs", "show", "evt-1"], ["gates", "ls", "--all"], ["outbox", "ls"]):
        answer = run(arguments[0], arguments[1], trips, *arguments[2:])
        assert answer.out.replace("\n", "").isprintable(), answer


def test_a_run_as_json_has_steps_gates_and_children(run, trips):
    found = run("runs", "show", trips, "evt-1", "--json").document
    assert [(each["place"], each["kind"], each["attempts"]) for each in found["steps"]][:3] == [
        ("0", "step", 1),
        ("1", "step", 2),
        ("2", "child", 1),
    ]
    assert [each["payload"]["total"] for each in found["gates"]] == [840]
    assert [each["id"] for each in found["children"]] == ["evt-1-search"]
    assert found["children"][0]["steps"][0]["result"]["city"] == "Rome"


def test_a_child_that_was_purged_is_named(run, trips):
    edit(trips, lambda store: durable.purge_run(store, "evt-1-search"))
    assert "evt-1-search  was removed" in run("runs", "show", trips, "evt-1").out
    assert run("runs", "show", trips, "evt-1", "--json").document["children"] == []


def test_a_run_is_resumed_in_this_process_and_its_failure_sets_the_exit_code(run, trips):
    assert run("runs", "resume", trips, "evt-1", "--json").document["status"] == "suspended"
    assert run("runs", "resume", trips, "evt-1", "--with", "flows").code == 0
    run("gates", "answer", trips, "evt-1/4", "--reject")
    answer = run("runs", "resume", trips, "evt-1", "--with", "flows:trip", "--json")
    assert (answer.code, answer.document["status"], json.loads(answer.err)["kind"]) == (13, "failed", "RunFailedError")


def test_output_of_workflows_is_kept_off_stdout(run, trips):
    run("gates", "answer", trips, "evt-1/4", "--approve")
    sys.modules.pop("flows")
    answer = run("runs", "resume", trips, "evt-1", "--with", "flows")
    assert ("flows are imported" in answer.err, "charging" in answer.err) == (True, True)
    assert answer.out.startswith("evt-1: failed, ValueError")


def test_a_run_is_not_resumed_with_a_different_workflow(run, trips):
    answer = run("runs", "resume", trips, "evt-1", "--with", "other", "--json")
    assert (answer.code, answer.out, json.loads(answer.err)["kind"]) == (2, "", "NondeterminismError")
    assert "belongs to workflow 'chat'; other has trip" in run("runs", "resume", trips, "c-1", "--with", "other").err


def test_a_parked_run_can_be_resumed(run, trips):
    def park(store):
        board = own_board(store)
        entry = board.get("durable/runs/c-1")
        board.set(entry.key, {**entry.value, "status": "parked", "error": "it has died"})
        board.delete("durable/tasks/default/chat/c-1")

    edit(trips, park)
    assert "now  it has died" in run("runs", "show", trips, "c-1").out
    assert run("runs", "resume", trips, "c-1").out == "c-1: queued\n"


def test_a_run_is_cancelled_once(run, trips):
    assert "stops at its next operation" in run("runs", "cancel", trips, "c-1").out
    answer = run("runs", "resume", trips, "c-1", "--with", "flows")
    assert (answer.code, answer.out.startswith("c-1: cancelled")) == (13, True)
    again = run("runs", "cancel", trips, "c-1", "--json")
    assert (again.code, json.loads(again.err)["facts"]["status"]) == (4, "cancelled")


def test_a_run_is_forked_before_a_place(run, trips):
    assert run("runs", "fork", trips, "evt-1", "--at", "1", "--id", "b").out.startswith(
        "b continues evt-1 from before 1"
    )
    found = run("runs", "show", trips, "b", "--json").document
    assert ([each["place"] for each in found["steps"]], found["branch"]) == (["0"], "b")


def test_a_fork_has_replaced_results_and_arguments(run, trips):
    how = ["--args", "[]", "--kwargs", '{"city": "Oslo"}', "--replace", '0="F9"', "--replace", "1=null"]
    made = run("runs", "fork", trips, "evt-1", "--at", "0", "--id", "b", *how, "--json").document
    assert (made["forked_from"], made["forked_at"], made["replaced"]) == ("evt-1", "0", {"0": "F9", "1": None})
    assert (made["args"], made["kwargs"]) == ([], {"city": "Oslo"})
    assert "b: suspended" in run("runs", "resume", trips, "b", "--with", "flows").out
    shown = run("runs", "show", trips, "b").out
    assert "forked from  evt-1, before its call at 0" in shown
    assert "F9" in shown


def test_runs_are_compared(run, trips):
    run("runs", "fork", trips, "evt-1", "--at", "0", "--id", "b", "--replace", '0="F9"')
    run("runs", "resume", trips, "b", "--with", "flows")
    assert run("runs", "compare", trips, "c-1", "c-1").out == "the runs are the same\n"
    lines = run("runs", "compare", trips, "evt-1", "b").out.splitlines()
    assert lines[0].split() == ["place", "differs", "evt-1", "b"]
    assert lines[1].split()[:2] == ["0", "outcome"]
    documents = run("runs", "compare", trips, "evt-1", "b", "--json").documents
    assert (documents[0]["left"]["result"], documents[0]["right"]["result"]) == ("F1", "F9")


# --- code ---------------------------------------------------------------------------------------


def test_open_runs_that_replay_are_counted(run, trips):
    assert run("runs", "check", trips, "flows").out == "2 open runs replay with flows\n"
    assert run("runs", "check", trips, "flows", "--json").document == {"open": 2, "differs": [], "skipped": []}


def test_open_runs_that_differ_are_named_with_both_calls(run, trips):
    answer = run("runs", "check", trips, "other", "--json")
    differs = {each["run"]: (each["kind"], each["error"]) for each in answer.document["differs"]}
    assert (answer.code, sorted(json.loads(answer.err)["facts"]["runs"])) == (13, ["c-1", "evt-1"])
    assert differs["c-1"] == ("NotFoundError", "run 'c-1' belongs to workflow 'chat', which was not passed")
    kind, error = differs["evt-1"]
    assert (kind, "this code calls it with different arguments" in error) == ("NondeterminismError", True)
    assert "2 of 2 open runs could not continue with other" in run("runs", "check", trips, "other").err


def test_runs_check_changes_nothing(run, trips):
    before = edit(trips, lambda store: store.last_lsn)
    run("runs", "check", trips, "other")
    assert edit(trips, lambda store: store.last_lsn) == before


def test_runs_of_async_workflows_are_reported_as_not_replayed(run, path, flows):
    edit(path, lambda store: durable.run(store, flows.chat, id="c-1"))
    assert run("runs", "check", path, "later", "--json").document == {"open": 1, "differs": [], "skipped": ["c-1"]}
    assert (
        run("runs", "check", path, "later").out
        == "1 of async workflows were not replayed\n0 open runs replay with later\n"
    )


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("none", "no module 'none' in "),
        ("flows.py", "leave .py out"),
        ("", "is not the name of a module"),
        ("../flows", "is not the name of a module"),
        ("empty", "module empty has no workflows"),
        ("broken", "cannot be imported: ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("flows:none", "module flows has no 'none'"),
        ("flows:plan", "module flows has a function as 'plan'"),
        ("flows:", "module flows has no ''"),
    ],
)
def test_a_module_that_cannot_be_used_is_refused(run, trips, module, why):
    for arguments in (["check", trips, module], ["resume", trips, "c-1", "--with", module]):
        answer = run("runs", *arguments)
        assert (answer.code, answer.out, why in answer.err) == (2, "", True), answer


# --- gates --------------------------------------------------------------------------------------


def test_waiting_gates_are_listed(run, trips):
    lines = run("gates", "ls", trips).out.splitlines()
    assert lines[0].split() == ["gate", "name", "opened", "payload"]
    assert lines[1].startswith("evt-1/4  approve")
    found = run("gates", "ls", trips, "--run", "evt-1", "--json").document
    assert (found["id"], found["status"], found["due"]) == ("evt-1/4", "pending", None)
    assert run("gates", "ls", trips, "--run", "c-1").out == "no gates are waiting\n"


def test_the_end_of_a_gates_wait_is_shown_before_its_beginning(run, path):
    @durable.workflow(name="asks")
    def asks(run):
        return run.gate("approve", timeout_s=1000)

    edit(path, lambda store: durable.run(store, asks, id="a"))
    assert run("gates", "ls", path).out.split()[:4] == ["gate", "name", "until", "payload"]


def test_an_answer_is_kept_with_its_author(run, trips):
    made = run("gates", "answer", trips, "evt-1/4", "--reject", "--by", "ann", "--json").document
    assert (made["status"], made["approved"], made["by"]) == ("answered", False, "ann")
    assert run("gates", "ls", trips).out == "no gates are waiting\n"
    assert "rejected by ann" in run("gates", "ls", trips, "--all").out


def test_a_second_answer_is_a_conflict(run, trips):
    assert run("gates", "answer", trips, "evt-1/4", "--approve").code == 0
    answer = run("gates", "answer", trips, "evt-1/4", "--approve")
    assert (answer.code, "was answered" in answer.err) == (4, True)


# --- queues and the outbox ------------------------------------------------------------------------


def test_queues_show_their_waiting_runs(run, trips, flows):
    edit(trips, lambda store: durable.start(store, flows.search, "Oslo", id="s-1", queue="trips"))
    default, other = run("queue", "ls", trips, "--json").documents
    assert default == {"name": "default", "waiting": 0, "delayed": 0, "running": 0, "suspended": 2}
    assert (other["name"], other["waiting"]) == ("trips", 1)
    assert run("queue", "ls", trips).out.split()[:5] == ["queue", "waiting", "delayed", "running", "suspended"]


def test_waiting_and_parked_messages_are_listed(run, trips):
    def park(store):
        board = own_board(store)
        entry = board.list("durable/outbox/**")[0]
        board.delete(entry.key)
        board.set(entry.key.replace("outbox", "outbox-parked"), {**entry.value, "attempts": 10, "order": entry.version})

    edit(trips, park)
    found = run("outbox", "ls", trips, "--json").documents
    assert [(each["topic"], each["status"]) for each in found] == [
        ("trip/booked", "parked"),
        ("gate/opened", "waits"),
    ]
    lines = run("outbox", "ls", trips).out.splitlines()
    assert ["10" in line.split() for line in lines[1:] if "parked" in line] == [True]
    assert "there are 2" in run("outbox", "ls", trips, "--limit", 1).err


@pytest.mark.slow
def test_messages_are_delivered_with_the_secret_of_the_environment(run, trips, monkeypatch):
    pytest.importorskip("httpx2")
    given = []

    def deliver(store, subscribers, *, run=None):
        given.append((subscribers[0].url, subscribers[0].topics, run))
        board = own_board(store)
        board.delete(board.list("durable/outbox/**")[0].key)
        return durable.Delivery(1, 0, 0, len(durable.outbox(store)), None)

    monkeypatch.setattr(durable, "deliver", deliver, raising=False)
    monkeypatch.setenv("TRIPS_SECRET", SECRET)
    how = ["--url", "https://example.org/hook", "--secret-env", "TRIPS_SECRET"]
    answer = run("outbox", "deliver", trips, *how, "--topic", "trip/*", "--topic", "gate/*")
    assert answer.out == "1 message sent, 0 refused; 1 waiting, 0 newly parked\n"
    found = run("outbox", "deliver", trips, *how, "--json").document
    assert found == {"sent": 1, "refused": 0, "parked": 0, "waiting": 0, "due": None}
    assert given == [
        ("https://example.org/hook", ("trip/*", "gate/*"), None),
        ("https://example.org/hook", ("**",), None),
    ]


def test_the_reason_of_a_refusal_is_shown_and_cannot_steer_the_terminal(run, trips, monkeypatch):
    pytest.importorskip("httpx2")

    def deliver(*_arguments):
        logging.getLogger("statelog.durable").warning("message of run %s was refused", "\x1b[2J")
        return durable.Delivery(0, 1, 0, 1, None)

    monkeypatch.setattr(durable, "deliver", deliver, raising=False)
    monkeypatch.setenv("TRIPS_SECRET", SECRET)
    how = ["--url", "https://example.org/hook", "--secret-env", "TRIPS_SECRET"]
    assert run("outbox", "deliver", trips, *how).err == "message of run \\x1b[2J was refused\n"
    assert run("outbox", "deliver", trips, *how, "--json").err == ""


def test_a_secret_is_never_repeated(run, trips, monkeypatch):
    monkeypatch.setenv("WRONG", "whsec_no base64")
    for variable in (SECRET, "WRONG"):
        answer = run("outbox", "deliver", trips, "--url", "https://example.org", "--secret-env", variable, "--json")
        assert (answer.code, "secret" in answer.err, "whsec_n" in answer.err, SECRET in answer.err) == (
            2,
            True,
            False,
            False,
        )


# --- starting, continuing and removing runs ------------------------------------------------------------------


def test_a_run_is_started_with_arguments_and_driven_by_a_worker(run, trips, flows):
    how = ("--id", "evt-7", "--queue", "trips", "--priority", 5, "--dedup-key", "k", "--timeout", 3600)
    made = run("runs", "start", trips, "flows:search", '"Oslo"', *how, "--json").document
    assert (made["id"], made["workflow"], made["status"], made["args"]) == ("evt-7", "search", "queued", ["Oslo"])
    assert (made["queue"], made["priority"]) == ("trips", 5)
    again = run("runs", "start", trips, "flows:search", '"Oslo"', "--dedup-key", "k", "--queue", "trips")
    assert again.out == "evt-7: queued\n"
    edit(trips, lambda store: durable.run_worker(store, [flows.search], until_idle=True))
    assert run("runs", "start", trips, "flows:search", '"Oslo"', "--id", "evt-7").out.startswith("evt-7: completed")


def test_a_run_is_started_with_keyword_arguments_and_a_given_id(run, trips):
    made = run("runs", "start", trips, "flows:search", "--kwargs", '{"city": "Oslo"}', "--json").document
    assert (made["kwargs"], len(made["id"])) == ({"city": "Oslo"}, 32)
    assert run("runs", "start", trips, "flows:search", "--id", "evt-8", "--", "-5").out == "evt-8: queued\n"
    assert run("runs", "show", trips, "evt-8", "--json").document["args"] == [-5]


def test_a_run_gets_a_message_once_by_its_key(run, trips, flows):
    for name in ("--key", "--idempotency-key"):
        answer = run("runs", "send", trips, "c-1", '{"text": "hello"}', "--topic", "chat", name, "a")
        assert answer.out == "c-1 receives the message when it asks for topic chat\n"
    edit(trips, lambda store: durable.run_worker(store, [flows.chat], until_idle=True))
    assert edit(trips, lambda store: durable.get_run(store, "c-1").value) == {"text": "hello"}
    late = run("runs", "send", trips, "c-1", "1", "--json")
    assert (late.code, json.loads(late.err)["kind"]) == (4, "RunEndedError")


def test_only_an_ended_run_can_be_purged(run, trips):
    open_ = run("runs", "purge", trips, "c-1", "--json")
    assert (open_.code, "has not ended" in open_.err) == (2, True)
    assert run("runs", "purge", trips, "evt-1-search").out == "evt-1-search is removed; its thread stays\n"
    assert run("runs", "show", trips, "evt-1-search").code == 3


def test_a_run_that_has_not_begun_is_cancelled_at_once(run, trips):
    run("runs", "start", trips, "flows:search", '"Oslo"', "--id", "evt-7")
    assert run("runs", "cancel", trips, "evt-7").out == "evt-7 is cancelled: it had not begun\n"
    assert run("runs", "cancel", trips, "evt-7").code == 4


def test_a_parked_message_can_be_redelivered(run, trips):
    def park(store):
        (entry, *_rest) = own_board(store).list("durable/outbox/evt-1/*")
        board = own_board(store)
        board.create(entry.key.replace("/outbox/", "/outbox-parked/"), {**entry.value, "error": "410"})
        board.delete(entry.key)
        return entry.key.rpartition("/")[2]

    place = edit(trips, park)
    lines = run("outbox", "ls", trips).out.splitlines()
    assert lines[0].split() == ["run", "place", "topic", "time", "status", "attempts", "payload"]
    assert any(place in line and "parked" in line for line in lines[1:])
    assert run("outbox", "redeliver", trips, "evt-1", place).out == f"{place} of evt-1 waits again\n"
    assert "parked" not in run("outbox", "ls", trips).out
    again = run("outbox", "redeliver", trips, "evt-1", place, "--json")
    assert (again.code, json.loads(again.err)["kind"]) == (3, "MessageNotFoundError")


# --- schedules --------------------------------------------------------------------------------------


@pytest.fixture
def scheduled(path, flows):
    """A store with two schedules."""
    with statelog.open(path) as store:
        durable.schedule(store, "nightly", flows.search, "Rome", cron="0 3 * * *", timezone="Europe/Berlin")
        durable.schedule(store, "a-schedule-with-a-long-name", flows.chat, cron="*/5 * * * *", queue="chats")
    return path


def test_schedules_are_listed_by_name_with_their_due_times(run, scheduled):
    lines = run("schedules", "ls", scheduled).out.splitlines()
    assert lines[0].split() == ["schedule", "due", "workflow", "cron", "timezone", "queue"]
    assert [line.split()[0][:5] for line in lines[1:]] == ["a-sch", "night"]
    assert max(map(len, lines)) <= 80
    found = run("schedules", "ls", scheduled, "--json").documents[1]
    assert (found["name"], found["workflow"], found["args"]) == ("nightly", "search", ["Rome"])
    assert (found["cron"], found["catch_up"], found["is_paused"]) == ("0 3 * * *", "latest", False)
    assert found["due"].endswith(":00:00+00:00")


def test_a_schedule_is_paused_resumed_and_ended(run, scheduled):
    assert run("schedules", "pause", scheduled, "nightly").out == "schedule nightly is paused\n"
    assert run("schedules", "pause", scheduled, "nightly").out == "schedule nightly is paused, as before\n"
    assert run("schedules", "ls", scheduled).out.splitlines()[2].split()[1] == "paused"
    resumed = run("schedules", "resume", scheduled, "nightly", "--json").document
    assert (resumed["is_paused"], resumed["due"] is None) == (False, False)
    assert run("schedules", "resume", scheduled, "nightly").out.endswith(", as before\n")
    assert run("schedules", "rm", scheduled, "nightly").out == "schedule nightly has ended\n"
    assert [each["name"] for each in run("schedules", "ls", scheduled, "--json").documents] == [
        "a-schedule-with-a-long-name"
    ]


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["runs", "ls", "--status", "odd"], 2, "status must be one of"),
        (["runs", "show", "none"], 3, "no run 'none'"),
        (["runs", "resume", "none"], 3, "no run 'none'"),
        (["runs", "resume", "none", "--with", "flows"], 3, "no run 'none'"),
        (["runs", "resume", "evt-1-search"], 4, "has ended"),
        (["runs", "cancel", "none"], 3, "no run 'none'"),
        (["runs", "fork", "none", "--at", "0", "--id", "b"], 3, "no run 'none'"),
        (["runs", "fork", "evt-1", "--at", "99", "--id", "b"], 2, "no step '99'"),
        (["runs", "fork", "evt-1", "--at", "0", "--id", "c-1"], 4, "run 'c-1' already exists"),
        (["runs", "fork", "evt-1", "--id", "b"], 2, "--at"),
        (
            ["runs", "fork", "evt-1", "--at", "0", "--id", "b", "--replace", "0"],
            2,
            "--replace must be PLACE=JSON, not '0'",
        ),
        (["runs", "fork", "evt-1", "--at", "0", "--id", "b", "--replace", "0=x"], 2, "--replace 0 is not valid JSON"),
        (["runs", "fork", "evt-1", "--at", "0", "--id", "b", *["--replace", "0=1"] * 2], 2, "names '0' twice"),
        (["runs", "fork", "evt-1", "--at", "0", "--id", "b", "--replace", "4=1"], 2, "is the gate 'approve'"),
        (["runs", "fork", "evt-1", "--at", "0", "--id", "b", "--args", "1"], 2, "a list of arguments"),
        (["runs", "compare", "evt-1", "none"], 3, "no run 'none'"),
        (["runs", "start", "flows:none", "1"], 2, "has no 'none'"),
        (["runs", "start", "flows", "1"], 2, "has 3 workflows: write flows:NAME for one of chat, search, trip"),
        (["runs", "start", "flows:search", "Oslo"], 2, "an argument is not valid JSON"),
        (["runs", "start", "flows:search", "1", "--kwargs", "[1]"], 2, "--kwargs must be a JSON object"),
        (["runs", "start", "flows:search", "--kwargs", '{"queue": 1}'], 2, "an option of `start`"),
        (["runs", "start", "flows:search", "1", "--debounce", "5"], 2, "dedup_key"),
        (["runs", "start", "flows:search", "1", "--priority", "999"], 2, "priority"),
        (["runs", "start", "flows:trip", '"Oslo"', "--id", "evt-1"], 4, "different arguments"),
        (["runs", "start", "flows:trip", "--id", "evt-8"], 2, "missing a required argument"),
        (["runs", "send", "none", "1"], 3, "no run 'none'"),
        (["runs", "send", "c-1", "hello"], 2, "the message is not valid JSON"),
        (["runs", "send", "evt-1-search", "1"], 4, "has ended"),
        (["runs", "purge", "none"], 3, "no run 'none'"),
        (["schedules", "pause", "none"], 3, "no schedule 'none'"),
        (["schedules", "resume", "none"], 3, "no schedule 'none'"),
        (["schedules", "rm", "none"], 3, "no schedule 'none'"),
        (["outbox", "redeliver", "evt-1", "none"], 3, "no parked message at 'none'"),
        (["gates", "ls", "--run", "none"], 3, "no run 'none'"),
        (["gates", "answer", "evt-1/4"], 2, "--approve or --reject"),
        (["gates", "answer", "evt-1/9", "--approve"], 3, "no gate 'evt-1/9'"),
        (["gates", "answer", "evt-1", "--approve"], 2, "a gate's id"),
        (["gates", "answer", "evt-1/4", "--approve", "--payload", "yes"], 2, "the payload is not valid JSON"),
        (["outbox", "deliver", "--url", "https://example.org"], 2, "--secret-env"),
    ],
)
def test_invalid_commands_are_refused_with_the_reason(run, trips, arguments, code, why):
    for more in ([], ["--json"]):
        answer = run(arguments[0], arguments[1], trips, *arguments[2:], *more)
        assert (answer.code, answer.out, why in answer.err) == (code, "", True), answer
        assert not more or json.loads(answer.err)["exit_code"] == code


@pytest.mark.parametrize(
    "arguments",
    [
        ["runs", "ls"],
        ["runs", "show", "a"],
        ["runs", "resume", "a"],
        ["runs", "cancel", "a"],
        ["runs", "fork", "a", "--at", "0", "--id", "b"],
        ["runs", "compare", "a", "b"],
        ["gates", "ls"],
        ["gates", "answer", "a/0", "--approve"],
        ["queue", "ls"],
        ["outbox", "ls"],
        ["outbox", "redeliver", "a", "0"],
        ["runs", "send", "a", "1"],
        ["runs", "purge", "a"],
        ["schedules", "ls"],
        ["schedules", "pause", "a"],
        ["schedules", "rm", "a"],
    ],
)
def test_a_missing_store_is_not_created(run, tmp_path, arguments):
    assert run(arguments[0], arguments[1], tmp_path / "none.state", *arguments[2:]).code == 11
    assert list(tmp_path.iterdir()) == []


# --- shell completion ------------------------------------------------------------------------------------


class Line:
    """The typed input."""

    args = ()

    def __init__(self, **params):
        self.params = params


def test_the_shell_gets_completions_for_runs_places_and_gates(trips):
    assert complete_run(Line(store=trips), None, "e") == ["evt-1", "evt-1-search"]
    assert complete_place(Line(store=trips, run="evt-1"), None, "") == ["0", "1", "2", "3", "4"]
    assert complete_gate(Line(store=trips), None, "") == ["evt-1/4"]


def test_a_run_of_an_unknown_workflow_is_shown_with_its_gate(run, path):
    @durable.workflow(name="gone")
    def gone(run):
        return run.gate("ok")

    @durable.workflow(name="other")
    def other(run):
        return run.now()

    with statelog.open(path) as store:
        durable.run(store, gone, id="a")
        assert "code gone" not in run("runs", "ls", path).out
        durable.run_worker(store, [other], until_idle=True)
    assert "waits for gate a/0, code" in " ".join(run("runs", "ls", path).out.split())
    (document,) = run("runs", "ls", path, "--json").documents
    assert document["waiting_for"] == ["gate a/0", "code gone"]
