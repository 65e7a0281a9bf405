"""The interface of a transaction that reads the table `meta`."""

from __future__ import annotations

from typing import Protocol


class MetaReader(Protocol):
    """A transaction that reads the table `meta`."""

    def get_meta(self, key: bytes) -> bytes | None:
        """Return the payload under a key, or None."""
