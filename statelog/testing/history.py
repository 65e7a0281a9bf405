"""Histories: operations on a store as data, so that they can be repeated on another store or a model."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from statelog.errors import StatelogError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractContextManager


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit to a branch of a thread."""

    thread: str
    writes: tuple[Mapping[str, Any], ...]
    branch: str = "main"
    metadata: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None
    expected_version: int | None = None
    durable: bool | None = None


@dataclass(frozen=True, slots=True)
class Rollback:
    """A rollback of a branch to a version, tag or id."""

    thread: str
    target: int | str
    branch: str = "main"


@dataclass(frozen=True, slots=True)
class Fork:
    """A new branch."""

    thread: str
    name: str
    at: int | str | None = None
    update: Mapping[str, Any] | None = None
    branch: str = "main"


@dataclass(frozen=True, slots=True)
class Tag:
    """A new or moved tag of a version."""

    thread: str
    name: str
    target: int | None = None
    branch: str = "main"


@dataclass(frozen=True, slots=True)
class Untag:
    """The removal of a tag."""

    thread: str
    name: str


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a thread."""

    thread: str
    target: str


@dataclass(frozen=True, slots=True)
class Together:
    """Several operations in one transaction. If `abandoned`, the transaction fails at its end and has no effect."""

    operations: tuple[Commit | Rollback | Fork | Tag | Untag | Copy, ...]
    abandoned: bool = False


Operation = Commit | Rollback | Fork | Tag | Untag | Copy | Together
History = tuple[Operation, ...]


class _HistoryThread(Protocol):
    def commit(
        self,
        *writes: Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
        expected_version: int | None = None,
        id: str | None = None,
        durable: bool | None = None,
    ) -> object: ...

    def rollback(self, target: int | str, /) -> object: ...

    def fork(self, name: str, *, at: int | str | None = None, update: Mapping[str, Any] | None = None) -> object: ...

    def tag(self, name: str, target: int | None = None) -> object: ...

    def untag(self, name: str) -> None: ...


class _Threads(Protocol):
    def thread(self, id: str, *, schema: object = None, branch: str = "main") -> _HistoryThread: ...

    def copy_thread(self, source: str, target: str) -> object: ...


class HistoryTarget(_Threads, Protocol):
    """A `Store` or a `StoreModel`, on which a history is performed."""

    def transaction(self) -> AbstractContextManager[_Threads]:
        """Begin a transaction."""


def perform(operation: Operation, target: HistoryTarget, *, schema: object = None) -> type[StatelogError] | None:
    """Do one operation on a store or a model.

    Args:
        operation: the operation.
        target: the store or the model.
        schema: the schema of every thread.

    Returns:
        The class of the exception that refused the operation, or None.
    """
    try:
        if isinstance(operation, Together):
            _perform_together(operation, target, schema)
        else:
            _perform(operation, target, schema)
    except StatelogError as error:
        return type(error)
    return None


def perform_all(history: Iterable[Operation], target: HistoryTarget, *, schema: object = None) -> None:
    """Do a whole history. Skip refused operations."""
    for operation in history:
        perform(operation, target, schema=schema)


class _AbandonedError(Exception):
    """Raised to end a transaction without effect."""


def _perform_together(together: Together, target: HistoryTarget, schema: object) -> None:
    with suppress(_AbandonedError), target.transaction() as transaction:
        for operation in together.operations:
            _perform(operation, transaction, schema)
        _abandon(together)


def _abandon(together: Together) -> None:
    if together.abandoned:
        raise _AbandonedError


def _perform(operation: Operation, target: _Threads, schema: object) -> None:
    assert not isinstance(operation, Together)
    if isinstance(operation, Copy):
        target.copy_thread(operation.thread, operation.target)
        return
    branch = "main" if isinstance(operation, Untag) else operation.branch
    thread = target.thread(operation.thread, schema=schema, branch=branch)
    match operation:
        case Commit():
            thread.commit(
                *operation.writes,
                metadata=operation.metadata,
                expected_version=operation.expected_version,
                id=operation.id,
                durable=operation.durable,
            )
        case Rollback():
            thread.rollback(operation.target)
        case Fork():
            thread.fork(operation.name, at=operation.at, update=operation.update)
        case Tag():
            thread.tag(operation.name, operation.target)
        case Untag():
            thread.untag(operation.name)
