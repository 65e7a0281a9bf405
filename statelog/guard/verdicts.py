"""What a check of a guard is told about a value, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from statelog.errors import UsageError

REASON_SIZE_MAX: Final = 200
"""The maximum number of characters of a reason."""

Kind = Literal["allow", "redact", "quarantine", "refuse"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of a check: `allow`, `redact`, `quarantine` or `refuse` make one.

    Attributes:
        kind: "allow", "redact", "quarantine" or "refuse".
        reason: the reason, which is stored and shown.
    """

    kind: Kind
    reason: str = ""


_ALLOWED = Verdict("allow")


def allow() -> Verdict:
    """Return the verdict that a value stays as it is."""
    return _ALLOWED


def redact(reason: str) -> Verdict:
    """Return the verdict that `[REDACTED by check: reason]` takes the place of a value. Nobody can read it again."""
    return _verdict("redact", reason)


def quarantine(reason: str) -> Verdict:
    """Return the verdict that a value is kept, and hidden from reads without `include_quarantined=True`."""
    return _verdict("quarantine", reason)


def refuse(reason: str) -> Verdict:
    """Return the verdict that a write, or the read of a value, raises CheckError."""
    return _verdict("refuse", reason)


def _verdict(kind: Kind, reason: str) -> Verdict:
    if not isinstance(reason, str) or not 0 < len(reason) <= REASON_SIZE_MAX:
        message = f"the reason of a verdict is a text of 1 to {REASON_SIZE_MAX} characters, not {reason!r:.40}"
        raise UsageError(message, argument="reason")
    return Verdict(kind, "".join(each if each.isprintable() else "?" for each in reason))


@dataclass(frozen=True, slots=True)
class Where:
    """The place of a value that a check looks at.

    Attributes:
        act: "write" or "read".
        source: "thread", "metadata", "board", "claim", "durable" or "langgraph".
        path: the channel; the key of an entry; in the library's own records a name of the part, such as `arguments`.
            Where a check is asked about a part of a value, the names and positions on the way to the part follow.
        thread: the id of the thread, or None.
        key: the key of the entry of the board, or None.
        agent: the agent of the board that writes, or wrote, the entry; or None.
    """

    act: Literal["write", "read"]
    source: str
    path: str
    thread: str | None = None
    key: str | None = None
    agent: str | None = None

    @property
    def is_own(self) -> bool:
        """Whether a record of the library is here. Its values are checked when runs and LangGraph give them."""
        return self.path in _OWN_CHANNELS if self.key is None else self.key.startswith(_OWN_ENTRIES)


_OWN_CHANNELS = frozenset(("statelog:steps", "statelog:run", "langgraph:checkpoint"))
_OWN_ENTRIES = "durable/"


class Check(Protocol):
    """A function that looks at a value before it is written, or when it is read."""

    def __call__(self, value: Any, where: Where, /) -> Verdict:
        """Return a verdict on a value."""
