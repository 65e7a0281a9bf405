"""Interfaces for reading the log, from a transaction or a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator


class Log(Protocol):
    """The records of a log."""

    def get_log(self, lsn: int) -> memoryview | None:
        """Return a borrowed view of a record, or None."""

    def lend_log(self, lsn: int) -> memoryview | None:
        """Return a borrowed view of a record without checking its MAC.

        Use this method to read nodes, whose digests are checked instead.
        """

    def last_lsn(self) -> int:
        """Return the LSN of the last record, or 0 in an empty log."""


class IndexedLog(Log, Protocol):
    """A transaction of `storage`, or a batch over one, which can read records and the index."""

    def get_index(self, key: bytes) -> bytes | None:
        """Return the index payload of a key, or None."""

    def last_index(self, prefix: bytes) -> tuple[bytes, bytes] | None:
        """Return the greatest key that begins with `prefix`, and its payload."""

    def scan_index(self, prefix: bytes, *, start: bytes = b"", reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys that begin with `prefix` and their payloads, from the key `start` on, or in reverse."""
