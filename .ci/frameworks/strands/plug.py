"""Put our storage into the place of InMemoryStorage, in the framework's own tests."""

import tempfile
from pathlib import Path

import strands.storage
import strands.storage.in_memory_storage as module
from counting import counted

import statelog
from statelog.adapters.strands import StatelogStorage


class InMemoryStorage(StatelogStorage):
    """Of the same name: some tests look at that."""

    _ephemeral = getattr(module.InMemoryStorage, "_ephemeral", None)

    def __init__(self):
        super().__init__(statelog.open(Path(tempfile.mkdtemp()) / "memory.state", durability="interval"))


counted(StatelogStorage, "write", "read", "delete", "list")
strands.storage.InMemoryStorage = module.InMemoryStorage = InMemoryStorage
