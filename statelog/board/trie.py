"""A trie of patterns, which finds all patterns that match a key."""

from __future__ import annotations

from typing import Generic, TypeVar

from statelog.board.names import RESERVED, compile_pattern

T = TypeVar("T")


class _Node(Generic[T]):
    __slots__ = ("items", "next", "wild")

    def __init__(self) -> None:
        self.next: dict[str, _Node[T]] = {}
        """The child nodes, keyed by the next segment of their patterns. A segment may contain wildcards."""
        self.wild: dict[str, _Node[T]] = {}
        """The child nodes whose segment has a wildcard, so that it may match different segments of keys."""
        self.items: set[T] = set()
        """The items whose patterns end here."""


class Trie(Generic[T]):
    """A collection of items, each stored under a key pattern."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, pattern: str, item: T) -> None:
        """Add an item under a valid pattern."""
        node = self._root
        for segment in pattern.split("/"):
            above, node = node, node.next.setdefault(segment, _Node())
            if "*" in segment or "?" in segment:
                above.wild[segment] = node
        node.items.add(item)

    def remove(self, pattern: str, item: T) -> None:
        """Remove an item from under a pattern."""
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
            above.wild.pop(segment, None)

    def find(self, key: str) -> set[T]:
        """Return the items whose patterns match a key."""
        segments = key.split("/")
        found: set[T] = set()
        seen: set[tuple[_Node[T], int]] = set()
        left = [(self._root, 0)]
        while left:
            node, at = place = left.pop()
            if place in seen:
                continue
            seen.add(place)
            if at == len(segments):
                found |= node.items
                continue
            for segment, below in _steps(node, segments, at):
                if segment != "**":
                    left.append((below, at + 1))
                    continue
                found |= below.items  # A final `**` matches all remaining segments, at least one.
                left += [(below, skipped) for skipped in range(at, len(segments))]
        return found


def _steps(node: _Node[T], segments: list[str], at: int) -> list[tuple[str, _Node[T]]]:
    """Return the (segment, child) pairs of `node` whose segment matches segment `at` of the key."""
    key = segments[at]
    if at == 0 and len(segments) > 1 and key == RESERVED[:-1]:
        return [(key, node.next[key])] if key in node.next else []
    steps = [
        step
        for step in list(node.wild.items())  # This is a copy, because a finalizer may remove a child during the loop.
        if step[0] == "**" or compile_pattern(step[0]).fits(key)
    ]
    literal = node.next.get(key)
    return steps if literal is None else [*steps, (key, literal)]
