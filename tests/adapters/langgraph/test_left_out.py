"""Threads that cannot be moved, or not completely, are named. All others are moved."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

pytest.importorskip("langgraph", reason="needs the extra langgraph")
pytest.importorskip("langgraph.checkpoint.sqlite", reason="needs langgraph-checkpoint-sqlite")

from commands import run_here
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

import statelog
from statelog import versioned
from statelog.adapters.langgraph import StatelogSaver
from statelog.adapters.langgraph.move.endpoints import Endpoint, opened
from statelog.adapters.langgraph.move.migration import migrate
from statelog.errors import CorruptionError, SchemaVersionError, StoreFullError

CHECKPOINTS = 3
LATEST = "(SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = 'b')"


def fill(saver, thread_id, namespace=""):
    """Put three checkpoints, one after another, and two writes to the last one."""
    at = {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace}}
    for step in range(CHECKPOINTS):
        versions = {"x": str(step), "items": str(step)}
        values = {"x": step, "items": [*range(step)]}
        checkpoint = empty_checkpoint() | {"channel_values": values, "channel_versions": versions}
        at = saver.put(at, checkpoint, {"step": step}, versions)
    saver.put_writes(at, [("y", 1), ("z", [2])], "task")


def made(path, *thread_ids):
    with SqliteSaver.from_conn_string(str(path)) as saver:
        for thread_id in thread_ids:
            fill(saver, thread_id)
    return path


@pytest.fixture
def database(tmp_path):
    return made(tmp_path / "checkpoints.db", "a", "b", "c")


def execute(database, statement):
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(statement)
        connection.commit()


def run(*arguments, **environment):
    if not environment:
        return run_here(*arguments)
    command = [sys.executable, "-m", "statelog", *map(str, arguments)]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "COLUMNS": "1000", **environment},
    )


def import_into(path, database, *options, **environment):
    return run("import-langgraph", f"sqlite:{database}", path, *options, **environment)


def move(source, target):
    """Import or export in this process."""
    with opened(str(source), writing=False) as reading, opened(str(target), writing=True) as writing:
        return migrate(reading, writing)


def tuples(saver, *thread_ids):
    return {
        thread_id: [
            (each.checkpoint, each.metadata, each.parent_config, each.pending_writes)
            for each in saver.list({"configurable": {"thread_id": thread_id}})
        ]
        for thread_id in thread_ids
    }


def in_store(path, *thread_ids):
    with StatelogSaver.open(path) as saver:
        return tuples(saver, *thread_ids)


def in_database(database, *thread_ids):
    with SqliteSaver.from_conn_string(str(database)) as saver:
        return tuples(saver, *thread_ids)


def test_nothing_of_a_thread_with_a_later_schema_version_is_exported(tmp_path, path):
    schema = versioned({"x": int, "items": list}, name="graph", version=2)
    schema.add(1, "items", [])
    with StatelogSaver.open(path) as saver:
        fill(saver, "a")
        fill(saver, "b")
    with StatelogSaver.open(path, migrations=schema) as saver:
        at = saver.get_tuple({"configurable": {"thread_id": "b", "checkpoint_ns": ""}}).config
        checkpoint = empty_checkpoint() | {"channel_values": {"x": 9}, "channel_versions": {"x": "9"}}
        saver.put(at, checkpoint, {"step": 9}, {"x": "9"})
    report = move(path, f"sqlite:{tmp_path / 'new.db'}")
    assert report.threads == 1
    assert [(each.thread, each.there, type(each.error)) for each in report.left_out] == [("b", 0, SchemaVersionError)]
    assert in_database(tmp_path / "new.db", "b") == {"b": []}


# --- names a store refuses --------------------------------------------------------

REFUSED = {"": 2, "x" * 401: 5, "langgraph:store": 2, "langgraph:cache": 2}


@pytest.mark.parametrize("thread_id", REFUSED)
def test_a_thread_of_a_refused_name_is_named_and_the_others_are_copied(tmp_path, path, thread_id):
    database = made(tmp_path / "checkpoints.db", "a", thread_id, "z")
    first, again = import_into(path, database), import_into(path, database)
    for answer in (first, again):
        assert (answer.returncode, answer.stderr.count("\n")) == (REFUSED[thread_id], 1)
        assert answer.stderr.startswith(
            f"statelog: thread {thread_id!r} is left out (0 of 3 checkpoints are in the target): "
        )
    assert "2 threads, 6 checkpoints and" in first.stdout
    assert "2 threads, 6 checkpoints (6 were already there) and" in again.stdout
    assert in_store(path, "a", "z") == in_database(database, "a", "z")


def test_every_thread_left_out_is_reported(tmp_path, path):
    database = made(tmp_path / "checkpoints.db", "", "a", "langgraph:store")
    answer = import_into(path, database)
    assert (answer.returncode, answer.stderr) == (2, "statelog: 2 threads are left out: '', 'langgraph:store'\n")
    told = answer.stdout.splitlines()[1:]
    assert [line.split(" is left out (0 of 3 checkpoints are in the target): ")[0] for line in told] == [
        "thread ''",
        "thread 'langgraph:store'",
    ]


def test_an_error_as_json_has_the_thread_and_the_facts(tmp_path, path):
    answer = import_into(path, made(tmp_path / "checkpoints.db", ""), "--json")
    error = json.loads(answer.stderr)
    assert (error["kind"], error["exit_code"], error["facts"]["thread"]) == ("UsageError", 2, "")
    assert [each["facts"] for each in json.loads(answer.stdout)["left_out"]] == [{"argument": "thread id", "value": ""}]


def test_errors_of_several_kinds_have_the_exit_code_of_one_of_them(tmp_path, path):
    database = made(tmp_path / "checkpoints.db", *REFUSED, "a")
    answer = import_into(path, database, "--json")
    error, report = json.loads(answer.stderr), json.loads(answer.stdout)
    assert (answer.returncode, error["exit_code"], error["kind"]) == (1, 1, "StatelogError")
    assert error["facts"]["threads"] == sorted(REFUSED)
    told = {each["thread"]: (each["exit_code"], each["checkpoints"], each["there"]) for each in report["left_out"]}
    assert told == {thread_id: (code, 3, 0) for thread_id, code in REFUSED.items()}
    assert (report["threads"], report["checkpoints"], report["copied"]) == (1, 3, 3)


def test_an_import_killed_among_refused_threads_continues_with_the_same_result(tmp_path, path):
    database = made(tmp_path / "checkpoints.db", "", "a", "langgraph:store", "z")
    killed = import_into(path, database, STATELOG_FAULT="commit.after_delivery:6:kill")
    assert killed.returncode == -signal.SIGKILL
    answer = import_into(path, database, "--json")
    report = json.loads(answer.stdout)
    assert (answer.returncode, [each["thread"] for each in report["left_out"]]) == (2, ["", "langgraph:store"])
    assert 0 < report["copied"] < report["checkpoints"]
    assert in_store(path, "a", "z") == in_database(database, "a", "z")


def test_progress_is_also_reported_for_threads_left_out(tmp_path, path):
    database = made(tmp_path / "checkpoints.db", "", "a", "langgraph:store")
    steps = []
    with opened(f"sqlite:{database}", writing=False) as source, opened(str(path), writing=True) as target:
        migrate(source, target, progress=lambda *step: steps.append(step))
    assert (steps[-1], steps) == ((18, 18), sorted(steps))


def test_a_thread_deleted_in_the_store_does_not_stop_the_copy_of_others(database, path):
    import_into(path, database)
    with StatelogSaver.open(path) as saver:
        saver.delete_thread("a")
    with SqliteSaver.from_conn_string(str(database)) as saver:
        fill(saver, "b", "inner")
    answer = import_into(path, database)
    assert (answer.returncode, answer.stderr.count("\n")) == (3, 1)
    assert in_store(path, "a", "b", "c") == {"a": [], **in_database(database, "b", "c")}


def test_a_full_store_ends_the_import(path):
    source = InMemorySaver()
    for thread_id in ("a", "b"):
        at = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
        values = {"x": random.Random(thread_id).randbytes(2_000_000)}
        checkpoint = empty_checkpoint() | {"channel_values": values, "channel_versions": {"x": "1"}}
        source.put(at, checkpoint, {}, {"x": "1"})
    with statelog.open(path, max_size_bytes=1 << 20) as store, pytest.raises(StoreFullError):
        migrate(Endpoint("source", source), Endpoint("target", StatelogSaver(store)))


# --- damaged rows -----------------------------------------------------------------

OF_LATEST = f"WHERE thread_id = 'b' AND checkpoint_id = {LATEST}"
DAMAGE = {
    "metadata is no JSON": f"UPDATE checkpoints SET metadata = '{{bad' {OF_LATEST}",
    "metadata is not a str": f"UPDATE checkpoints SET metadata = x'ff00' {OF_LATEST}",
    "metadata is a number": f"UPDATE checkpoints SET metadata = 5 {OF_LATEST}",
    "metadata is a list": f"UPDATE checkpoints SET metadata = '[1]' {OF_LATEST}",
    "checkpoint is garbage": f"UPDATE checkpoints SET checkpoint = x'c1c1c1' {OF_LATEST}",
    "checkpoint is cut": f"UPDATE checkpoints SET checkpoint = substr(checkpoint, 1, 20) {OF_LATEST}",
    "checkpoint is missing": f"UPDATE checkpoints SET checkpoint = NULL {OF_LATEST}",
    "checkpoint is a number": f"UPDATE checkpoints SET checkpoint = x'05' {OF_LATEST}",
    "checkpoint is empty": f"UPDATE checkpoints SET checkpoint = x'80' {OF_LATEST}",
    "checkpoint is of another": f"UPDATE checkpoints SET checkpoint_id = 'z' {OF_LATEST}",
    "checkpoint has no type": f"UPDATE checkpoints SET type = NULL {OF_LATEST}",
    "write is missing": "UPDATE writes SET value = NULL WHERE thread_id = 'b'",
    "write is garbage": "UPDATE writes SET value = x'c1' WHERE thread_id = 'b'",
    "write has no type": "UPDATE writes SET type = NULL WHERE thread_id = 'b'",
    "write is pickled and missing": "UPDATE writes SET type = 'pickle', value = NULL WHERE thread_id = 'b'",
    "write is to no text": "UPDATE writes SET channel = CAST(x'ff' AS TEXT) WHERE thread_id = 'b'",
    "write has no number": "UPDATE writes SET idx = 'x' WHERE thread_id = 'b' AND channel = 'y'",
}


@pytest.mark.parametrize("statement", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_row_is_named_and_sound_rows_are_copied(database, path, statement):
    execute(database, statement)
    report = move(f"sqlite:{database}", path)
    (left,) = report.left_out
    with closing(sqlite3.connect(database)) as connection:
        (latest,) = connection.execute(f"SELECT {LATEST}").fetchone()
    facts = {"path": f"sqlite:{database}", "thread": "b", "namespace": "", "checkpoint": latest}
    assert (report.threads, type(left.error), left.error.facts) == (2, CorruptionError, facts)
    assert f"checkpoint {latest} of thread 'b' is damaged in sqlite:{database}: " in left.error.message
    assert in_store(path, "a", "c") == in_database(database, "a", "c")
    assert (left.checkpoints, left.there, len(in_store(path, "b")["b"])) == (3, 2, 2)


def test_damage_has_its_exit_code(database, path):
    execute(database, DAMAGE["metadata is no JSON"])
    answer = import_into(path, database)
    assert (answer.returncode, answer.stderr.count("\n")) == (7, 1)
    assert "thread 'b' is left out (2 of 3 checkpoints are in the target): checkpoint " in answer.stderr
    assert "2 threads, 6 checkpoints and" in answer.stdout


@pytest.mark.parametrize("column", ["checkpoint_ns", "checkpoint_id", "parent_checkpoint_id"])
@pytest.mark.parametrize("value", ["x'ff'", "CAST(x'ff' AS TEXT)"])
def test_a_name_that_is_not_a_str_counts_as_damage_of_its_thread(database, path, column, value):
    execute(database, f"UPDATE checkpoints SET {column} = {value} {OF_LATEST}")
    (left,) = move(f"sqlite:{database}", path).left_out
    assert (type(left.error), left.there) == (CorruptionError, 0)
    assert f"its {column} b'\\xff' is not a str" in left.error.message
    assert in_store(path, "a", "b", "c") == {**in_database(database, "a"), "b": [], **in_database(database, "c")}


@pytest.mark.parametrize("value", ["x'ff'", "CAST(x'ff' AS TEXT)"])
def test_a_thread_whose_id_is_not_a_str_is_named_by_its_bytes(database, path, value):
    execute(database, f"UPDATE checkpoints SET thread_id = {value} WHERE thread_id = 'b'")
    answer = import_into(path, database, "--json")
    assert (answer.returncode, json.loads(answer.stderr)["facts"]["thread"]) == (7, {"$bytes": "/w=="})
    assert in_store(path, "a", "c") == in_database(database, "a", "c")


def test_a_checkpoint_without_an_id_is_not_returned_as_the_latest(database, path):
    execute(database, f"UPDATE checkpoints SET checkpoint_id = '' {OF_LATEST}")
    (left,) = move(f"sqlite:{database}", path).left_out
    assert (type(left.error), "it has no checkpoint_id" in left.error.message) == (CorruptionError, True)


def test_a_namespace_with_a_damaged_checkpoint_is_named(database, path):
    with SqliteSaver.from_conn_string(str(database)) as saver:
        fill(saver, "b", "inner")
    execute(database, "UPDATE checkpoints SET checkpoint = x'c1' WHERE checkpoint_ns = 'inner'")
    (left,) = move(f"sqlite:{database}", path).left_out
    assert (left.error.namespace, left.there) == ("inner", 3)
    assert "of thread 'b', namespace 'inner' is damaged in" in left.error.message


def test_an_import_of_repaired_rows_continues(database, path, tmp_path):
    whole = tmp_path / "whole.db"
    execute(database, f"VACUUM INTO '{whole}'")
    execute(database, "UPDATE writes SET value = x'c1' WHERE thread_id = 'b'")
    assert [each.there for each in move(f"sqlite:{database}", path).left_out] == [2]
    report = move(f"sqlite:{whole}", path)
    assert (report.left_out, report.checkpoints, report.copied) == ((), 9, 1)
    assert in_store(path, "a", "b", "c") == in_database(whole, "a", "b", "c")


def test_a_damaged_row_of_the_target_is_named(database, path, tmp_path):
    back = f"sqlite:{tmp_path / 'back.db'}"
    move(f"sqlite:{database}", path)
    assert move(path, back).left_out == ()
    execute(tmp_path / "back.db", "UPDATE checkpoints SET metadata = '{bad' WHERE thread_id = 'b'")
    (left,) = move(path, back).left_out
    assert (type(left.error), f"of thread 'b' is damaged in {back}" in left.error.message) == (CorruptionError, True)


# --- parents that come after ------------------------------------------------------

LOOPS = {
    "its own": f"UPDATE checkpoints SET parent_checkpoint_id = checkpoint_id {OF_LATEST}",
    "each its own": "UPDATE checkpoints SET parent_checkpoint_id = checkpoint_id WHERE thread_id = 'b'",
    "of all the latest": f"UPDATE checkpoints SET parent_checkpoint_id = {LATEST} WHERE thread_id = 'b'",
    "of the first the latest": (
        f"UPDATE checkpoints SET parent_checkpoint_id = {LATEST} WHERE thread_id = 'b' AND parent_checkpoint_id IS NULL"
    ),
}


@pytest.mark.parametrize("statement", LOOPS.values(), ids=LOOPS)
def test_a_parent_that_is_a_descendant_is_taken_as_it_is(database, path, tmp_path, statement):
    execute(database, statement)
    for copied in (9, 0):
        report = move(f"sqlite:{database}", path)
        assert (report.left_out, report.copied) == ((), copied)
    assert in_store(path, "b") == in_database(database, "b")
    assert move(path, f"sqlite:{tmp_path / 'back.db'}").left_out == ()
    assert in_database(tmp_path / "back.db", "b") == in_database(database, "b")
