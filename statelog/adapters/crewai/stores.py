"""Opens the stores that CrewAI names by path, each once in a process."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import statelog
from statelog.storage.registry import real_path

if TYPE_CHECKING:
    from statelog import Store

__all__ = ["store_at"]

_lock = Lock()
_stores: dict[tuple[int, str], Store] = {}


def store_at(path: str | os.PathLike[str]) -> Store:
    """Return the open store at `path`. A missing file is created. The store stays open until the process ends."""
    key = os.getpid(), str(real_path(Path(path).expanduser()))
    with _lock:
        store = _stores.get(key)
        if store is None or store.closed:
            Path(key[1]).parent.mkdir(parents=True, exist_ok=True)
            store = _stores[key] = statelog.open(key[1])
        return store
