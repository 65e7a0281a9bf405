"""The driver finds faults that are put into the library, makes them small, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import pytest

import statelog
from statelog.board import holders
from statelog.testing.crossings import Driver, Plan, PlanStep, draw_plan, shrink
from statelog.testing.crossings.families import acts
from statelog.testing.crossings.machine import crossing_machine
from statelog.testing.crossings.plans import HAPPENINGS
from statelog.testing.crossings.processes import Process


@pytest.fixture(scope="module")
def driver():
    with Driver() as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_everything_agrees_after_random_acts(driver, seed):
    failure = driver.run(draw_plan(seed, 120))
    assert failure is None, failure.text


def test_each_seed_is_a_plan_of_its_own():
    assert draw_plan(1, 50) == draw_plan(1, 50)
    assert draw_plan(1, 50) != draw_plan(2, 50)


def test_a_plan_comes_back_from_json():
    plan = draw_plan(7, 200)
    assert tuple(map(PlanStep.of, json.loads(json.dumps(plan.steps)))) == plan.steps


def test_plans_draw_every_act_and_all_that_happens_to_processes():
    drawn = {step.what for seed in range(60) for step in draw_plan(seed, 300).steps}
    assert drawn == {*acts(), *HAPPENINGS}


def rounds_of_acts(rounds):
    return Plan(tuple(PlanStep(name, 0, 1000 * seed + at) for seed in rounds for at, name in enumerate(acts())))


@pytest.mark.slow
def test_an_act_of_each_kind_can_be_done(driver):
    """Each kind of act comes to its end in some run: an act that is always refused would test nothing.

    Rounds are done until each kind has, and 30 of them in the soak.
    """
    for start in range(0, 30, 5):
        failure = driver.run(rounds_of_acts(range(start, start + 5)))
        assert failure is None, failure.text
        missing = [name for name in acts() if not driver.outcomes.get(name, {}).get("done")]
        if not missing:
            break
    assert missing == []


@pytest.mark.soak
def test_thirty_rounds_of_all_acts_in_one_store_agree(driver):
    failure = driver.run(rounds_of_acts(range(30)))
    assert failure is None, failure.text


def test_a_lease_that_is_not_given_back_in_a_copy_is_told_and_made_small(driver, monkeypatch):
    monkeypatch.setattr(holders, "release", lambda _writer, _found: 1 / 0)
    steps = [PlanStep("threads.commit", 0, 1), PlanStep("board.take_lease", 0, 2), PlanStep("threads.commit", 0, 3)]
    steps += [PlanStep("board.release_lease", 0, 4), PlanStep("threads.commit", 0, 5)]
    failure = driver.run(Plan(tuple(steps)))
    assert failure is not None
    assert failure.step.what == "board.release_lease"
    assert "ZeroDivisionError" in failure.text
    small = shrink(failure.plan, failure, driver)
    assert [step.what for step in small.plan.steps] == ["board.take_lease", "board.release_lease"]


def test_an_exception_in_an_os_thread_is_told(driver, monkeypatch):
    def fail(*_args, **_options):
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()

    monkeypatch.setattr(statelog.Board, "sweep", fail)
    failure = driver.run(Plan((PlanStep("board.sweep"),)))
    assert failure is not None
    assert failure.kinds == ("thread",)


def test_a_record_that_was_acknowledged_and_is_gone_is_told(driver, monkeypatch, tmp_path):
    with driver.crossing(Plan(()), tmp_path) as crossing:
        for number in range(3):
            assert crossing.do(PlanStep("threads.commit", 0, number)) is None
        monkeypatch.setattr(statelog.Store, "last_lsn", property(lambda _store: 1))
        assert crossing.do(PlanStep("care.flush"))[0] == "lost"


@pytest.mark.slow
@pytest.mark.parametrize("fault", [("commit.after_lmdb_commit", 1), ("kill", 0)])
def test_a_process_that_is_killed_is_replaced(driver, fault):
    steps = [
        PlanStep("threads.commit", 1, 1),
        PlanStep("threads.commit", 1, 2, fault),
        PlanStep("threads.commit", 1, 3),
    ]
    failure = driver.run(Plan((*steps, PlanStep("check")), processes=1))
    assert failure is None, failure.text


@pytest.mark.slow
@pytest.mark.parametrize("is_shipped", [False, True])
def test_commits_acknowledged_before_all_processes_were_killed_are_there(driver, is_shipped):
    deaths = [
        PlanStep("die", beside=tuple(PlanStep("threads.commit", 1 + n % 2, 9 * n) for n in range(5)))
        for _time in range(3)
    ]
    steps = [each for death in deaths for each in (death, PlanStep("check"), PlanStep("threads.commit", 1, 7))]
    failure = driver.run(Plan(tuple(steps), 2, is_shipped))
    assert failure is None, failure.text


@pytest.mark.slow
@pytest.mark.parametrize("how", ["move", "take over"])
def test_a_store_of_a_fleet_goes_on_elsewhere_and_comes_back(driver, how):
    steps = [
        PlanStep("threads.commit", 0, 1),
        PlanStep("board.set_entry", 1, 1),
        PlanStep("check"),
        PlanStep("threads.commit", 1, 2),
    ]
    moved = [each for seed in (1, 2, 0, 1) for each in (*steps, PlanStep(how, 0, seed))]
    failure = driver.run(Plan((*moved, PlanStep("check")), 1, is_shipped=True))
    assert failure is None, failure.text


@pytest.mark.slow
def test_a_process_that_shows_something_else_is_told(driver, monkeypatch):
    real = Process.observe
    monkeypatch.setattr(Process, "observe", lambda *arguments: {**real(*arguments), "leases": ["another"]})
    failure = driver.run(Plan((PlanStep("threads.commit", 1, 1), PlanStep("check")), 1))
    assert failure is not None
    assert failure.kinds == ("seen elsewhere",)


@pytest.mark.slow
def test_processes_act_side_by_side(driver):
    beside = (PlanStep("threads.commit", 1, 2), PlanStep("threads.commit", 2, 3))
    steps = [PlanStep("threads.commit", 0, seed, None, beside) for seed in range(20)]
    failure = driver.run(Plan((*steps, PlanStep("check")), processes=2))
    assert failure is None, failure.text


@pytest.mark.slow
def test_the_command_names_the_seed_the_acts_and_the_difference_of_a_failure(tmp_path):
    plan = Plan((PlanStep("threads.commit", 0, 1), PlanStep("no.such act"), PlanStep("check")))
    saved = tmp_path / "plan.json"
    saved.write_text(json.dumps(plan.__dict__))
    command = [sys.executable, "-m", "statelog.testing.crossings", "--replay", str(saved), "--no-shrink"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert '["no.such act", 0, 0, null, []]' in done.stdout
    assert "KeyError" in done.stdout


@pytest.mark.slow
def test_the_command_ends_well_if_all_agree():
    command = [sys.executable, "-m", "statelog.testing.crossings", "--acts", "60", "--seed", "5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 failures" in done.stdout


TestCrossings = pytest.mark.slow(crossing_machine(Driver(), examples=8, steps=40).TestCase)
