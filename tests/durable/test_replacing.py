"""Forks with replaced results, and the differences between two runs."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from random import Random

import forks
import pytest
from executed import CALLS, Crash, execute, note
from hypothesis import given
from hypothesis import strategies as st

import statelog
from benchmarks.guard_texts import SECRETS
from statelog import durable
from statelog.durable import RunDifference
from statelog.errors import AlreadyExistsError, LimitError, RunNotFoundError, UsageError, ValueTypeError
from statelog.reducers import append


def failing(value):
    CALLS.append(value)
    raise OSError("no network")


def undo(result, value):
    CALLS.append(("undo", result, value))


def booked(tx, result):
    tx.board().set("booked", result)


@durable.workflow
def search(run, city):
    return run.step(note, f"search {city}")


@durable.workflow(schema={"said": append})
def trip(run, city):
    plan = run.step_with(durable.StepOptions(name="plan", commit=lambda result: {"said": result}), note, f"plan {city}")
    booking = run.step_with(durable.StepOptions(name="book", transact=booked, compensate=undo), note, f"book {plan}")
    hotel = run.child(search, plan)
    return [plan, booking, hotel, run.step(note, "end")]


@pytest.fixture
def forked(store):
    """Return a function that runs `trip`, forks it, and returns the info of the fork and its calls."""

    def fork(**how):
        durable.run(store, trip, "Rome", id="a")
        CALLS.clear()
        durable.fork(store, "a", id="b", **how)
        durable.resume_all(store, [trip, search])
        return durable.get_run(store, "b"), list(CALLS)

    return fork


def test_a_replaced_step_is_not_called_and_its_commit_gets_the_new_result(store, forked):
    info, calls = forked(at="0", replace={"0": "walk"})
    assert info.value == ["walk", "book walk", "search walk", "end"]
    assert calls == ["book walk", "search walk", "end"]
    assert store.thread("a", branch="b").state["said"].to_python() == ["walk"]
    assert store.thread("a").state["said"].to_python() == ["plan Rome"]


def test_a_replaced_step_passes_its_result_to_its_transaction(store, forked):
    forked(at="book", replace={"book": {"seat": 7}})
    assert store.board().get("booked").value == {"seat": 7}


def test_a_later_step_can_be_replaced_while_the_first_is_called_again(forked):
    info, calls = forked(at="0", args=["Oslo"], replace={"1": "held", "3": "over"})
    assert info.value == ["plan Oslo", "held", "search plan Oslo", "over"]
    assert calls == ["plan Oslo", "search plan Oslo"]
    assert (info.forked_from, info.forked_at, info.replaced) == ("a", "0", {"1": "held", "3": "over"})


def test_a_replaced_child_does_not_begin(store, forked):
    info, calls = forked(at="2", replace={"search": "hotel"})
    assert info.value[2] == "hotel"
    assert calls == ["end"]
    assert {each.id for each in durable.runs(store)} == {"a", "b", "a.2"}


def test_a_run_that_is_not_a_fork_has_no_replaced_results(store):
    info = durable.run(store, trip, "Rome", id="a")
    assert (info.forked_from, info.forked_at, info.replaced) == (None, None, {})


def test_a_fork_of_a_fork_keeps_the_replaced_result_if_it_begins_after_it(store, forked):
    forked(at="0", replace={"0": "walk"})
    durable.fork(store, "b", at="1", id="c")
    durable.fork(store, "b", at="0", id="d")
    durable.resume_all(store, [trip, search])
    assert durable.get_run(store, "c").value[0] == "walk"
    assert durable.get_run(store, "d").value[0] == "plan Rome"


def test_a_step_that_made_a_run_fail_can_be_replaced(store):
    def body(run):
        run.step_with(durable.StepOptions(compensate=undo), note, "first")
        return run.step_with(durable.StepOptions(semantics="at_most_once"), failing, "second")

    assert execute(store, body, id="a").status == "failed"
    CALLS.clear()
    durable.fork(store, "a", at="failing", id="b", replace={"failing": 2})
    assert execute(store, body, id="b").value == 2
    assert CALLS == []


def test_a_replaced_step_is_undone_with_its_new_result(store):
    def body(run):
        run.step_with(durable.StepOptions(compensate=undo), note, "first")
        run.step(failing, "second")

    execute(store, body, id="a")
    CALLS.clear()
    durable.fork(store, "a", at=0, id="b", replace={"0": "given"})
    execute(store, body, id="b")
    assert CALLS == ["second", ("undo", "given", "first")]


def test_a_step_whose_call_never_ended_can_be_replaced(store):
    def die():
        raise Crash

    def body(run):
        return run.step_with(durable.StepOptions(semantics="at_most_once"), die)

    with pytest.raises(Crash):
        execute(store, body, id="a")
    assert [each.status for each in durable.steps(store, "a")] == ["begun"]
    for run, at in (("b", "0"), ("c", 1)):
        durable.fork(store, "a", at=at, id=run, replace={"0": 5})
        assert execute(store, body, id=run).value == 5
    durable.fork(store, "a", at=1, id="control")
    assert "was being called when the process died" in execute(store, body, id="control").error


def test_a_replaced_message_is_received_without_taking_one_from_the_mailbox(store):
    def body(run):
        return [run.recv("chat"), run.recv("chat")]

    execute(store, body, id="a")
    durable.send(store, "a", "hello", topic="chat")
    execute(store, body, id="a")
    durable.fork(store, "a", at="0", id="b", replace={"0": "goodbye"})
    durable.send(store, "b", "later", topic="chat")
    assert execute(store, body, id="b").value == ["goodbye", "later"]


def test_a_call_with_a_different_name_at_a_replaced_place_is_made(store):
    def body(run, name):
        return run.step_with(durable.StepOptions(name=name), note, name)

    execute(store, body, "this", id="x")
    durable.fork(store, "x", at="0", id="y", args=["other"], replace={"0": "given"})
    durable.fork(store, "x", at="0", id="z", args=["this"], replace={"0": "given"})
    assert execute(store, body, "other", id="y").value == "other"
    assert execute(store, body, "this", id="z").value == "given"


def test_continue_as_new_makes_the_replaced_call(store):
    def body(run, number):
        found = run.step_with(durable.StepOptions(name="each"), note, number)
        return run.continue_as_new(number + 1) if number == 1 else [found]

    execute(store, body, 0, id="a")
    durable.fork(store, "a", at="0", id="b", args=[1], replace={"each": "given"})
    assert durable.get_run(store, "b").replaced == {"0": "given"}
    durable.resume_all(store, [durable.workflow(name="w")(body)])
    assert durable.get_run(store, "b").value == [2]
    assert durable.get_run(store, "b").replaced == {}


def test_a_retried_fork_keeps_its_replaced_results(store):
    prices = {}

    def price(item):
        return prices[item]

    def body(run):
        return [run.step_with(durable.StepOptions(compensate=undo), note, "first"), run.step(price, "tea")]

    execute(store, body, id="a")
    durable.fork(store, "a", at="0", id="b", replace={"0": "given"})
    assert execute(store, body, id="b").status == "failed"
    prices["tea"] = 7
    durable.retry(store, "b")
    assert execute(store, body, id="b").value == ["given", 7]


@dataclass
class Plan:
    city: str


def make_plan() -> Plan:
    return Plan("Rome")


def test_a_replaced_result_has_the_type_of_the_annotation(store):
    def body(run):
        return run.step(make_plan).city

    execute(store, body, id="a")
    for run, plan in (("b", Plan("Oslo")), ("c", {"city": "Oslo"})):
        durable.fork(store, "a", at="0", id=run, replace={"0": plan})
        assert execute(store, body, id=run).value == "Oslo"


def gated(run):
    run.step_with(durable.StepOptions(name="twice"), note, 1)
    run.step_with(durable.StepOptions(name="twice"), note, 2)
    run.gate("approve")
    run.now()


REFUSED = {
    "an unknown call": ({"7": 1}, UsageError, "no call '7'"),
    "a name of two calls": ({"twice": 1}, UsageError, "2 calls 'twice'"),
    "a gate": ({"approve": 1}, UsageError, "is the gate 'approve': fork before it"),
    "a time": ({"now": 1}, UsageError, "no call 'now'"),
    "a time by its place": ({"3": 1}, UsageError, "is a call of now: only"),
    "a call before the fork": ({"0": 1}, UsageError, "had ended before"),
    "a call named twice": ({"1": 1, "other": 2}, UsageError, "names twice"),
    "a value that cannot be stored": ({"1": object()}, ValueTypeError, "replaced result of call '1'"),
    "no dict": ([1], UsageError, "replace must be a dict"),
    "a number": ({1: 1}, UsageError, "no call 1"),
    "a step": ({None: 1}, UsageError, "no call None"),
}


@pytest.mark.parametrize(("replace", "kind", "text"), REFUSED.values(), ids=REFUSED)
def test_a_replacement_that_is_not_possible_is_refused_and_nothing_is_written(store, replace, kind, text):
    def body(run):
        gated(run) if "other" not in replace else (
            run.step_with(durable.StepOptions(name="x"), note, 1),
            run.step_with(durable.StepOptions(name="other"), note, 2),
        )

    execute(store, body, id="a")
    if not isinstance(replace, list) and "other" not in replace:
        durable.answer(store, durable.gates(store)[0].id, approved=True)
        execute(store, body, id="a")
    before = store.last_lsn
    with pytest.raises(kind, match=text):
        durable.fork(store, "a", at="1", id="b", replace=replace)
    assert store.last_lsn == before
    durable.fork(store, "a", at="1", id="b", replace={"1": 5})  # Control: the valid replacement works.


def test_a_result_that_is_nested_too_deeply_is_refused(store):
    execute(store, gated, id="a")
    value = []
    for _ in range(124):
        value = [value]
    durable.fork(store, "a", at="1", id="b", replace={"1": value})
    before = store.last_lsn
    with pytest.raises(LimitError, match="replaced result of call '1'"):
        durable.fork(store, "a", at="1", id="c", replace={"1": [value]})
    assert store.last_lsn == before
    assert execute(store, gated, id="b").status == "suspended"


def test_a_fork_of_a_missing_run_or_to_an_existing_id_is_refused(store):
    execute(store, gated, id="a")
    with pytest.raises(RunNotFoundError):
        durable.fork(store, "none", at="0", id="b", replace={"0": 1})
    with pytest.raises(AlreadyExistsError):
        durable.fork(store, "a", at="0", id="a", replace={"0": 1})


def test_a_secret_in_a_replaced_result_is_redacted(tmp_path):
    pytest.importorskip("re2")
    secret = SECRETS["github-token"](Random(1))
    with statelog.open(tmp_path / "s", guard=statelog.Guard()) as store:
        execute(store, gated, id="a")
        durable.fork(store, "a", at="0", id="b", replace={"0": f"token {secret}"})
        execute(store, gated, id="b")
        assert secret not in durable.get_run(store, "b").replaced["0"]
        assert durable.steps(store, "b")[0].result == durable.get_run(store, "b").replaced["0"]
    assert secret.encode() not in (tmp_path / "s").read_bytes()


KILLED = """
import os, sys
from pathlib import Path
import statelog
from statelog import durable
from statelog.durable.probes import probe

