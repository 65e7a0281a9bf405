"""Which nodes are reachable: what retention must keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.tree.check import check_node
from statelog.tree.node import CHUNK, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from statelog.tree.node import Node

NodeRef = tuple[int, bytes, int, int]
"""Type, digest, LSN, number."""


class Marks:
    """Reachable nodes by locator. A node marked once is not walked again, nor what is below it."""

    def __init__(
        self, read_node: Callable[[int, bytes, int, int], Node], by_record: dict[int, set[int]] | None = None
    ) -> None:
        self._read_node = read_node
        self.by_record: dict[int, set[int]] = {} if by_record is None else by_record

    def mark(self, refs: Iterable[NodeRef]) -> None:
        """Mark nodes and all below them.

        Raises:
            CorruptionError: a node cannot be read; what was to be kept must not be guessed.

        """
        pending = list(refs)
        while pending:
            type_, digest, lsn, number = pending.pop()
            numbers = self.by_record.setdefault(lsn, set())
            if number in numbers:
                continue
            numbers.add(number)
            if type_ in (ROOT, CHUNK):
                node = self._read_node(type_, digest, lsn, number)
                pending.extend(check_node(type_, node.data, node.content_size, lsn))

    def alive(self, lsn: int) -> set[int]:
        """Return the numbers of a record's marked nodes."""
        return self.by_record.get(lsn, set())
