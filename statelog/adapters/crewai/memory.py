"""CrewAI's memory in a store: records with their vectors, found by exact search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from crewai.memory.storage.backend import EmbeddingDimensionMismatchError
from crewai.memory.types import MemoryRecord, ScopeInfo

from statelog import Store, reducers
from statelog.adapters.crewai.stores import store_at
from statelog.adapters.kit import lives
from statelog.adapters.kit.ordered import Json
from statelog.adapters.kit.thread_ids import thread_id
from statelog.aio.bridge import run
from statelog.schema import Schema

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from numpy.typing import NDArray

PREFIX = "crewai-memory"
RECORDS, VECTORS = "records", "vectors"
_SCHEMA = Schema.of({RECORDS: reducers.merge, VECTORS: reducers.merge})


class StatelogMemoryStorage:
    """CrewAI's `StorageBackend`: `Memory(storage=StatelogMemoryStorage("agent.state"))`.

    A save, an update or a deletion is one commit. A search compares the query with every vector. The score is
    1 / (1 + squared distance), as in CrewAI's LanceDB storage. Records are cached until the next write.

    Args:
        store: an open store, or a path.
        name: the name of this memory. A store may have several memories, which are separate.
    """

    def __init__(self, store: Store | str | os.PathLike[str], *, name: str = "memory") -> None:
        self._store = store if isinstance(store, Store) else store_at(store)
        self._thread = thread_id(PREFIX, name)
        self._known: tuple[int, dict[str, MemoryRecord]] = (-1, {})

    def save(self, records: list[MemoryRecord]) -> None:
        """Store records. A record replaces an existing one with the same id.

        Raises:
            EmbeddingDimensionMismatchError: a vector's length differs from the stored vectors.
        """
        if not records:
            return
        lengths = {len(record.embedding) for record in records if record.embedding}
        if len(lengths) > 1:
            raise EmbeddingDimensionMismatchError(min(lengths), max(lengths))
        for length in lengths:
            self._check_length(length)
        change = {
            RECORDS: {record.id: Json(record.model_dump_json()) for record in records},
            VECTORS: {record.id: _packed(record.embedding) for record in records if record.embedding},
        }
        lives.write(self._store, self._thread, _SCHEMA, lambda thread: thread.commit(change))

    def update(self, record: MemoryRecord) -> None:
        """Replace the record with the same id."""
        self.save([record])

    def search(
        self,
        query_embedding: list[float],
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        metadata_filter: dict[str, Any] | None = None,
        limit: int = 10,
        min_score: float = 0.0,
    ) -> list[tuple[MemoryRecord, float]]:
        """Return the records whose vectors are nearest to the query, each with its score, best first."""
        self._check_length(len(query_embedding))
        fits = _filter(scope_prefix, categories, metadata_filter)
        found = [record for record in self._read().values() if record.embedding and fits(record)]
        if not found:
            return []
        vectors = np.asarray([record.embedding for record in found], dtype=np.float32)
        distances = ((vectors - np.asarray(query_embedding, dtype=np.float32)) ** 2).sum(axis=1)
        scored = [(found[at], float(1 / (1 + distances[at]))) for at in np.argsort(distances, kind="stable")]
        return [(record.model_copy(deep=True), score) for record, score in scored if score >= min_score][:limit]

    def delete(
        self,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        """Delete the records that match all given arguments. Return their number."""
        fits = _filter(scope_prefix, categories, metadata_filter)
        gone = [
            record.id
            for record in self._read().values()
            if fits(record)
            and (not record_ids or record.id in record_ids)
            and (older_than is None or record.created_at < older_than)
        ]

        def remove(state: Any) -> int:
            there = [id for id in gone if id in state.get(RECORDS, {})]
            for id in there:
                for channel in (RECORDS, VECTORS):
                    if id in state.get(channel, {}):
                        del state[channel][id]
            return len(there)

        if not gone:
            return 0
        count = lives.write(self._store, self._thread, _SCHEMA, lambda thread: thread.edit(remove, lazy=True))
        lives.forget(self._store, self._thread)
        return count

    def reset(self, scope_prefix: str | None = None) -> None:
        """Delete all records, or the records of a scope."""
        if scope_prefix is None or not scope_prefix.strip("/"):
            lives.gone(self._store, self._thread)
        else:
            self.delete(scope_prefix)

    def get_record(self, record_id: str) -> MemoryRecord | None:
        """Return a record, or None."""
        found = self._read().get(record_id)
        return None if found is None else found.model_copy(deep=True)

    def list_records(self, scope_prefix: str | None = None, limit: int = 200, offset: int = 0) -> list[MemoryRecord]:
        """Return the records of a scope, newest first."""
        if limit <= 0 or offset < 0:
            return []
        found = sorted(self._of(scope_prefix), key=lambda record: record.created_at, reverse=True)
        return [record.model_copy(deep=True) for record in found[offset : offset + limit]]

    def get_scope_info(self, scope: str) -> ScopeInfo:
        """Return a summary of a scope and its nested scopes."""
        path = scope.rstrip("/") or "/"
        found = self._of(scope)
        times = [record.created_at for record in found]
        return ScopeInfo(
            path=path,
            record_count=len(found),
            categories=sorted({category for record in found for category in record.categories}),
            oldest_record=min(times, default=None),
            newest_record=max(times, default=None),
            child_scopes=_children(found, path),
        )

    def list_scopes(self, parent: str = "/") -> list[str]:
        """Return the direct children of a scope."""
        return _children(self._of(parent), parent.rstrip("/") or "/")

    def list_categories(self, scope_prefix: str | None = None) -> dict[str, int]:
        """Return how many records of a scope have each category."""
        counts: dict[str, int] = {}
        for record in self._of(scope_prefix):
            for category in record.categories:
                counts[category] = counts.get(category, 0) + 1
        return counts

    def count(self, scope_prefix: str | None = None) -> int:
        """Return the number of records in a scope and its nested scopes."""
        return len(self._of(scope_prefix))

    async def asave(self, records: list[MemoryRecord]) -> None:
        """Store records like `save`."""
        await run(self.save, records)

    async def asearch(
        self,
        query_embedding: list[float],
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        metadata_filter: dict[str, Any] | None = None,
        limit: int = 10,
        min_score: float = 0.0,
    ) -> list[tuple[MemoryRecord, float]]:
        """Search like `search`."""
        return await run(
            self.search, query_embedding, scope_prefix, categories, metadata_filter, limit=limit, min_score=min_score
        )

    async def adelete(
        self,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        """Delete records like `delete`."""
        return await run(self.delete, scope_prefix, categories, record_ids, older_than, metadata_filter)

    def _check_length(self, length: int) -> None:
        kept = next((len(record.embedding) for record in self._read().values() if record.embedding), length)
        if kept != length:
            raise EmbeddingDimensionMismatchError(kept, length)

    def _of(self, scope_prefix: str | None) -> list[MemoryRecord]:
        fits = _filter(scope_prefix, None, None)
        return [record for record in self._read().values() if fits(record)]

    def _read(self) -> dict[str, MemoryRecord]:
        head = self._store.thread(self._thread, schema=_SCHEMA).head
        lsn = -1 if head is None else head.lsn
        if self._known[0] != lsn:
            found = {}
            if head is not None:
                vectors = head.state.get(VECTORS, {}).to_python() if VECTORS in head.state else {}
                for id, kept in head.state[RECORDS].items():
                    record = MemoryRecord.model_validate_json(kept.text)
                    record.embedding = _unpacked(vectors.get(id))
                    found[id] = record
            self._known = lsn, found
        return self._known[1]


def _packed(vector: list[float]) -> bytes:
    return np.asarray(vector, dtype="<f4").tobytes()


def _unpacked(packed: bytes | None) -> list[float] | None:
    if packed is None:
        return None
    vector: NDArray[Any] = np.frombuffer(packed, dtype="<f4")
    return None if np.isnan(vector).any() else list(vector.tolist())  # A purge erases a vector by writing NaN.


def _filter(
    scope_prefix: str | None, categories: list[str] | None, metadata: dict[str, Any] | None
) -> Callable[[MemoryRecord], bool]:
    scope = f"/{(scope_prefix or '').strip('/')}"

    def fits(record: MemoryRecord) -> bool:
        return (
            (scope in {"/", record.scope} or record.scope.startswith(f"{scope}/"))
            and (not categories or any(category in record.categories for category in categories))
            and all(record.metadata.get(key) == value for key, value in (metadata or {}).items())
        )

    return fits


def _children(records: Iterable[MemoryRecord], parent: str) -> list[str]:
    prefix = parent if parent.endswith("/") else f"{parent}/"
    below = (record.scope.removeprefix(prefix) for record in records if record.scope.startswith(prefix))
    return sorted({prefix + rest.split("/", 1)[0] for rest in below if rest})
