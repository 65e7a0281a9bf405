"""Put our persistence and our provider into the places of CrewAI's, in its own tests."""

import tempfile
from pathlib import Path

import crewai.flow.persistence
import crewai.flow.persistence.sqlite
import crewai.state
import crewai.state.provider.sqlite_provider as provider
from counting import counted

from statelog.adapters.crewai import StatelogCheckpointProvider, StatelogFlowPersistence

_made = StatelogFlowPersistence.__init__


def made(self, db_path=None, /, **fields):
    """Take what SQLiteFlowPersistence takes; a database of the tests stays as it is."""
    path = Path(db_path or fields.pop("db_path", None) or Path(tempfile.gettempdir()) / "default.state")
    if path.exists() and path.read_bytes()[:6] == b"SQLite":
        path = path.with_name(f"{path.name}.state")
    _made(self, path, **fields)


StatelogFlowPersistence.__init__ = made
StatelogFlowPersistence.db_path = property(lambda self: self.path)
counted(StatelogFlowPersistence, "save_state", "load_state", "save_pending_feedback", "load_pending_feedback")
counted(StatelogCheckpointProvider, "checkpoint", "from_checkpoint")
for where in (crewai.flow.persistence, crewai.flow.persistence.sqlite):
    where.SQLiteFlowPersistence = StatelogFlowPersistence
for where in (crewai.state, provider):
    where.SqliteProvider = StatelogCheckpointProvider
