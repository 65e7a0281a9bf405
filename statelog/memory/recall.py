"""Caches the facts of one scope with their vectors, and ranks facts for a query."""

from __future__ import annotations

import os
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.board import reads
from statelog.board.names import compile_pattern
from statelog.format import cbor
from statelog.log.times import now_us
from statelog.memory.timeline import known_at, read_facts, true_at
from statelog.memory.vectors import Matrix
from statelog.search.index import hash_of
from statelog.search.texts import item_text
from statelog.store.session import session_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from statelog.memory.timeline import Stored
    from statelog.store.store import Store

RANK_CONSTANT = 60
"""The constant of reciprocal rank fusion (Cormack, Clarke, Büttcher, SIGIR 2009). A fact scores 1 / (60 + its rank)."""

DEPTH_MIN = 20
"""The minimum number of facts that each ranking contributes."""

_READ_ONE_BY_ONE = 64
"""The maximum number of changed entries that are read one by one.

If more have changed, all entries are read in pages.
"""

Place = tuple[str, str]
"""The key and the id of a fact."""


class RecallQuestion(NamedTuple):
    """The checked arguments of a recall."""

    query: str
    limit: int
    fits: Callable[[Stored], bool]
    at_us: int
    known_us: int | None


class FactsAtTime:
    """The facts that are true at one time, among the facts that were known at a second time."""

    def __init__(self, facts: Mapping[str, list[Stored]], at_us: int, known_us: int | None) -> None:
        self._facts = facts
        self._at_us = at_us
        self._known_us = known_us
        self._true: dict[str, tuple[Stored, int] | None] = {}

    def true(self, key: str) -> tuple[Stored, int] | None:
        """Return the fact of a key that is true and the time at which it ends, or None."""
        if key in self._true:
            return self._true[key]
        facts = known_at(self._facts.get(key, ()), self._known_us)
        found = self._true[key] = true_at(facts, self._at_us)
        return found

    def all(self, keys: Iterable[str]) -> Iterator[tuple[str, Stored, int]]:
        """Yield (key, true fact, time at which it ends) for each key that has a true fact, sorted by key."""
        for key in sorted(keys):
            found = self.true(key)
            if found is not None:
                yield key, *found

    def chosen(self, places: Iterable[Place], fits: Callable[[Stored], bool], count: int) -> list[str]:
        """Return the keys of the first `count` facts that are true and for which `fits` returns True, in order."""
        keys: dict[str, None] = {}
        for key, fact_id in places:
            found = self.true(key)
            if found is not None and found[0]["id"] == fact_id and key not in keys and fits(found[0]):
                keys[key] = None
                if len(keys) == count:
                    break
        return list(keys)


class RecallResult(NamedTuple):
    """The loaded facts and vectors that answer a question."""

    facts: Mapping[str, list[Stored]]
    """The facts, keyed by their keys. Other threads may change this mapping, so do not iterate over it."""
    pinned: tuple[str, ...]
    """The keys that have, or had, a pinned fact."""
    nearest: Iterator[Place]
    """The key and id of each fact that has a vector, the most similar first."""
    hashes: Mapping[str, dict[int, str]]
    """For each entry, by key, the ids of its facts, by the hash of the fact's text in the text index."""
    prefix: str
    """The prefix of the entries' keys."""

    def confirmed(self, found: Iterable[tuple[str, int]]) -> Iterator[Place]:
        """Yield the key and id of each fact found by the text index, if it still exists with the same text."""
        for entry, hashed in found:
            fact_id = self.hashes.get(entry, {}).get(hashed)
            if fact_id is not None:
                yield entry.removeprefix(self.prefix), fact_id


