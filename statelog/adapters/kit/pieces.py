"""Stores JSON texts that a framework always writes whole. Each text is a version that stores only its changes.

A text is cut between the items of its lists. Pieces that equal pieces of the previous version are shared.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from statelog import reducers
from statelog.adapters.kit import items, lives
from statelog.errors import ConflictError, ExpiredError, NotFoundError, ThreadDeletedError
from statelog.format import cbor
from statelog.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog import Store, Thread
    from statelog.store.checkpoint import Checkpoint
    from statelog.store.threads import Threads
    from statelog.store.transaction import Transaction

__all__ = ["Pieces", "add", "read"]

CHANNEL = "pieces"
SCHEMA = Schema.of({CHANNEL: reducers.replace})
_CUTS = (b"}, {", b"},{")
_KEPT_MAX = 64


class Pieces:
    """Writes and reads bytes as versions of threads. It caches the last written or read version of each thread."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Thread[Any, Any], int, list[bytes]]] = {}
        """By thread id: the thread, the LSN of the cached version, and its separator followed by its pieces."""

    def write(self, store: Store, id: str, data: bytes, beside: Callable[[Transaction, str], None]) -> None:
        """Commit data as the head of a thread. Unchanged data makes no new version.

        Args:
            store: an open store.
            id: the thread id. A deleted thread is re-created.
            data: the bytes, which are read back unchanged.
            beside: a function that commits related data in the given transaction. It gets the version's id, because
                version numbers restart in a re-created thread.
        """
        while True:
            try:
                head = store.thread(id, schema=SCHEMA).head
                old = [] if head is None else self._pieces(id, head)
                new = _split(data, old)
                made = uuid.uuid4().hex if head is None or old != new else head.id
                with store.transaction() as tx:
                    if head is None or old != new:
                        lives.write(tx, id, SCHEMA, _committing(old, new, head, made))
                    else:
                        items.expect(tx.thread(id), head)
                    beside(tx, made)
            except (ConflictError, ExpiredError, ThreadDeletedError):  # The head has changed.
                continue
            thread = store.thread(id, schema=SCHEMA)
            head = thread.head
            if head is not None and head.id == made:
                self._put(id, thread, head.lsn, new)
            return

    def read(self, store: Store, id: str, version: str) -> bytes:
        """Return the data of the version with the id `version`. Raises CheckpointNotFoundError, ExpiredError."""
        thread = store.thread(id, schema=SCHEMA)
        made = thread.at(version)
        mark, *pieces = self._pieces(id, made)
        if thread.head == made:
            self._put(id, thread, made.lsn, [mark, *pieces])
        return mark.join(pieces)

    def remembered(self, id: str, version: str) -> bytes | None:
        """Return the data of a version if it is cached and the head of its thread, or None. No node is read."""
        kept = self._kept.get(id)
        if kept is None:
            return None
        thread, lsn, (mark, *pieces) = kept
        with suppress(NotFoundError):  # The thread was deleted.
            head = thread.head
            if head is not None and head.lsn == lsn and head.id == version:
                return mark.join(pieces)
        return None

    def _pieces(self, id: str, made: Checkpoint[Any]) -> list[bytes]:
        kept = self._kept.get(id)
        return kept[2] if kept is not None and kept[1] == made.lsn else _pieces(made)

    def _put(self, id: str, thread: Thread[Any, Any], lsn: int, pieces: list[bytes]) -> None:
        if len(self._kept) >= _KEPT_MAX:
            self._kept.clear()
        self._kept[id] = thread, lsn, pieces


def add(tx: Transaction, id: str, data: bytes) -> str:
    """Commit data as the head of a thread like `Pieces.write`, within a transaction. Return the version's id."""
    head = tx.thread(id, schema=SCHEMA).head
    old = [] if head is None else _pieces(head)
    new = _split(data, old)
    if head is not None and old == new:
        return head.id
    made = uuid.uuid4().hex
    lives.write(tx, id, SCHEMA, _committing(old, new, head, made))
    return made


def read(within: Threads, id: str, version: str) -> bytes:
    """Return the data of the version with the id `version`. Raises CheckpointNotFoundError, ExpiredError."""
    mark, *pieces = _pieces(within.thread(id, schema=SCHEMA).at(version))
    return mark.join(pieces)


def _pieces(made: Checkpoint[Any]) -> list[bytes]:
    return [bytes(piece) for piece in made.state[CHANNEL].to_python()]


def _split(data: bytes, old: list[bytes]) -> list[bytes]:
    mark = old[0] if old else max(_CUTS, key=data.count)
    return [mark, *data.split(mark)]


def _committing(
    old: list[bytes], new: list[bytes], head: Checkpoint[Any] | None, made: str
) -> Callable[[Thread[Any, Any]], None]:
    pairs = enumerate(zip(old, new, strict=False))
    same = next((at for at, (mine, theirs) in pairs if mine != theirs), min(len(old), len(new)))
    encoded = [cbor.encode(piece) for piece in new[same:]]
    change = items.edit(CHANNEL, same, len(old), encoded) if old else items.put(CHANNEL, items.pack_list(encoded))

    def commit(thread: Thread[Any, Any]) -> None:
        items.commit(thread, change, expected_version=-1 if head is None else head, id=made)

    return commit
