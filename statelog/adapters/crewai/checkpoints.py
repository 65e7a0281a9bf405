"""Checkpoints of crews. Each of CrewAI's branches is stored as a thread, and each checkpoint as a version."""

from __future__ import annotations

import sys
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crewai.state.provider import utils
from crewai.state.provider.sqlite_provider import SqliteProvider

from statelog import reducers
from statelog.adapters.crewai.stores import store_at
from statelog.adapters.kit import lives
from statelog.adapters.kit.directory import Directory
from statelog.adapters.kit.thread_ids import thread_id
from statelog.aio.bridge import run
from statelog.errors import NotFoundError
from statelog.schema import Schema

if TYPE_CHECKING:
    from statelog import Checkpoint, Thread
    from statelog.store.transaction import Transaction

PREFIX = "crewai-checkpoints"
PIECES = "pieces"
_SCHEMA = Schema.of({PIECES: reducers.replace})
_CUTS = ("},{", "}, {")
"""Separators at which a checkpoint's JSON may be cut, written without or with a space. Equal pieces are stored once."""


class StatelogCheckpointProvider(SqliteProvider):
    """CrewAI's checkpoints in a store, for `CheckpointConfig(location="agent.state", provider=...)`.

    CrewAI's configuration accepts only a fixed set of providers and their subclasses, so this is a subclass.
    """

    def checkpoint(self, data: str, location: str, *, parent_id: str | None = None, branch: str = "main") -> str:
        """Store a checkpoint and return its location: the store's path, `#` and its id."""
        id = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}_{uuid.uuid4().hex[:8]}"
        change = {PIECES: _cut(data)}
        metadata = {} if parent_id is None else {"parent": parent_id}

        def commit(thread: Any) -> None:
            thread.commit(change, id=id, metadata=metadata)

        def keep(tx: Transaction) -> None:
            lives.write(tx, thread_id(PREFIX, branch), _SCHEMA, commit)
            _DIRECTORY.put(tx, {id: branch})

        lives.transact(store_at(location), keep)
        return f"{location}#{id}"

    async def acheckpoint(self, data: str, location: str, *, parent_id: str | None = None, branch: str = "main") -> str:
        """Store a checkpoint like `checkpoint`."""
        return await run(self.checkpoint, data, location, parent_id=parent_id, branch=branch)

    def prune(self, location: str, max_keep: int, *, branch: str = "main") -> int:
        """Remove a branch's oldest checkpoints until `max_keep` are left. Return the number of removed checkpoints.

        The version of the last checkpoint always stays in the store.
        """
        store = store_at(location)
        thread = store.thread(thread_id(PREFIX, branch), schema=_SCHEMA)
        ids = [id for id, of_branch in _DIRECTORY.all(store).items() if of_branch == branch]
        gone = ids[: max(len(ids) - max_keep, 0)]
        if gone:
            store.expire(found for id in gone if (found := _find(thread, id)))
            _DIRECTORY.remove(store, *gone)  # Remove the ids last, so that an interrupted `prune` can be repeated.
        return len(gone)

    def from_checkpoint(self, location: str) -> str:
        """Return the data of a checkpoint unchanged. Raises ValueError if the checkpoint does not exist."""
        path, _, id = location.rpartition("#")
        store = store_at(path)
        branch = _DIRECTORY.get(store, id)
        found = None if branch is None else _find(store.thread(thread_id(PREFIX, branch)), id)
        if found is not None:
            pieces: list[str] = found.state[PIECES].to_python()
            return pieces[0].join(pieces[1:])
        message = f"Checkpoint not found: {id}"
        raise ValueError(message)

    async def afrom_checkpoint(self, location: str) -> str:
        """Return the data of a checkpoint like `from_checkpoint`."""
        return await run(self.from_checkpoint, location)


def _detect(path: str) -> Any:
    """Return the provider for a location. CrewAI chooses it by the file's contents, not by CrewAI's configuration."""
    place, is_ours = path.rpartition("#")[0], False
    with suppress(OSError), Path(place).open("rb") as file:
        is_ours = file.read(len(_STORE_BEGINS)).endswith(_STORE_BEGINS[-4:])
    return StatelogCheckpointProvider() if is_ours else _detect_of_crewai(path)


_STORE_BEGINS = bytes(16) + (0xBEEFC0DE).to_bytes(4, sys.byteorder)
"""The beginning of a store file: a page header and LMDB's magic number."""

_detect_of_crewai = utils.detect_provider
utils.detect_provider = _detect


def _find(thread: Thread[Any, Any], id: str) -> Checkpoint[Any] | None:
    """Return the version with the id `id`, or None if it was removed."""
    with suppress(NotFoundError):
        return thread.at(id)
    return None


_DIRECTORY = Directory(thread_id(f"{PREFIX}-ids"))


def _cut(data: str) -> list[str]:
    """Return the separator of `_CUTS` that occurs more often in `data`, and then the pieces between its occurrences."""
    mark = max(_CUTS, key=data.count)
    return [mark, *data.split(mark)]
