"""Patterns of places, which select the texts to search or to index.

| pattern | what it matches |
|---|---|
| `messages`, `plan.steps`, `note*` | the texts of threads at this path and below it: a channel, then keys of dicts |
| `threads:chat-*` | threads by id |
| `board:notes/**` | entries of the board by key |
| `items:users.*` | items of LangGraph's store by namespace |
| `runs:*` | durable runs by id |

`*` stands for any characters, and `?` for one character. In keys of the board, both stay within a segment, and `**`
stands for any number of segments.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from statelog.board.names import compile_pattern
from statelog.errors import UsageError
from statelog.search.log_texts import ENTRY, ITEM, RUN, THREAD, run_id_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.search.texts import Path

_KINDS = {"threads": THREAD, "board": ENTRY, "items": ITEM, "runs": RUN}


class PlacePattern(NamedTuple):
    """A parsed pattern of places."""

    kind: int
    fits_name: Callable[[str], bool] | None
    """Returns True if an id, key or namespace matches; None for a pattern of paths."""
    pattern: str

    def fits(self, kind: int, thread_id: str, path: Path) -> bool:
        """Return True if a place matches the pattern. `path` is the path of the place's source."""
        if kind != self.kind:
            return False
        if self.fits_name is None:
            names = tuple(map(str, path))
            return any(fnmatchcase(".".join(names[:end]), self.pattern) for end in range(1, len(names) + 1))
        if kind == RUN:
            return self.fits_name(run_id_of(str(path[0])))
        return self.fits_name(thread_id if kind == THREAD else str(path[1] if kind == ITEM else path[0]))


def parse_place(argument: str, pattern: object) -> PlacePattern:
    """Parse a pattern of places. Raises UsageError. Facts: argument, value."""
    if not isinstance(pattern, str) or not pattern:
        message = f"{argument} must be a place pattern, such as 'messages' or 'board:notes/**', not {pattern!r}"
        raise UsageError(message, argument=argument, value=pattern)
    prefix, colon, name = pattern.partition(":")
    kind = _KINDS.get(prefix) if colon else None
    if kind is None:
        return PlacePattern(THREAD, None, pattern)
    if not name:
        message = f"{argument}: {prefix}: must be followed by a pattern, such as {prefix}:*"
        raise UsageError(message, argument=argument, value=pattern)
    if kind == ENTRY:
        return PlacePattern(kind, compile_pattern(name).fits, name)
    return PlacePattern(kind, lambda text: fnmatchcase(text, name), name)
