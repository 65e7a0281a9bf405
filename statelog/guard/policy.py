"""The guard of a store: its rules and its handles."""

from __future__ import annotations

from secrets import token_bytes
from typing import TYPE_CHECKING
from weakref import WeakSet

from statelog import redaction
from statelog.errors import UsageError
from statelog.guard.checks import TIMEOUT_DEFAULT_S, Checks, checked_list, checked_timeout_s
from statelog.guard.detector import Detector
from statelog.guard.handles import Handles
from statelog.guard.hook import Redactor
from statelog.guard.secrets import Secrets, replaced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from statelog.guard.verdicts import Check

KEY_SIZE_BYTES = 32

_rules: WeakSet[Secrets] = WeakSet()
"""The rules of all guards of this process."""


def _hidden(text: str) -> str:
    """Redact the secrets in an error's message by the rules of all guards."""
    data = text.encode("utf-8", "surrogatepass")
    for secrets in list(_rules):
        data = replaced(data, secrets.find(data), lambda found, _secret: f"[REDACTED {found.rule}]".encode())
    return data.decode("utf-8", "surrogatepass")


class Guard:
    """Keeps secrets and injected instructions out of a store: `statelog.open(path, guard=Guard())`.

    Args:
        secrets: what counts as a secret, and what happens to it. By default, secrets that the rules find are redacted.
        handles: the named secrets.
        on_write: checks of values that are written: functions (value, where) -> Verdict, which are called in this
            order.
        on_read: checks of values that are read.
        check_timeout_s: the maximum duration of one call of a check, above 0 and up to 600 s. A check that takes longer
            refuses the value.

    Raises:
        GuardError: google-re2 is missing.
        UsageError: an argument has the wrong type.
    """

    def __init__(
        self,
        *,
        secrets: Secrets | None = None,
        handles: Handles | None = None,
        on_write: Sequence[Check] = (),
        on_read: Sequence[Check] = (),
        check_timeout_s: float = TIMEOUT_DEFAULT_S,
    ) -> None:
        if secrets is not None and not isinstance(secrets, Secrets):
            message = f"secrets must be a guard.Secrets, not {type(secrets).__name__}"
            raise UsageError(message, argument="secrets")
        if handles is not None and not isinstance(handles, Handles):
            message = f"handles must be a guard.Handles, not {type(handles).__name__}"
            raise UsageError(message, argument="handles")
        self.on_write = checked_list("on_write", on_write)
        self.on_read = checked_list("on_read", on_read)
        self.check_timeout_s = checked_timeout_s(check_timeout_s)
        self.secrets = Secrets() if secrets is None else secrets
        self.handles = handles
        if not _rules:
            redaction.hide_with(_hidden)
        _rules.add(self.secrets)

    def __repr__(self) -> str:
        return f"<Guard {self.secrets!r}{'' if self.handles is None else f' {self.handles!r}'}>"

    def redactor(self, key: bytes | None = None) -> Redactor:
        """Return a redactor for a store with this fingerprint key.

        Without `key`, the redactor gets a key of its own.
        """
        made = Redactor(Detector(self.secrets, self.handles, token_bytes(KEY_SIZE_BYTES) if key is None else key))
        if self.on_write:
            made.on_write = Checks(self.on_write, self.check_timeout_s, made.shown)
        if self.on_read:
            made.on_read = Checks(self.on_read, self.check_timeout_s, made.shown)
        return made
