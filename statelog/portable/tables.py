"""Numbered rows of fixed width in a file, so that an import or export of millions of nodes needs little memory."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

_BUFFER_SIZE_BYTES = 64 * 1024


class Table:
    """Rows in an unnamed temporary file, which is deleted when it is closed. A row that was never written has zeros."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._file = tempfile.TemporaryFile(prefix="statelog-")  # noqa: SIM115 - closed by `close`
        self._descriptor = self._file.fileno()
        self._count = 0
        self._flushed = 0
        self._buffer = bytearray()
        """The unwritten rows, which begin with number `_flushed`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __len__(self) -> int:
        return self._count

    def append(self, row: bytes) -> int:
        """Append a row, and return its number."""
        assert len(row) == self._width
        self._buffer += row
        self._count += 1
        if len(self._buffer) >= _BUFFER_SIZE_BYTES:
            self._flush()
        return self._count - 1

    def extend(self, count: int) -> int:
        """Append `count` rows of zeros, and return the number of the first.

        They take no space before they are written.
        """
        first = self._count
        self._flush()
        self._count = self._flushed = first + count
        return first

    def put(self, number: int, row: bytes) -> None:
        """Overwrite a row."""
        assert number < self._count
        assert len(row) == self._width
        at = (number - self._flushed) * self._width
        if at >= 0:
            self._buffer[at : at + self._width] = row
        else:
            os.pwrite(self._descriptor, row, number * self._width)

    def get(self, number: int) -> bytes:
        """Return a row."""
        assert 0 <= number < self._count
        at = (number - self._flushed) * self._width
        if at >= 0:
            return bytes(self._buffer[at : at + self._width])
        return os.pread(self._descriptor, self._width, number * self._width).ljust(self._width, b"\0")

    def _flush(self) -> None:
        if self._buffer:
            os.pwrite(self._descriptor, self._buffer, self._flushed * self._width)
            self._flushed = self._count
            self._buffer.clear()
