"""What a thread works on: a store, or a transaction over several threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from statelog.log.batch import Batch, Head
    from statelog.log.view import View
    from statelog.tree.node import Workspace

T = TypeVar("T")


class Session(Protocol):
    """Reads and writes, at once (a store) or at the end (a transaction)."""

    is_final: bool
    """Whether what a write makes stays as it is: in a transaction LSNs are provisional."""

    def read(self) -> AbstractContextManager[View]:
        """Open a view for a short while."""

    def workspace(self) -> Workspace:
        """Return a reader of nodes that lasts."""

    def write(self, work: Callable[[Batch], Head]) -> Outcome:
        """Run `work` and return what it made."""

    def act(self, work: Callable[[Batch], T]) -> T:
        """Run `work` that makes no checkpoint, and return its result."""


class Outcome:
    """What a write made: final in a store; provisional in a transaction until its end."""

    __slots__ = ("head",)

    def __init__(self, head: Head) -> None:
        self.head = head
