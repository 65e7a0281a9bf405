"""Decides what counts as a secret in one store, by a guard's rules and handles. Fingerprints use the store's key."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from statelog.guard.secrets import replaced

if TYPE_CHECKING:
    from statelog.guard.handles import Handles
    from statelog.guard.secrets import Secrets

OWN_NAMES = ("statelog:", "durable/")
"""Prefixes in the names of channels and entries that contain the library's own records."""

_FINGERPRINT_SIZE_BYTES = 4
_NAMES_MAX = 4096
_OF_LANGGRAPH = "langgraph:"
"""The name prefix of channels that contain no user values, or only values that have already passed the guard."""
_OWN_COUNT = 2
"""In the library's own records, a path begins with this number of the library's names: the channel and a member."""
_ERRORS = frozenset([("error",), ("e",)])
"""The members that store exceptions. The names of an exception's members are also the library's, not the user's."""


class Detector:
    """Decides what counts as a secret.

    Args:
        secrets: the rules.
        handles: the handles, or None.
        key: the key of the store's fingerprints.
    """

    def __init__(self, secrets: Secrets, handles: Handles | None, key: bytes) -> None:
        self.secrets = secrets
        self.handles = handles
        self._key = key
        self._sensitive_names: dict[str, bool] = {}

    def without_handles(self) -> Detector:
        """Return a detector with the same rules and key, but without handles."""
        return Detector(self.secrets, None, self._key)

    def fingerprint(self, secret: bytes) -> str:
        """Return the fingerprint of a secret."""
        return blake2b(secret, digest_size=_FINGERPRINT_SIZE_BYTES, key=self._key).hexdigest()

    def may_hold(self, data: bytes) -> bool:
        """Return False if bytes certainly contain no secret."""
        handles = self.handles
        return self.secrets.may_be_in(data) or (handles is not None and handles.are_in(data))

    def rule_in(self, data: bytes) -> str | None:
        """Return the rule of a secret in bytes, or its handle. Return None if the bytes have no secret."""
        if self.handles is not None and (found := self.handles.find(data)):
            return found[0].rule
        rules = self.secrets.find(data, is_text=False)
        return rules[0].rule if rules else None

    def names_field(self, path: tuple[str, ...]) -> bool:
        """Return True if the guard declares every value at a path secret."""
        if path and path[0].startswith(_OF_LANGGRAPH):
            return False
        if path and path[0].startswith(OWN_NAMES):
            path = path[_OWN_COUNT + (path[1:_OWN_COUNT] in _ERRORS) :]
            return path != () and self.secrets.names_field(path)
        return self.secrets.names_field(path)

    def is_sensitive_name(self, name: str) -> bool:
        """Return True if the name of a channel or an entry may make its value a secret."""
        found = self._sensitive_names.get(name)
        if found is None:
            if len(self._sensitive_names) >= _NAMES_MAX:
                self._sensitive_names.clear()
            found = self._sensitive_names[name] = self.names_field((name,)) or self.secrets.is_sensitive_name(name)
        return found

    def is_sensitive(self, path: tuple[str, ...]) -> bool:
        """Return True if the names on a path may make the value a secret."""
        return path != () and (self.is_sensitive_name(path[-1]) or self.names_field(path))

    def shown(self, text: str) -> str:
        """Return a text with its secrets redacted, for a message."""
        data = text.encode("utf-8", "replace")
        data = replaced(data, self.secrets.find(data), lambda _found, _secret: b"[REDACTED]")
        text = data.decode("utf-8", "replace")
        return text if self.handles is None else self.handles.hide(text)
