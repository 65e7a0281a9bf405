"""Workflows made by Hypothesis and killed anywhere, compared with a model of their results."""

from __future__ import annotations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from statelog import durable
from statelog.errors import StepInterruptedError
from statelog.reducers import add, append
from statelog.testing.durable.lives import Killed, Life
from statelog.testing.durable.stories import RUN, StoryPlan, new_story

RETRY = durable.Retry(attempts=3, first_delay_s=60, jitter=False)
UNDONE = []


def plus_one(number):
    return number + 1


def boom(number):
    raise ValueError(number)


def flaky(number):
    if durable.current_step().attempt <= number % 3:
        raise OSError("again")
    return number


def undo(result, _number):
    UNDONE.append((durable.current_step().idempotency_key, None if result is durable.UNKNOWN else result))


def count_up(tx, number):
    tx.board().update("total", add, number)
    return number


def pair(run, number):
    run.commit({"said": number})
    return [run.step(plus_one, number), run.transact(count_up, number)]


def caught(run, _at, number):
    try:
        run.step(boom, number)
    except ValueError:
        return "caught"


def once(run, _at, number):
    try:
        return run.step_with(durable.StepOptions(semantics="at_most_once"), plus_one, number)
    except StepInterruptedError:
        return number + 1  # The workflow has read the flag.


def abort(_run, _at, _number):
    raise durable.Abort("enough")


OPERATIONS = {
    "step": lambda run, _at, number: run.step(plus_one, number),
    "fail": lambda run, _at, number: run.step(boom, number),
    "caught": caught,
    "retry": lambda run, _at, number: run.step_with(durable.StepOptions(retry=RETRY), flaky, number),
    "saga": lambda run, _at, number: run.step_with(durable.StepOptions(compensate=undo), plus_one, number),
    "failing saga": lambda run, _at, number: run.step_with(durable.StepOptions(compensate=undo), boom, number),
    "map": lambda run, _at, number: run.map_with(durable.StepOptions(compensate=undo), plus_one, [number, number + 1]),
    "branch": lambda run, _at, number: run.gather(run.branch(pair, number), run.start(plus_one, number)),
    "gate": lambda run, _at, number: run.gate(GATES[number % 3], timeout_s=3600).approved,
    "mail": lambda run, at, _number: run.recv(str(at), timeout_s=3600),
    "sleep": lambda run, _at, number: run.sleep(number * 60),
    "transact": lambda run, _at, number: run.transact(count_up, number),
    "commit": lambda run, _at, number: run.commit({"said": number}),
    "step with its commit": lambda run, _at, number: run.step_with(
        durable.StepOptions(commit=lambda n: {"said": n}), plus_one, number
    ),
    "emit": lambda run, _at, number: run.emit("told", number),
    "once": once,
    "child": lambda run, _at, program: run.child(play, program),
    "abort": abort,
}
GATES = ("yes", "no", "nobody")
ENDS = ("fail", "failing saga", "abort")


@durable.workflow(schema={"said": append})
def play(run, program):
    return [OPERATIONS[name](run, at, what) for at, (name, what) in enumerate(program)]


class Model:
    """The expected result of a program and its children."""

    def __init__(self):
        self.total, self.threads, self.told, self.undone, self.counts, self.once = 0, {}, [], [], {}, set()

    def play(self, run, program):
        said, undos, values, place, error = [], [], [], 0, None
        self.threads[run] = said
        for at, (name, what) in enumerate(program):
            here = f"{run}/{place}"
            place += 2 if name == "branch" else name != "abort"
            if name in ENDS:
                error = "Abort" if name == "abort" else "ValueError"
            elif name == "child":
                status, value = self.play(f"{run}.{here.split('/')[1]}", what)
                error = None if status == "completed" else "RunFailedError"
                values.append(value)
            else:
                values.append(self._value(run, name, what, at, said))
            self._note_steps(here, name, what, undos)
            if error is not None:
                self._undo(undos)
                return "failed", error
        return "completed", values

    def _value(self, run, name, number, at, said):
        if name in ("commit", "branch"):
            said.append(number)
        elif name == "step with its commit":
            said.append(number + 1)
        elif name == "emit":
            self.told.append((run, number))
        if name in ("transact", "branch"):
            self.total += number
        return {
            "caught": "caught",
            "retry": number,
            "map": [number + 1, number + 2],
            "branch": [[number + 1, number], number + 1],
            "gate": number % 3 == 0,
            "mail": at if run == RUN and at % 2 == 0 else None,
            "transact": number,
        }.get(name, None if name in ("sleep", "commit", "emit") else number + 1)

    def _note_steps(self, here, name, number, undos):
        run, place = here.split("/")
        if name in ("step", "fail", "caught", "saga", "failing saga", "step with its commit", "once"):
            self.counts[here] = 1
            self.once |= {here} if name == "once" else set()
        elif name == "retry":
            self.counts[here] = number % 3 + 1
        elif name == "map":
            self.counts |= {f"{here}.0": 1, f"{here}.1": 1}
            undos.append([(f"{here}.{each}", number + each + 1) for each in range(2)])
        elif name == "branch":
            self.counts |= {f"{here}.1": 1, f"{run}/{int(place) + 1}": 1}
        if name in ("saga", "failing saga"):
            undos.append([(here, number + 1 if name == "saga" else None)])

    def _undo(self, undos):
        for group in reversed(undos):
            undone = [(here.replace("/", "/undo."), result) for here, result in group]
            self.undone.append(undone)
            self.counts |= {here: 1 for here, _result in undone}


