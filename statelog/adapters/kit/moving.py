"""Sessions of a framework's own database, copied into a store one by one and compared.

Each adapter has a module `move` with a function `opened`, which yields a `Source`. It reads the database by the
framework's public classes.
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

__all__ = ["LeftOut", "MoveReport", "Source", "copy_once", "move", "reading"]

T = TypeVar("T")


class Source(Protocol):
    """A framework's database, which is only read.

    Attributes:
        unit: the kind of thing that a name identifies, for example "session".
        remarks: notes on the copied data for the user. Most sources have none.

    """

    unit: str
    remarks: Sequence[str]

    def names(self) -> Sequence[str]:
        """Return what is to be copied, by names that a person knows: of sessions, or of users and sessions."""

    def copy(self, name: str, store: Store) -> bool:
        """Copy what a name stands for, in one transaction, read it back, and compare.

        Returns:
            False if it was there already, as whole as it is now.

        Raises:
            ConflictError: something else stands under its name. FormatError: it cannot be read, or does not come back
                equal. What the store raises.

        """


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What was not copied, and why."""

    name: str
    error: StatelogError


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveReport:
    """The result of a move.

    Attributes:
        unit: the kind of thing that a name identifies.
        found: names in the database.
        copied: the names that were copied, because the store did not have them.
        left_out: the names that could not be copied, each with its error.
        remarks: the remarks of the source; see `Source`.

    """

    unit: str
    found: int
    copied: int
    left_out: tuple[LeftOut, ...]
    remarks: tuple[str, ...]


def move(source: Source, store: Store, *, progress: Callable[[int, int], None] | None = None) -> MoveReport:
    """Copy everything that a database holds. A move that was cut off is done again, and goes on where it ended.

    Args:
        source: what is read.
        store: what is written.
        progress: called with how many names are done, of how many.

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
            message = f"{what} did not come back as it was"
            raise FormatError(message, path=str(store.path))

    def add(tx: Transaction) -> None:
        write(tx)
        check(held(tx))  # what JSON has not, as a NaN, is seen before it is committed

    with store.snapshot() as before:
        found = held(before)
    if found is None or (found != wanted and is_beginning(found)):
        lives.transact(store, add)
        with store.snapshot() as after:
            check(held(after))
        return True
    if found != wanted:
        message = f"the store has another {what}"
        raise ConflictError(message, path=str(store.path))
    return False


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Say of whatever a framework raises in a block that this cannot be read, as FormatError."""
    try:
        yield
    except StatelogError:
        raise
    except Exception as error:
        message = f"{what} cannot be read: {error}"
        raise FormatError(message, source=what) from error
