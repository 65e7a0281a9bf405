"""What is looked at: as much of a thread, a checkpoint and a difference as there is to be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime


class CheckpointShape(Protocol):
    """A checkpoint."""

    thread_id: str

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def branch(self) -> str:
        """The branch it was committed on."""

    @property
    def version(self) -> int:
        """Its number there."""

    @property
    def time(self) -> datetime:
        """When it was committed."""

    @property
    def kind(self) -> str:
        """`commit` or `rollback`."""

    @property
    def parent(self) -> CheckpointShape | None:
        """The checkpoint it was made from."""

    @property
    def metadata(self) -> dict[str, Any]:
        """What the caller gave with it."""

    @property
    def channels_written(self) -> tuple[str, ...]:
        """The channels that were written."""

    @property
    def state(self) -> Mapping[str, Any]:
        """The channels' values."""


class ThreadShape(Protocol):
    """A thread on one of its branches."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def branch(self) -> str:
        """The branch."""

    @property
    def head(self) -> CheckpointShape | None:
        """The last checkpoint."""

    def history(self, limit: int | None = None) -> Iterator[CheckpointShape]:
        """Yield checkpoints, newest first."""


class ChangeShape(Protocol):
    """One difference."""

    @property
    def path(self) -> tuple[str | int, ...]:
        """Where."""

    @property
    def kind(self) -> str:
        """`added`, `removed` or `changed`."""

    @property
    def old(self) -> Any:
        """What was."""

    @property
    def new(self) -> Any:
        """What is."""


class DiffShape(Protocol):
    """The changes from one state to another."""

    @property
    def changes(self) -> tuple[ChangeShape, ...]:
        """All of them."""
