"""A workload: a name, a row of the table, and a function that measures it."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.result import Result

KEYS_DEFAULT = 100_000


class SkipError(Exception):
    """Raised by a workload that finds that it cannot be measured here. The text gives the reason in one line."""


@dataclass(frozen=True, slots=True)
class Bench:
    """The settings of a measurement."""

    directory: Path
    """An empty directory for files. It is removed afterwards."""
    scale: float
    """The factor of the sizes. With less than 1, the targets do not apply."""
    repeats: int
    """The number of turns of each side. Each workload chooses the length of a turn."""
    keys: int = KEYS_DEFAULT
    """The number of entries of a large board, before `scale` is applied."""
    rows: tuple[str, ...] = ()
    """The rows to measure, in a workload with rows. Empty means all."""
    peer_venv: Path | None = None
    """The virtual environment of a peer, which is created if necessary. With None, a temporary one."""

    def size(self, full: int, *, at_least: int = 1) -> int:
        """Return the size `full` multiplied by `scale`, but at least `at_least`, and at most `full`."""
        return min(max(int(full * self.scale), at_least), full)


@dataclass(frozen=True, slots=True)
class BenchWorkload:
    """One row of the table."""

    name: str
    title: str
    durability: str
    measure: Callable[[Bench], Result]
    needs: tuple[str, ...] = ()
    """The modules of other packages that are all needed. Without one, the workload is skipped."""
    needs_one_of: tuple[str, ...] = ()
    """Modules of other packages. If none of them is installed, the workload is skipped."""
    extra: str = ""
    """The extra of statelog that installs the needed modules."""
    rows: tuple[str, ...] = ()
    """The rows that can be measured one by one."""

    def skip_reason(self) -> str | None:
        """Return the reason why the workload cannot be measured here, in one line, or None if it can."""
        missing = [name for name in self.needs if not is_installed(name)]
        if not any(map(is_installed, self.needs_one_of)):
            missing += self.needs_one_of
        if not missing:
            return None
        hint = f" (pip install 'statelog[{self.extra}]')" if self.extra else ""
        return f"{self.name} skipped: {', '.join(missing)} not installed{hint}"


def is_installed(module: str) -> bool:
    """Return True if a module can be imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # Its parent package is missing.
        return False
