"""Interfaces for reading the log, from a transaction or a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator


class Log(Protocol):
    """The records of a log."""

    def get_log(self, lsn: int) -> memoryview | None:
        """Return a record, borrowed."""

    def lend_log(self, lsn: int) -> memoryview | None:
        """Return a borrowed record without a check of its MAC.

        Use it to read nodes, whose digests are checked instead.
        """

    def last_lsn(self) -> int:
        """Return the last LSN, or 0 in an empty log."""


class IndexedLog(Log, Protocol):
    """A transaction of `storage`, or a batch over one, to read records and the index from."""

    def get_index(self, key: bytes) -> bytes | None:
        """Return an index payload."""

    def last_index(self, prefix: bytes) -> tuple[bytes, bytes] | None:
        """Return the greatest key with a prefix."""

    def scan_index(self, prefix: bytes, *, start: bytes = b"", reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys with a prefix, from a key on, ascending or descending."""
