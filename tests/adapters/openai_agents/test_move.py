"""`statelog import-sessions openai:...`: every session, its branches as branches, and the database as it was."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from contextlib import closing

import pytest

pytest.importorskip("agents")

from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession

import statelog
from statelog.adapters.kit.migration import move
from statelog.adapters.openai_agents import StatelogSession
from statelog.adapters.openai_agents.move import opened
from statelog.cli import main
from statelog.errors import ConflictError, FormatError


def said(text):
    return [{"role": "user", "content": text}, {"content": f"answer to {text}", "role": "assistant"}]


@pytest.fixture
def database(tmp_path):
    """Of SQLiteSession, with three sessions."""
    path = tmp_path / "conversations.db"

    async def fill():
        for name in ("a", "é/b", "x" * 600):
            session = SQLiteSession(name, path)
            for turn in range(3):
                await session.add_items(said(f"{name} {turn}"))
            session.close()

    asyncio.run(fill())
    return path


def items_of(store, name, branch=None):
    return asyncio.run(StatelogSession(name, store).get_items(branch_id=branch))


def test_sessions_are_copied_and_a_second_move_copies_none(tmp_path, database):
    before = hashlib.sha256(database.read_bytes()).digest()
    with statelog.open(tmp_path / "s") as store:
        for copied in (3, 0):
            with opened(database) as source:
                report = move(source, store)
            assert (report.found, report.copied, report.left_out) == (3, copied, ())
        for name in ("a", "é/b", "x" * 600):
            assert items_of(store, name) == [item for turn in range(3) for item in said(f"{name} {turn}")]
        turns = asyncio.run(StatelogSession("a", store).get_conversation_turns())
        assert [turn["content"] for turn in turns] == ["a 0", "a 1", "a 2"]
        assert store.verify().ok
    assert hashlib.sha256(database.read_bytes()).digest() == before


def test_branches_come_as_branches(tmp_path):
    path = tmp_path / "advanced.db"

    async def fill():
        session = AdvancedSQLiteSession(session_id="s", db_path=path, create_tables=True)
        for turn in range(3):
            await session.add_items(said(str(turn)))
        await session.create_branch_from_turn(2, "b")
        await session.add_items(said("other"))
        session.close()

    asyncio.run(fill())
    with statelog.open(tmp_path / "s") as store:
        with opened(path) as source:
            assert move(source, store).copied == 1
        assert items_of(store, "s") == [*said("0"), *said("1"), *said("2")]
        assert items_of(store, "s", "b") == [*said("0"), *said("other")]
        branches = asyncio.run(StatelogSession("s", store).list_branches())
        assert [(each["branch_id"], each["user_turns"]) for each in branches] == [("main", 3), ("b", 2)]


def test_another_session_of_that_name_is_left_alone_and_all_others_are_copied(tmp_path, database):
    with statelog.open(tmp_path / "s") as store:
        asyncio.run(StatelogSession("a", store).add_items(said("mine")))
        with opened(database) as source:
            report = move(source, store)
        assert report.copied == 2
        [left] = report.left_out
        assert (left.name, type(left.error)) == ("a", ConflictError)
        assert items_of(store, "a") == said("mine")


@pytest.mark.parametrize("content", [b"", b"no database at all, of whatever kind" * 50])
def test_a_foreign_file_is_told(tmp_path, content):
    path = tmp_path / "foreign"
    path.write_bytes(content)
    with pytest.raises(FormatError, match="is not a database of the SDK's sessions"), opened(path):
        pass
    assert path.read_bytes() == content


def test_the_command_reports_what_it_copied(tmp_path, database, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["import-sessions", f"openai:{database}", str(tmp_path / "s")])
    assert ended.value.code == 0
    assert "3 sessions, read back and equal" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(SystemExit) as ended:
        main(["import-sessions", f"openai:{tmp_path / 'none.db'}", str(tmp_path / "s")])
    assert ended.value.code != 0
    assert "does not exist" in capsys.readouterr().err


def test_a_session_with_an_item_that_is_not_json_is_left_out(tmp_path, capsys):
    path = tmp_path / "c.db"

    async def talk():
        for name in ("good", "bad"):
            session = SQLiteSession(name, path)
            await session.add_items([{"role": "user", "content": str(n)} for n in range(3)])
            session.close()

    asyncio.run(talk())
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE agent_messages SET message_data = '{' WHERE session_id = 'bad' AND id % 3 = 0")
        database.commit()
    with pytest.raises(SystemExit) as ended:
        main(["import-sessions", f"openai:{path}", str(tmp_path / "s")])
    assert ended.value.code
    said = "".join(capsys.readouterr())
    assert "'bad'" in said
    assert "cannot be read" in said
    with statelog.open(tmp_path / "s") as store:
        assert [info.id for info in store.threads()] == ["openai:good"]
