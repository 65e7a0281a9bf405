"""Run a suite of Agent Framework with the adapter in place of `InMemoryCheckpointStorage`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import agent_framework
import agent_framework._workflows as workflows
import agent_framework._workflows._checkpoint as checkpoints
from counting import counted

import statelog
from statelog.adapters.agent_framework import StatelogCheckpointStorage, StatelogHistoryProvider, StatelogSessionStore

counted(StatelogCheckpointStorage, "save", "load", "list_checkpoints", "get_latest", "delete")
counted(StatelogHistoryProvider, "get_messages", "save_messages")
counted(StatelogSessionStore, "get", "set", "delete")


class SuiteStorage(StatelogCheckpointStorage):
    """Of the suite: a store of its own, as it makes storages without any argument."""

    def __init__(self) -> None:
        super().__init__(statelog.open(Path(tempfile.mkdtemp()) / "agent.state", durability="interval"))


for module in (agent_framework, checkpoints, workflows):
    module.InMemoryCheckpointStorage = SuiteStorage
