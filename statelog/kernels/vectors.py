"""The kernel for dot products of vectors of small integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog._kernels import lib
from statelog.kernels.calls import OK, USAGE, fail, from_buffer

if TYPE_CHECKING:
    from collections.abc import Callable

_rows_dot: Callable[..., int] = lib.sl_rows_dot


def rows_dot(rows: Any, vector: Any, sums: Any) -> None:
    """Write the dot products of rows with a vector. Sums wrap at 32 bits.

    Args:
        rows: a contiguous buffer of int8: the rows, one after the other.
        vector: a contiguous buffer of int16 with as many numbers as a row.
        sums: a writable, contiguous buffer of int32 with one number for each row.

    Raises:
        UsageError: the sizes of the buffers do not match.
    """
    at, values = from_buffer("int8_t[]", rows), from_buffer("int16_t[]", vector)
    results = from_buffer("int32_t[]", sums, require_writable=True)
    count, dims = len(results), len(values)
    if len(at) != count * dims:
        fail(USAGE, "product of rows")
    status = _rows_dot(at, count, dims, values, results)
    if status != OK:
        fail(status, "product of rows")
