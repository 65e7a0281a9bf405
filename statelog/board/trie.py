"""Patterns of keys, ready to be asked which of them fit a key: segment by segment, whatever their number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from statelog.board.names import RESERVED, compile_pattern

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")


class _Node(Generic[T]):
    __slots__ = ("items", "next")

    def __init__(self) -> None:
        self.next: dict[str, _Node[T]] = {}
        """By the next segment of patterns: as it stands, wild or not."""
        self.items: set[T] = set()
        """Whose patterns end here."""


class Trie(Generic[T]):
    """Items by pattern."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, pattern: str, item: T) -> None:
        """Add an item under a pattern that is one."""
        node = self._root
        for segment in pattern.split("/"):
            node = node.next.setdefault(segment, _Node())
        node.items.add(item)

    def remove(self, pattern: str, item: T) -> None:
        """Take an item out again."""
        path = [self._root]
        segments = pattern.split("/")
        for segment in segments:
            path.append(path[-1].next[segment])
        path[-1].items.discard(item)
        for above, segment in zip(reversed(path[:-1]), reversed(segments), strict=True):
            below = above.next[segment]
            if below.items or below.next:
                return
            del above.next[segment]

    def find(self, key: str) -> set[T]:
        """Return the items whose patterns fit a key."""
        segments = key.split("/")
        found: set[T] = set()
        seen: set[tuple[int, int]] = set()
        left = [(self._root, 0)]
        while left:
            node, at = left.pop()
            if (id(node), at) in seen:
                continue
            seen.add((id(node), at))
            if at == len(segments):
                found |= node.items
                continue
            left += _steps(node, segments, at)
        return found


def _steps(node: _Node[T], segments: list[str], at: int) -> Iterator[tuple[_Node[T], int]]:
    is_reserved = at == 0 and len(segments) > 1 and segments[0] == RESERVED[:-1]
    for segment, below in list(node.next.items()):  # one may leave meanwhile, as garbage is collected
        if is_reserved and segment != segments[0]:
            continue
        if segment == "**":  # at the end of a pattern it stands for one segment or more, else for any number
            if below.items:
                yield from ((_end_of(below), len(segments)),)
            if below.next:
                yield from ((below, skipped) for skipped in range(at, len(segments)))
        elif segment == segments[at] or (("*" in segment or "?" in segment) and _fits(segment, segments[at])):
            yield below, at + 1


def _end_of(node: _Node[T]) -> _Node[T]:
    end: _Node[T] = _Node()
    end.items = node.items
    return end


def _fits(segment: str, part: str) -> bool:
    return compile_pattern(segment).fits(part)
