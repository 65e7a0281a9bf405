"""LangGraph's `BaseCache` on statelog: results of nodes, kept in one file."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from langgraph.cache.base import BaseCache, ValueT

from statelog import Encoded
from statelog.adapters.kit.notes import note
from statelog.adapters.langgraph.memory.items.arguments import (
    check_cached_namespace,
    check_entry,
    check_full_key,
    check_several,
    check_stored,
    ttl_us,
)
from statelog.adapters.langgraph.memory.state_thread import ThreadHolder
from statelog.adapters.langgraph.values.codec import ValueCodec
from statelog.adapters.langgraph.values.names import CACHE_THREAD_ID
from statelog.errors import UsageError
from statelog.guard.packed_texts import holds_hidden
from statelog.store.session import session_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from langgraph.cache.base import FullKey, Namespace
    from langgraph.checkpoint.serde.base import SerializerProtocol

    import statelog
    from statelog.adapters.langgraph.memory.items.changes import State

_SWEPT_WITH_SETS = 64
"""The number of expired entries that each `set` deletes, so that unused entries do not fill a cache."""


class _Entry(NamedTuple):
    encoding: str
    data: bytes
    number: int = 0
    expires_us: int | None = None


class StatelogCache(ThreadHolder, BaseCache[ValueT]):
    """A cache for LangGraph in a statelog store. OS threads, tasks and processes may share it.

    `set` and `clear` are one commit each. A time to live is in seconds. An expired entry is never returned. Later
    calls of `set` delete the expired entries, some at a time.

    The channels of the thread: `entries` (namespace -> key -> [encoding, bytes] or [encoding, bytes, number, expires]),
    `expiring` (expires and number in hexadecimal -> [namespace, key]) and `last` (the last number). A namespace is the
    JSON of its labels, which may be any strings; `expires` is microseconds since 1970 UTC.
    """

    _THREAD_ID = CACHE_THREAD_ID

    def __init__(
        self,
        store: statelog.Store,
        *,
        serde: SerializerProtocol | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Keep entries in an open store, which the caller closes.

        Args:
            store: the statelog store. Several objects may share it.
            serde: the serialiser. The default is LangGraph's, without pickle.
            clock: returns seconds since 1970 UTC.
        """
        super().__init__(serde=serde)
        self._hold(store, clock)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        serde: SerializerProtocol | None = None,
        clock: Callable[[], float] = time.time,
        **options: Any,
    ) -> Self:
        """Open a store file, which is closed with this object. Options and errors are as for `statelog.open`."""
        return cls._open(path, options, lambda store: cls(store, serde=serde, clock=clock))

    # --- the cache ------------------------------------------------------------------

    def get(self, keys: Sequence[FullKey]) -> dict[FullKey, ValueT]:
        """Return the values that exist, keyed by (namespace, key).

        Raises:
            Exception: the serialiser cannot read an entry, for example one encrypted with a different key. A
                note names the entry.
        """
        found: dict[FullKey, _Entry] = {}
        check_several("keys", keys)
        if not keys:
            return {}
        now_us = self._now_us()
        with self._store.snapshot() as snapshot:
            entries = snapshot.thread(CACHE_THREAD_ID).state.lazy.get("entries", {})
            for full_key in keys:
                check_full_key(full_key)
                namespace, key = full_key
                row = entries.get(_text(namespace), {}).get(key)
                if row is not None:
                    entry = _Entry(*row)
                    if entry.expires_us is None or now_us < entry.expires_us:
                        found[tuple(namespace), key] = entry
        return {full_key: self._load(full_key, entry) for full_key, entry in found.items()}

    def _codec(self) -> ValueCodec:
        return ValueCodec(self.serde, session_of(self._store).owner.guard)

    def _load(self, full_key: FullKey, entry: _Entry) -> ValueT:
        try:
            value: ValueT = self._codec().load(entry.encoding, entry.data)
        except Exception as error:
            namespace, key = full_key
            note(
                error,
                f"raised by the serialiser for entry {key!r} of namespace {namespace!r}: set it again or clear it",
            )
            raise
        return value

    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, ValueT]:
        """Return the same as `get`, without blocking the event loop."""
        return await self._pool.run(self.get, keys)

    def set(self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]) -> None:
        """Set values, each with its time to live in seconds. None keeps a value until it is deleted.

        Raises:
            ValueError: a time to live is invalid. statelog.UsageError: an argument has the wrong type.
            statelog.ValueTypeError: the serialiser refuses a value; the message names the entry.
        """
        if not isinstance(pairs, Mapping):
            message = f"pairs must be a dict from full keys to pairs of a value and a time to live, not {pairs!r}"
            raise UsageError(message, argument="pairs", value=pairs)
        if not pairs:
            return
        now_us, codec = self._now_us(), self._codec()
        hidden: list[tuple[str, str]] = []
        rows: dict[tuple[str, str], tuple[str, Encoded, int | None]] = {}
        for full_key, entry in pairs.items():
            check_full_key(full_key)
            check_entry(entry)
            (namespace, key), (value, ttl) = full_key, entry
            expires_in_us = ttl_us(ttl, "seconds")
            text = _text(namespace)
            check_stored(text, key, "entry")
            path = f"{'.'.join(namespace)}.{key}"
            encoding, data = codec.dump(value, path)
            if holds_hidden(data):  # A value with a hidden text is not cached, so it is computed again.
                hidden.append((text, key))
                continue
            item = Encoded(data, path=path)
            rows[text, key] = encoding, item, None if expires_in_us is None else now_us + expires_in_us

        def change(state: State) -> None:
            for namespace, key in hidden:
                _forget(state, namespace, key)
            for (namespace, key), row in rows.items():
                _forget(state, namespace, key)
                _put(state, namespace, key, *row)
            _sweep(state, now_us)

        self._edit(change)

    async def aset(self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]) -> None:
        """Set values like `set`, without blocking the event loop."""
        await self._pool.run(self.set, pairs)

    def clear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """Delete the entries of the given namespaces, or all entries."""
        check_several("namespaces", () if namespaces is None else namespaces)
        for namespace in namespaces or ():
            check_cached_namespace(namespace)
        chosen = None if namespaces is None else [_text(namespace) for namespace in namespaces]

        def change(state: State) -> None:
            if chosen is None:
                for channel in ("entries", "expiring"):
                    state.pop(channel, None)
                return
            for namespace in chosen:
                for key in list(state.get("entries", {}).get(namespace, ())):
                    _forget(state, namespace, key)

        self._edit(change)

    async def aclear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """Delete entries like `clear`, without blocking the event loop."""
        await self._pool.run(self.clear, namespaces)


