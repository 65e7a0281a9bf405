"""What a storage has to do: keep objects by name, create one if it is absent, swap one if it is unchanged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


class Found(NamedTuple):
    """An object, and what tells whether it was changed since."""

    data: bytes
    token: str


class Outcome(Enum):
    """What came of a request that may change something, if it is not known to have been done."""

    REFUSED = "refused"
    """The condition did not hold: the name exists, or the object was changed."""
    UNKNOWN = "unknown"
    """No answer, or one that leaves it open: it may have been done, or may be done later."""


class Archive(ABC):
    """A storage. Names are of ASCII letters, digits, and `-_.~%/`; none begins or ends with `/`.

    Every method may be called from several OS threads. What the storage refuses for the moment (busy, no connection, an
    error of its own) raises `RemoteError`, once a few tries have failed. What it refuses for good (no such bucket, no
    permission) raises `AccessError` or `NotFoundError`.
    """

    def keep_as(self, folder: str, path: Path) -> None:  # noqa: B027 - most storages have no modes of files
        """Give objects below a prefix the permissions of the file at a path, if the storage has permissions.

        Args:
            folder: the prefix, which is the folder of a store.
            path: the path of the store's file on this machine. The file need not exist yet.

        """

    @abstractmethod
    def read(self, name: str) -> Found | None:
        """Return an object, None if there is none."""

    @abstractmethod
    def look(self, name: str) -> str | None:
        """Return the token of an object, without its bytes; None if there is none."""

    @abstractmethod
    def create(self, name: str, data: bytes) -> str | Outcome:
        """Put an object where there is none; return its token."""

    @abstractmethod
    def swap(self, name: str, data: bytes, token: str) -> str | Outcome:
        """Replace an object that still has this token; return the new one."""

    @abstractmethod
    def names(self, prefix: str) -> list[str]:
        """Return the names that begin with a prefix, sorted."""

    def names_after(self, prefix: str, after: str) -> list[str]:
        """Return the names that begin with a prefix and sort behind one; those before cost nothing where it can be."""
        return [name for name in self.names(prefix) if name > after]

    @abstractmethod
    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; those that are not there are passed over."""

    @abstractmethod
    def ages(self, prefix: str) -> dict[str, float]:
        """Return how many seconds ago each object with a prefix was put, by the storage's clock."""

    def append_fenced(self, *_request: Any) -> str | Outcome | None:
        """Create an object if a head has a token: (head's name, its token, name, bytes). None where that takes two."""
        return None

    def read_all(self, names: Sequence[str]) -> list[Found | None]:
        """Return several objects; side by side where that is quicker."""
        return [self.read(name) for name in names]

    @abstractmethod
    def close(self) -> None:
        """Let go of connections."""
