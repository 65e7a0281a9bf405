"""Runs that an earlier release left open go on under the present code, and repeat nothing."""

from __future__ import annotations

import gzip
from pathlib import Path

import golden_runs
import pytest

import statelog
from statelog import durable
from statelog.testing.durable import skipping_clock

HERE = Path(__file__).parent
SOURCES = sorted(HERE.glob("format_*_runs.state.gz"))


@pytest.fixture(params=SOURCES, ids=lambda path: path.name.split(".")[0])
def store(request, tmp_path):
    path = tmp_path / "golden.state"
    path.write_bytes(gzip.decompress(request.param.read_bytes()))
    golden_runs.CALLS.clear()
    with statelog.open(path) as opened:
        yield opened
        assert opened.verify().problems == []


def test_there_are_golden_runs():
    assert SOURCES


def test_open_runs_of_an_earlier_release_replay(store):
    waiting = {info.id: info.waiting_for for info in durable.runs(store) if info.status == "suspended"}
    assert waiting == {
        "at gate": ("gate at gate/14",),
        "at mail": ("mail chat",),
        "at sleep": ("time",),
        "at retry": ("retry of step fail_once",),
        "at child": ("run kid",),
        "at rollback": ("retry of step cancel",),
        "kid": ("mail grown",),
    }
    assert durable.check_replay(store, [golden_runs.golden, golden_runs.child]) == {}
    assert golden_runs.CALLS == []


def go_on(store, stop):
    return durable.run(store, golden_runs.golden, stop, id=f"at {stop}", thread=f"thread of {stop}")


def test_a_golden_gate_is_answered(store):
    drawn = {each.kind: each.result for each in durable.steps(store, "at gate")}
    durable.answer(store, durable.gates(store, pending=True)[0].id, approved=True, payload=5)
    info = go_on(store, "gate")
    assert info.value[0][1:] == [drawn["uuid"], drawn["random"], True, 5]
    assert golden_runs.CALLS == ["after gate"]
    assert store.thread("thread of gate").state == {"hotel": "hotel", "drawn": info.value[0]}
    assert durable.get_run(store, "behind").waiting_for == ()


def test_golden_mail_is_received(store):
    assert go_on(store, "mail").value[0][-1] == ["first", "second"]
    assert golden_runs.CALLS == ["after mail"]


@pytest.mark.parametrize(("stop", "called"), [("sleep", ["after sleep"]), ("retry", ["flaky", "after retry"])])
def test_a_golden_wait_ends(store, stop, called):
    with skipping_clock(store) as clock:
        clock.advance(2e9)
        assert go_on(store, stop).status == "completed"
    assert called == golden_runs.CALLS


def test_a_golden_child_grows_up(store):
    durable.send(store, "kid", "up", topic="grown")
    durable.resume_all(store, [golden_runs.child])
    assert go_on(store, "child").value[0][-1] == ("up", {"booked": "kid"})
    assert golden_runs.CALLS == ["kid", "after child"]


def test_a_golden_rollback_goes_on(store):
    with skipping_clock(store) as clock:
        clock.advance(2e9)
        info = go_on(store, "rollback")
    assert (info.status, info.error, info.parked) == ("failed", "Abort: enough", ())
    assert golden_runs.CALLS == ["cancel hotel", "cancel flight"]


@pytest.mark.slow
def test_the_maker_of_golden_runs_still_works(tmp_path):
    with statelog.open(tmp_path / "today.state") as store:
        golden_runs.make_runs(store)
        assert {info.status for info in durable.runs(store)} == {"suspended", "queued"}
