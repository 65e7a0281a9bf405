"""`statelog import-sessions crewai:...`: every flow is copied with all its states, and the database is unchanged."""

from __future__ import annotations

import math
import sqlite3

import pytest

pytest.importorskip("crewai", exc_type=ImportError)

from crewai.flow.async_feedback.types import PendingFeedbackContext
from crewai.flow.persistence.sqlite import SQLiteFlowPersistence

import statelog
from statelog.adapters.crewai import StatelogFlowPersistence
from statelog.adapters.crewai.move import opened
from statelog.adapters.kit.migration import move
from statelog.cli import main
from statelog.errors import ConflictError, FormatError

FLOWS = ["a", "waits", "x" * 600, "é/b"]


def state(flow, step):
    return {"id": flow, "z": step, "messages": [{"z": number, "a": None} for number in range(step)]}


@pytest.fixture
def database(tmp_path):
    persistence = SQLiteFlowPersistence(str(tmp_path / "flows.db"))
    for flow in FLOWS:
        for step in (1, 2, 2, 3):
            persistence.save_state(flow, f"method {step}", state(flow, step))
    context = PendingFeedbackContext("waits", "m.F", "ask", {"z": 1, "a": 2}, "?", emit=["yes", "no"])
    persistence.save_pending_feedback("waits", context, state("waits", 4))
    persistence.save_state("waits", "after", state("waits", 5))
    return tmp_path / "flows.db"


@pytest.fixture
def store(tmp_path):
    with statelog.open(tmp_path / "s") as opened_store:
        yield opened_store
        assert opened_store.verify().ok


def moved(database, store):
    with opened(database) as source:
        return move(source, store)


def test_a_flow_with_a_nan_is_copied_and_compared(database, store):
    theirs = SQLiteFlowPersistence(str(database))
    context = PendingFeedbackContext("nan", "m.F", "ask", {"best": math.nan}, "?")
    theirs.save_pending_feedback("nan", context, {"id": "nan", "best": math.nan})
    for copied in (5, 0):
        assert (moved(database, store).copied, moved(database, store).left_out) == (copied, ())
    assert repr(StatelogFlowPersistence(store).load_state("nan")) == repr(theirs.load_state("nan"))


def test_flows_are_copied_and_a_second_move_copies_none(database, store):
    before = database.read_bytes()
    for copied in (4, 0):
        report = moved(database, store)
        assert (report.found, report.copied, report.left_out) == (4, copied, ())
    assert database.read_bytes() == before
    theirs, ours = SQLiteFlowPersistence(str(database)), StatelogFlowPersistence(store)
    for flow in FLOWS:
        assert ours.load_state(flow) == theirs.load_state(flow)
        assert list(ours.load_state(flow)) == list(theirs.load_state(flow))
        assert ours.load_pending_feedback(flow) == theirs.load_pending_feedback(flow)
    assert ours.load_pending_feedback("waits")[0] == state("waits", 4)


def test_each_state_is_a_version_with_its_method(database, store):
    moved(database, store)
    methods = [made.metadata["method"] for made in store.thread("crewai:a").history()]
    assert methods == ["method 3", "method 2", "method 2", "method 1"]
    store.thread("crewai:a").rollback(0)
    assert StatelogFlowPersistence(store).load_state("a") == state("a", 1)


def test_a_different_flow_with_the_same_id_is_kept_and_all_others_are_copied(database, store):
    StatelogFlowPersistence(store).save_state("a", "mine", {"id": "a"})
    report = moved(database, store)
    assert report.copied == 3
    assert [(left.name, type(left.error)) for left in report.left_out] == [("a", ConflictError)]
    assert StatelogFlowPersistence(store).load_state("a") == {"id": "a"}


def test_a_flow_whose_question_was_answered_in_the_store_counts_as_different(database, store):
    moved(database, store)
    StatelogFlowPersistence(store).clear_pending_feedback("waits")
    assert [left.name for left in moved(database, store).left_out] == ["waits"]


def test_an_interrupted_move_continues(database, store):
    with opened(database) as source:
        assert source.copy("a", store)
    report = moved(database, store)
    assert (report.found, report.copied, report.left_out) == (4, 3, ())


@pytest.mark.parametrize("damage", ["{", "[1]", b"\xff"])
@pytest.mark.parametrize("row", ["min(id)", "max(id)"])
def test_a_damaged_flow_is_left_out_and_named(database, store, damage, row):
    with sqlite3.connect(database) as connection:
        where = f"id = (SELECT {row} FROM flow_states WHERE flow_uuid = 'a')"
        connection.execute(f"UPDATE flow_states SET state_json = ? WHERE {where}", [damage])
    report = moved(database, store)
    assert [left.name for left in report.left_out] == ["a"]
    assert report.copied == 3
    assert store.thread("crewai:a").version < 0


def test_a_question_with_a_state_that_the_flow_never_had_is_left_out(database, store):
    with sqlite3.connect(database) as connection:
        connection.execute("DELETE FROM flow_states WHERE method_name = 'ask'")
    assert [(left.name, type(left.error)) for left in moved(database, store).left_out] == [("waits", FormatError)]


@pytest.mark.parametrize("content", [b"", b"no database at all, of whatever kind" * 50])
def test_a_foreign_file_is_refused(tmp_path, content):
    path = tmp_path / "foreign"
    path.write_bytes(content)
    with pytest.raises(FormatError, match="foreign is not a database of CrewAI's flows"), opened(path):
        pass
    assert path.read_bytes() == content


def test_the_command_reports_the_number_of_copies(tmp_path, database, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["import-sessions", f"crewai:{database}", str(tmp_path / "s")])
    assert ended.value.code == 0
    assert "4 flows, read back and equal" in " ".join(capsys.readouterr().out.split())
