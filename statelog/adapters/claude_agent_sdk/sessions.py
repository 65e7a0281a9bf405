"""Transcripts of the Claude Agent SDK. Each is a thread. One commit writes a batch of entries and the summary."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from claude_agent_sdk import fold_session_summary
from claude_agent_sdk.types import SessionStore

import statelog
from statelog import reducers
from statelog.adapters.kit import lives
from statelog.adapters.kit.ordered import Json, join_list, of_all, read_list
from statelog.adapters.kit.thread_ids import map_key, thread_id
from statelog.aio.bridge import run
from statelog.errors import ConflictError
from statelog.schema import Schema

if TYPE_CHECKING:
    import os
    from typing import Self

    from claude_agent_sdk.types import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )

    from statelog import Checkpoint, Store, Thread
    from statelog.store.threads import Threads
    from statelog.store.transaction import Transaction
    from statelog.store.views import MapView

PREFIX = "claude"
ENTRIES, UUIDS = "entries", "uuids"
_TRANSCRIPT = Schema.of({ENTRIES: reducers.extend, UUIDS: reducers.merge})
MTIMES, SUMMARIES, SUBPATHS, LONG = "mtimes", "summaries", "subpaths", "long"
_PROJECT = Schema.of(dict.fromkeys((MTIMES, SUMMARIES, SUBPATHS, LONG), reducers.merge))
"""The channels of a project's thread. They map a session's key (see `map_key`) to the time of its last change, its
summary, the subpaths of its other transcripts, and its id if the id differs from the key."""


class StatelogSessionStore(SessionStore):
    """The SDK's `SessionStore`: `ClaudeAgentOptions(session_store=StatelogSessionStore(store))`.

    One commit writes a batch of entries, the session's summary, and its data in the project's lists. Entries whose uuid
    is already stored are skipped, so a batch can be appended again. The store works under asyncio and trio.

    Args:
        store: an open store. The caller closes it. `StatelogSessionStore.open(path)` opens a store itself.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    @classmethod
    def open(cls, path: str | os.PathLike[str], **options: Any) -> Self:
        """Open a store for this object. Options are as for `statelog.open`."""
        return cls(statelog.open(path, **options))

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Append entries to a transcript. If an entry is not JSON, raise ValueTypeError and append nothing."""
        if entries:
            await run(self._append, key, list(entries), of_all(entries))

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return the entries of a transcript, or None."""

        def read() -> list[SessionStoreEntry] | None:
            head = self.store.thread(thread_of(key), schema=_TRANSCRIPT).head
            return None if head is None else read_list(head.state, ENTRIES)

        return await run(read)

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the ids of a project's sessions and the times of their last change in milliseconds."""

        def read() -> list[SessionStoreListEntry]:
            state = self._project(project_key)
            long = state.get(LONG, {})
            return [{"session_id": long.get(key, key), "mtime": at} for key, at in state.get(MTIMES, {}).items()]

        return await run(read)

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the summaries of a project's sessions."""

        def read() -> list[SessionSummaryEntry]:
            return [kept.value for kept in self._project(project_key).get(SUMMARIES, {}).values()]

        return await run(read)

    async def delete(self, key: SessionKey) -> None:
        """Delete a session with all its transcripts, or the transcript at a subpath. Both can be created again."""
        await run(self._delete, key)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of a session's other transcripts."""

        def read() -> list[str]:
            state = self._project(key["project_key"])
            return list(state.get(SUBPATHS, {}).get(map_key(key["session_id"]), {}).values())

        return await run(read)

    # ----------------------------------------------------------------------------------

    def _project(self, project_key: str) -> MapView:
        return self.store.thread(thread_id(PREFIX, project_key), schema=_PROJECT).state

    def _append(self, key: SessionKey, entries: list[SessionStoreEntry], encoded: list[Json]) -> None:
        lives.transact(self.store, partial(add_entries, key, entries, encoded))

    def _delete(self, key: SessionKey) -> None:
        project = thread_id(PREFIX, key["project_key"])
        while True:
            head = self.store.thread(project, schema=_PROJECT).head
            with suppress(ConflictError):  # Another process may have changed the project: retry.
                self._delete_at(head, project, key)
                return

    def _delete_at(self, head: Checkpoint[Any] | None, project: str, key: SessionKey) -> None:
        """Delete the transcripts of `key`, and their data in the project's lists.

        Raises:
            ConflictError: `head` is not the project's head.
        """
        subpath, name = key.get("subpath"), map_key(key["session_id"])
        subpaths = [] if head is None else head.state.get(SUBPATHS, {}).get(name, {}).values()

        def forget(state: Any) -> None:
            if subpath:
                if map_key(subpath) in state[SUBPATHS].get(name, {}):
                    del state[SUBPATHS][name][map_key(subpath)]
                return
            for channel in (MTIMES, SUMMARIES, SUBPATHS, LONG):
                if name in state[channel]:
                    del state[channel][name]

        def edit(thread: Thread[Any, Any]) -> None:
            thread.edit(forget, lazy=True, expected_version=-1 if head is None else head)

        keys: list[SessionKey] = [key] if subpath else [key, *({**key, "subpath": each} for each in subpaths)]

        def delete(tx: Transaction) -> None:
            if head is not None:
                lives.write(tx, project, _PROJECT, edit)
            for each in keys:
                lives.gone(tx, thread_of(each))

        lives.transact(self.store, delete)


