"""Processes that take part in a measurement. Each runs a module of this package, and communicates by lines."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class ChildProcess:
    """One process, which runs `main(number)` of a module."""

    def __init__(self, module: str, number: int) -> None:
        # Do not use `-m`, which would run an imported module a second time.
        code = f"from {module} import main; main({number})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    @property
    def ear(self) -> int:
        """The descriptor of the child's stdin."""
        assert self._process.stdin is not None
        return self._process.stdin.fileno()

    def say(self, line: str) -> None:
        """Send a line to the child."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        """Return a line of the child's output."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def end(self) -> None:
        """Kill the child, if it still runs."""
        with self._process as process:
            process.kill()


@contextmanager
def started(module: str, count: int) -> Iterator[list[ChildProcess]]:
    """Start `count` processes that run `main(number)` of a module, and end them after the `with` block."""
    children: list[ChildProcess] = []
    try:
        children.extend(ChildProcess(module, number) for number in range(count))
        yield children
    finally:
        for child in children:
            child.end()


def ask(children: Sequence[ChildProcess], line: str) -> list[str]:
    """Send a line to all children, and return a line of each."""
    for child in children:
        child.say(line)
    return [child.hear() for child in children]
