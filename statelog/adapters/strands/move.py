"""Copies a folder of Strands' LocalFileStorage to a store. Each snapshot becomes a version."""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from strands import Snapshot
from strands.storage import LocalFileStorage

from statelog.adapters.kit import pieces
from statelog.adapters.kit.migration import copy_once, reading
from statelog.adapters.strands.storage import point, pointers, thread_of
from statelog.errors import CheckpointNotFoundError, ExpiredError, FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from statelog import Store
    from statelog.store.threads import Threads
    from statelog.store.transaction import Transaction

_IN_SESSION = re.compile(r"(.+?)/scopes/[^/]+/[^/]+/snapshots/")
"""Matches SnapshotSessionManager's keys. The group is the session's folder, to which other keys may also belong."""


@contextmanager
def opened(path: Path) -> Iterator[_SessionFolder]:
    """Yield the sessions of a folder.

    Raises:
        FormatError: the folder has no session or cannot be read.
    """
    with asyncio.Runner() as runner:
        storage = LocalFileStorage(str(path))
        with reading(str(path)):
            keys = runner.run(storage.list())
        sessions = {found[1] for found in map(_IN_SESSION.match, keys) if found is not None}
        if not sessions:
            message = f"{path} is not a folder with sessions of Strands' SnapshotSessionManager"
            raise FormatError(message, path=str(path))
        yield _SessionFolder(runner, storage, keys, sessions)


class _SessionFolder:
    unit = "item"
    remarks = ()

    def __init__(
        self, runner: asyncio.Runner, storage: LocalFileStorage, keys: Sequence[str], sessions: set[str]
    ) -> None:
        self._runner = runner
        self._storage = storage
        self._keys = defaultdict[str, list[str]](list)
        for key in keys:
            above = map(str, PurePosixPath(key).parents)
            self._keys[next((folder for folder in above if folder in sessions), key)].append(key)

    def names(self) -> Sequence[str]:
        """Return sessions as `session/ID`, and each key outside of a session, such as a key of memory."""
        return list(self._keys)

    def copy(self, name: str, store: Store) -> bool:
        """Copy a session with all its keys in one transaction, and compare the copy.

        See `statelog.adapters.kit.migration.MigrationSource`.
        """
        keys = self._keys[name]
        what = f"item {name!r}"
        with reading(what):
            wanted: dict[str, bytes | None] = {key: _digest(self._checked(key)) for key in keys}

        def write(tx: Transaction) -> None:
            for key in keys:  # In sorted order, snapshots come by time, and then the latest one.
                data, thread = self._read(key), thread_of(key)
                point(tx, key, data if thread is None else pieces.add(tx, thread, data))

        return copy_once(store, what, wanted, held=lambda within: _held(within, name), write=write)

    def _checked(self, key: str) -> bytes:
        data = self._read(key)
        if _IN_SESSION.match(key) and thread_of(key) is not None:
            Snapshot.from_dict(json.loads(data))
        return data

    def _read(self, key: str) -> bytes:
        data = self._runner.run(self._storage.read(key))
        if data is None:
            message = f"key {key!r} was listed, but has been deleted"
            raise FormatError(message, key=key)
        return data


def _held(within: Threads, name: str) -> dict[str, bytes | None] | None:
    """Return a digest of each key's bytes, or None if there are no keys."""
    found = {key: kept for key, kept in pointers(within).items() if key == name or key.startswith(f"{name}/")}
    return {key: _digest_kept(within, key, kept) for key, kept in found.items()} or None


def _digest_kept(within: Threads, key: str, kept: bytes | str) -> bytes | None:
    if not isinstance(kept, str):
        return _digest(bytes(kept))
    with suppress(CheckpointNotFoundError, ExpiredError):  # Retention has removed the version.
        return _digest(pieces.read(within, thread_of(key) or "", kept))
    return None


def _digest(data: bytes) -> bytes:
    return blake2b(data).digest()
