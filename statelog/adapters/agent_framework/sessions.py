"""Snapshots of sessions. Each session is stored as a thread, and each snapshot as a version."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from agent_framework import AgentSession, SessionStore

from statelog.adapters.kit.lives import gone
from statelog.adapters.kit.ordered import Json
from statelog.adapters.kit.parts import cut, join, put
from statelog.adapters.kit.thread_ids import thread_id
from statelog.aio.bridge import run

if TYPE_CHECKING:
    from statelog import Store

__all__ = ["StatelogSessionStore"]

with warnings.catch_warnings():
    # Subclassing an experimental class emits a warning, which users who import only checkpoints should not see.
    warnings.simplefilter("ignore")

    class StatelogSessionStore(SessionStore):
        """A `SessionStore` of Agent Framework. `get` returns the session that was `set` last.

        Earlier snapshots stay as versions of the thread.

        If two processes set one session, the later write wins, as in the framework's own stores.

        Args:
            store: an open store.
        """

        def __init__(self, store: Store) -> None:
            super().__init__()
            self.store = store

        async def get(self, session_id: str) -> AgentSession | None:
            """Return the session as a new object, or None. Raises ValueError if the id is empty or not a str."""
            thread = self._thread_of(session_id)
            kept = await run(lambda: join(self.store.thread(thread).state))
            return None if kept is None else AgentSession.from_dict(kept)

        async def set(self, session_id: str, session: AgentSession) -> None:
            """Store a snapshot of a session in one commit.

            Raises:
                ValueError: the id is empty or not a str.
                TypeError: the session is an instance of a subclass of AgentSession, which `get` could not re-create.
                ValueTypeError: the state has a value that is not JSON. Nothing was written.
            """
            thread = self._thread_of(session_id)
            if type(session) is not AgentSession:
                message = f"a session must be an AgentSession, not {type(session).__name__}"
                raise TypeError(message)
            channels = cut(Json.of(session.to_dict()).value)  # Copy the session: it may change before the commit.
            await run(put, self.store, thread, channels)

        async def delete(self, session_id: str) -> None:
            """Delete a session with all its snapshots. Raises ValueError if the id is empty or not a str."""
            await run(gone, self.store, self._thread_of(session_id))

        def _thread_of(self, session_id: str) -> str:
            self.validate_session_id(session_id)
            return thread_id("agent-framework", "session", session_id)
