"""Put our saver and our store of items into the fixtures of LangGraph's own tests.

The fixtures differ in what they open: a saver that flushes each commit, one that does not, one that encrypts.
"""
# ruff: noqa: SLF001 - the fixtures are private functions

import tempfile
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import tests.conftest_checkpointer as savers
import tests.conftest_store as stores
from counting import counted
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from statelog.adapters.langgraph import StatelogSaver, StatelogStore

counted(StatelogSaver, "put", "put_writes", "get_tuple", "list")
counted(StatelogStore, "batch", "abatch")


def opening(kind, **options):
    """Return a function that opens a saver or a store in a new folder, as a context manager."""

    @contextmanager
    def opened():
        with tempfile.TemporaryDirectory() as folder, kind.open(Path(folder) / "agent.state", **options) as made:
            if kind is StatelogSaver and "serde" not in options:
                savers._apply_strict_msgpack(made)
            yield made

    return opened


def awaited(opened):
    """Return the same as an asynchronous context manager."""

    @asynccontextmanager
    async def entered():
        with opened() as made:
            yield made

    return entered


flushed, unflushed = opening(StatelogSaver), opening(StatelogSaver, durability="interval")
encrypted = opening(StatelogSaver, serde=EncryptedSerializer.from_pycryptodome_aes(key=b"1234567890123456"))
savers._checkpointer_memory = unflushed
savers._checkpointer_sqlite = flushed
savers._checkpointer_sqlite_aes = encrypted
savers._checkpointer_sqlite_aio = awaited(flushed)
for each in ("", "_pipe", "_pool"):
    setattr(savers, f"_checkpointer_postgres{each}", unflushed)
    setattr(savers, f"_checkpointer_postgres_aio{each}", awaited(unflushed))
stores._store_memory = opening(StatelogStore, durability="interval")
