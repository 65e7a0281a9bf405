"""Values of codecs that are not registered in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from statelog.redaction import HIDDEN_VALUE, names_credential


@dataclass(frozen=True, slots=True)
class Unregistered:
    """A value of a codec that is not registered in this process: the codec's name, and what it encoded to."""

    codec: str
    payload: Any

    def __repr__(self) -> str:
        """Return a text with the codec and the payload, but without the payload of a secret."""
        return f"Unregistered(codec={self.codec!r}, payload={self.shown!r})"

    @property
    def shown(self) -> Any:
        """The payload for display. It is asterisks if the name of the codec is that of a secret, key or token."""
        return HIDDEN_VALUE if names_credential(self.codec) else self.payload

    def __hash__(self) -> int:
        """By codec alone: what it encoded to may be a list."""
        return hash(self.codec)
