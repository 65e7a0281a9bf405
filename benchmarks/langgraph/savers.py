"""The compared savers, how they are opened, and helpers for the measurements."""

from __future__ import annotations

import os
import uuid
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from statelog.adapters.langgraph import StatelogSaver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver, ChannelVersions, Checkpoint

OURS = "StatelogSaver"
SQLITE = "SqliteSaver"
ASYNC_SQLITE = "AsyncSqliteSaver"
MEMORY = "InMemorySaver"
POSTGRES = "PostgresSaver"

_SUFFIXES = {OURS: ".state", SQLITE: ".sqlite", ASYNC_SQLITE: ".sqlite"}

POSTGRES_URL = "STATELOG_BENCH_POSTGRES"
"""The environment variable with the URL of a server. If it is set, PostgresSaver is also compared."""


@dataclass(slots=True)
class SaverPeer:
    """A saver, and the ids of the threads that it created."""

    name: str
    saver: BaseCheckpointSaver[str]
    thread_ids: list[str] = field(default_factory=list)

    def new_config(self) -> RunnableConfig:
        """Return the config of a new thread."""
        self.thread_ids.append(f"bench-{uuid.uuid4()}")
        return {"configurable": {"thread_id": self.thread_ids[-1], "checkpoint_ns": ""}}


@contextmanager
def opened(name: str, directory: Path, of_what: str) -> Iterator[SaverPeer]:
    """Open a saver on a file, which is created if necessary. InMemorySaver has no file. PostgresSaver has a server.

    Args:
        name: the name of the saver in this module.
        directory: the folder of the file.
        of_what: the name of the file.
    """
    path = directory / f"{of_what}{_SUFFIXES.get(name, '')}"
    if name == OURS:
        with StatelogSaver.open(path) as ours:
            yield SaverPeer(name, ours)
    elif name == SQLITE:
        with SqliteSaver.from_conn_string(str(path)) as sqlite:
            yield SaverPeer(name, sqlite)
    elif name == MEMORY:
        yield SaverPeer(name, InMemorySaver())
    else:
        from langgraph.checkpoint.postgres import PostgresSaver

        with PostgresSaver.from_conn_string(os.environ[POSTGRES_URL]) as postgres:
            postgres.setup()
            peer = SaverPeer(name, postgres)
            try:
                yield peer
            finally:
                for thread_id in peer.thread_ids:
                    postgres.delete_thread(thread_id)


@asynccontextmanager
async def opened_async(name: str, directory: Path, of_what: str) -> AsyncIterator[BaseCheckpointSaver[str]]:
    """Open a saver for coroutines: StatelogSaver, or AsyncSqliteSaver for any other name."""
    path = directory / f"{of_what}{_SUFFIXES[name]}"
    if name == OURS:
        with StatelogSaver.open(path) as ours:
            yield ours
    else:
        async with AsyncSqliteSaver.from_conn_string(str(path)) as sqlite:
            yield sqlite


def file_size_bytes(name: str, directory: Path, of_what: str) -> int | None:
    """Return the size of a closed file, or None for savers without a file."""
    path = directory / f"{of_what}{_SUFFIXES.get(name, '')}"
    return path.stat().st_size if path.is_file() else None


def names(*, with_memory: bool = False) -> list[str]:
    """Return the names of the compared savers, statelog's first."""
    postgres = [POSTGRES] if os.environ.get(POSTGRES_URL) else []
    return [OURS, SQLITE, *([MEMORY] if with_memory else []), *postgres]


def next_checkpoint(
    saver: BaseCheckpointSaver[str], last: Checkpoint, changed: dict[str, Any]
) -> tuple[Checkpoint, ChannelVersions]:
    """Return the checkpoint that a graph would create after `last`, and its new channel versions."""
    newest: Any = max(last["channel_versions"].values(), default=None)
    versions: ChannelVersions = dict.fromkeys(changed, saver.get_next_version(newest, None))
    checkpoint: Checkpoint = {
        **last,
        "id": str(uuid6()),
        "channel_values": last["channel_values"] | changed,
        "channel_versions": last["channel_versions"] | versions,
        "updated_channels": sorted(changed),
    }
    return checkpoint, versions
