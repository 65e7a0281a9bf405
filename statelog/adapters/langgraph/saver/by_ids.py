"""Reads the checkpoints of a namespace from the index of ids, the greatest id first.

This is for namespaces with many branches. For others, the last checkpoints of each branch are read instead. The index
has the checkpoints of all namespaces of a thread in the order of their names (`names.checkpoint_name`). The checkpoints
of another namespace are adjacent, so one look-up skips them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.adapters.langgraph.values.names import checkpoint_name, line_name
from statelog.adapters.langgraph.values.own import decode_own, kept_item

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog import Checkpoint
    from statelog.adapters.kit.lineage import Lineage
    from statelog.adapters.langgraph.values.own import Own

FEW_LINES = 8
"""For up to this number of lines it is faster to read their ends."""

_NAMESPACES_MAX = 64
"""After skipping this many namespaces, read the lines instead: there may be fewer of them."""

_PAGE = 16


class ByIds:
    """Draws the checkpoints of a namespace, greatest id first. Each draw reads the store again."""

    def __init__(self, namespace: str, before: str) -> None:
        """Draw the checkpoints of a namespace, below the id `before` if it is not empty."""
        self._prefix = checkpoint_name(namespace, "-")[:-1]
        self._below = f"{self._prefix}{before}" if before else ""

    @staticmethod
    def serves(lineage: Lineage, namespace: str, before: str) -> bool:
        """Return True if a namespace has many lines, and its names are in the order of its ids."""
        is_in_order = _is_spelt(namespace, "-") and (not before or _is_spelt(namespace, before))
        return is_in_order and lineage.has_lines(line_name(namespace), FEW_LINES + 1)

    def draw(self, lineage: Lineage) -> Iterator[tuple[Own, Checkpoint]]:
        """Yield the remaining checkpoints.

        Raises:
            OutOfOrderError: the names are not in the order of the ids, or there are too many namespaces to skip.
        """
        if lineage.superseded() or lineage.ids_below("#", "", 1):
            raise OutOfOrderError
        passed, limit = 0, _PAGE
        while page := lineage.ids_below(self._prefix, self._below, limit):
            for name, lsn in page:
                namespace, is_elsewhere, _id = name.rpartition("/") if not self._prefix else ("", "", name)
                self._below = f"{namespace}/" if is_elsewhere else name
                limit = 1 if is_elsewhere else _PAGE
                if is_elsewhere:
                    passed += 1
                    if passed > _NAMESPACES_MAX:
                        raise OutOfOrderError
                    break
                found = _read(lineage, lsn, name)
                if found is not None:
                    yield found


class OutOfOrderError(Exception):
    """The index of ids cannot be used."""


def _is_spelt(namespace: str, id: str) -> bool:
    return checkpoint_name(namespace, id) == (f"{namespace}/{id}" if namespace else id)


def _read(lineage: Lineage, lsn: int, name: str) -> tuple[Own, Checkpoint] | None:
    """Return the checkpoint in a record, or None if it is not LangGraph's."""
    checkpoint = lineage.at(lsn)
    item = None if checkpoint is None else kept_item(checkpoint.state)
    own = None if item is None else decode_own(item)
    if checkpoint is None or own is None or checkpoint_name(own.namespace, own.id) != name:
        return None
    return own, checkpoint
