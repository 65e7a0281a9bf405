"""Databases that threads are moved from and to: other files are refused, and sources are never written."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

pytest.importorskip("langgraph", reason="needs the extra langgraph")
pytest.importorskip("langgraph.checkpoint.sqlite", reason="needs langgraph-checkpoint-sqlite")

from commands import run_here
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

from statelog.adapters.langgraph import StatelogSaver


def execute(database, *statements):
    with closing(sqlite3.connect(database)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def run(*arguments, prefix=()):
    if not prefix:
        return run_here(*arguments)
    command = [*prefix, sys.executable, "-m", "statelog", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def import_into(path, database, prefix=()):
    return run("import-langgraph", f"sqlite:{database}", path, prefix=prefix)


@pytest.fixture
def database(tmp_path):
    """A database with one checkpoint and the writes of two tasks."""
    directory = tmp_path / "source"
    directory.mkdir()
    with SqliteSaver.from_conn_string(str(directory / "checkpoints.db")) as saver:
        at = saver.put({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, empty_checkpoint(), {"step": 1}, {})
        saver.put_writes(at, [("x", 2)], "b")
        saver.put_writes(at, [("x", 1)], "a")
    return directory / "checkpoints.db"


def told(path):
    with StatelogSaver.open(path) as saver:
        found = saver.get_tuple({"configurable": {"thread_id": "t"}})
    return found.metadata, found.pending_writes


WHOLE = ({"step": 1}, [("a", "x", 1), ("b", "x", 2)])


COLUMNS = "thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata"
OTHERS = {
    "of one column": ("CREATE TABLE checkpoints (name)", "CREATE TABLE writes (name)"),
    "writes of others": (
        f"CREATE TABLE checkpoints ({COLUMNS})",
        "CREATE TABLE writes (thread_id, who)",
    ),
    "one alone": ("CREATE TABLE checkpoints (epoch, loss)",),
    "other names": ("CREATE TABLE users (name)",),
}


@pytest.mark.parametrize("statements", OTHERS.values(), ids=OTHERS)
def test_foreign_tables_are_not_read_as_checkpoints(tmp_path, path, statements):
    database = tmp_path / "others.db"
    execute(database, *statements)
    before = database.read_bytes()
    answer = import_into(path, database)
    assert (answer.returncode, answer.stdout, answer.stderr.count("\n")) == (6, "", 1)
    assert f"{database} contains no LangGraph checkpoints" in answer.stderr
    assert database.read_bytes() == before
    assert not path.exists()


def test_an_import_writes_nothing_beside_foreign_tables(database, path, tmp_path):
    assert import_into(path, database).returncode == 0
    others = tmp_path / "others.db"
    execute(others, "CREATE TABLE checkpoints (epoch, loss)")
    before = others.read_bytes()
    answer = run("export-langgraph", path, f"sqlite:{others}")
    assert (answer.returncode, answer.stdout, answer.stderr.count("\n")) == (6, "", 1)
    assert "its table checkpoints has no column checkpoint" in answer.stderr
    assert others.read_bytes() == before


def test_an_export_adds_its_tables_to_a_foreign_database(database, path, tmp_path):
    assert import_into(path, database).returncode == 0
    others = tmp_path / "others.db"
    execute(others, "CREATE TABLE users (name)")
    assert run("export-langgraph", path, f"sqlite:{others}").returncode == 0
    with SqliteSaver.from_conn_string(str(others)) as saver:
        assert [each.metadata for each in saver.list(None)] == [{"step": 1}]


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_an_export_gives_a_new_database_the_mode_of_the_store(database, path, tmp_path, mode):
    assert import_into(path, database).returncode == 0
    path.chmod(mode)
    assert run("export-langgraph", path, f"sqlite:{tmp_path / 'new.db'}").returncode == 0
    assert (tmp_path / "new.db").stat().st_mode & 0o777 == mode


def test_a_database_without_a_write_ahead_log_can_be_read(database, path):
    execute(database, "PRAGMA journal_mode = DELETE")
    before = database.read_bytes()
    assert import_into(path, database).returncode == 0
    assert (database.read_bytes(), told(path)) == (before, WHOLE)


def test_a_database_from_before_task_paths_can_be_read(database, path):
    execute(database, "ALTER TABLE writes DROP COLUMN task_path")
    before = database.read_bytes()
    assert import_into(path, database).returncode == 0
    assert (database.read_bytes(), told(path)) == (before, WHOLE)


@pytest.fixture
def unprivileged():
    """The beginning of a command that obeys file permissions even as root."""
    if os.geteuid():
        return ()
    if shutil.which("setpriv") is None:
        pytest.skip("root ignores file permissions, and the command setpriv, which would drop that right, is missing")
    return "setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_a_read_only_database_can_be_read(database, path, unprivileged, mode):
    execute(database, f"PRAGMA journal_mode = {mode}")
    database.chmod(0o444)
    database.parent.chmod(0o555)
    answer = import_into(path, database, unprivileged)
    database.parent.chmod(0o755)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert [each.name for each in database.parent.iterdir()] == [database.name]
    assert told(path) == WHOLE
