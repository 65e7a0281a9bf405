"""Times of two sides that take turns, and sizes of what they leave on the disk."""

from __future__ import annotations

import random
import string
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from statelog.bench.measure import median
from statelog.bench.result import at_most

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from statelog.bench.result import Check

_LETTERS = string.ascii_letters + string.digits + " "


def text(size: int, seed: int) -> str:
    """Return a text of so many letters, always the same of one seed; no two are alike."""
    return "".join(random.Random(seed).choices(_LETTERS, k=size))  # noqa: S311 - not a secret


def size_of(path: Path) -> int:
    """Return the bytes on the disk of a file or folder, and of what lies beside it with its name in front."""
    found = [each for start in path.parent.glob(f"{path.name}*") for each in (start, *start.rglob("*"))]
    return sum(each.stat().st_blocks * 512 for each in found if each.is_file())


class Clock:
    """Times by name."""

    def __init__(self) -> None:
        self._times_s: dict[str, list[float]] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add the time that a block takes."""
        began = time.perf_counter()
        yield
        self._times_s.setdefault(name, []).append(time.perf_counter() - began)

    def median_s(self, name: str) -> float:
        """Return the median of the times of a name."""
        return median(self._times_s[name])

    def check(self, what: str, ours: str, theirs: str, target: float) -> Check:
        """Return the check of a ratio: of our median to theirs."""
        return at_most(what, self.median_s(ours) / self.median_s(theirs), target)
