"""Semantic search: embeddings of items, stored as float32, ranked by exact cosine similarity with numpy.

Of each namespace that is searched the vectors are kept in memory as one matrix, and brought up to date by what was put
since: the numbers of puts tell which items those are, whichever process made them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

from langchain_core.embeddings import Embeddings
from langgraph.store.base import ensure_embeddings, get_text_at_path, tokenize_path

from statelog.adapters.kit.notes import noted
from statelog.adapters.langgraph.memory.items.asking import check_config
from statelog.adapters.langgraph.memory.items.changes import recent_key
from statelog.adapters.langgraph.memory.items.namespaces import to_text
from statelog.errors import ValueTypeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from langgraph.store.base import IndexConfig, PutOp

    from statelog.adapters.langgraph.memory.items.namespaces import Namespace
    from statelog.adapters.langgraph.memory.items.reading import Found, Reader

Vectors = dict[str, bytes]
"""Of one item, by field."""

CACHE_SIZE_BYTES_MAX = 512 * 1024 * 1024
"""Matrices in memory, of one object: 80,000 vectors of 1,536 numbers. Those not searched for longest go first."""

_ROWS_MIN = 64

_NAMED_MAX = 40
"""So much of a text stands in an error."""

_BEST = 256
"""So many rows are sorted at first: most searches ask for fewer."""


def _of(method: str, texts: Sequence[str]) -> str:
    return f"raised by {method} of {len(texts)} texts, the first {texts[0][:_NAMED_MAX]!r}" if texts else ""


class VectorIndex:
    """Embeds what is put and asked for, and ranks items.

    Attributes:
        redact: returns the text of a field without secrets, given the text and the names of its path. None if the store
            has no guard.
    """

    def __init__(self, config: IndexConfig) -> None:
        """Take LangGraph's `index` configuration.

        Raises:
            ModuleNotFoundError: there is no numpy.
            ValueError: `dims`, `embed` or `fields` make no sense.

        """
        try:
            import numpy as np
        except ModuleNotFoundError as error:
            message = "semantic search (index=) needs numpy: pip install 'statelog[vectors]'"
            raise ModuleNotFoundError(message, name="numpy") from error
        check_config("index", "dims, embed and fields", config)
        dims = config.get("dims")
        if isinstance(dims, bool) or not isinstance(dims, int) or dims < 1:
            message = f"index: dims is the length of the vectors that embed gives, not {dims!r}"
            raise ValueError(message)
        fields = config.get("fields")
        is_several = fields is None or (isinstance(fields, Collection) and not isinstance(fields, str | bytes))
        if not is_several or not all(isinstance(field, str) for field in fields or ()):
            message = f"index: fields is a list of paths, not {fields!r}"
            raise ValueError(message)
        embed = config.get("embed")
        if not (callable(embed) or isinstance(embed, str | Embeddings)):
            message = f"index: embed is a function of texts, an Embeddings, or the name of one, not {embed!r}"
            raise ValueError(message)  # noqa: TRY004 - as for dims and fields
        self._np = np
        self.redact: Callable[[str, Sequence[str]], str] | None = None
        self.dims = dims
        self._embeddings = ensure_embeddings(embed)
        self._fields = [(field, _tokens(field)) for field in fields or ["$"]]
        self._matrices: dict[str, _Matrix] = {}
        self._lock = Lock()

    # --- embedding ------------------------------------------------------------------

    def embed_queries(self, queries: Sequence[str]) -> dict[str, Any]:
        """Return the vector of each query, of length 1."""
        with noted(_of("embed_query", queries)):
            vectors = [self._embeddings.embed_query(query) for query in queries]
        return {query: self._unit(vector, query) for query, vector in zip(queries, vectors, strict=True)}

    async def aembed_queries(self, queries: Sequence[str]) -> dict[str, Any]:
        """Return the vector of each query, of length 1."""
        with noted(_of("aembed_query", queries)):
            vectors = await asyncio.gather(*[self._embeddings.aembed_query(query) for query in queries])
        return {query: self._unit(vector, query) for query, vector in zip(queries, vectors, strict=True)}

    def embed_puts(self, ops: Sequence[PutOp]) -> list[Vectors]:
        """Return the vectors of each put, none for a deletion."""
        texts = [self._texts(op) for op in ops]
        unique = _unique(texts)
        with noted(_of("embed_documents", unique)):
            vectors = self._embeddings.embed_documents(unique) if unique else []
        return self._assigned(texts, unique, vectors)

    async def aembed_puts(self, ops: Sequence[PutOp]) -> list[Vectors]:
        """Return the vectors of each put, none for a deletion."""
        texts = [self._texts(op) for op in ops]
        unique = _unique(texts)
        with noted(_of("aembed_documents", unique)):
            vectors = await self._embeddings.aembed_documents(unique) if unique else []
        return self._assigned(texts, unique, vectors)

    def _texts(self, op: PutOp) -> dict[str, str]:
        if op.index is False or not isinstance(op.value, Mapping):  # a deletion, or what is refused when it is encoded
            return {}
        fields = self._fields if op.index is None else [(field, _tokens(field)) for field in op.index]
        found: dict[str, str] = {}
        for field, tokens in fields:
            try:
                texts = get_text_at_path(op.value, tokens)
            except (TypeError, ValueError, RecursionError) as error:
                path = f"{to_text(op.namespace)}.{op.key}"
                message = f"{path}: {field!r} of it has no text to be embedded: {error}"
                raise ValueTypeError(message, path=path, type=type(op.value).__name__) from error
            if self.redact is not None:  # A vector of a secret confirms a guess, and its text goes to the embedder.
                texts = [self.redact(text, tokens) for text in texts]
            found.update({f"{field}.{at}" if len(texts) > 1 else field: text for at, text in enumerate(texts)})
        return found

    def _assigned(
        self, texts: Sequence[Mapping[str, str]], unique: Sequence[str], vectors: Iterable[Sequence[float]]
    ) -> list[Vectors]:
        if not isinstance(vectors, Iterable):
            message = f"embed gave {vectors!r} for {len(unique)} texts, not a list of vectors"
            raise ValueError(message)  # noqa: TRY004 - as for any other number of them
        vectors = list(vectors)
        if len(vectors) != len(unique):
            message = f"embed gave {len(vectors)} vectors for {len(unique)} texts"
            raise ValueError(message)
        stored = {text: self._array(vector, text).tobytes() for text, vector in zip(unique, vectors, strict=True)}
        return [{field: stored[text] for field, text in each.items()} for each in texts]

    def _array(self, vector: Sequence[float], text: str) -> Any:
        np = self._np
        of = f"for the text {text if len(text) <= _NAMED_MAX else text[:_NAMED_MAX] + '...'!r}"
        try:
            with np.errstate(over="ignore"):
                array = np.asarray(vector, dtype="<f4")
        except (TypeError, ValueError, OverflowError) as error:
            message = f"embed gave no vector of numbers {of}: {error}"
            raise ValueError(message) from error
        if array.shape != (self.dims,):
            message = f"embed gave a vector of shape {array.shape} {of}, index says dims={self.dims}"
            raise ValueError(message)
        if not np.isfinite(array).all():
            message = f"embed gave a vector with NaN or more than float32 holds {of}"
            raise ValueError(message)
        return array

    def _unit(self, vector: Sequence[float], text: str) -> Any:
        return _of_length_1(self._np, self._array(vector, text))

    # --- ranking --------------------------------------------------------------------

    def rank(
        self, reader: Reader, prefix: Namespace, query: Any, matches: Callable[[Any], bool] | None
    ) -> Iterator[Found]:
        """Yield items in and below a namespace that match: the most similar first, then those without a vector.

        An item with several vectors counts by the most similar one.
        """
        ranked: set[tuple[str, str]] = set()
        for score, namespace, key in self._scores(reader, reader.namespaces(prefix), query):
            place = namespace, key
            if place in ranked:
                continue
            ranked.add(place)
            found = reader.match(namespace, key, matches)
            if found is not None:
                yield found._replace(score=score)
        for found in reader.recent(prefix, matches):
            if (found.namespace, found.key) not in ranked:
                yield found

    def _scores(self, reader: Reader, namespaces: Sequence[str], query: Any) -> Iterator[tuple[float, str, str]]:
        np = self._np
        parts = []
        with self._lock:
            for namespace in namespaces:
                matrix = self._matrix(reader, namespace)
                if matrix is not None:
                    parts.append((namespace, *matrix.score(query)))
        if not parts:
            return
        scores = np.concatenate([part[1] for part in parts])
        numbers = np.concatenate([part[2] for part in parts])
        ends = np.cumsum([len(part[1]) for part in parts])
        for row in self._ranked_rows(scores, numbers):
            place = int(np.searchsorted(ends, row, side="right"))
            namespace, own, _numbers, keys = parts[place]
            yield float(scores[row]), namespace, keys[row - ends[place] + len(own)]

    def _ranked_rows(self, scores: Any, numbers: Any) -> Iterator[int]:
        """Yield the rows that live, by score, of equal ones the last put first. The best of many are sorted first."""
        np = self._np
        rows = np.flatnonzero(~np.isnan(scores))
        parts = [rows]
        if len(rows) > 4 * _BEST:
            bound = np.partition(scores[rows], len(rows) - _BEST)[len(rows) - _BEST]
            is_best = scores[rows] > bound
            parts = [rows[is_best], rows[~is_best]]
        for part in parts:
            for at in np.lexsort((-numbers[part], -scores[part])):
                yield int(part[at])

    def _matrix(self, reader: Reader, namespace: str) -> _Matrix | None:
        """Return a namespace's vectors as of the reader's moment, None if it has none."""
        held = self._matrices.pop(namespace, None)
        stored = reader.of("vectors", namespace)
        if not stored:
            return None
        line = reader.line
        if held is None or held.line != line or held.number > reader.last_number or held.is_mostly_dead(len(stored)):
            held = _Matrix(self._np, self.dims, namespace)
            held.line = line
            numbers = {key: entry["number"] for key, entry in reader.of("items", namespace).items()}
            for key, vectors in stored.items():
                held.put(key, numbers[key], dict(vectors.items()))
        else:
            self._catch_up(reader, namespace, held, stored)
        held.number = reader.last_number
        self._matrices[namespace] = held  # last: of those that go when there are too many, the first goes first
        self._forget()
        return held

    @staticmethod
    def _catch_up(reader: Reader, namespace: str, held: _Matrix, stored: Mapping[str, Any]) -> None:
        known = recent_key(held.number)
        for at, key in reader.of("recent", namespace).items():
            if at >= known:
                break
            vectors = stored.get(key)
            held.put(
                key, reader.of("items", namespace)[key]["number"], {} if vectors is None else dict(vectors.items())
            )

    def _forget(self) -> None:
        size = sum(matrix.size_bytes for matrix in self._matrices.values())
        while size > CACHE_SIZE_BYTES_MAX and len(self._matrices) > 1:
            size -= self._matrices.pop(next(iter(self._matrices))).size_bytes


class _Matrix:
    """The vectors of one namespace, of length 1, and whose they are; also of items deleted since, as callers find."""

    def __init__(self, np: Any, dims: int, namespace: str) -> None:
        self._np = np
        self._namespace = namespace
        self._rows = np.zeros((_ROWS_MIN, dims), dtype=np.float32)
        self._keys: list[str] = []
        self._numbers = np.zeros(_ROWS_MIN, dtype=np.int64)
        self._rows_of: dict[str, list[int]] = {}
        self._dead = 0
        self.number = 0
        """Of the last put that it knows of."""
        self.line = (0, 0)
        """`Reader.line` of that."""

    @property
    def size_bytes(self) -> int:
        """Of the vectors."""
        size: int = self._rows.nbytes
        return size

    def is_mostly_dead(self, items: int) -> bool:
        """Whether most rows are those of items put again since, or deleted, where `items` have vectors."""
        return self._dead * 2 > max(len(self._keys), _ROWS_MIN) or len(self._rows_of) > 2 * max(items, _ROWS_MIN)

    def put(self, key: str, number: int, vectors: Mapping[str, bytes]) -> None:
        """Take the vectors of an item in place of those it had."""
        np = self._np
        for row in self._rows_of.pop(key, ()):
            self._rows[row] = np.nan
            self._dead += 1
        for stored in vectors.values():
            row = len(self._keys)
            if row == len(self._rows):
                self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
                self._numbers = np.concatenate([self._numbers, np.zeros_like(self._numbers)])
            vector = np.frombuffer(stored, dtype="<f4")
            if vector.shape != self._rows.shape[1:]:
                dims = self._rows.shape[1]
                message = (
                    f"item {key!r} of namespace {self._namespace!r} has a vector of {len(vector)} numbers, index says"
                    f" dims={dims}: put it anew"
                )
                raise ValueError(message)
            self._rows[row] = _of_length_1(np, vector)
            self._keys.append(key)
            self._numbers[row] = number
            self._rows_of.setdefault(key, []).append(row)

    def score(self, query: Any) -> tuple[Any, Any, list[str]]:
        """Return the similarity of each row, NaN of dead ones, the numbers of their puts, and their keys.

        What it returns holds on while rows are added: those there do not change.
        """
        count = len(self._keys)  # `@` adds up some rows in another order: equal vectors would not be equally similar
        return self._np.einsum("ij,j->i", self._rows[:count], query), self._numbers[:count], self._keys


def _of_length_1(np: Any, vector: Any) -> Any:
    """Return a vector of float32 in its direction; zeros have none."""
    wide = vector.astype("<f8")  # in which the squares of no float32 are too large, or too small
    norm = np.linalg.norm(wide)
    return (wide / norm).astype("<f4") if norm else vector


def _tokens(field: str) -> Any:
    return field if field == "$" else tokenize_path(field)


def _unique(texts: Sequence[Mapping[str, str]]) -> list[str]:
    return list(dict.fromkeys(text for each in texts for text in each.values()))