folder, left = Path(sys.argv[1]), int(sys.argv[2])

def note(value):
    with (folder / "calls").open("a") as file:
        file.write(f"{value} ")
    return value

def undo(result, value):
    pass

@durable.workflow
def search(run, city):
    return run.step(note, city)

@durable.workflow
def saga(run):
    first = run.step_with(durable.StepOptions(compensate=undo, commit=lambda result: {"first": result}), note, "first")
    second = run.step_with(durable.StepOptions(semantics="at_most_once"), note, f"after-{first}")
    once = durable.StepOptions(semantics="at_most_once")
    return [first, second, run.child(search, "Rome"), run.step_with(once, note, "last")]

def kill(moment, run, what):
    global left
    left -= moment != "call"
    if left == 0:
        os.kill(os.getpid(), 9)

with statelog.open(folder / "agent.state") as store:
    if not durable.runs(store):
        durable.run(store, saga, id="a")
        (folder / "calls").unlink()
        durable.fork(store, "a", at="0", id="b", replace={"0": "given", "2": "Oslo", "3": "over"})
    if left:
        probe.set(kill)
    durable.resume_all(store, [saga, search])
"""


@pytest.mark.slow
def test_a_replaced_result_survives_a_kill_at_every_boundary(tmp_path):
    for boundary in range(1, 20):
        folder = tmp_path / str(boundary)
        folder.mkdir()
        command = [sys.executable, "-c", KILLED, str(folder)]
        killed = forks.run([*command, str(boundary)], check=False, timeout=600).returncode
        assert forks.run([*command, "0"], check=False, timeout=600).returncode == 0
        with statelog.open(folder / "agent.state") as store:
            found = durable.get_run(store, "b")
            assert store.thread("a", branch="b").state["first"] == "given"
        calls = (folder / "calls").read_text().split() if (folder / "calls").exists() else []
        assert set(calls) <= {"after-given"}
        assert len(calls) <= 1
        interrupted = "was being called when the process died"
        if found.status == "completed":
            assert found.value == ["given", "after-given", "Oslo", "over"]
        else:
            assert interrupted in found.error
        assert (found.status == "completed") == bool(calls) or boundary > 4
        if killed == 0:
            break
    assert boundary > 10


@pytest.mark.slow
@given(
    st.lists(st.sampled_from(["step", "saga", "once", "map"]), min_size=1, max_size=5),
    st.data(),
)
def test_a_fork_returns_the_result_that_the_workflow_computes_from_the_given_results(program, data):
    """The model is the workflow as a function: each call returns its number, or the given result."""

    def body(run, program):
        found = []
        for number, kind in enumerate(program):
            if kind == "map":
                found.append(
                    run.map_with(
                        durable.StepOptions(name=f"call-{number}"), note, [number, number + 100], concurrency=1
                    )
                )
            else:
                how = {"saga": {"compensate": undo}, "once": {"semantics": "at_most_once"}}.get(kind, {})
                found.append(
                    run.step_with(
                        durable.StepOptions(name=f"call-{number}", commit=lambda r: {"last": r}, **how), note, number
                    )
                )
        return found

    places = [
        f"{at}.{part}" if kind == "map" else str(at)
        for at, kind in enumerate(program)
        for part in range(2 if kind == "map" else 1)
    ]
    first = data.draw(st.integers(0, len(places) - 1))
    replace = data.draw(st.dictionaries(st.sampled_from(places[first:]), st.integers(1000, 2000)))
    with tempfile.TemporaryDirectory() as folder, statelog.open(Path(folder) / "agent.state") as store:
        execute(store, body, program, id="a")
        CALLS.clear()
        durable.fork(store, "a", at=places[first], id="b", replace=replace)
        found = execute(store, body, program, id="b").value
        expected = [
            [replace.get(f"{at}.{part}", at + 100 * part) for part in range(2)]
            if kind == "map"
            else replace.get(str(at), at)
            for at, kind in enumerate(program)
        ]
        assert found == expected
        assert len(CALLS) == len(places) - first - len(replace)
        changed = [each.place for each in durable.compare_runs(store, "a", "b") if each.place is not None]
        assert changed == [place for place in places if place in replace]


def test_runs_with_equal_calls_do_not_differ(store):
    for run in ("a", "b"):
        durable.run(store, trip, "Rome", id=run)
    assert durable.compare_runs(store, "a", "b") == []
    assert durable.compare_runs(store, "a", "a") == []


def test_the_first_difference_of_a_fork_is_the_replaced_call(store, forked):
    forked(at="0", replace={"0": "walk"})
    found = durable.compare_runs(store, "a", "b")
    assert [(each.place, each.what) for each in found] == [
        ("0", "outcome"),
        ("1", "arguments"),
        ("2", "arguments"),
        (None, "outcome"),
    ]
    assert (found[0].left.result, found[0].right.result) == ("plan Rome", "walk")


def test_different_arguments_are_the_first_difference(store, forked):
    forked(at="0", args=["Oslo"], replace={"0": "plan Rome"})
    first, second, *_others = durable.compare_runs(store, "a", "b")
    assert first == RunDifference(None, "arguments")
    assert (second.place, second.what) == ("0", "arguments")


def test_calls_of_only_one_run_are_listed_as_missing_in_order(store):
    def body(run, count, name):
        run.map(note, list(range(count)))
        return run.step_with(durable.StepOptions(name=name), note, count)

    execute(store, body, 2, "x", id="a")
    execute(store, body, 3, "y", id="b")
    there = [(each.place, each.what) for each in durable.compare_runs(store, "a", "b")]
    assert there == [(None, "arguments"), ("0.2", "missing"), ("1", "call"), (None, "outcome")]
    back = durable.compare_runs(store, "b", "a")
    assert [(each.place, each.what) for each in back] == there
    assert (back[1].left.result, back[1].right) == (2, None)


def test_equal_values_of_different_types_differ(store):
    def body(run, value):
        return run.step_with(durable.StepOptions(name="get"), lambda: value) is None

    execute(store, body, 1, id="a")
    for value, run in ((True, "b"), (1.0, "c")):
        durable.fork(store, "a", at="0", id=run, replace={"0": value})
        execute(store, body, 1, id=run)
        assert [each.place for each in durable.compare_runs(store, "a", run)] == ["0"]
    durable.fork(store, "a", at="0", id="nan", replace={"0": float("nan")})
    durable.fork(store, "a", at="0", id="nan-2", replace={"0": float("nan")})
    for run in ("nan", "nan-2"):
        execute(store, body, 1, id=run)
    assert durable.compare_runs(store, "nan", "nan-2") == []


def test_a_missing_run_cannot_be_compared(store):
    execute(store, gated, id="a")
    for pair in (("a", "none"), ("none", "a")):
        with pytest.raises(RunNotFoundError, match="no run 'none'"):
            durable.compare_runs(store, *pair)
