"""A compact copy of a vector matrix, a quarter of its size, in which a search finds rows that may be the most similar.

A search for the most similar rows scans the whole matrix, and reading the memory takes most of the time. So each row
has a copy, in which one byte, the code, stands for each number: the number is about `code * scale`. The difference
between the coarse and the exact score of a row has a bound. Only rows whose coarse score is within this bound of the
best ones are compared exactly.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any, Final

from statelog.kernels import rows_dot

if TYPE_CHECKING:
    from collections.abc import Iterable

_CODE_MAX: Final = 127
_SUM_MAX: Final = (1 << 31) - 1
_ROWS_CODED: Final = 4096
"""The number of rows that are copied at once, so that temporary arrays stay small."""
_ROUNDING: Final = 1e-6
"""An upper bound of the rounding error of float32 for each number of a vector of length 1."""


class CoarseRows:
    """Compact copies of the rows of a matrix. Each row has length 1, or is all zeros.

    Args:
        np: numpy.
        dims: the size of the vectors.
    """

    def __init__(self, np: Any, dims: int) -> None:
        self._np = np
        self._dims = dims
        self._vector_max = min((1 << 15) - 1, _SUM_MAX // (_CODE_MAX * dims))
        """The maximum of a query's scaled numbers. Larger numbers would make the sums overflow."""
        self._count = 0
        self._codes = np.zeros((0, dims), dtype=np.int8)
        self._scales = np.zeros(0, dtype=np.float32)
        self._floors = np.zeros(0, dtype=np.float32)
        """A number for each row, which is added to the row's score.

        It is -inf for a removed row, so that no search finds the row, and otherwise 0.
        """
        self._scale_max = 0.0

    def drop(self, rows: Iterable[int]) -> None:
        """Exclude rows from all further searches. Some of the rows may not be copied yet."""
        for row in rows:
            if row < self._count:
                self._floors[row] = -self._np.inf

    def candidates(self, rows: Any, query: Any, best: int) -> Any:
        """Return ascending row numbers that include the `best` most similar rows.

        Return None if that would exclude too few rows.

        Args:
            rows: all rows of the matrix, as float32. A dead row is all NaN.
            query: a vector of length 1, or all zeros.
            best: the number of most similar rows to find.
        """
        np, count = self._np, len(rows)
        largest = float(np.abs(query).max())
        if not largest or not self._vector_max or count <= best:
            return None
        self._copy(rows)
        step = largest / self._vector_max
        sums = np.empty(count, dtype=np.int32)
        rows_dot(self._codes[:count], np.rint(query / step).astype(np.int16), sums)
        scores = sums.astype(np.float32)
        scores *= self._scales[:count]
        scores *= step
        scores += self._floors[:count]
        # The bound follows from |row * query - coarse| <= |row - coarse row| * |query| + |coarse row| * |query -
        # coarse query|.
        half, dims = self._scale_max / 2, self._dims
        bound = half * float(np.abs(query).sum()) + (sqrt(dims) + dims * half) * step / 2 + _ROUNDING * dims
        least = np.partition(scores, count - best)[count - best] - 2.02 * bound
        found = np.flatnonzero(scores >= least)
        return found if len(found) * 4 < count else None

    def _copy(self, rows: Any) -> None:
        """Copy the rows that were added since the last call."""
        np, count = self._np, len(rows)
        if count > len(self._codes):
            more = (1 << count.bit_length()) - len(self._codes)
            # Allocate one array and write it at once. For such an array numpy requests large pages, which are read
            # twice as fast.
            self._codes = np.concatenate([self._codes, np.zeros((more, self._dims), dtype=np.int8)])
            self._scales = np.concatenate([self._scales, np.zeros(more, dtype=np.float32)])
            self._floors = np.concatenate([self._floors, np.zeros(more, dtype=np.float32)])
        for start in range(self._count, count, _ROWS_CODED):
            stop = min(start + _ROWS_CODED, count)
            some = rows[start:stop]
            is_dead = np.isnan(some[:, 0])
            some = np.where(is_dead[:, None], np.float32(0), some)
            scales = np.abs(some).max(axis=1) / np.float32(_CODE_MAX)
            divisors = np.where(scales > 0, scales, np.float32(1))
            self._codes[start:stop] = np.rint(some / divisors[:, None])
            self._scales[start:stop] = scales
            self._floors[start:stop] = np.where(is_dead, np.float32(-np.inf), np.float32(0))
            self._scale_max = max(self._scale_max, float(scales.max()))
        self._count = count
