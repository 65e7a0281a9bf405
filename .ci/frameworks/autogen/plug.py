"""Run AutoGen's tests of its cache with the adapter in place of `InMemoryStore`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TypeVar

import autogen_core
import autogen_core._cache_store as module
from counting import counted

import statelog
from statelog.adapters.autogen import StatelogCacheStore

counted(StatelogCacheStore, "get", "set")


T = TypeVar("T")


class SuiteStore(StatelogCacheStore[T]):
    """Of the suite: a store of its own, as it makes caches without any argument."""

    component_provider_override = "plug.SuiteStore"

    def __init__(self, store: statelog.Store | None = None) -> None:
        super().__init__(store or statelog.open(Path(tempfile.mkdtemp()) / "agent.state", durability="interval"))


autogen_core.InMemoryStore = module.InMemoryStore = SuiteStore
