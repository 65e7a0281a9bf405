"""Carries out the protocol's requests against a storage."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from statelog.errors import CorruptionError, NewerFormatError, RemoteError
from statelog.fleet import protocol, segments
from statelog.fleet.archive import Outcome
from statelog.fleet.names import HEAD
from statelog.fleet.protocol import CreateObject, ListObjects, ReadObject, ReadToken, SwapObject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from statelog.fleet.archive import Archive, StoredObject
    from statelog.fleet.protocol import Asking, Request
    from statelog.format.mac import StoreKey

T = TypeVar("T")

_UNKNOWN_MAX = 5
"""The number of unknown outcomes in a row after which the storage counts as unavailable.

The caller's next attempt repeats the same bytes.
"""

_PAUSE_S = 0.05


class Performer:
    """Carries out requests for the objects of one store.

    Attributes:
        requests: number of requests so far.
        key: the key of the store, or None if it has no key.
    """

    def __init__(self, archive: Archive, folder: str, key: StoreKey | None = None) -> None:
        self.archive = archive
        self.folder = folder
        self.key = key
        self.requests = 0

    def perform(self, asking: Asking[T]) -> T:
        """Carry out the requests of a generator, and return its result.

        Raises:
            RemoteError: the storage is unavailable. Other errors are the errors of the storage and of
                the protocol.
        """
        unknown = 0
        answer: Any = None
        while True:
            try:
                request = asking.send(answer)
            except StopIteration as ended:
                result: T = ended.value
                return result
            except (CorruptionError, NewerFormatError) as error:  # Add the folder, which the protocol does not know.
                facts = {**error.facts, "object": f"{self.folder}{error.facts['object']}"}
                raise type(error)(f"{self.folder}{error.message}", **facts) from error
            answer = self._carry_out(request)
            # Count only writes, because a successful read does not show that writes work.
            if isinstance(request, CreateObject | SwapObject):
                unknown = unknown + 1 if answer is Outcome.UNKNOWN else 0
            if unknown >= _UNKNOWN_MAX:
                asking.close()
                message = f"the storage did not answer {unknown} requests in a row"
                raise RemoteError(message, folder=self.folder)
            if answer is Outcome.UNKNOWN:
                time.sleep(_PAUSE_S * 2**unknown)

    def _carry_out(self, request: Request) -> Any:
        if isinstance(request, ListObjects):
            return self.names(request.prefix, request.after)
        self.requests += 1
        if isinstance(request, ReadObject):
            return self.archive.read(self.folder + request.name)
        if isinstance(request, ReadToken):
            return self.archive.look(self.folder + request.name)
        if isinstance(request, CreateObject):
            return self.archive.create(self.folder + request.name, request.data)
        return self.archive.swap(self.folder + request.name, request.data, request.token)

    def put(self, name: str, data: bytes) -> None:
        """Create an object (F6). Raises FencedError if another writer has put a different object with this name."""
        self.perform(protocol.put(name, data))

    def append_fenced(self, token: str, name: str, data: bytes) -> bool:
        """Append a segment in one request, if the storage can do that. Return True if the segment is valid (F2)."""
        answer = self.archive.append_fenced(self.folder + HEAD, token, self.folder + name, data)
        self.requests += answer is not None
        return isinstance(answer, str)

    def read(self, name: str) -> StoredObject | None:
        """Return the object, or None if it does not exist."""
        self.requests += 1
        return self.archive.read(self.folder + name)

    def names(self, prefix: str, after: str) -> list[str]:
        """Return the names that begin with a prefix and sort after a name, without the store's folder."""
        self.requests += 1
        found = self.archive.names_after(self.folder + prefix, self.folder + after)
        return [name.removeprefix(self.folder) for name in found]

    def read_all(self, names: Sequence[str]) -> list[bytes]:
        """Return several objects. Raises CorruptionError if one is missing. Facts: object."""
        self.requests += len(names)
        found = self.archive.read_all([self.folder + name for name in names])
        for name, each in zip(names, found, strict=True):
            if each is None:
                message = f"{self.folder}{name} is missing from the storage"
                raise CorruptionError(message, object=self.folder + name)
        return [each.data for each in found if each is not None]

    def read_segments(self, names: Sequence[str]) -> list[bytes]:
        """Return several segments without their MACs. Raises as `read_all` and `open_segment`."""
        return [
            segments.open_segment(self.folder + name, data, self.key)
            for name, data in zip(names, self.read_all(names), strict=True)
        ]

    def ages(self) -> dict[str, float]:
        """Return the age in seconds of each of the store's objects, keyed by name."""
        self.requests += 1
        found = self.archive.ages(self.folder)
        return {name.removeprefix(self.folder): age_s for name, age_s in found.items()}

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects."""
        self.requests += 1
        self.archive.remove([self.folder + name for name in names])
