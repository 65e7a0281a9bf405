"""The steps of workloads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from statelog.testing.history import Commit, Operation

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Reopen:
    """A step that closes the store and opens it again, perhaps with a different quota."""

    max_size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Retain:
    """A step that removes old versions."""

    keep_last: int
    threads: str = "*"
    as_policy: bool = False


@dataclass(frozen=True, slots=True)
class DeleteThread:
    """A step that deletes a thread."""

    thread: str


@dataclass(frozen=True, slots=True)
class RebuildIndex:
    """A step that drops the index and rebuilds it from the log."""


@dataclass(frozen=True, slots=True)
class Compact:
    """A step that compacts the store into a new file."""


@dataclass(frozen=True, slots=True)
class Import:
    """A step that imports an export of another store.

    Attributes:
        stream: the export.
        threads: the ids of its threads.
    """

    stream: bytes
    threads: frozenset[str]

    def __repr__(self) -> str:
        """Return the repr without the stream."""
        return f"Import({len(self.stream)} bytes, {sorted(self.threads)})"


@dataclass(frozen=True, slots=True)
class Flush:
    """A step that flushes the unflushed commits."""


@dataclass(frozen=True, slots=True)
class Rest:
    """A step that waits until the idle store has checkpointed its WAL."""


@dataclass(frozen=True, slots=True)
class KilledCommits:
    """A step in which another process commits until it is killed at a fault point ("name:count")."""

    fault: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A step whose commit is refused, because the flush of the WAL fails after the append."""

    commit: Commit


Step = (
    Operation
    | Reopen
    | Retain
    | DeleteThread
    | RebuildIndex
    | Compact
    | Import
    | Flush
    | Rest
    | KilledCommits
    | Refused
)
"""A step of a workload. After a power cut, a step is done whole or not at all, unless its type is in `GRADUAL`."""

GRADUAL = (Retain, Import)
"""Types of steps with several transactions. After a power cut, they may be half done. Repeating them completes them."""


def gradual_steps(steps: Iterable[Step]) -> frozenset[int]:
    """Return the numbers, from 1, of the steps that may be found half done."""
    return frozenset(number for number, step in enumerate(steps, 1) if isinstance(step, GRADUAL))


FLUSHED = (Flush, Reopen, Compact)
"""Steps after which all earlier commits are durable, whatever the durability."""

MAINTENANCE = (Retain, DeleteThread, RebuildIndex, Compact, Import)
"""Steps that always have the same result on equal stores."""
