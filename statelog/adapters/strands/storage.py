"""Strands' storage on a store. A snapshot is a version of its folder's thread. Other data is stored as bytes by key."""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from strands.storage.storage import Storage, _NamespacedStorage, _normalize_key, _normalize_prefix
from strands.types.exceptions import StorageError

import statelog
from statelog import reducers
from statelog.adapters.kit import lives
from statelog.adapters.kit.pieces import Pieces
from statelog.adapters.kit.thread_ids import map_key, thread_id
from statelog.aio.bridge import run
from statelog.errors import (
    CheckpointNotFoundError,
    ConflictError,
    ExpiredError,
    NotFoundError,
    StatelogError,
    ThreadNotFoundError,
)
from statelog.schema import Schema

if TYPE_CHECKING:
    import builtins
    import os
    from collections.abc import Callable, Iterator
    from typing import Self

    from statelog import Checkpoint, Store, Thread
    from statelog.store.threads import Threads
    from statelog.store.transaction import Transaction

PREFIX = "strands"
INDEX = "strands-keys"
KEYS, LONG = "keys", "long"
_INDEX = Schema.of({KEYS: reducers.merge, LONG: reducers.merge})
"""The channels of the index. `keys` maps a key to its bytes, or to the id of a version in its folder's thread. `long`
has the full keys that differ from their `map_key`."""
_SNAPSHOT = re.compile(r"(.*/snapshots)/(?:snapshot_latest|immutable_history/.+)\.json$")


class StatelogStorage(Storage):
    """The framework's `Storage` on a store: `SnapshotSessionManager(storage=StatelogStorage(store))`.

    Bytes are read back unchanged. A snapshot is a version that stores only its changes. A write is one commit: if the
    process is killed, either the old or the new value remains.

    Args:
        store: an open store. The caller closes it. `StatelogStorage.open(path)` opens a store itself.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._pieces = Pieces()
        self._index: Thread[Any, Any] | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str], **options: Any) -> Self:
        """Open a store for this storage. Options are as for `statelog.open`."""
        return cls(statelog.open(path, **options))

    def namespace(self, prefix: str) -> Any:
        """Return a view of this storage that adds a prefix to all keys."""
        return _NamespacedStorage(self, prefix)

    async def write(self, key: str, data: bytes) -> None:
        """Store bytes under a key. Raises StorageError if the key is not valid or the store fails."""
        await self._run(self._write, _normalize_key(key), bytes(data))

    async def read(self, key: str) -> bytes | None:
        """Return the bytes of a key, or None. Raises StorageError."""
        name = _normalize_key(key)
        with _storage_errors():
            found = self._remembered(name)
        if found is None:
            found = await self._run(self._read, name)
        return found

    async def delete(self, key: str) -> None:
        """Delete a key with its bytes. For a snapshot, also delete data that only it has. Raises StorageError."""
        await self._run(self._delete, _normalize_key(key))

    async def list(self, query: str = "") -> builtins.list[str]:
        """Return the keys that begin with `query`, sorted. Raises StorageError."""
        prefix = _normalize_prefix(query)

        def read() -> builtins.list[str]:
            return sorted(name for name in pointers(self.store) if name.startswith(prefix))

        found: builtins.list[str] = await self._run(read)
        return found

    # ----------------------------------------------------------------------------------

    async def _run(self, function: Callable[..., Any], /, *args: Any) -> Any:
        with _storage_errors():
            return await run(function, *args)

    def _write(self, key: str, data: bytes) -> None:
        thread = thread_of(key)
        if thread is None:
            point(self.store, key, data)
        else:
            self._pieces.write(self.store, thread, data, lambda tx, version: point(tx, key, version))

    def _remembered(self, key: str) -> bytes | None:
        """Return the bytes of a snapshot if it is cached and still the last snapshot in its folder, or None."""
        if self._index is None:
            self._index = self.store.thread(INDEX, schema=_INDEX)
        try:
            kept = self._index.state.get(KEYS, {}).get(map_key(key))
        except NotFoundError:  # The index was deleted: the next write re-creates it.
            self._index = None
            return None
        thread = thread_of(key) if isinstance(kept, str) else None
        return None if thread is None else self._pieces.remembered(thread, kept)

    def _read(self, key: str) -> bytes | None:
        kept = self.store.thread(INDEX, schema=_INDEX).state.get(KEYS, {}).get(map_key(key))
        if not isinstance(kept, str):
            return None if kept is None else bytes(kept)
        thread = thread_of(key)
        assert thread is not None, "only keys of snapshots point at versions"
        with suppress(CheckpointNotFoundError, ExpiredError, ThreadNotFoundError):  # The version was removed.
            return self._pieces.read(self.store, thread, kept)
        return None

    def _delete(self, key: str) -> None:
        while True:
            head = self.store.thread(INDEX, schema=_INDEX).head
            if head is None:
                return
            with suppress(ConflictError, ThreadNotFoundError):  # Another process has changed the index: retry.
                self._delete_at(head, key)
                return

    def _delete_at(self, head: Checkpoint[Any], key: str) -> None:
        """Delete a key from the index, whose head must be `head`. Also delete the folder's thread if it is unused."""
        found = _SNAPSHOT.match(key)
        take_out, left = partial(_take_out, key), set[str]()

        def edit(thread: Thread[Any, Any]) -> list[Any]:
            return thread.edit(take_out, lazy=True, expected_version=head)

        with self.store.transaction() as tx:
            [kept] = lives.write(tx, INDEX, _INDEX, edit)
            if found is not None:
                left = _versions_below(tx, found[1])
                if not left:
                    lives.gone(tx, thread_id(PREFIX, found[1]))
        if found is None:
            lives.forget(self.store, INDEX)
        if left and isinstance(kept, str) and kept not in left and found is not None:
            with suppress(CheckpointNotFoundError, ExpiredError, ThreadNotFoundError):
                self.store.expire([self.store.thread(thread_id(PREFIX, found[1])).at(kept)])


@contextmanager
def _storage_errors() -> Iterator[None]:
    """Raise errors of the store as the framework's StorageError."""
    try:
        yield
    except StatelogError as error:
        raise StorageError(error.message) from error


def _take_out(key: str, state: Any) -> list[Any]:
    """Remove a key from the index. Return its value, or None, as the only item of a list."""
    name = map_key(key)
    kept = state.get(KEYS, {}).get(name)
    for channel in (KEYS, LONG):
        if name in state.get(channel, {}):
            del state[channel][name]
    return [kept]


def _versions_below(tx: Transaction, folder: str) -> set[str]:
    """Return the ids of the versions to which the keys in a folder still point."""
    found = pointers(tx).items()
    return {kept for name, kept in found if isinstance(kept, str) and name.startswith(f"{folder}/")}


def thread_of(key: str) -> str | None:
    """Return the id of the thread that stores a snapshot, or None if the key is not a snapshot's."""
    found = _SNAPSHOT.match(key)
    return None if found is None else thread_id(PREFIX, found[1])


def pointers(within: Threads) -> dict[str, Any]:
    """Return all keys, each with its bytes or the id of a version."""
    state = within.thread(INDEX, schema=_INDEX).state
    long = state.get(LONG, {})
    return {long.get(key, key): kept for key, kept in state.get(KEYS, {}).items()}


def point(within: Store | Transaction, key: str, value: bytes | str) -> None:
    """Add a key to the index. `value` is the bytes under the key, or the id of the version that contains them."""
    name = map_key(key)
    change: dict[str, Any] = {KEYS: {name: value}}
    if name != key:
        change[LONG] = {name: key}
    lives.write(within, INDEX, _INDEX, lambda thread: thread.commit(change))
