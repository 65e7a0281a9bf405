"""Checks vectors of texts, stores them as float32, and compares them exactly with numpy.

LangGraph's store also uses this module.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from statelog.errors import EmbeddingError
from statelog.memory.coarse import CoarseRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_ROWS_MIN = 64

SHOWN_MAX = 40
"""The maximum number of characters of a text that an error shows."""

_BEST = 256
"""The number of best rows that are sorted first. Most searches take fewer."""

_COARSE_MIN = 2048
"""The minimum number of rows for which `Matrix.nearest` reads compact copies of the rows first."""


def import_numpy(what: str) -> Any:
    """Import and return numpy. Raise ModuleNotFoundError with the message that `what` needs numpy."""
    try:
        import numpy as np
    except ModuleNotFoundError as error:
        message = f"{what} needs numpy: pip install 'statelog[vectors]'"
        raise ModuleNotFoundError(message, name="numpy") from error
    return np


def check_vectors(np: Any, vectors: object, texts: Sequence[str], dims: int) -> list[Any]:
    """Check the vectors that `embed` returned for some texts, and return them as arrays.

    Raises:
        EmbeddingError: there is not one vector of `dims` finite numbers for each text.
    """
    if isinstance(vectors, str | bytes | dict) or not hasattr(vectors, "__iter__"):
        message = f"embed returned {vectors!r:.{SHOWN_MAX}} for {len(texts)} texts, not a list of vectors"
        raise EmbeddingError(message, text=texts[0][:SHOWN_MAX])
    found = list(vectors)
    if len(found) != len(texts):
        message = f"embed returned {len(found)} vectors for {len(texts)} texts"
        raise EmbeddingError(message, text=texts[0][:SHOWN_MAX] if texts else "")
    return [check_vector(np, vector, text, dims) for vector, text in zip(found, texts, strict=True)]


def check_vector(np: Any, vector: Any, text: str, dims: int) -> Any:
    """Return a vector as an array. Raises EmbeddingError if it does not consist of `dims` finite numbers."""
    shown = text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "..."
    of = f"for the text {shown!r}"
    try:
        if type(vector) is np.ndarray and vector.dtype.str == "<f4":
            array = vector
        else:
            with np.errstate(over="ignore"):
                array = np.asarray(vector, dtype="<f4")
    except (TypeError, ValueError, OverflowError) as error:
        message = f"embed did not return a vector of numbers {of}: {error}"
        raise EmbeddingError(message, text=text[:SHOWN_MAX]) from error
    if array.shape != (dims,):
        message = f"embed returned a vector of shape {array.shape} {of}, but dims={dims}"
        raise EmbeddingError(message, text=text[:SHOWN_MAX], size=array.size, dims=dims)
    if not np.isfinite(array).all():
        message = f"embed returned a vector with NaN, or with numbers beyond float32, {of}"
        raise EmbeddingError(message, text=text[:SHOWN_MAX])
    return array


def of_length_1(np: Any, vector: Any) -> Any:
    """Return a float32 vector of length 1 in the same direction. A vector of zeros stays unchanged."""
    wide = vector.astype("<f8")  # Use float64, in which squares neither overflow nor vanish.
    norm = np.linalg.norm(wide)
    return (wide / norm).astype("<f4") if norm else vector


def best_first(np: Any, scores: Any, numbers: Any) -> Iterator[int]:
    """Yield the rows that have a score, best first. Of equal scores, the row with the greatest of `numbers` is first.

    If there are many rows, only the best ones are sorted at first.
    """
    rows = np.flatnonzero(~np.isnan(scores))
    if len(rows) > 4 * _BEST:
        some = scores[rows]
        is_best = some > np.partition(some, len(rows) - _BEST)[len(rows) - _BEST]
        yield from _sorted(np, rows[is_best], scores, numbers)
        rows = rows[~is_best]
    yield from _sorted(np, rows, scores, numbers)


def _sorted(np: Any, rows: Any, scores: Any, numbers: Any) -> Iterator[int]:
    return map(int, rows[np.lexsort((-numbers[rows], -scores[rows]))])


class Matrix:
    """The vectors of several owners, each of length 1.

    `put` marks an owner's older rows as dead, so that they have no score.
    """

    def __init__(self, np: Any, dims: int, shown: Callable[[str], str]) -> None:
        """Make an empty matrix. `shown` returns the name of an owner for error messages."""
        self._np = np
        self._shown = shown
        self._rows = np.zeros((_ROWS_MIN, dims), dtype=np.float32)
        self.owners: list[tuple[str, str]] = []
        """The owner and the name of each row."""
        self._numbers = np.zeros(_ROWS_MIN, dtype=np.int64)
        self._rows_of: dict[str, list[int]] = {}
        self._dead = 0
        self._coarse: CoarseRows | None = None

    @property
    def size_bytes(self) -> int:
        """The size of the vectors in bytes."""
        size: int = self._rows.nbytes
        return size

    def is_mostly_dead(self, owners: int) -> bool:
        """Return True if most rows are dead, or belong to owners that no longer have vectors."""
        return self._dead * 2 > max(len(self.owners), _ROWS_MIN) or len(self._rows_of) > 2 * max(owners, _ROWS_MIN)

    def put(self, owner: str, number: int, vectors: Mapping[str, bytes]) -> None:
        """Replace the vectors of an owner, given by name.

        Raises:
            EmbeddingError: a stored vector has the wrong size.
        """
        np = self._np
        dead = self._rows_of.pop(owner, [])
        for row in dead:
            self._rows[row] = np.nan
            self._dead += 1
        if self._coarse is not None:
            self._coarse.drop(dead)
        for name, stored in vectors.items():
            row = len(self.owners)
            if row == len(self._rows):
                self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
                self._numbers = np.concatenate([self._numbers, np.zeros_like(self._numbers)])
            vector = np.frombuffer(stored, dtype="<f4")
            if vector.shape != self._rows.shape[1:]:
                dims = self._rows.shape[1]
                message = f"{self._shown(owner)} has a vector of {len(vector)} numbers, but dims={dims}: store it again"
                raise EmbeddingError(message, text="", size=len(vector), dims=dims)
            self._rows[row] = of_length_1(np, vector)
            self.owners.append((owner, name))
            self._numbers[row] = number
            self._rows_of.setdefault(owner, []).append(row)

    def score(self, query: Any) -> tuple[Any, Any, list[tuple[str, str]]]:
        """Return each row's similarity (NaN for a dead row), its number (see `put`), and its owner, as three sequences.

        The result stays valid while rows are added, because existing rows do not change.
        """
        count = len(self.owners)  # Not `@`, which may score equal vectors unequally.
        return self._np.einsum("ij,j->i", self._rows[:count], query), self._numbers[:count], self.owners

    def nearest(self, query: Any, first: int) -> Iterator[tuple[str, str]]:
        """Return (owner, name) of all live rows, in the order of `best_first`.

        The `first` best rows are computed before this returns. The other rows are compared only if the caller asks for
        more, and rows that have become dead by then are left out.
        """
        np, owners, count = self._np, self.owners, len(self.owners)
        rows, numbers = self._rows[:count], self._numbers[:count]
        found = None
        if count >= _COARSE_MIN:
            if self._coarse is None:
                self._coarse = CoarseRows(np, rows.shape[1])
            found = self._coarse.candidates(rows, query, first)
        if found is None:
            return (owners[row] for row in best_first(np, np.einsum("ij,j->i", rows, query), numbers))
        scores = np.einsum("ij,j->i", rows[found], query)
        best = found[np.lexsort((-numbers[found], -scores))[:first]]

        def others() -> Iterator[int]:
            left = np.einsum("ij,j->i", rows, query)
            left[best] = np.nan
            yield from best_first(np, left, numbers)

        return (owners[row] for row in chain(best.tolist(), others()))
