"""Rules that limit what agents may do on a board.

The rules protect against mistakes. They do not protect against hostile code in the process, which
can open the file.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from statelog.board.names import RESERVED, compile_pattern
from statelog.errors import AccessError, UsageError
from statelog.redaction import redacting_logger

if TYPE_CHECKING:
    from statelog.board.names import KeyPattern

VERBS = ("read", "write", "claim", "lease", "watch")

_READING = ("read", "watch")

_LOGGED_S = 1.0
"""The minimum interval between two log messages about denials of the same agent."""

_AGENTS_MAX = 1024


class Rights:
    """The rights of one agent on a board."""

    is_bound = True
    """Whether rules restrict the handle that has these rights."""

    def __init__(self, agent: str | None, patterns: Mapping[str, tuple[KeyPattern, ...]]) -> None:
        self.agent = agent
        self._patterns = patterns

    def may(self, verb: str, key: str) -> bool:
        """Return True if an operation on a key, or on a lease of this name, is allowed."""
        return any(pattern.fits(key) for pattern in self._patterns.get(verb, ()))

    def check(self, verb: str, key: str, *, shown: str | None = None) -> None:
        """Raise an error if an operation is not allowed.

        Args:
            verb: the operation: read, write, claim, lease or watch.
            key: the key, or the name of a lease.
            shown: a name that replaces the key in the error and in the log, if the agent may not
                see the key.

        Raises:
            AccessError: no rule allows it. Facts: rule, key, agent.
            UsageError: the key is reserved.
        """
        if verb not in _READING:
            self.check_reserved("key", key)
        if self.may(verb, key):
            return
        if shown is None or shown == key:
            raise self._denied(verb, f"{key!r}", key)
        raise self._denied(verb, f"some keys that begin with {shown!r}", shown)

    def check_reserved(self, argument: str, key: str) -> None:
        """Raise UsageError for the library's own keys, which no user may change."""
        if key.startswith(RESERVED):
            message = f"{argument} {key!r} begins with {RESERVED!r}, which is reserved"
            raise UsageError(message, argument=argument, value=key)

    def check_any(self, verb: str, pattern: str) -> None:
        """Raise AccessError if the agent has no rule for `verb`. The error names `pattern`."""
        if not self._patterns.get(verb):
            raise self._denied(verb, f"any key that matches {pattern!r}", pattern)

    def _denied(self, verb: str, what: str, key: str) -> AccessError:
        message = f"agent {self.agent!r} may not {verb} {what}: none of its {verb!r} rules matches"
        now_s = time.monotonic()
        if now_s - _logged_s.get(self.agent, -_LOGGED_S) >= _LOGGED_S:
            if len(_logged_s) >= _AGENTS_MAX:
                _logged_s.clear()
            _logged_s[self.agent] = now_s
            redacting_logger("statelog.board").warning("%s", message)
        return AccessError(message, rule=verb, key=key, agent=self.agent)


_logged_s: dict[str | None, float] = {}


class AllRights(Rights):
    """The rights of a board without rules: everything except writes to the library's own keys."""

    is_bound = False

    def __init__(self) -> None:
        super().__init__(None, {})

    def may(self, verb: str, key: str) -> bool:  # noqa: ARG002 - everything is allowed
        """Return True: every key is allowed."""
        return True

    def check(self, verb: str, key: str, *, shown: str | None = None) -> None:  # noqa: ARG002 - for bound rights
        """Raise UsageError for a write to a reserved key. Allow everything else."""
        if verb not in _READING and key.startswith(RESERVED):
            self.check_reserved("key", key)

    def check_any(self, verb: str, pattern: str) -> None:
        """Do nothing, because every key is allowed."""


class OwnRights(AllRights):
    """The rights of the library's own handles, which allow everything."""

    def check_reserved(self, argument: str, key: str) -> None:
        """Do nothing, because these handles may write reserved keys."""


ALL = AllRights()
OWN = OwnRights()


class Rules:
    """The keys that each agent may read, write, claim, lease and watch. Everything else is denied.

    ```python
    rules = Rules({"researcher": {"read": ["research/**"], "write": ["research/a1/**"]}})
    board = store.board(agent="researcher", rules=rules)
    ```

    Rules belong to a handle and cannot be widened later. They protect against mistakes of agents that use the handle.
    They do not protect against hostile code in the process, which can open the file.

    Args:
        rules: the allowed patterns of keys, by agent and verb. For leases, patterns of their names.

    Raises:
        UsageError: a verb or a pattern is invalid. Facts: argument, value.
    """

    def __init__(self, rules: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
        self._rights: dict[str, Rights] = {}
        for agent, verbs in _mapping(rules, "rules").items():
            patterns = {}
            for verb, some in _mapping(verbs, f"rules of {agent!r}").items():
                if verb not in VERBS:
                    message = f"rules of {agent!r}: {verb!r} is not one of {', '.join(VERBS)}"
                    raise UsageError(message, argument="rules", value=verb)
                if isinstance(some, str) or not isinstance(some, Sequence):
                    message = f"rules of {agent!r}: {verb!r} needs a list of patterns, not {some!r}"
                    raise UsageError(message, argument="rules", value=some)
                patterns[verb] = tuple(map(compile_pattern, some))
            self._rights[agent] = Rights(agent, patterns)

    def __repr__(self) -> str:
        return f"<Rules of {', '.join(map(repr, self._rights)) or 'nobody'}>"

    def of(self, agent: str | None) -> Rights:
        """Return the rights of an agent. An agent that the rules do not name has no rights."""
        return self._rights.get(agent or "", Rights(agent, {}))


def _mapping(value: Any, what: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        message = f"{what} must be a dict, not {type(value).__name__}"
        raise UsageError(message, argument="rules", value=value)
    return value
