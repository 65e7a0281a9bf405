"""States of CrewAI's flows: the same as in its own persistence, and features that only a store has."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("crewai", exc_type=ImportError)

from crewai.flow.async_feedback.types import PendingFeedbackContext
from crewai.flow.persistence.sqlite import SQLiteFlowPersistence
from pydantic import BaseModel

import statelog
from statelog.adapters.crewai import StatelogFlowPersistence


@pytest.fixture
def store(path):
    with statelog.open(path, durability="interval") as opened:
        yield opened
        assert opened.verify().ok


class Inner(BaseModel):
    when: datetime = datetime(2026, 1, 2, tzinfo=UTC)
    tags: set[str] = {"a"}


class State(BaseModel):
    id: str = "x"
    inner: Inner = Inner()
    messages: list[dict[str, str]] = []


def question(**fields):
    usual = {
        "flow_id": "f",
        "flow_class": "m.F",
        "method_name": "ask",
        "method_output": {"z": 1, "a": 2},
        "message": "?",
    }
    return PendingFeedbackContext(**{**usual, **fields})


KEYS = st.sampled_from(["id", "a/b", "~", "é", "messages", "shape", "x" * 300])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=10,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("save"), st.sampled_from("fg"), st.dictionaries(KEYS, VALUES, max_size=4)),
        st.tuples(st.just("ask"), st.sampled_from("fg"), st.dictionaries(KEYS, VALUES, max_size=4)),
        st.tuples(st.just("clear"), st.sampled_from("fg"), st.none()),
        st.tuples(st.just("load"), st.sampled_from("fg"), st.none()),
    ),
    max_size=10,
)


def answers(persistence, steps):
    """Return answers as text that has the order of keys."""
    found = []
    for step, flow, state in steps:
        if step == "save":
            persistence.save_state(flow, "m", state)
        elif step == "ask":
            persistence.save_pending_feedback(flow, question(flow_id=flow), state)
        elif step == "clear":
            persistence.clear_pending_feedback(flow)
        waiting = persistence.load_pending_feedback(flow)
        told = None if waiting is None else (waiting[0], waiting[1].method_output)
        found.append(json.dumps([persistence.load_state(flow), told]))
    return found


@settings(max_examples=20)
@given(steps=STEPS)
def test_random_calls_get_the_same_answers_as_from_crewais_persistence(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("s")
    with statelog.open(folder / "s", durability="interval") as store:
        ours = answers(StatelogFlowPersistence(store), steps)
    assert ours == answers(SQLiteFlowPersistence(str(folder / "theirs.db")), steps)


def test_models_and_values_outside_json_are_stored_like_by_crewai(path, store):
    ours, theirs = StatelogFlowPersistence(store), SQLiteFlowPersistence(str(path.with_suffix(".db")))
    for state in (
        State(messages=[{"z": "1", "a": "2"}]),
        {"at": datetime(2026, 1, 2, tzinfo=UTC), "model": Inner(), "o": {1, 2}},
    ):
        for persistence in (ours, theirs):
            persistence.save_state("f", "m", state)
        assert json.dumps(ours.load_state("f")) == json.dumps(theirs.load_state("f"))
    with pytest.raises(ValueError, match="Pydantic BaseModel or dict"):
        ours.save_state("f", "m", ["no state"])


UNEQUAL = {"id": "f", "scores": [0.5, math.nan, -math.inf], "best": math.inf}


def test_numbers_outside_json_are_returned_as_by_crewai(path, store):
    ours, theirs = StatelogFlowPersistence(store), SQLiteFlowPersistence(str(path.with_suffix(".db")))
    asked = question(method_output={"n": math.nan})
    for persistence in (ours, theirs):
        persistence.save_state("f", "first", UNEQUAL)
        persistence.save_pending_feedback("f", asked, UNEQUAL)
    assert repr(ours.load_state("f")) == repr(theirs.load_state("f")) == repr(UNEQUAL)
    assert repr(ours.load_pending_feedback("f")) == repr(theirs.load_pending_feedback("f"))


def test_a_growing_list_with_a_nan_stores_only_its_new_items(store):
    persistence = StatelogFlowPersistence(store)
    scores = [math.nan] * 5000
    persistence.save_state("f", "first", {"scores": scores})
    before = store.last_lsn
    persistence.save_state("f", "second", {"scores": [*scores, math.inf]})
    assert sum(record.size_bytes for record in store.log(before)) < 10_000


def test_a_state_is_a_version_and_stores_only_new_values(store):
    persistence = StatelogFlowPersistence(store)
    messages = [{"role": "user", "text": f"{number} " * 300} for number in range(300)]
    persistence.save_state("f", "first", {"messages": messages})
    before = store.last_lsn
    persistence.save_state("f", "second", {"messages": [*messages, {"role": "user", "text": "new"}]})
    assert sum(record.size_bytes for record in store.log(before)) < 10_000
    thread = store.thread("crewai:f")
    assert [made.metadata["method"] for made in thread.history()] == ["second", "first"]
    thread.rollback(0)
    assert persistence.load_state("f") == {"messages": messages}


def test_a_question_is_one_commit_with_its_state(store):
    persistence = StatelogFlowPersistence(store)
    persistence.save_pending_feedback("f", question(), {"n": 1})
    persistence.save_state("f", "later", {"n": 2})
    state, context = persistence.load_pending_feedback("f")
    assert (state, context.method_output) == ({"n": 1}, {"z": 1, "a": 2})
    assert list(context.method_output) == ["z", "a"]


def test_a_waiting_state_survives_retention_until_it_is_answered(store):
    persistence = StatelogFlowPersistence(store)
    persistence.save_pending_feedback("f", question(), {"n": 1})
    persistence.save_state("f", "later", {"n": 2})
    store.prune(keep_last=1)
    assert persistence.load_pending_feedback("f")[0] == {"n": 1}
    persistence.clear_pending_feedback("f")
    store.prune(keep_last=1)
    assert [made.version for made in store.thread("crewai:f").history()] == [1]
    persistence.save_pending_feedback("f", question(), {"n": 3})
    store.delete_thread("crewai:f")
    assert persistence.load_pending_feedback("f") is None


WRITER = """
import sys, statelog
from statelog.adapters.crewai import StatelogFlowPersistence
persistence = StatelogFlowPersistence(sys.argv[1])
for number in range(9):
    persistence.save_state("f", "m", {"messages": [{"n": n} for n in range(number)], "who": sys.argv[2], "n": number})
    print(number, flush=True)
"""


def test_the_last_state_of_two_processes_is_complete(path):
    command = [sys.executable, "-W", "ignore", "-c", WRITER, str(path)]
    running = [subprocess.Popen([*command, name], stdout=subprocess.DEVNULL) for name in "ab"]
    assert [each.wait() for each in running] == [0, 0]
    with statelog.open(path) as store:
        states = [made.state for made in store.thread("crewai:f").history()]
        last = StatelogFlowPersistence(store).load_state("f")
        assert len(states) == 18
    assert (last["n"], last["messages"]) == (8, [{"n": n} for n in range(8)])
