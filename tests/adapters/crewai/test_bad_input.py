"""The order of keys, empty names, and stores that refuse writes: checkpoints and memory raise, and are unchanged."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

pytest.importorskip("crewai", exc_type=ImportError)

from crewai.flow.async_feedback.types import PendingFeedbackContext
from crewai.memory.types import MemoryRecord

import statelog
from statelog.adapters.crewai import StatelogCheckpointProvider, StatelogFlowPersistence, StatelogMemoryStorage
from statelog.adapters.crewai.stores import store_at
from statelog.errors import LimitError, StoreFullError, UsageError, ValueTypeError

NESTED = {"z": 1, "a": {"y": [{"q": 1, "b": 2}], "b": 3}, "m": None}
MADE = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)  # CrewAI's times have no zone.


@pytest.fixture
def store(path):
    with statelog.open(path, durability="interval") as opened:
        yield opened
        assert opened.verify().ok


def record(id, text="x", **fields):
    return MemoryRecord(id=id, content=text, embedding=[1.0, 0.0], created_at=MADE, **fields)


def question(**fields):
    return PendingFeedbackContext(
        flow_id="f", flow_class="m.F", method_name="ask", method_output=NESTED, message="?", **fields
    )


def holding_itself():
    value = {}
    value["self"] = value
    return value


@pytest.mark.parametrize("id", ["", "~", "x" * 4000, "漢" * 900, "a/b"])
def test_a_memory_can_have_any_id(store, id):
    memory = StatelogMemoryStorage(store)
    memory.save([record(id), record("other")])
    assert memory.get_record(id).id == id
    assert memory.delete(record_ids=[id]) == 1
    assert [each.id for each in memory.list_records()] == ["other"]


def test_an_id_that_is_too_long_is_refused_with_its_whole_call(store):
    memory = StatelogMemoryStorage(store)
    with pytest.raises(LimitError):
        memory.save([record("a"), record("x" * 5000)])
    assert memory.count() == 0
    assert store.last_lsn == 0


def test_an_empty_name_is_refused(store, path):
    persistence = StatelogFlowPersistence(store)
    for call in (
        lambda: persistence.load_state(""),
        lambda: persistence.save_pending_feedback("", question(), {}),
        lambda: persistence.load_pending_feedback(""),
        lambda: persistence.clear_pending_feedback(""),
        lambda: StatelogMemoryStorage(store, name=""),
        lambda: StatelogCheckpointProvider().checkpoint("{}", str(path.with_name("c")), branch=""),
    ):
        with pytest.raises(UsageError, match="name"):
            call()
    assert store.last_lsn == 0
    assert list(store_at(path.with_name("c")).threads()) == []


def test_a_state_that_contains_itself_is_refused_and_its_question_is_not_stored(store):
    value = holding_itself()
    persistence = StatelogFlowPersistence(store)
    persistence.save_state("f", "m", {"n": 1})
    before = store.last_lsn
    for call in (
        lambda: persistence.save_state("f", "m", {"n": 2, "k": value}),
        lambda: persistence.save_pending_feedback("f", question(), {"n": 2, "k": value}),
    ):
        with pytest.raises(ValueTypeError, match="JSON"):
            call()
    with pytest.raises((ValueTypeError, RecursionError)):  # In a question, CrewAI's own code finds the cycle.
        persistence.save_pending_feedback("f", question(metadata={"k": value}), {"n": 2})
    assert store.last_lsn == before
    assert persistence.load_state("f") == {"n": 1}


def test_a_checkpoint_that_does_not_fit_is_refused_and_earlier_ones_are_kept(path, monkeypatch):
    with statelog.open(path, max_size_bytes=1 << 20) as store:
        monkeypatch.setattr("statelog.adapters.crewai.checkpoints.store_at", lambda _path: store)
        provider = StatelogCheckpointProvider()
        kept = provider.checkpoint('{"n":1}', str(path))
        before = store.last_lsn
        with pytest.raises(StoreFullError):
            provider.checkpoint(json.dumps([*range(300_000)]), str(path))
        assert store.last_lsn == before
        assert provider.from_checkpoint(kept) == '{"n":1}'
