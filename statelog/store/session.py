"""What a thread works on: a store, or a transaction over several threads."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeAlias, TypeVar

from statelog.errors import UsageError

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

    is_flushed_at_commit: bool
    """Whether what a write makes is on the disk when it returns, unless it was not to be."""

    def read(self) -> AbstractContextManager[View]:
        """Open a view for a short while."""

    def workspace(self) -> Workspace:
        """Return a reader of nodes that lasts."""

    def write(self, work: Callable[[Batch], Head], *, is_flushed: bool = True) -> Outcome:
        """Run `work` and return what it made. Without `is_flushed` a later flush makes it durable."""

    def flush(self) -> None:
        """Make what was written durable, where it is not yet."""

    def after_commit(self, head: Head) -> None:
        """Apply the thread's retention policy, if it has one. Called every `POLICY_STEP_VERSIONS`."""

    def act(self, work: Callable[[Batch], T]) -> T:
        """Run `work` that makes no checkpoint, and return its result."""


class Provisional:
    """What a write in a transaction made, until its end."""

    __slots__ = ("head",)

    def __init__(self, head: Head) -> None:
        self.head = head
        """The checkpoint. Raises UsageError if the transaction came to nothing."""

    def settle(self, head: Head) -> None:
        """Make it final."""
        self.head = head

    def abandon(self) -> None:
        """Say that it came to nothing."""
        with contextlib.suppress(AttributeError):
            del self.head

    def __getattr__(self, name: str) -> NoReturn:
        """Say why there is no checkpoint (any more)."""
        if name != "head":
            raise AttributeError(name)
        raise abandoned_error()


Outcome: TypeAlias = "Head | Provisional"
"""What a write made: final in a store; provisional in a transaction."""


def abandoned_error() -> UsageError:
    """Return the error for what a transaction would have made."""
    message = "the transaction this belongs to was not committed"
    return UsageError(message)
