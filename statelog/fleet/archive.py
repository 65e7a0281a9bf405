"""The interface of a storage: read objects by name, create an object if absent, swap an object if unchanged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


class StoredObject(NamedTuple):
    """An object, and the token of its current state."""

    data: bytes
    token: str


class Outcome(Enum):
    """The result of a write request that was refused or may have failed. A success returns a token instead."""

    REFUSED = "refused"
    """The condition was not met: the name exists, or the object has changed."""
    UNKNOWN = "unknown"
    """There was no clear answer: the request may have succeeded, or may succeed later."""


class Archive(ABC):
    """A storage. Names consist of ASCII letters, digits and `-_.~%/`. A name does not begin or end with `/`.

    Every method may be called from several OS threads. A temporary failure (busy, no connection, an
    internal error) raises `RemoteError` after a few tries. A permanent failure (no such bucket, no
    permission) raises `AccessError` or `NotFoundError`.

    If the storage keeps connections, a request after `close` raises `ClosedError`, and a request in a
    forked child raises `ForkedError`.
    """

    def keep_as(self, folder: str, path: Path) -> None:  # noqa: B027 - most storages have no modes of files
        """Give the objects below a prefix the same permissions as a local file, if the storage has permissions.

        Args:
            folder: the prefix, which is the folder of a store.
            path: the path of the store's file on this machine. The file need not exist yet.
        """

    @abstractmethod
    def read(self, name: str) -> StoredObject | None:
        """Return the object, or None if it does not exist."""

    @abstractmethod
    def look(self, name: str) -> str | None:
        """Return the token of an object without its bytes, or None if it does not exist."""

    @abstractmethod
    def create(self, name: str, data: bytes) -> str | Outcome:
        """Create an object that does not exist. Return its token."""

    @abstractmethod
    def swap(self, name: str, data: bytes, token: str) -> str | Outcome:
        """Replace an object that still has this token. Return the new token."""

    @abstractmethod
    def names(self, prefix: str) -> list[str]:
        """Return the names that begin with a prefix, sorted."""

    def names_after(self, prefix: str, after: str) -> list[str]:
        """Return the names that begin with a prefix and sort after a name.

        Earlier names cost nothing if the storage can skip them.
        """
        return [name for name in self.names(prefix) if name > after]

    @abstractmethod
    def remove(self, names: Iterable[str]) -> None:
        """Remove objects. Missing objects are ignored."""

    @abstractmethod
    def ages(self, prefix: str) -> dict[str, float]:
        """Return the age in seconds, by the storage's clock, of each object whose name begins with a prefix."""

    def append_fenced(self, *_request: Any) -> str | Outcome | None:
        """Create an object if the head still has the given token.

        The request is (head's name, token, object's name, bytes). Return None if the storage cannot
        do this in one request.
        """
        return None

    def read_all(self, names: Sequence[str]) -> list[StoredObject | None]:
        """Return several objects, fetched in parallel if that is faster."""
        return [self.read(name) for name in names]

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""
