"""Measures the times of two sides that take turns, and the sizes of their files."""

from __future__ import annotations

import random
import string
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from benchmarks.measure import median
from benchmarks.result import at_most

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.result import TargetCheck

_LETTERS = string.ascii_letters + string.digits + " "


def text(size: int, seed: int) -> str:
    """Return a text of `size` letters. Equal seeds give equal texts, and different seeds different texts."""
    return "".join(random.Random(seed).choices(_LETTERS, k=size))


def size_of(path: Path) -> int:
    """Return the size in bytes of a file or folder, and of the files beside it whose names begin with its name."""
    found = [each for start in path.parent.glob(f"{path.name}*") for each in (start, *start.rglob("*"))]
    return sum(each.stat().st_blocks * 512 for each in found if each.is_file())


class Stopwatch:
    """Collects times by name."""

    def __init__(self) -> None:
        self._times_s: dict[str, list[float]] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add the time of a `with` block under a name."""
        began = time.perf_counter()
        yield
        self._times_s.setdefault(name, []).append(time.perf_counter() - began)

    def median_s(self, name: str) -> float:
        """Return the median of the times under a name."""
        return median(self._times_s[name])

    def check(self, what: str, ours: str, theirs: str, target: float) -> TargetCheck:
        """Return a check that our median time, relative to theirs, is at most `target`."""
        return at_most(what, self.median_s(ours) / self.median_s(theirs), target)
