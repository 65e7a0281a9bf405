"""Common to all imports: no partial copies, nothing is overwritten, and databases are only read."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from threading import Thread

import pytest

import statelog
from statelog.adapters.kit.databases import copied
from statelog.adapters.kit.migration import copy_once, move, reading
from statelog.errors import ConflictError, FormatError


@pytest.fixture
def store(tmp_path):
    with statelog.open(tmp_path / "s") as opened:
        yield opened
        assert opened.verify().ok


def held(within):
    head = within.thread("t").head
    return None if head is None else head.state["x"]


def writing(value):
    return lambda tx: tx.thread("t").commit({"x": value}, expected_version=-1)


def test_a_thread_is_copied_only_once(store):
    for is_new in (True, False):
        assert copy_once(store, "it", 1, held=held, write=writing(1)) is is_new
    assert store.thread("t").version == 0


def test_a_copy_that_differs_is_not_stored(store):
    with pytest.raises(FormatError, match="the copy of it is not equal"):
        copy_once(store, "it", 1, held=held, write=writing(2))
    assert store.thread("t").version < 0


def test_existing_values_are_not_overwritten(store):
    store.thread("t").commit({"x": "mine"})
    with pytest.raises(ConflictError, match="a different it"):
        copy_once(store, "it", 1, held=held, write=writing(1))
    assert store.thread("t").state["x"] == "mine"


def test_concurrent_writes_are_not_overwritten(store):
    def write(tx):
        writing(1)(tx)
        other = Thread(target=store.thread("t").commit, args=({"x": "mine"},))
        other.start()
        other.join()

    with pytest.raises(ConflictError):
        copy_once(store, "it", 1, held=held, write=write)
    assert store.thread("t").state["x"] == "mine"


def test_a_deleted_thread_can_be_imported_again(store):
    store.thread("t").commit({"x": "old"})
    store.delete_thread("t")

    def write(tx):
        tx.thread("t", recreate=True).commit({"x": 1})

    assert copy_once(store, "it", 1, held=held, write=write)


def test_a_failed_thread_is_named_and_the_others_are_copied(store):
    class Source:
        unit = "thing"
        remarks = ()

        def names(self):
            return ["a", "b", "c"]

        def copy(self, name, _store):
            with reading(name):
                return {"a": True, "c": False}[name]

    report = move(Source(), store)
    assert (report.unit, report.found, report.copied) == ("thing", 3, 1)
    assert [(left.name, type(left.error)) for left in report.left_out] == [("b", FormatError)]


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "a b%3F#.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE t (x INTEGER)")
        connection.execute("INSERT INTO t VALUES (1)")
    return path


def test_writes_to_the_copy_do_not_change_the_database(database):
    before = database.read_bytes()
    with copied(database, "things", "t") as copy:
        with closing(sqlite3.connect(copy.path)) as connection, connection:
            connection.execute("INSERT INTO t VALUES (2)")
        assert list(copy.rows("SELECT x FROM t WHERE x < ?", "9")) == [(1,), (2,)]
    assert database.read_bytes() == before
    assert not copy.path.exists()


def test_the_copy_has_commits_of_other_connections(database):
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("INSERT INTO t VALUES (2)")
        connection.commit()  # Still in the write-ahead log.
        connection.execute("INSERT INTO t VALUES (3)")
        with copied(database, "things", "t") as copy:
            assert list(copy.rows("SELECT x FROM t")) == [(1,), (2,)]


def test_a_database_without_the_tables_is_refused(database):
    with (
        pytest.raises(FormatError, match="is not a database of things: no table u"),
        copied(database, "things", "t", "u"),
    ):
        pass