def add_entries(key: SessionKey, entries: list[SessionStoreEntry], encoded: list[Json], tx: Transaction) -> None:
    """Append the entries that a transcript lacks. Update the session's summary and its data in the project's lists."""
    new: list[SessionStoreEntry] = []
    session, subpath = key["session_id"], key.get("subpath")
    name = map_key(session)

    def show(state: Any) -> None:
        if not new:
            return
        if name != session:
            state[LONG][name] = session
        if subpath:
            if name not in state[SUBPATHS]:
                state[SUBPATHS][name] = {}
            state[SUBPATHS][name][map_key(subpath)] = subpath
            return
        mtime = state[MTIMES][name] = max(time.time_ns() // 1_000_000, state[MTIMES].get(name, 0) + 1)
        before = state[SUMMARIES].get(name)
        folded = fold_session_summary(None if before is None else before.value, key, new)
        state[SUMMARIES][name] = Json.of({**folded, "mtime": mtime})

    add = partial(_add, entries, encoded, new)
    lives.write(tx, thread_of(key), _TRANSCRIPT, lambda thread: thread.edit(add, lazy=True))
    project = thread_id(PREFIX, key["project_key"])
    lives.write(tx, project, _PROJECT, lambda thread: thread.edit(show, lazy=True))


def read_transcripts(within: Threads, key: SessionKey) -> dict[str, str]:
    """Return the transcripts of a session as JSON arrays, by subpath. The session's own transcript is ""."""
    project = within.thread(thread_id(PREFIX, key["project_key"]), schema=_PROJECT).state
    subpaths = project.get(SUBPATHS, {}).get(map_key(key["session_id"]), {}).values()
    heads = {
        each: within.thread(thread_of({**key, "subpath": each}), schema=_TRANSCRIPT).head for each in ("", *subpaths)
    }
    return {each: join_list(head.state, ENTRIES) for each, head in heads.items() if head is not None}


def thread_of(key: SessionKey) -> str:
    """Return the id of a transcript's thread."""
    subpath = key.get("subpath")
    names = (key["project_key"], key["session_id"])
    return thread_id(PREFIX, *names, subpath) if subpath else thread_id(PREFIX, *names)


def _add(entries: list[SessionStoreEntry], encoded: list[Json], new: list[SessionStoreEntry], state: Any) -> None:
    """Append the entries whose uuid the transcript lacks, and set `new` to these entries."""
    new[:] = []
    uuids, kept = state[UUIDS], []
    for entry, text in zip(entries, encoded, strict=True):
        uuid = entry.get("uuid")
        if isinstance(uuid, str):
            if map_key(uuid) in uuids:
                continue
            uuids[map_key(uuid)] = True
        new.append(entry)
        kept.append(text)
    state[ENTRIES].extend(kept)
