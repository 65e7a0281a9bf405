"""The arguments and the verdicts of the checks of a guard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from statelog.errors import UsageError

REASON_SIZE_MAX: Final = 200
"""The maximum number of characters of a reason."""

Kind = Literal["allow", "redact", "quarantine", "refuse"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check. `allow`, `redact`, `quarantine` and `refuse` return one.

    Attributes:
        kind: "allow", "redact", "quarantine" or "refuse".
        reason: the reason, which is stored and shown.
    """

    kind: Kind
    reason: str = ""


_ALLOWED = Verdict("allow")


def allow() -> Verdict:
    """Return the verdict that stores or shows a value unchanged."""
    return _ALLOWED


def redact(reason: str) -> Verdict:
    """Return the verdict that replaces a value by `[REDACTED by check: reason]`. On write, the value is lost."""
    return _verdict("redact", reason)


def quarantine(reason: str) -> Verdict:
    """Return the verdict that keeps a value and hides it from reads without `include_quarantined=True`."""
    return _verdict("quarantine", reason)


def refuse(reason: str) -> Verdict:
    """Return the verdict that makes the write or read of a value raise CheckError."""
    return _verdict("refuse", reason)


def _verdict(kind: Kind, reason: str) -> Verdict:
    if not isinstance(reason, str) or not 0 < len(reason) <= REASON_SIZE_MAX:
        message = f"the reason of a verdict must be a str of 1 to {REASON_SIZE_MAX} characters, not {reason!r:.40}"
        raise UsageError(message, argument="reason")
    return Verdict(kind, "".join(each if each.isprintable() else "?" for each in reason))


@dataclass(frozen=True, slots=True)
class Where:
    """The location of a value that a check examines.

    Attributes:
        act: "write" or "read".
        source: "thread", "metadata", "board", "claim", "durable" or "langgraph".
        path: the channel, or the key of an entry. In records of the library, the name of a part, such as `arguments`.
            If the check is called for a part of a value, the names and positions down to the part follow.
        thread: the id of the thread, or None.
        key: the key of the entry of the board, or None.
        agent: the board's agent that writes or wrote the entry, or None.
    """

    act: Literal["write", "read"]
    source: str
    path: str
    thread: str | None = None
    key: str | None = None
    agent: str | None = None

    @property
    def is_own(self) -> bool:
        """Whether the location is in a record of the library, whose values are checked before they are stored."""
        return self.path in _OWN_CHANNELS if self.key is None else self.key.startswith(_OWN_ENTRIES)


_OWN_CHANNELS = frozenset(("statelog:steps", "statelog:run", "langgraph:checkpoint"))
_OWN_ENTRIES = "durable/"


class Check(Protocol):
    """A function that examines a value before it is written, or when it is read."""

    def __call__(self, value: Any, where: Where, /) -> Verdict:
        """Return a verdict on a value."""
