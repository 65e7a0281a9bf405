"""The guard of a store: its rules and its handles."""

from __future__ import annotations

from secrets import token_bytes
from weakref import WeakSet

from statelog import redaction
from statelog.errors import UsageError
from statelog.guard.handles import Handles
from statelog.guard.hook import Redactor
from statelog.guard.secrets import Secrets

KEY_SIZE_BYTES = 32

_rules: WeakSet[Secrets] = WeakSet()
"""The rules of the guards of this process."""


def _hidden(text: str) -> str:
    """Return a message of an error without the secrets that the rules of a guard find."""
    data = text.encode("utf-8", "surrogatepass")
    for secrets in list(_rules):
        for found in reversed(secrets.find(data)):
            data = data[: found.start] + f"[REDACTED {found.rule}]".encode() + data[found.end :]
    return data.decode("utf-8", "surrogatepass")


class Guard:
    """Keeps secrets out of a store: `statelog.open(path, guard=Guard())`.

    Args:
        secrets: what counts as a secret, and what happens to it; the rules, with redaction, if left out.
        handles: secrets that have a name.

    Raises:
        GuardError: google-re2 is missing.
        UsageError: an argument has another type.
    """

    def __init__(self, *, secrets: Secrets | None = None, handles: Handles | None = None) -> None:
        if secrets is not None and not isinstance(secrets, Secrets):
            message = f"secrets is a guard.Secrets, not {type(secrets).__name__}"
            raise UsageError(message, argument="secrets")
        if handles is not None and not isinstance(handles, Handles):
            message = f"handles is a guard.Handles, not {type(handles).__name__}"
            raise UsageError(message, argument="handles")
        self.secrets = Secrets() if secrets is None else secrets
        self.handles = handles
        if not _rules:
            redaction.hide_with(_hidden)
        _rules.add(self.secrets)

    def __repr__(self) -> str:
        return f"<Guard {self.secrets!r}{'' if self.handles is None else f' {self.handles!r}'}>"

    def redactor(self, key: bytes | None = None) -> Redactor:
        """Return what the guard does with the key of a store; with a key of its own if left out."""
        return Redactor(self.secrets, self.handles, token_bytes(KEY_SIZE_BYTES) if key is None else key)
