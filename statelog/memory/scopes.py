"""Scopes, which name the owner of a memory, and the keys and thread ids of a scope."""

from __future__ import annotations

from statelog.board.names import RESERVED, check_bound
from statelog.errors import LimitError, UsageError
from statelog.limits import ENTRY_KEY_SIZE_BYTES_MAX

ROOT = "memory/"
"""The prefix of all keys and thread ids of memories."""
FACTS = ":facts/"
SESSIONS = ":sessions/"

_OWN = (ROOT, RESERVED)
SCOPE_SIZE_BYTES_MAX = 200
"""The maximum size of a scope, which leaves at least half of a key's bytes for the keys of its facts."""


def check_scope(scope: str) -> str:
    """Check a scope, and return it.

    Raises:
        UsageError: the scope is not a path such as `user/42`: it has a pattern, an empty part, a part that begins with
            `:`, or begins with the name of a directory of the library. Facts: argument, value.
        LimitError: the scope is longer than 200 bytes.
    """
    check_bound("scope", scope)
    size = len(scope.encode())
    if size > SCOPE_SIZE_BYTES_MAX:
        message = f"the scope has {size} bytes; at most {SCOPE_SIZE_BYTES_MAX} are allowed"
        raise LimitError(message, argument="scope", value=scope, actual=size, limit=SCOPE_SIZE_BYTES_MAX)
    for part in scope.split("/"):
        if part.startswith(":"):
            message = f"scope {scope!r} has the part {part!r}: parts that begin with ':' are reserved for the library"
            raise UsageError(message, argument="scope", value=scope)
    if f"{scope}/".startswith(_OWN):
        message = f"scope {scope!r} begins with {scope.partition('/')[0]!r}, which is reserved for the library"
        raise UsageError(message, argument="scope", value=scope)
    return scope


def fact_key(scope: str, key: str) -> str:
    """Return the key of the board's entry that has the facts of a key. Raises UsageError, LimitError."""
    check_bound("key", key)
    return _checked(f"{ROOT}{scope}/{FACTS}{key}", "key", key)


def session_key(scope: str, session: str) -> str:
    """Return the id of a session's thread, which is also the key of its entry. Raises UsageError, LimitError."""
    check_bound("session", session)
    if "/" in session:
        message = f"session {session!r} contains '/': a session name is one part; put the other parts into the scope"
        raise UsageError(message, argument="session", value=session)
    return _checked(f"{ROOT}{scope}/{SESSIONS}{session}", "session", session)


def _checked(place: str, argument: str, value: str) -> str:
    size = len(place.encode())
    if size > ENTRY_KEY_SIZE_BYTES_MAX:
        message = (
            f"{argument} {value!r} and its scope make a key of {size} bytes; at most {ENTRY_KEY_SIZE_BYTES_MAX} are"
            " allowed"
        )
        raise LimitError(message, argument=argument, value=value, actual=size, limit=ENTRY_KEY_SIZE_BYTES_MAX)
    return place


def is_within(name: object, scope: str) -> bool:
    """Return True if a name is the scope or is below it: `user/42/a` is within `user/42`, but `user/421` is not."""
    return isinstance(name, str) and f"{name}/".startswith(f"{scope}/")
