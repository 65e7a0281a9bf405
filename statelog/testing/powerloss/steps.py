"""What a workload may do to a store, one thing after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from statelog.testing.history import Commit, Operation

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Reopen:
    """Close the store, and open it again, perhaps with another quota."""

    max_size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Retain:
    """Let old versions go."""

    keep_last: int
    threads: str = "*"
    as_policy: bool = False


@dataclass(frozen=True, slots=True)
class DeleteThread:
    """Delete a thread."""

    thread: str


@dataclass(frozen=True, slots=True)
class RebuildIndex:
    """Drop the index and derive it from the log again."""


@dataclass(frozen=True, slots=True)
class Compact:
    """Put the store into a new file."""


@dataclass(frozen=True, slots=True)
class Import:
    """Take in an export of another store.

    Attributes:
        stream: the export.
        threads: that are in it.

    """

    stream: bytes
    threads: frozenset[str]

    def __repr__(self) -> str:
        """Return it without the stream."""
        return f"Import({len(self.stream)} bytes, {sorted(self.threads)})"


@dataclass(frozen=True, slots=True)
class Flush:
    """Make durable what was committed without a flush."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Do nothing for so long that the store comes to rest."""


@dataclass(frozen=True, slots=True)
class Killed:
    """Have another process commit, and be killed at a fault point ("name:count")."""

    fault: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A commit that the journal refuses after it was written there: not flushed, for all that is known."""

    commit: Commit


Step = Operation | Reopen | Retain | DeleteThread | RebuildIndex | Compact | Import | Flush | Rest | Killed | Refused
"""One thing done. All but those of `GRADUAL` are there whole or not at all."""

GRADUAL = (Retain, Import)
"""Steps in several transactions; cut short, they are done again, and then there whole."""


def gradual_steps(steps: Iterable[Step]) -> frozenset[int]:
    """Return the numbers, from one, of those that may be found half done."""
    return frozenset(number for number, step in enumerate(steps, 1) if isinstance(step, GRADUAL))


FLUSHED = (Flush, Reopen, Compact)
"""Steps after which all that was committed before is durable, whatever the durability."""

MAINTENANCE = (Retain, DeleteThread, RebuildIndex, Compact, Import)
"""Steps that come to the same whenever they are done to equal stores."""
