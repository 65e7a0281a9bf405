"""A cache of model calls. Each key is a thread with one value."""

from __future__ import annotations

from threading import Lock
from typing import Any, TypeVar, cast

from autogen_core import CacheStore, Component
from pydantic import BaseModel

import statelog
from statelog.adapters.kit.lives import write
from statelog.adapters.kit.ordered import Json, read_value
from statelog.adapters.kit.thread_ids import thread_id

__all__ = ["StatelogCacheConfig", "StatelogCacheStore"]

T = TypeVar("T")

_VALUE = "value"


class StatelogCacheConfig(BaseModel):
    """The configuration that re-creates a cache: the path of its file."""

    path: str


class StatelogCacheStore(CacheStore[T], Component[StatelogCacheConfig]):
    """A `CacheStore` of AutoGen. When `set` returns, the value is on the disk and visible to all processes.

    Pydantic models are returned as dicts and lists, from which `ChatCompletionCache` builds them again. AutoGen calls
    a cache in its event loop, so a `set` blocks the loop during its commit.

    Args:
        store: an open store.
    """

    component_provider_override = "statelog.adapters.autogen.StatelogCacheStore"
    component_config_schema = StatelogCacheConfig

    def __init__(self, store: statelog.Store) -> None:
        self.store = store

    def get(self, key: str, default: T | None = None) -> T | None:
        """Return the value of `key` as a new object, or `default`."""
        state = self.store.thread(_thread_of(key)).state
        return cast("T", read_value(state, _VALUE)) if _VALUE in state else default

    def set(self, key: str, value: T) -> None:
        """Set the value of a key in one commit.

        Raises:
            ValueTypeError: the value is neither JSON nor a pydantic model. Nothing was written.
        """
        kept = Json.of(value, default=_dumped)
        write(self.store, _thread_of(key), None, lambda thread: thread.commit({_VALUE: kept}))

    def _to_config(self) -> StatelogCacheConfig:
        return StatelogCacheConfig(path=str(self.store.path))

    @classmethod
    def _from_config(cls, config: StatelogCacheConfig) -> StatelogCacheStore[Any]:
        return cls(_opened.store_at(config.path))


class _Opened:
    """Opens the stores that configurations name by path, each once. They stay open until the process ends."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._stores: dict[str, statelog.Store] = {}

    def store_at(self, path: str) -> statelog.Store:
        with self._lock:
            found = self._stores.get(path)
            if found is None or found.closed:
                found = self._stores[path] = statelog.open(path)
            return found


_opened = _Opened()


def _thread_of(key: str) -> str:
    return thread_id("autogen", "cache", key)


def _dumped(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    message = f"a value of type {type(value).__qualname__} cannot be stored as JSON"
    raise TypeError(message)
