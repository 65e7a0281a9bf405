"""Finds the vectors of texts. A purge erases them with the texts, because a vector can confirm a guess of its text.

LangGraph's store and CrewAI's memory keep texts in one channel of a thread, and the vectors of the texts in another
channel, under the same names. An entry of `statelog.Memory` has the facts of one key, each with its text and its
vector. In an erased vector, each number is NaN, so no search finds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.format import cbor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from statelog.guard.items import Path

_CHANNEL = "vectors"
_TEXTS = {"items": 2, "records": 1}
"""For each channel of texts, the length of the path from the channel to a text that has vectors."""
_FACTS = ("memory/", "/:facts/")
"""The prefix of an entry's key if the entry has facts, and a string that such a key contains."""
_FACT_TEXT, _FACT_VECTOR = "text", "vector"
_NAN = b"\xff"
"""The byte of which a NaN in an erased vector consists. Stored embeddings never contain NaN."""
_THREADS = ("langgraph:store", "crewai-memory:", "statelog:board")
"""Prefixes of the ids of threads that may have vectors. The last one is the id of the board."""


def has_vectors(thread: str) -> bool:
    """Return True if the thread with this id may have vectors."""
    return thread.startswith(_THREADS)


class Vectors:
    """The paths of vectors whose texts have a secret. A scan of a thread uses this object as a `Looker`."""

    def __init__(self) -> None:
        self.places: set[Path] = set()
        self._above: set[Path] = set()
        """The paths of dicts that may contain a vector to erase."""
        self._facts: set[str] = set()
        """The keys of entries with a fact that has a secret. All vectors of such an entry are erased."""

    @property
    def is_empty(self) -> bool:
        """Whether no text with a vector has a secret."""
        return not (self.places or self._facts)

    def add(self, paths: Iterable[Path]) -> None:
        """Add the vectors of the texts at some paths."""
        for path in paths:
            if path[1:] == (_FACT_TEXT,) and path[0].startswith(_FACTS[0]) and _FACTS[1] in path[0]:
                self._facts.add(path[0])
            names = _TEXTS.get(path[0]) if path else None
            if names is not None and len(path) > names:
                place = path[1 : names + 1]
                self.places.add(place)
                self._above.update(place[:size] for size in range(len(place)))

    def erased(self, item: bytes, path: Path) -> bytes:
        """Erase the vectors of texts with secrets in an encoded value. Return the same object if it has none."""
        if path and path[0] in self._facts:
            return cbor.encode(_without_vectors(cbor.decode(item, loosely=True), path[1:] == (_FACT_VECTOR,)))
        if path[:1] != (_CHANNEL,) or not self.is_sensitive(path):
            return item
        return cbor.encode(self._erased(cbor.decode(item, loosely=True), path[1:]))

    def _erased(self, value: Any, place: Path) -> Any:
        if type(value) is dict:
            return {name: self._erased(each, (*place, name)) for name, each in value.items()}
        return _NAN * len(value) if type(value) is bytes and self._is_of_text(place) else value

    def _is_of_text(self, place: Path) -> bool:
        return any(place[:size] in self.places for size in (1, 2))

    # --- called by a scan -------------------------------------------------------------------

    def is_sensitive(self, path: Path) -> bool:
        """Return True if the value at a path is one of the vectors, or may contain one."""
        if path and path[0] in self._facts:
            return path[1:] in ((), (_FACT_VECTOR,))
        return path[:1] == (_CHANNEL,) and (path[1:] in self._above or self._is_of_text(path[1:]))

    def look(self, item: bytes, path: Path) -> bool:
        """Return True if an encoded value has one of the vectors."""
        return self.erased(item, path) != item

    def may_hold(self, _data: bytes) -> bool:
        """Return False, because the bytes of a value do not show whether it is a vector."""
        return False

    def may_be_stored_in(self, _record: bytes, *, any_name: bool) -> bool:  # noqa: ARG002 - as of any looker
        """Return True, because the bytes of a record do not show whether it has a vector."""
        return True

    def names_field(self, _path: Path) -> bool:
        """Return False, because no field is declared to be a vector."""
        return False

    def look_at_name(self, _name: bytes, _path: Path) -> bool:
        """Return False, because names have no vectors."""
        return False


def _without_vectors(value: Any, is_vector: bool) -> Any:  # noqa: FBT001 - of this file
    """Erase the vectors in a list of facts, in one fact, or in the vector of a fact."""
    if type(value) is list:
        return [_without_vectors(each, is_vector) for each in value]
    if type(value) is dict:
        return {name: _without_vectors(each, name == _FACT_VECTOR) for name, each in value.items()}
    return _NAN * len(value) if is_vector and type(value) is bytes else value