class FactCache:
    """A cache of the facts below a prefix of the board. Changed entries are read again.

    Several OS threads may use it.
    """

    def __init__(self, store: Store, prefix: str, np: Any, dims: int) -> None:
        self._store = store
        self._session = session_of(store)
        self.prefix = prefix
        """The prefix of the entries' keys."""
        self._pattern = compile_pattern(f"{prefix}**")
        self._np, self._dims = np, dims
        self._lock = Lock()
        self._seen: tuple[int | None, int] | None = None
        """The number of the store's last commit, and the inode of its file, which a purge replaces."""
        self._places: dict[str, bytes] = {}
        """The encoded LSN of the last record that was read for each entry, keyed by the entry's key."""
        self._facts: dict[str, list[Stored]] = {}
        self._pinned: set[str] = set()
        self._hashes: dict[str, dict[int, str]] = {}
        self._matrix: Matrix | None = None

    def read(self) -> Mapping[str, list[Stored]]:
        """Return all facts without their vectors, keyed by their keys."""
        with self._lock:
            self._update()
            return dict(self._facts)

    def ask(self, query: Any, first: int) -> RecallResult:
        """Return the facts for a question.

        Args:
            query: the vector of the question, of length 1, or None.
            first: the number of nearest facts to rank immediately.
        """
        with self._lock:
            self._update()
            # Other threads only add, replace or drop whole facts, so reading a fact needs no lock.
            nearest = iter(()) if query is None or self._matrix is None else self._matrix.nearest(query, first)
            return RecallResult(self._facts, tuple(self._pinned), nearest, self._hashes, self.prefix)

    def _update(self) -> None:
        seen = self._session.last_commit_id(), os.fstat(self._descriptor()).st_ino
        if seen == self._seen:
            return
        is_replaced = self._seen is not None and seen[1] != self._seen[1]
        if is_replaced or (self._matrix is not None and self._matrix.is_mostly_dead(len(self._facts))):
            self._places, self._facts, self._pinned, self._hashes, self._matrix = {}, {}, set(), {}, None
        rows = self._rows()
        for key in self._places.keys() - rows.keys():
            self._drop(key)
        changed = {key for key, place in rows.items() if self._places.get(key) != place}
        for key, value in self._values(changed):
            self._put(key, value)
        self._places = rows
        self._seen = seen

    def _descriptor(self) -> int:
        return self._session.owner.store_file.lmdb_file.locks.descriptor

    def _rows(self) -> dict[str, bytes]:
        with self._session.read() as view:
            board = reads.board_of(view)
            if board is None:
                return {}
            pages = reads.scan(view, board, self._pattern, reads.Span(), now_us())
            return {key: place for page in pages for key, place in page}

    def _values(self, changed: set[str]) -> Iterator[tuple[str, Any]]:
        board = self._store.board()
        if len(changed) > _READ_ONE_BY_ONE:
            yield from ((entry.key, entry.value) for entry in board.list(self._pattern.text) if entry.key in changed)
            return
        for place in changed:
            found = board.list(place)  # `get` would raise if a check of the guard refuses the entry.
            yield place, found[0].value if found else None

    def _put(self, place: str, value: Any) -> None:
        key = place.removeprefix(self.prefix)
        facts = read_facts(value)
        vectors = {each["id"]: each.pop("vector") for each in facts if "vector" in each}
        # A vector of a different size comes from a different model. Facts with such vectors are found only by their
        # text.
        vectors = {fact_id: vector for fact_id, vector in vectors.items() if len(vector) == 4 * self._dims}
        self._facts[key] = facts
        self._hashes[place] = {_hash_of(each): each["id"] for each in facts}
        if any(each.get("pinned") for each in facts):
            self._pinned.add(key)
        else:
            self._pinned.discard(key)
        if self._matrix is None and vectors and self._np is not None:
            self._matrix = Matrix(self._np, self._dims, "the fact of key {!r}".format)
        if self._matrix is not None:
            self._matrix.put(key, 0, vectors)

    def _drop(self, place: str) -> None:
        key = place.removeprefix(self.prefix)
        self._facts.pop(key, None)
        self._hashes.pop(place, None)
        self._pinned.discard(key)
        if self._matrix is not None:
            self._matrix.put(key, 0, {})


def _hash_of(fact: Stored) -> int:
    """Return the hash of a fact's text in the text index."""
    value = fact if "metadata" not in fact else cbor.decode(cbor.encode(fact), as_stored=True)
    return hash_of(item_text(value)[1])


def joined(rankings: Iterable[list[str]]) -> dict[str, float]:
    """Join rankings by reciprocal rank. Return the keys with their scores, best first."""
    scores: dict[str, float] = {}
    for ranking in rankings:
        for rank, key in enumerate(ranking, 1):
            scores[key] = scores.get(key, 0.0) + 1 / (RANK_CONSTANT + rank)
    return dict(sorted(scores.items(), key=lambda each: (-each[1], each[0])))
