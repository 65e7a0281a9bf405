"""Values of codecs that are not registered in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from statelog.display.packed import Coded, unpacked
from statelog.redaction import HIDDEN_VALUE, names_credential


@dataclass(frozen=True, slots=True)
class Unregistered(Coded):
    """A value of a codec that is not registered in this process: the name of the codec, and the encoded payload."""

    codec: str
    payload: Any

    @property
    def stored(self) -> tuple[str, Any]:
        """The name of the codec, and the payload."""
        return self.codec, self.payload

    def __repr__(self) -> str:
        """Return a string with the codec and the payload. The payload of a secret is hidden."""
        if self.shown is not self.payload and self.shown is not HIDDEN_VALUE:
            return repr(self.shown)
        return f"Unregistered(codec={self.codec!r}, payload={self.shown!r})"

    @property
    def shown(self) -> Any:
        """The payload for display: asterisks if the name of the codec suggests a secret, key or token.

        Values packed by a framework's serialiser are shown as far as possible.
        """
        if names_credential(self.codec):
            return HIDDEN_VALUE
        whole = unpacked(self)
        return self.payload if whole is self else whole

    def __hash__(self) -> int:
        """Return the hash of the codec's name. The payload may be a list, which has no hash."""
        return hash(self.codec)