def _text(namespace: Sequence[str]) -> str:
    return json.dumps(list(namespace), ensure_ascii=False)


def _expiring_key(expires_us: int, number: int) -> str:
    return f"{expires_us:016x}{number:012x}"


def _put(state: State, namespace: str, key: str, encoding: str, data: Encoded, expires_us: int | None) -> None:
    entries = state.setdefault("entries", {})
    if namespace not in entries:
        entries[namespace] = {}
    if expires_us is None:
        entries[namespace][key] = [encoding, data]
        return
    number = state["last"] = state.get("last", 0) + 1
    entries[namespace][key] = [encoding, data, number, expires_us]
    state.setdefault("expiring", {})[_expiring_key(expires_us, number)] = [namespace, key]


def _forget(state: State, namespace: str, key: str) -> None:
    """Delete an entry if it exists, and its namespace if the namespace becomes empty."""
    entries = state.get("entries", {})
    row = entries.get(namespace, {}).get(key)
    if row is None:
        return
    if len(row) > 2:
        del state["expiring"][_expiring_key(row[3], row[2])]
    del entries[namespace][key]
    if not entries[namespace]:
        del entries[namespace]


def _sweep(state: State, now_us: int) -> None:
    expiring = state.get("expiring")
    if not expiring:
        return
    bound = f"{now_us:016x}"
    due: list[tuple[str, str]] = []
    for at in expiring:
        if at[:16] > bound or len(due) == _SWEPT_WITH_SETS:
            break
        namespace, key = expiring[at]
        due.append((namespace, key))
    for namespace, key in due:
        _forget(state, namespace, key)
