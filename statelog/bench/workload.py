"""What every workload is: a name, a row of the table, and a way to measure it."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from statelog.bench.result import Result

KEYS_DEFAULT = 100_000


class SkipError(Exception):
    """A workload cannot be measured here, as turns out only when it is tried; the text says why, in one line."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Where and how much to measure."""

    directory: Path
    """For files; empty, and removed afterwards."""
    scale: float
    """1: the sizes of the table; below, smaller ones, for which its targets were not made."""
    repeats: int
    """How often all sides have their turn, in units of a workload's own choosing."""
    keys: int = KEYS_DEFAULT
    """Entries of a large board, before `scale`."""
    rows: tuple[str, ...] = ()
    """Of a workload that has rows, those to measure; none: all."""
    peer_venv: Path | None = None
    """A virtual environment of a peer that has one of its own; it is made there if need be. None: a temporary one."""

    def size(self, full: int, *, at_least: int = 1) -> int:
        """Return a size of the table, shrunk by `scale` but not below `at_least` (nor above `full`)."""
        return min(max(int(full * self.scale), at_least), full)


@dataclass(frozen=True, slots=True)
class Workload:
    """One row of the table."""

    name: str
    title: str
    durability: str
    measure: Callable[[Bench], Result]
    needs: tuple[str, ...] = ()
    """Modules of others without which it is skipped."""
    needs_one_of: tuple[str, ...] = ()
    """Modules of others without all of which it is skipped."""
    extra: str = ""
    """Of statelog, that installs them."""
    rows: tuple[str, ...] = ()
    """That can be measured one by one."""

    def skip_reason(self) -> str | None:
        """Return why it cannot be measured here, in one line; None if it can."""
        missing = [name for name in self.needs if not is_installed(name)]
        if not any(map(is_installed, self.needs_one_of)):
            missing += self.needs_one_of
        if not missing:
            return None
        hint = f" (pip install 'statelog[{self.extra}]')" if self.extra else ""
        return f"{self.name} skipped: {', '.join(missing)} not installed{hint}"


def is_installed(module: str) -> bool:
    """Whether a module can be imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it
        return False
