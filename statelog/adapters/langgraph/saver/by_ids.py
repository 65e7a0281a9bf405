"""Reads the checkpoints of a namespace from the index of ids, the greatest id first.

This is for namespaces with many branches. For other namespaces, the end of each branch is read instead. The index has
the checkpoints of all of a thread's namespaces, ordered by name (`names.checkpoint_name`). The checkpoints of each
namespace are adjacent, so one look-up skips a whole namespace.
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
"""For up to this number of branches, it is faster to read the end of each branch than the index."""

_NAMESPACES_MAX = 64
"""After skipping this many namespaces, read the branches instead, because there may be fewer branches."""

_PAGE = 16


class ByIds:
    """Yields the checkpoints of a namespace, greatest id first.

    Each call of `draw` continues where the previous one stopped, and reads the current state of the store.
    """

    def __init__(self, namespace: str, before: str) -> None:
        """Begin with the greatest id in a namespace or, if `before` is not empty, with the greatest id below it."""
        self._prefix = checkpoint_name(namespace, "-")[:-1]
        self._below = f"{self._prefix}{before}" if before else ""

    @staticmethod
    def serves(lineage: Lineage, namespace: str, before: str) -> bool:
        """Return True if a namespace has many branches, and the names of its checkpoints sort like their ids."""
        is_in_order = _is_spelt(namespace, "-") and (not before or _is_spelt(namespace, before))
        return is_in_order and lineage.has_lines(line_name(namespace), FEW_LINES + 1)

    def draw(self, lineage: Lineage) -> Iterator[tuple[Own, Checkpoint]]:
        """Yield the remaining checkpoints.

        Raises:
            OutOfOrderError: the names do not sort like the ids, or there are too many namespaces to skip.
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
    """Return the checkpoint in the record at `lsn`, or None if it is not LangGraph's checkpoint `name`."""
    checkpoint = lineage.at(lsn)
    item = None if checkpoint is None else kept_item(checkpoint.state)
    own = None if item is None else decode_own(item)
    if checkpoint is None or own is None or checkpoint_name(own.namespace, own.id) != name:
        return None
    return own, checkpoint
