"""Protocols with the parts of a thread, a checkpoint and a difference that this package shows."""

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
        """The id."""

    @property
    def branch(self) -> str:
        """The branch of the commit."""

    @property
    def version(self) -> int:
        """The version number on the branch."""

    @property
    def time(self) -> datetime:
        """The time of the commit."""

    @property
    def kind(self) -> str:
        """`commit` or `rollback`."""

    @property
    def parent(self) -> CheckpointShape | None:
        """The parent checkpoint."""

    @property
    def metadata(self) -> dict[str, Any]:
        """The caller's metadata."""

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
        """The id."""

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
        """The path of the change."""

    @property
    def kind(self) -> str:
        """`added`, `removed` or `changed`."""

    @property
    def old(self) -> Any:
        """The old value."""

    @property
    def new(self) -> Any:
        """The new value."""


class DiffShape(Protocol):
    """The changes from one state to another."""

    @property
    def changes(self) -> tuple[ChangeShape, ...]:
        """All changes."""
