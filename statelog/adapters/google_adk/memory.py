"""ADK's memory on a store, with the keyword search of ADK's in-memory service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.adk.events.event import Event
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.in_memory_memory_service import InMemoryMemoryService

import statelog
from statelog import reducers
from statelog.adapters.kit import lives
from statelog.adapters.kit.ordered import Json, read_list
from statelog.adapters.kit.thread_ids import thread_id
from statelog.aio.bridge import run
from statelog.schema import Schema

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from typing import Self

    from google.adk.sessions.session import Session

    from statelog import Store

PREFIX = "adk-memory"
EVENTS, SESSIONS, DELETED = "events", "sessions", "deleted"
SCHEMA = Schema.of({EVENTS: reducers.extend, SESSIONS: reducers.extend, DELETED: reducers.merge})
"""The channels of a user's memory. `sessions` lists session ids in order of arrival. A search keeps this order among
memories that share equally many words with the query."""
_NO_SESSION = "__unknown_session_id__"


class StatelogMemoryService(BaseMemoryService):
    """ADK's memory service on a store. It finds a user's events by the words that they share with a query.

    A search works as in ADK's InMemoryMemoryService: it returns at most ten memories, those with the most shared words
    first. It reads all events of the user, and caches them until they change.

    Args:
        store: an open store. The caller closes it. `StatelogMemoryService.open(path)` opens a store itself.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._known: dict[str, tuple[int, InMemoryMemoryService]] = {}
        """The LSN of the head, and the search service, of each cached thread."""

    @classmethod
    def open(cls, path: str | os.PathLike[str], **options: Any) -> Self:
        """Open a store for this service. Options are as for `statelog.open`."""
        return cls(statelog.open(path, **options))

    async def add_session_to_memory(self, session: Session) -> None:
        """Store the events of a session. They replace the session's events that were stored earlier."""
        await run(self._keep, session.app_name, session.user_id, session.id, session.events, is_whole=True)

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Store events. Events that exist already or were deleted are skipped."""
        await run(self._keep, app_name, user_id, session_id or _NO_SESSION, events, is_whole=False)

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """Return the memories that share the most words with a query."""
        memory = await self._searched(app_name, user_id)
        return await memory.search_memory(app_name=app_name, user_id=user_id, query=query)

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Delete an event from memory. Adding its session again does not restore the event."""
        if memory_id:
            await run(self._delete, thread_id(PREFIX, app_name, user_id), memory_id)

    def _keep(self, app_name: str, user_id: str, session_id: str, events: Sequence[Event], *, is_whole: bool) -> None:
        encoded = {
            each.id: Json.of({"session": session_id, "event": each.model_dump(mode="json", exclude_none=True)})
            for each in events
            if each.content and each.content.parts
        }

        def keep(state: Any) -> None:
            held, deleted = state[EVENTS], state.get(DELETED, {})
            if session_id not in state[SESSIONS]:
                state[SESSIONS].append(session_id)
            there = set()
            for at in range(len(held) - 1, -1, -1):
                found = held[at].value
                if found["session"] != session_id:
                    continue
                if is_whole and encoded.get(found["event"]["id"]) != held[at]:
                    del held[at]
                else:
                    there.add(found["event"]["id"])
            held.extend(text for id, text in encoded.items() if id not in there and id not in deleted)

        lives.write(
            self.store, thread_id(PREFIX, app_name, user_id), SCHEMA, lambda thread: thread.edit(keep, lazy=True)
        )

    def _delete(self, id: str, memory_id: str) -> None:
        def delete(state: Any) -> None:
            held = state[EVENTS]
            found = [at for at in range(len(held)) if held[at].value["event"]["id"] == memory_id]
            for at in reversed(found):
                del held[at]
            if found:
                state[DELETED][memory_id] = True

        lives.write(self.store, id, SCHEMA, lambda thread: thread.edit(delete, lazy=True))
        lives.forget(self.store, id)

    async def _searched(self, app_name: str, user_id: str) -> InMemoryMemoryService:
        id = thread_id(PREFIX, app_name, user_id)
        version, found = await run(self._read, id)
        if isinstance(found, InMemoryMemoryService):
            return found
        memory = InMemoryMemoryService()
        for session_id, events in found.items():
            await memory.add_events_to_memory(app_name=app_name, user_id=user_id, events=events, session_id=session_id)
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[id] = version, memory
        return memory

    def _read(self, id: str) -> tuple[int, InMemoryMemoryService | dict[str, list[Event]]]:
        """Return the LSN of a user's memory, and either the cached search service or the events keyed by session."""
        head = self.store.thread(id, schema=SCHEMA).head
        if head is None:
            return -1, {}
        known = self._known.get(id)
        if known is not None and known[0] == head.lsn:
            return known
        by_session: dict[str, list[Event]] = {session: [] for session in head.state[SESSIONS]}
        for kept in read_list(head.state, EVENTS):
            by_session[kept["session"]].append(Event.model_validate(kept["event"]))
        return head.lsn, by_session


_KNOWN_MAX = 64
"""The maximum number of users whose search service is cached."""
