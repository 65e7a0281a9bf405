"""Verifies a store in a child process, because mapping a damaged file may kill the process (SIGBUS).

The child runs this file as a module.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statelog.cli.child_report import report_of_child, report_to_parent
from statelog.cli.keys import key_variable, read_variable
from statelog.cli.opened_stores import open_for_reading, size_asked_for

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a verification: see `VerifyReport`. Each problem has invariant, lsn, node and message."""

    records: int
    nodes: int
    bytes: int
    removed_since_anchor: int
    unnamed: int
    problems: list[dict[str, Any]]
    duration_s: float

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return not self.problems


def verify_in_child(
    path: Path, *, deep: bool, expect: bytes | None = None, progress: Callable[[int, int], None]
) -> Verification:
    """Verify a store in a child process.

    Raises:
        CorruptionError: the file killed the process.
        StatelogError: the store could not be opened or read. The error has the exit code of the child's error.
    """
    started = time.perf_counter()
    anchor = "" if expect is None else expect.hex()
    arguments = (str(path), "deep" if deep else "shallow", str(size_asked_for() or ""), anchor, key_variable())
    report = report_of_child(__name__, *arguments, path=path, work="verifying", progress=progress)
    return Verification(**report, duration_s=time.perf_counter() - started)


def _verify(
    path: Path,
    *,
    deep: bool,
    max_size_bytes: int | None,
    expect: bytes | None,
    variable: str,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    with open_for_reading(path, max_size_bytes=max_size_bytes, key=read_variable(variable)) as store:
        report = store.verify(deep=deep, expect=expect, progress=progress)
    return asdict(report)


if __name__ == "__main__":
    name, depth, size, anchor, variable = sys.argv[1:]
    asked = int(size) if size else None
    expected = bytes.fromhex(anchor) if anchor else None
    report_to_parent(
        lambda progress: _verify(
            Path(name),
            deep=depth == "deep",
            max_size_bytes=asked,
            expect=expected,
            variable=variable,
            progress=progress,
        )
    )