def programs(size, **others):
    numbers = st.integers(0, 5)
    names = [name for name in OPERATIONS if name not in ("child", *ENDS)]
    operations = st.tuples(st.sampled_from(names), numbers)
    if others:
        operations = operations | st.tuples(st.just("child"), others["children"])
    ends = st.tuples(st.sampled_from(ENDS), numbers)
    begun = st.lists(operations, min_size=size // 2, max_size=size)
    return st.builds(lambda body, end, at: body if at % 2 else [*body, end], begun, ends, numbers)


PROGRAMS = programs(7, children=programs(3))


def story_of(program, directory):
    answers = {"yes": True, "no": False}
    messages = {str(at): [at] for at, (name, _what) in enumerate(program) if name == "mail" and at % 2 == 0}
    return new_story(StoryPlan(play, (program,), {}, {"play": play}, answers, messages, None, directory))


def live_through(story, kills):
    """Drive a run through processes that are killed at boundaries.

    Return for each step the number of processes killed during it.
    """
    in_flight = []
    for at in kills:
        life = Life(story.effects, at=at, then=Life.die)
        try:
            story.live(life)
        except Killed:
            story.abandon()
            in_flight += [f"{run}/{place}" for run, place in life.in_flight]
        else:
            break
    return in_flight


def first_ones(calls):
    return list(dict.fromkeys(calls))


@pytest.mark.slow
@given(PROGRAMS, st.lists(st.integers(1, 16), min_size=1, max_size=4))
def test_a_killed_workflow_ends_as_the_model_predicts(tmp_path_factory, program, kills):
    model = Model()
    expected = model.play(RUN, program)
    UNDONE.clear()
    with story_of(program, tmp_path_factory.getbasetemp()) as story:
        story.begin()
        in_flight = live_through(story, kills)
        story.live(Life(story.effects))
        found = story.outcome()
        assert story.store.verify().problems == []
    event(f"{len(in_flight)} steps in flight")
    ends = found.value if found.status == "completed" else found.error.split(":")[0]
    assert (found.status, ends) == expected
    assert found.board.get("total", 0) == model.total
    said = {run: each["state"].get("said", []) for run, each in found.threads.items()}
    assert {run: sorted(each) for run, each in said.items() if each} == {
        run: sorted(each) for run, each in model.threads.items() if each
    }
    assert {channel for each in found.threads.values() for channel in each["state"]} <= {"said"}
    told = [(run, what) for run, _place, topic, what in found.messages if topic == "told"]
    assert sorted(told) == sorted(model.told)
    undone = first_ones(UNDONE)
    for group in model.undone:
        assert sorted(undone[: len(group)]) == group
        undone = undone[len(group) :]
    assert undone == []
    counts = {f"{run}/{place}": count for (run, place), count in story.effects.counts.items()}
    assert counts.keys() <= model.counts.keys() | {each.replace("/", "/undo.") for each in model.counts}
    for here, count in model.counts.items():
        called = counts.get(here, 0)
        is_once = here in model.once
        assert (0 if is_once else count) <= called <= (1 if is_once else count + in_flight.count(here)), here


@pytest.mark.slow
@given(PROGRAMS, st.integers(1, 12), st.integers(1, 12))
@settings(max_examples=15)
def test_a_cancelled_and_killed_workflow_compensates_its_steps(tmp_path_factory, program, at, again):
    UNDONE.clear()
    with story_of(program, tmp_path_factory.getbasetemp()) as story:
        story.begin()
        live_through(story, [at])
        durable.cancel(story.store, RUN)
        live_through(story, [again])
        story.live(Life(story.effects))
        statuses = {info.id: info.status for info in durable.runs(story.store)}
        assert durable.runs(story.store, status="suspended") == []
    undone = {key for key, _result in UNDONE}
    for run, place in story.effects.compensable:
        assert (f"{run}/undo.{place}" in undone) == (statuses[run] in ("failed", "cancelled"))
    assert statuses[RUN] in ("completed", "failed", "cancelled")


def test_a_model_of_a_different_program_is_detected(tmp_path_factory):
    """Negative control."""
    program = [("saga", 1), ("transact", 2), ("abort", 0)]
    assert Model().play(RUN, program) == ("failed", "Abort")
    wrong = Model()
    wrong.play(RUN, program[:1])
    with story_of(program, tmp_path_factory.getbasetemp()) as story:
        story.begin()
        story.live(Life(story.effects))
        assert story.outcome().board.get("total", 0) != wrong.total
