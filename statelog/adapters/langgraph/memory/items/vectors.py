"""Semantic search: embeddings of items, stored as float32, ranked by exact cosine similarity with numpy.

The vectors of each namespace that is searched are kept in memory as one matrix. Each search adds the items that any
process has put since the last search. It finds these items by their put numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from langchain_core.embeddings import Embeddings
from langgraph.store.base import ensure_embeddings, get_text_at_path, tokenize_path

from statelog.adapters.kit.notes import noted
from statelog.adapters.langgraph.memory.items.arguments import check_config
from statelog.adapters.langgraph.memory.items.changes import recent_key
from statelog.adapters.langgraph.memory.items.namespaces import to_text
from statelog.errors import ValueTypeError
from statelog.memory.vectors import (
    SHOWN_MAX,
    Matrix,
    best_first,
    check_vector,
    check_vectors,
    import_numpy,
    of_length_1,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from langgraph.store.base import IndexConfig, PutOp

    from statelog.adapters.langgraph.memory.items.lookup import FoundItem, Reader
    from statelog.adapters.langgraph.memory.items.namespaces import Namespace

Vectors = dict[str, bytes]
"""The vectors of one item, keyed by field."""

CACHE_SIZE_BYTES_MAX = 512 * 1024 * 1024
"""The maximum size of one object's matrices in memory: 80,000 vectors of 1,536 numbers. The least recently used
matrices are dropped first."""


def _of(method: str, texts: Sequence[str]) -> str:
    return f"raised by {method} of {len(texts)} texts, the first {texts[0][:SHOWN_MAX]!r}" if texts else ""


class _NamespaceVectors:
    """The vectors of a namespace in memory, including vectors of items that were deleted since."""

    def __init__(self, matrix: Matrix, line: tuple[int, int]) -> None:
        self.matrix = matrix
        self.line = line
        """The value of `Reader.line` when this object was last brought up to date."""
        self.number = 0
        """The number of the last put that this object includes."""


def _shown(namespace: str, key: str) -> str:
    return f"item {key!r} of namespace {namespace!r}"


class VectorIndex:
    """Embeds items and queries, and ranks items.

    Attributes:
        redact: returns the text of a field without secrets, given the text and the names of its path. It is None if the
            store has no guard.
    """

    def __init__(self, config: IndexConfig) -> None:
        """Create an index from LangGraph's `index` configuration.

        Raises:
            ModuleNotFoundError: numpy is not installed.
            ValueError: `dims`, `embed` or `fields` is invalid.
        """
        np = import_numpy("semantic search (index=)")
        check_config("index", "dims, embed and fields", config)
        dims = config.get("dims")
        if isinstance(dims, bool) or not isinstance(dims, int) or dims < 1:
            message = f"index: dims must be the length of the vectors that embed returns, not {dims!r}"
            raise ValueError(message)
        fields = config.get("fields")
        is_several = fields is None or (isinstance(fields, Collection) and not isinstance(fields, str | bytes))
        if not is_several or not all(isinstance(field, str) for field in fields or ()):
            message = f"index: fields must be a list of paths, not {fields!r}"
            raise ValueError(message)
        embed = config.get("embed")
        if not (callable(embed) or isinstance(embed, str | Embeddings)):
            message = (
                f"index: embed must be a function of a list of texts, an Embeddings, or the name of one, not {embed!r}"
            )
            raise ValueError(message)  # noqa: TRY004 - `dims` and `fields` also raise it
        self._np = np
        self.redact: Callable[[str, Sequence[str]], str] | None = None
        self.dims = dims
        self._embeddings = ensure_embeddings(embed)
        self._fields = [(field, _tokens(field)) for field in fields or ["$"]]
        self._matrices: dict[str, _NamespaceVectors] = {}
        self._lock = Lock()

    # --- embedding ------------------------------------------------------------------

    def embed_queries(self, queries: Sequence[str]) -> dict[str, Any]:
        """Return the vector of each query, scaled to length 1."""
        with noted(_of("embed_query", queries)):
            vectors = [self._embeddings.embed_query(query) for query in queries]
        return {query: self._unit(vector, query) for query, vector in zip(queries, vectors, strict=True)}

    async def aembed_queries(self, queries: Sequence[str]) -> dict[str, Any]:
        """Return the vector of each query, scaled to length 1."""
        with noted(_of("aembed_query", queries)):
            vectors = await asyncio.gather(*[self._embeddings.aembed_query(query) for query in queries])
        return {query: self._unit(vector, query) for query, vector in zip(queries, vectors, strict=True)}

    def embed_puts(self, ops: Sequence[PutOp]) -> list[Vectors]:
        """Return the vectors of each put. A deletion has none."""
        texts = [self._texts(op) for op in ops]
        unique = _unique(texts)
        with noted(_of("embed_documents", unique)):
            vectors = self._embeddings.embed_documents(unique) if unique else []
        return self._assigned(texts, unique, vectors)

    async def aembed_puts(self, ops: Sequence[PutOp]) -> list[Vectors]:
        """Return the vectors of each put. A deletion has none."""
        texts = [self._texts(op) for op in ops]
        unique = _unique(texts)
        with noted(_of("aembed_documents", unique)):
            vectors = await self._embeddings.aembed_documents(unique) if unique else []
        return self._assigned(texts, unique, vectors)

    def _texts(self, op: PutOp) -> dict[str, str]:
        # Embed nothing: the item is not indexed, this is a deletion, or encoding will refuse the value.
        if op.index is False or not isinstance(op.value, Mapping):
            return {}
        fields = self._fields if op.index is None else [(field, _tokens(field)) for field in op.index]
        found: dict[str, str] = {}
        for field, tokens in fields:
            try:
                texts = get_text_at_path(op.value, tokens)
            except (TypeError, ValueError, RecursionError) as error:
                path = f"{to_text(op.namespace)}.{op.key}"
                message = f"{path}: its field {field!r} has no text to embed: {error}"
                raise ValueTypeError(message, path=path, type=type(op.value).__name__) from error
            if self.redact is not None:  # Else the embedder gets secrets, and a vector could confirm a guess.
                texts = [self.redact(text, tokens) for text in texts]
            found.update({f"{field}.{at}" if len(texts) > 1 else field: text for at, text in enumerate(texts)})
        return found

    def _assigned(
        self, texts: Sequence[Mapping[str, str]], unique: Sequence[str], vectors: Iterable[Sequence[float]]
    ) -> list[Vectors]:
        arrays = check_vectors(self._np, vectors, unique, self.dims)
        stored = {text: array.tobytes() for text, array in zip(unique, arrays, strict=True)}
        return [{field: stored[text] for field, text in each.items()} for each in texts]

    def _unit(self, vector: Sequence[float], text: str) -> Any:
        return of_length_1(self._np, check_vector(self._np, vector, text, self.dims))

    # --- ranking --------------------------------------------------------------------

    def rank(
        self, reader: Reader, prefix: Namespace, query: Any, matches: Callable[[Any], bool] | None
    ) -> Iterator[FoundItem]:
        """Yield items in and below a namespace that match: the most similar first, then those without a vector.

        An item with several vectors is ranked by the most similar one.
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
                held = self._matrix(reader, namespace)
                if held is not None:
                    parts.append((namespace, *held.matrix.score(query)))
        if not parts:
            return
        scores = np.concatenate([part[1] for part in parts])
        numbers = np.concatenate([part[2] for part in parts])
        ends = np.cumsum([len(part[1]) for part in parts])
        for row in best_first(np, scores, numbers):
            place = int(np.searchsorted(ends, row, side="right"))
            namespace, own, _numbers, owners = parts[place]
            yield float(scores[row]), namespace, owners[row - ends[place] + len(own)][0]

    def _matrix(self, reader: Reader, namespace: str) -> _NamespaceVectors | None:
        """Return the vectors of a namespace in the reader's snapshot, or None if it has none."""
        held = self._matrices.pop(namespace, None)
        stored = reader.of("vectors", namespace)
        if not stored:
            return None
        line = reader.line
        if (
            held is None
            or held.line != line
            or held.number > reader.last_number
            or held.matrix.is_mostly_dead(len(stored))
        ):
            shown = partial(_shown, namespace)
            held = _NamespaceVectors(Matrix(self._np, self.dims, shown), line)
            numbers = {key: entry["number"] for key, entry in reader.of("items", namespace).items()}
            for key, vectors in stored.items():
                held.matrix.put(key, numbers[key], dict(vectors.items()))
        else:
            self._catch_up(reader, namespace, held, stored)
        held.number = reader.last_number
        # Put the matrix at the end, because the first matrices are dropped when there are too many.
        self._matrices[namespace] = held
        self._forget()
        return held

    @staticmethod
    def _catch_up(reader: Reader, namespace: str, held: _NamespaceVectors, stored: Mapping[str, Any]) -> None:
        known = recent_key(held.number)
        for at, key in reader.of("recent", namespace).items():
            if at >= known:
                break
            vectors = stored.get(key)
            held.matrix.put(
                key, reader.of("items", namespace)[key]["number"], {} if vectors is None else dict(vectors.items())
            )

    def _forget(self) -> None:
        size = sum(held.matrix.size_bytes for held in self._matrices.values())
        while size > CACHE_SIZE_BYTES_MAX and len(self._matrices) > 1:
            size -= self._matrices.pop(next(iter(self._matrices))).matrix.size_bytes


def _tokens(field: str) -> Any:
    return field if field == "$" else tokenize_path(field)


def _unique(texts: Sequence[Mapping[str, str]]) -> list[str]:
    return list(dict.fromkeys(text for each in texts for text in each.values()))
