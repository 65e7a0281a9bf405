#!/usr/bin/env bash
# Google ADK: the session services order the events of one session by different rules.
#
# Versions: google-adk 2.13.0, sqlalchemy 2.1.9, aiosqlite 0.22.1, Python 3.11.
#
# Three events are appended to a session, with timestamps as two hosts with clocks a second apart
# would give. InMemorySessionService keeps the order of the calls. DatabaseSessionService and
# SqliteSessionService sort by timestamp. All three apply the state of the events in the order of
# the calls, so the database services hold a state that no replay of their events gives: the last
# event says "closed", and the state says "open". A session that is loaded with
# num_recent_events=1 holds a different event.
#
# We expected append_event to append in each service, as it does in memory. A test in memory does
# not show the order in which a model reads the conversation in production.
#
# Output seen:
#   InMemorySessionService ['new', 'closed', 'open'], recent ['open'], state open
#   DatabaseSessionService ['new', 'open', 'closed'], recent ['closed'], state open
#   SqliteSessionService ['new', 'open', 'closed'], recent ['closed'], state open
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q google-adk==2.13.0 sqlalchemy==2.1.9 aiosqlite==0.22.1 greenlet==3.5.6
cat > "$folder/probe.py" <<'PY'
import asyncio
import sys
import warnings

warnings.simplefilter("ignore")

from google.adk.events import Event, EventActions  # noqa: E402
from google.adk.sessions import DatabaseSessionService, InMemorySessionService  # noqa: E402
from google.adk.sessions.base_session_service import GetSessionConfig  # noqa: E402
from google.adk.sessions.sqlite_session_service import SqliteSessionService  # noqa: E402

SESSION = {"app_name": "desk", "user_id": "ann", "session_id": "ticket"}
EVENTS = [("new", 1000.0), ("closed", 1002.0), ("open", 1001.0)]


async def outcome(service):
    await service.create_session(**SESSION)
    for status, timestamp in EVENTS:
        session = await service.get_session(**SESSION)
        event = Event(author="desk", timestamp=timestamp, actions=EventActions(state_delta={"status": status}))
        await service.append_event(session, event)
    everything = await service.get_session(**SESSION)
    recent = await service.get_session(**SESSION, config=GetSessionConfig(num_recent_events=1))
    orders = [[event.actions.state_delta["status"] for event in each.events] for each in (everything, recent)]
    return [*orders, everything.state["status"]]


async def main(folder):
    services = [
        InMemorySessionService(),
        DatabaseSessionService(db_url=f"sqlite+aiosqlite:///{folder}/database.db"),
        SqliteSessionService(db_path=f"{folder}/sqlite.db"),
    ]
    seen = []
    for service in services:
        seen.append(await outcome(service))
        everything, recent, state = seen[-1]
        print(f"{type(service).__name__} {everything}, recent {recent}, state {state}")
    return seen


called = [["new", "closed", "open"], ["open"], "open"]
timed = [["new", "open", "closed"], ["closed"], "open"]
sys.exit(asyncio.run(main(sys.argv[1])) != [called, timed, timed])
PY
"$folder/venv/bin/python" "$folder/probe.py" "$folder"
