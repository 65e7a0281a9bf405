"""Copies the sessions of a framework's database to a store one by one, and compares the copies.

Each adapter has a module `move` with a function `opened`, which yields a `MigrationSource`. A source reads the database
with the framework's public classes.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from statelog.adapters.kit import lives
from statelog.errors import ConflictError, FormatError, StatelogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from statelog import Store
    from statelog.store.threads import Threads
    from statelog.store.transaction import Transaction

__all__ = ["LeftOut", "MigrationSource", "MoveReport", "copy_once", "move", "reading"]

T = TypeVar("T")


class MigrationSource(Protocol):
    """A framework's database, which is only read.

    Attributes:
        unit: the kind of thing that a name identifies, for example "session".
        remarks: notes on the copied data for the user. Most sources have none.
    """

    unit: str
    remarks: Sequence[str]

    def names(self) -> Sequence[str]:
        """Return the name of each thing to copy, such as a session, in a form that a user recognises."""

    def copy(self, name: str, store: Store) -> bool:
        """Copy the data of a name in one transaction, read the copy back and compare it.

        Returns:
            False if the store already had the same data.

        Raises:
            ConflictError: the store has different data under this name.
            FormatError: the data cannot be read, or the copy is not equal.
            StatelogError: an error of the store.
        """


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A name that was not copied, and the error."""

    name: str
    error: StatelogError


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveReport:
    """The result of a move.

    Attributes:
        unit: the kind of thing that a name identifies.
        found: the number of names in the database.
        copied: the number of names that were copied, because the store did not have them.
        left_out: the names that could not be copied, each with its error.
        remarks: the remarks of the source; see `MigrationSource`.
    """

    unit: str
    found: int
    copied: int
    left_out: tuple[LeftOut, ...]
    remarks: tuple[str, ...]


def move(source: MigrationSource, store: Store, *, progress: Callable[[int, int], None] | None = None) -> MoveReport:
    """Copy all sessions of a database. An interrupted move can be repeated: it skips sessions already copied.

    Args:
        source: the database to read.
        store: the store to write.
        progress: called with the number of names done and the number of all names.
    """
    names = source.names()
    copied = 0
    left_out = []
    for number, name in enumerate(names):
        if progress is not None:
            progress(number, len(names))
        try:
            copied += source.copy(name, store)
        except StatelogError as error:
            left_out.append(LeftOut(name, error))
    return MoveReport(
        unit=source.unit,
        found=len(names),
        copied=copied,
        left_out=tuple(left_out),
        remarks=tuple(source.remarks),
    )


def copy_once(
    store: Store,
    what: str,
    wanted: T,
    *,
    held: Callable[[Threads], T | None],
    write: Callable[[Transaction], object],
    is_beginning: Callable[[T], bool] = lambda _found: False,
) -> bool:
    """Copy data in one transaction, and read it back. Existing data is compared, and not changed.

    Args:
        store: the target store.
        what: a description for messages, such as "session 'a'".
        wanted: the data to be copied.
        held: a function that returns the existing data in the form of `wanted`, or None if there is none.
        write: a function that writes the data, or its missing part.
        is_beginning: a function that returns True if the existing data is the beginning of `wanted`. Then the rest is
            written.

    Returns:
        False if the store already had the data.

    Raises:
        ConflictError: the store has different data. FormatError: the data that was read back is not equal; then nothing
            is written.
    """

    def check(found: T | None) -> None:
        if found != wanted:
            message = f"the copy of {what} is not equal to the original"
            raise FormatError(message, path=str(store.path))

    def add(tx: Transaction) -> None:
        write(tx)
        check(held(tx))  # Find values that JSON cannot represent, such as NaN, before the commit.

    with store.snapshot() as before:
        found = held(before)
    if found is None or (found != wanted and is_beginning(found)):
        lives.transact(store, add)
        with store.snapshot() as after:
            check(held(after))
        return True
    if found != wanted:
        message = f"the store already has a different {what}"
        raise ConflictError(message, path=str(store.path))
    return False


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn any exception that a framework raises in the block into a FormatError: its data cannot be read."""
    try:
        yield
    except StatelogError:
        raise
    except Exception as error:
        message = f"{what} cannot be read: {error}"
        raise FormatError(message, source=what) from error
