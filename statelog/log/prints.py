"""Fingerprints of keyed lists, as this process remembers them for the next upsert."""

from __future__ import annotations

SIZE_BYTES_MAX = 8 * 1024 * 1024
"""In memory, 2 bytes an item: lists that are longer than half of it take the general path."""

_LISTS_MAX = 4096


class Prints:
    """Fingerprints by the list's digest. Whoever takes some owns them, and gives them back when they have grown."""

    __slots__ = ("_known", "_size_bytes")

    def __init__(self) -> None:
        self._known: dict[bytes, bytearray] = {}
        self._size_bytes = 0

    def take(self, digest: bytes) -> bytearray | None:
        """Return those of a list, and forget them."""
        prints = self._known.pop(digest, None)
        if prints is not None:
            self._size_bytes -= len(prints)
        return prints

    def keep(self, digest: bytes, prints: bytearray) -> None:
        """Remember those of a list, at most `SIZE_BYTES_MAX // 2`; all others are forgotten where it is too much."""
        self.take(digest)
        if self._size_bytes > SIZE_BYTES_MAX // 2 or len(self._known) >= _LISTS_MAX:
            self._known.clear()
            self._size_bytes = 0
        self._known[digest] = prints
        self._size_bytes += len(prints)
