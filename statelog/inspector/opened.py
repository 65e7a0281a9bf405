"""The store that an inspector shows, and its fleet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from statelog.store.store import Store


@dataclass(frozen=True, slots=True)
class Inspected:
    """An open store, shared by all screens and requests."""

    store: Store
    is_stopping: Callable[[], bool] = lambda: False
    """Returns True when the server is about to stop. Then streams end."""
    ask_fleet: Callable[[], dict[str, Any]] | None = None
    """Requests `state`, `owner`, `epoch` and `shipped_lsn` from the fleet's storage; None if the storage is unknown."""

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self.store.path

    @property
    def allow_writes(self) -> bool:
        """Whether screens may change the store."""
        return not self.store.read_only
