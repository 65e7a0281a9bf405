"""Reads the checkpoints of a thread's namespaces, greatest id first, although branches store them in any order.

A branch is read from its end. Its remaining checkpoints have no greater id than `Own.latest` of the checkpoint that was
read last. A checkpoint can be yielded as soon as no branch can have a greater id. Ids mostly ascend, so this is usually
the case at once. A namespace with many branches is read by the index of ids (`by_ids.py`) if the index has the order of
the ids.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

from statelog.adapters.langgraph.saver.by_ids import ByIds, OutOfOrderError
from statelog.adapters.langgraph.values.names import (
    WRITES_BRANCH,
    CheckpointName,
    checkpoint_name,
    is_of_line,
    line_name,
)
from statelog.adapters.langgraph.values.own import decode_own, is_hidden, kept_item, writes_state
from statelog.errors import BranchNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog import Checkpoint
    from statelog.adapters.kit.lineage import Lineage
    from statelog.adapters.langgraph.values.own import Own
    from statelog.store.views import MapView

_PAGE = 8


class FoundCheckpoint(NamedTuple):
    """A checkpoint of LangGraph in a store."""

    place: CheckpointName
    checkpoint: Checkpoint
    own: Own
    pending: MapView | None


class _BranchCursor:
    """How far one branch has been read."""

    def __init__(self, branch: str, head: Checkpoint) -> None:
        self.branch = branch
        self.below: int | None = None
        self.is_done = False
        self.bound = ""
        """An id that no remaining id exceeds. It is empty if no bound is known yet."""
        self.is_below_bound = False
        """Whether no remaining id is equal to `bound`."""
        self.page = [head]

    def __lt__(self, other: _BranchCursor) -> bool:
        """Return True if this branch must be read first, because its bound is unknown or greater."""
        if self.bound != other.bound:
            return not self.bound or (self.bound > other.bound and other.bound != "")
        return other.is_below_bound and not self.is_below_bound


class Ordered:
    """Yields checkpoints in order.

    Each call of `draw` continues where the previous one stopped, and reads the current state of the store.
    """

    def __init__(self, lineage: Lineage, namespace: str | None, before: str = "") -> None:
        self._namespace = namespace
        self._before = before
        self._heap: list[tuple[_Reversed, int, str, Own, Checkpoint, Lineage]] = []
        self._moment = lineage
        self._pending = writes_state(lineage)
        self._lines: list[_BranchCursor] = []
        """A heap of the branches that have not been read to their beginnings."""
        self._by_ids: ByIds | None = None
        if namespace is not None and ByIds.serves(lineage, namespace, before):
            self._by_ids = ByIds(namespace, before)
        else:
            self._begin_lines(lineage)

    def _begin_lines(self, lineage: Lineage) -> None:
        line = None if self._namespace is None else line_name(self._namespace)
        self._lines = [
            _BranchCursor(head.branch, head.checkpoint)
            for head in lineage.heads(line or "")
            if head.branch != WRITES_BRANCH and (line is None or is_of_line(head.branch, line))
        ]

    def draw(self, lineage: Lineage, count: int, *, hidden: bool = False) -> Iterator[FoundCheckpoint]:
        """Yield at most `count` more checkpoints. With `hidden`, also yield removed ones."""
        if lineage is not self._moment:
            self._moment, self._pending = lineage, writes_state(lineage)
            for line in self._lines:
                line.page = []
        for own, checkpoint in self._draw_all(lineage, count) if count > 0 else ():
            place = CheckpointName(lineage.id, own.namespace, own.id)
            if hidden or not is_hidden(self._pending, place):
                yield FoundCheckpoint(place, checkpoint, own, self._pending)
                count -= 1
                if count <= 0:
                    return

    def _draw_all(self, lineage: Lineage, count: int) -> Iterator[tuple[Own, Checkpoint]]:
        if self._by_ids is not None:
            try:
                for own, checkpoint in self._by_ids.draw(lineage):
                    self._before = own.id
                    yield own, checkpoint
            except OutOfOrderError:
                self._by_ids = None
                self._begin_lines(lineage)
            else:
                return
        superseded = lineage.superseded()
        while True:
            self._read_on(lineage, superseded, count)
            if not self._heap:
                return
            _id, _lsn, branch, own, read, moment = heapq.heappop(self._heap)
            stays = moment is lineage and lineage.is_of_one_moment
            found = read if stays else _still_there(lineage, branch, read)
            if found is not None:
                yield own, found

    def _read_on(self, lineage: Lineage, superseded: dict[str, int], count: int) -> None:
        """Read branches until the checkpoint with the greatest id on the heap is the next to yield."""
        lines = self._lines
        while lines and _may_exceed(lines[0], self._heap[0][0].text if self._heap else None):
            self._step(lineage, lines[0], superseded, count)
            if lines[0].is_done:
                heapq.heappop(lines)
            else:
                heapq.heapreplace(lines, lines[0])

    def _step(self, lineage: Lineage, line: _BranchCursor, superseded: dict[str, int], count: int) -> None:
        """Read one version of a branch."""
        if not line.page:
            try:
                line.page = lineage.versions(line.branch, line.below, min(count, _PAGE))[::-1]
            except BranchNotFoundError:  # The thread was deleted.
                line.page = []
            if not line.page:
                line.is_done = True
                return
        checkpoint = line.page.pop()
        line.below = checkpoint.version
        item = kept_item(checkpoint.state)
        own = None if item is None else decode_own(item)
        if own is None:
            return
        id = own.id
        line.bound, line.is_below_bound = own.latest, own.latest == id
        if self._before and id >= self._before:
            return
        name = checkpoint_name(own.namespace, id)
        if superseded.get(name, checkpoint.lsn if checkpoint.id == name else None) == checkpoint.lsn:
            heapq.heappush(self._heap, (_Reversed(id), -checkpoint.lsn, line.branch, own, checkpoint, lineage))


def _still_there(lineage: Lineage, branch: str, read: Checkpoint) -> Checkpoint | None:
    """Return the present form of a checkpoint that was read earlier, or None if it is gone."""
    try:
        found = lineage.versions(branch, read.version + 1, 1)
    except BranchNotFoundError:  # The thread was deleted.
        return None
    return found[0] if found and found[0].version == read.version else None


def _may_exceed(line: _BranchCursor, top: str | None) -> bool:
    """Return True if a branch may still have an id that is greater than `top`, or if `top` is None."""
    if top is None or not line.bound:
        return True
    return line.bound > top or (line.bound == top and not line.is_below_bound)


class _Reversed:
    """A string that sorts in reverse order."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __lt__(self, other: _Reversed) -> bool:
        return self.text > other.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and self.text == other.text

    __hash__ = None  # type: ignore[assignment]  # It is never a key.
