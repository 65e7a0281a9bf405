"""The configuration of the index: one entry of the board that all processes read."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

from statelog.board import reads
from statelog.board.names import RESERVED
from statelog.errors import UsageError
from statelog.log.times import now_us
from statelog.search.places import parse_place
from statelog.search.query import TOKENIZERS
from statelog.tree.node import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from statelog.log.engine import Engine
    from statelog.search.texts import Path

CONFIGURATION_KEY = f"{RESERVED}search"
"""The key of the entry with the configuration."""

PATTERNS_MAX = 100


class Configuration:
    """The configuration of the index: the places to index, and the tokenizer.

    Args:
        include: place patterns to index. An empty list means all places.
        exclude: place patterns to leave out.
        tokenizer: the tokenizer of FTS5, one of `TOKENIZERS`.

    Raises:
        UsageError: a pattern or the tokenizer is not valid. Facts: argument, value.
    """

    def __init__(
        self, include: Sequence[str] = (), exclude: Sequence[str] = (), tokenizer: str = TOKENIZERS[0]
    ) -> None:
        if tokenizer not in TOKENIZERS:
            message = f"tokenizer must be one of {', '.join(TOKENIZERS)}, not {tokenizer!r}"
            raise UsageError(message, argument="tokenizer", value=tokenizer)
        self.include = _patterns("include", include)
        self.exclude = _patterns("exclude", exclude)
        self.tokenizer = tokenizer
        self._included = [parse_place("include", each) for each in self.include]
        self._excluded = [parse_place("exclude", each) for each in self.exclude]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and self.text == other.text

    __hash__ = None  # type: ignore[assignment]  # nothing keeps configurations in a set

    @property
    def fields(self) -> dict[str, Any]:
        """The configuration as the value of its entry."""
        return {"include": list(self.include), "exclude": list(self.exclude), "tokenizer": self.tokenizer}

    @cached_property
    def text(self) -> str:
        """A string that identifies the configuration."""
        return json.dumps(self.fields, sort_keys=True)

    @property
    def keep(self) -> Callable[[int, str, Path], bool] | None:
        """A function that returns False for a place that is not indexed; None if all places are indexed."""
        if not self._included and not self._excluded:
            return None
        return self._keeps

    def _keeps(self, kind: int, thread_id: str, path: Path) -> bool:
        is_included = not self._included or any(each.fits(kind, thread_id, path) for each in self._included)
        return is_included and not any(each.fits(kind, thread_id, path) for each in self._excluded)


def _patterns(argument: str, given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, list | tuple) or len(given) > PATTERNS_MAX:
        message = f"{argument} must be a list of at most {PATTERNS_MAX} place patterns, not {given!r:.80}"
        raise UsageError(message, argument=argument, value=given)
    return tuple(given)


def read_configuration(engine: Engine) -> Configuration:
    """Return the configuration of a store. The default indexes everything."""
    with engine.read() as view:
        board = reads.board_of(view)
        found = None if board is None else reads.find(view, board, CONFIGURATION_KEY, now_us())
    if found is None:
        return Configuration()
    workspace = Workspace(engine.read_node, source_many=engine.read_nodes)
    return Configuration(**reads.read_value(workspace, found.event))
