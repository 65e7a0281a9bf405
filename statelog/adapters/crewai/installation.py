"""Makes a store CrewAI's default for flows and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crewai.flow.persistence.factory import set_flow_persistence_factory
from crewai.memory.storage.factory import set_memory_storage_factory

from statelog.adapters.crewai.flows import StatelogFlowPersistence
from statelog.adapters.crewai.memory import StatelogMemoryStorage

if TYPE_CHECKING:
    import os

    from statelog import Store

SCHEME = "statelog:"


def install(store: Store | str | os.PathLike[str]) -> None:
    """Make a store CrewAI's default in this process, with CrewAI's public setters.

    Flows without an explicit persistence save their states in the store. `Memory(storage="statelog:NAME")` also uses
    the store; other names select CrewAI's own storages. Checkpoints have no default: pass a
    `StatelogCheckpointProvider` to `CheckpointConfig`.

    Args:
        store: an open store, or a path.
    """
    set_flow_persistence_factory(lambda: StatelogFlowPersistence(store))

    def memory(spec: str) -> StatelogMemoryStorage | None:
        return StatelogMemoryStorage(store, name=spec.removeprefix(SCHEME)) if spec.startswith(SCHEME) else None

    set_memory_storage_factory(memory)
