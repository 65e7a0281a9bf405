"""Checkpoints of crews: a branch of them is a thread, a checkpoint a version of it."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from crewai.state.provider.sqlite_provider import SqliteProvider

from statelog import reducers
from statelog.adapters.crewai.stores import store_at
from statelog.adapters.kit import lives
from statelog.adapters.kit.directory import Directory
from statelog.adapters.kit.naming import thread_id
from statelog.adapters.kit.running import run
from statelog.errors import CheckpointNotFoundError, ExpiredError
from statelog.schema import Schema

PREFIX = "crewai-checkpoints"
PIECES = "pieces"
_SCHEMA = Schema.of({PIECES: reducers.replace})
_CUTS = ("},{", "}, {")
"""Where items of a list meet, without spaces and with them. Pieces that are equal are stored once."""


class StatelogCheckpointProvider(SqliteProvider):
    """CrewAI's checkpoints in a store, for `CheckpointConfig(location="agent.state", provider=...)`.

    CrewAI's configuration takes a fixed set of providers, and classes derived from them: so this one is.
    """

    def checkpoint(self, data: str, location: str, *, parent_id: str | None = None, branch: str = "main") -> str:
        """Keep a checkpoint, and return where it is: the store's path, `#`, and its id."""
        id = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}_{uuid.uuid4().hex[:8]}"
        change = {PIECES: _cut(data)}
        metadata = {} if parent_id is None else {"parent": parent_id}

        def commit(thread: Any) -> None:
            thread.commit(change, id=id, metadata=metadata)

        with store_at(location).transaction() as tx:
            lives.write(tx, thread_id(PREFIX, branch), _SCHEMA, commit)
            _DIRECTORY.put(tx, {id: branch})
        return f"{location}#{id}"

    async def acheckpoint(self, data: str, location: str, *, parent_id: str | None = None, branch: str = "main") -> str:
        """Do what `checkpoint` does."""
        return await run(self.checkpoint, data, location, parent_id=parent_id, branch=branch)

    def prune(self, location: str, max_keep: int, *, branch: str = "main") -> int:
        """Let go of the oldest checkpoints of a branch; return how many. The last one always stays in the file."""
        store = store_at(location)
        thread = store.thread(thread_id(PREFIX, branch), schema=_SCHEMA)
        ids = [id for id, of_branch in _DIRECTORY.all(store).items() if of_branch == branch]
        gone = ids[: max(len(ids) - max_keep, 0)]
        if gone:
            _DIRECTORY.remove(store, *gone)
            store.expire([thread.at(id) for id in gone])
        return len(gone)

    def from_checkpoint(self, location: str) -> str:
        """Return the data of a checkpoint, as it was. Raises ValueError: there is none of that id."""
        path, _, id = location.rpartition("#")
        store = store_at(path)
        branch = _DIRECTORY.get(store, id)
        try:
            if branch is not None:
                pieces: list[str] = store.thread(thread_id(PREFIX, branch)).at(id).state[PIECES].to_python()
                return pieces[0].join(pieces[1:])
        except (CheckpointNotFoundError, ExpiredError):
            pass
        message = f"Checkpoint not found: {id}"
        raise ValueError(message)

    async def afrom_checkpoint(self, location: str) -> str:
        """Do what `from_checkpoint` does."""
        return await run(self.from_checkpoint, location)


_DIRECTORY = Directory(thread_id(f"{PREFIX}-ids"))


def _cut(data: str) -> list[str]:
    """Return what the pieces are joined with, and the pieces."""
    mark = max(_CUTS, key=data.count)
    return [mark, *data.split(mark)]
