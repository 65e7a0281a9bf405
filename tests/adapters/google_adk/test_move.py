"""`statelog import-sessions adk:...`: sessions are copied as ADK reads them."""

from __future__ import annotations

import asyncio
import math
import sqlite3

import pytest

pytest.importorskip("google.adk", exc_type=ImportError)

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.database_session_service import DatabaseSessionService
from google.adk.sessions.schemas.v0 import Base
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types
from sqlalchemy import create_engine

import statelog
from statelog.adapters.google_adk import StatelogSessionService
from statelog.adapters.google_adk.move import opened
from statelog.adapters.kit.migration import move
from statelog.cli import main
from statelog.errors import ConflictError, FormatError


def make_with_first_schema(path):
    """Create a database with the schema from before events were JSON.

    DatabaseSessionService still reads and writes it.
    """
    if not path.exists():
        engine = create_engine(f"sqlite:///{path}")
        Base.metadata.create_all(engine)
        engine.dispose()
    return DatabaseSessionService(f"sqlite+aiosqlite:///{path}")


MAKE = {
    "first schema": make_with_first_schema,
    "sqlite": lambda path: SqliteSessionService(str(path)),
    "database": lambda path: DatabaseSessionService(f"sqlite+aiosqlite:///{path}"),
}
KEYS = [("shop", "ann", "a"), ("shop", "ann", "é/b"), ("shop", "bob", "a"), ("desk", "ann", "a")]
HERE = dict(zip(("app_name", "user_id", "session_id"), KEYS[0], strict=True))
NAMES = ["desk/ann/a", "shop/ann/a", "shop/ann/é%2Fb", "shop/bob/a"]


def event(number, text):
    delta = {"step": number, "nested": {"z": 0.1 + 0.2, "a": [None]}, "user:seen": text, "app:last": 1}
    content = types.Content(
        role="user", parts=[types.Part(text=text), types.Part.from_bytes(data=b"\xff", mime_type="a/b")]
    )
    return Event(
        id=f"e{number}",
        author="user",
        timestamp=1.7e9 + number,
        content=content,
        actions=EventActions(state_delta=delta),
    )


async def fill(service):
    for app, user, id in KEYS:
        session = await service.create_session(
            app_name=app, user_id=user, session_id=id, state={"first": id, "step": 0}
        )
        for number in range(3):
            await service.append_event(session, event(number, f"for {user}"))
    await service.create_session(app_name="idle", user_id="eve", session_id="gone", state={"user:k": 1, "app:k": 2})
    await service.delete_session(app_name="idle", user_id="eve", session_id="gone")
    await service.close()


async def read(service):
    keys = [dict(zip(HERE, key, strict=True)) for key in KEYS]
    sessions = [await service.get_session(**key) for key in keys]
    listed = await service.list_sessions(app_name="shop", user_id="ann")
    await service.close()
    return [each.model_dump() for each in (*sessions, *listed.sessions)]


@pytest.fixture(params=MAKE)
def make(request):
    return MAKE[request.param]


@pytest.fixture
def database(tmp_path, make):
    asyncio.run(fill(make(tmp_path / "adk.db")))
    return tmp_path / "adk.db"


@pytest.fixture
def store(tmp_path):
    with statelog.open(tmp_path / "agent.state") as opened_store:
        yield opened_store
        assert opened_store.verify().ok


def moved(database, store):
    with opened(database) as source:
        return move(source, store)


def test_sessions_are_copied_and_a_second_move_copies_none(database, make, store):
    before = database.read_bytes()
    for copied in (5, 0):
        report = moved(database, store)
        assert (report.found, report.copied, report.left_out) == (5, copied, ())
    assert database.read_bytes() == before
    theirs, ours = asyncio.run(read(make(database))), asyncio.run(read(StatelogSessionService(store)))
    assert ours == theirs


def test_the_state_of_a_user_without_a_session_is_copied(database, store):
    moved(database, store)

    async def begin():
        return await StatelogSessionService(store).create_session(app_name="idle", user_id="eve")

    assert asyncio.run(begin()).state == {"user:k": 1, "app:k": 2}


def test_a_fork_can_begin_at_the_version_of_an_event(database, store):
    moved(database, store)
    service = StatelogSessionService(store)
    forked = asyncio.run(service.fork_session(**HERE, at="e1", new_session_id="fork"))
    assert ([each.id for each in forked.events], forked.state["step"]) == (["e0", "e1"], 1)
    assert forked.state["first"] == "a"


def test_an_event_can_be_appended_to_copied_events(database, store):
    moved(database, store)
    service = StatelogSessionService(store)

    async def go_on():
        await service.append_event(await service.get_session(**HERE), event(9, "more"))
        return await service.get_session(**HERE)

    assert [each.id for each in asyncio.run(go_on()).events] == ["e0", "e1", "e2", "e9"]


def test_a_different_session_with_the_same_name_is_kept_and_all_others_are_copied(database, store):
    service = StatelogSessionService(store)
    asyncio.run(service.create_session(**HERE, state={"mine": 1}))
    report = moved(database, store)
    assert report.copied == 4
    [left] = report.left_out
    assert (left.name, type(left.error)) == ("shop/ann/a", ConflictError)
    assert asyncio.run(service.get_session(**HERE)).events == []


def test_a_different_state_of_the_app_is_not_overwritten(database, store):
    service = StatelogSessionService(store)
    asyncio.run(service.create_session(app_name="shop", user_id="me", session_id="s", state={"app:last": "mine"}))
    report = moved(database, store)
    assert [(left.name, type(left.error)) for left in report.left_out] == [(name, ConflictError) for name in NAMES[1:]]
    assert asyncio.run(service.get_session(app_name="shop", user_id="me", session_id="s")).state == {"app:last": "mine"}
    assert asyncio.run(service.get_session(**HERE)) is None


def test_an_interrupted_move_continues(database, store):
    with opened(database) as source:
        for name in source.names()[:2]:
            assert source.copy(name, store)
    report = moved(database, store)
    assert (report.found, report.copied, report.left_out) == (5, 3, ())


@pytest.mark.parametrize("damage", ["{", '{"step": 1', "[1]", math.pi])
def test_a_damaged_session_is_left_out_and_named(database, store, damage):
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE sessions SET state = ? WHERE app_name = 'desk'", [damage])
    report = moved(database, store)
    assert [(left.name, type(left.error)) for left in report.left_out] == [("desk/ann/a", FormatError)]
    assert report.copied == 4


def test_a_copy_that_differs_is_not_written(database, store):
    """JSON has no NaN, but ADK's databases can have it."""
    with sqlite3.connect(database) as connection:
        connection.execute("""UPDATE sessions SET state = '{"a": NaN}' WHERE app_name = 'desk'""")
    report = moved(database, store)
    assert [left.name for left in report.left_out] == ["desk/ann/a"]
    assert not [info.id for info in store.threads() if info.id.startswith("adk:desk")]


@pytest.mark.parametrize("content", [b"", b"no database at all, of whatever kind" * 50])
def test_a_foreign_file_is_refused(tmp_path, content):
    path = tmp_path / "foreign"
    path.write_bytes(content)
    with pytest.raises(FormatError, match="foreign is not a database of ADK's sessions"), opened(path):
        pass
    assert path.read_bytes() == content


def test_the_command_reports_the_number_of_copies(tmp_path, database, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["import-sessions", f"adk:{database}", str(tmp_path / "s")])
    assert ended.value.code == 0
    assert "5 sessions, read back and equal" in " ".join(capsys.readouterr().out.split())
