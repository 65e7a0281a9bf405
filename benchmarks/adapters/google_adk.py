"""Compares `StatelogSessionService` with ADK's DatabaseSessionService (on SQLite) and SqliteSessionService."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.database_session_service import DatabaseSessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from benchmarks.adapters.measurement import Stopwatch, text
from benchmarks.result import Result
from statelog.adapters.google_adk import StatelogSessionService

if TYPE_CHECKING:
    from google.adk.sessions.base_session_service import BaseSessionService

    from benchmarks.result import TargetCheck
    from benchmarks.workload import Bench

EVENTS = 1000
EVENT_SIZE_BYTES = 500
LATE = 50
SESSIONS = 200
DATABASE, SQLITE, OURS = "DatabaseSessionService", "SqliteSessionService", "statelog"
HERE = {"app_name": "app", "user_id": "user", "session_id": "s"}


def measure(bench: Bench) -> Result:
    """Measure a long session, and a list of sessions."""
    bench.directory.mkdir(parents=True, exist_ok=True)
    return Result(tuple(asyncio.run(_measure(bench))), ())


def _event(number: int) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=text(EVENT_SIZE_BYTES, number))])
    actions = EventActions(state_delta={"n": number})
    return Event(invocation_id="i", author="user", timestamp=1e9 + number, content=content, actions=actions)


async def _measure(bench: Bench) -> list[TargetCheck]:
    folder, clock = bench.directory, Stopwatch()
    ours = StatelogSessionService.open(folder / "agent.state")
    database = DatabaseSessionService(f"sqlite+aiosqlite:///{folder}/database.db")
    sides: dict[str, BaseSessionService] = {
        DATABASE: database,
        SQLITE: SqliteSessionService(str(folder / "sqlite.db")),
        OURS: ours,
    }
    count, listed = bench.size(EVENTS, at_least=2 * LATE), bench.size(SESSIONS, at_least=10)
    sessions = {name: await side.create_session(**HERE) for name, side in sides.items()}
    for number in range(count):
        late = " late" if number >= count - LATE else ""
        for name, side in sides.items():
            event = _event(number)
            with clock(name + " append" + late):
                await side.append_event(sessions[name], event)
    for _ in range(5 * bench.repeats):
        for name, side in sides.items():
            with clock(name + " get"):
                await side.get_session(**HERE)
    for _ in range(listed):
        for side in sides.values():
            await side.create_session(app_name="app", user_id="listed", state={"k": 1})
    for _ in range(3 * bench.repeats):
        for name, side in sides.items():
            with clock(name + " list"):
                await side.list_sessions(app_name="app", user_id="listed")
    await database.close()
    await ours.close()
    targets = {
        f"append_event at {count}": (" append late", 0.3, 0.5),
        f"get_session of {count} events": (" get", 0.8, 1.0),
        f"list_sessions of {listed}": (" list", 1.0, 1.5),
    }
    return [
        clock.check(f"ADK: {what}, relative to {peer}", OURS + which, peer + which, target)
        for what, (which, of_database, of_sqlite) in targets.items()
        for peer, target in ((DATABASE, of_database), (SQLITE, of_sqlite))
    ]
