"""Caches the fingerprints of keyed lists, which the next upsert into the list needs."""

from __future__ import annotations

SIZE_BYTES_MAX = 8 * 1024 * 1024
"""The maximum size of all cached fingerprints, at 2 bytes an item. A list that would take more than half of it is
upserted by the general path.
"""

_LISTS_MAX = 4096


class Prints:
    """A cache of the fingerprints of keyed lists, keyed by the list's digest.

    `take` transfers ownership to the caller, who returns the extended fingerprints with `keep`.
    """

    __slots__ = ("_known", "_size_bytes")

    def __init__(self) -> None:
        self._known: dict[bytes, bytearray] = {}
        self._size_bytes = 0

    def take(self, digest: bytes) -> bytearray | None:
        """Return the fingerprints of a list, and remove them from the cache."""
        prints = self._known.pop(digest, None)
        if prints is not None:
            self._size_bytes -= len(prints)
        return prints

    def keep(self, digest: bytes, prints: bytearray) -> None:
        """Cache the fingerprints of a list, at most half of `SIZE_BYTES_MAX`. If the cache is full, clear it first."""
        self.take(digest)
        if self._size_bytes > SIZE_BYTES_MAX // 2 or len(self._known) >= _LISTS_MAX:
            self._known.clear()
            self._size_bytes = 0
        self._known[digest] = prints
        self._size_bytes += len(prints)
