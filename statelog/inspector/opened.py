"""The store that an inspector shows, and what it has been told of the store's fleet."""

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
    """Returns True once the server is about to end: streams end then."""
    ask_fleet: Callable[[], dict[str, Any]] | None = None
    """Asks the storage of the fleet for `state`, `owner`, `epoch` and `shipped_lsn`; None if it is not known."""

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self.store.path

    @property
    def allow_writes(self) -> bool:
        """Whether screens may change the store."""
        return not self.store.read_only
