"""Put our session into the place of SQLiteSession, in the SDK's own tests."""

import os
import tempfile
from pathlib import Path

import agents
import agents.memory.sqlite_session
from counting import counted

import statelog
from statelog.adapters.openai_agents import StatelogSession

SQLITE = b"SQLite"
_stores = {}
_made = StatelogSession.__init__


def store_at(path):
    """Return the store of a path that the tests name: ":memory:" is one of its own, a database stays as it is."""
    if str(path) == ":memory:":
        path = Path(tempfile.mkdtemp()) / "memory.state"
    path = Path(path).expanduser()
    if path.exists() and path.read_bytes()[:6] == SQLITE:
        path = path.with_name(f"{path.name}.state")
    key = (os.getpid(), path.resolve())
    if key not in _stores:
        _stores[key] = statelog.open(path, durability="interval")
    return _stores[key]


def made(self, session_id, db_path=":memory:", sessions_table="", messages_table="", session_settings=None):
    """Take what SQLiteSession takes."""
    _made(self, session_id, store_at(db_path), session_settings=session_settings)
    self.db_path = db_path


StatelogSession.__init__ = made
counted(StatelogSession, "get_items", "add_items", "pop_item", "clear_session", "_get_compaction_snapshot")
for where in (agents, agents.memory, agents.memory.sqlite_session):
    where.SQLiteSession = StatelogSession
