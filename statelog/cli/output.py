"""Where a command writes: results to stdout, everything else to stderr."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from statelog.cli.text import escape
from statelog.cli.values import dump_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_WIDTH_OFF_TERMINAL = 240
"""A file or a pipe has no width: rows stay on one line for grep."""


def make_console(stream: IO[str]) -> Console:
    """Return a console that takes text literally: no markup, no highlighting, no emoji codes."""
    width = None if stream.isatty() else _WIDTH_OFF_TERMINAL
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


class Output:
    """The output of one command run.

    Args:
        as_json: stdout is for JSON alone.

    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.console = make_console(sys.stdout)
        self.messages = make_console(sys.stderr)

    def emit(self, document: object) -> None:
        """Write one JSON document, on one line."""
        sys.stdout.write(dump_json(document) + "\n")

    def line(self, text: str = "", style: str = "") -> None:
        """Write a line for a person; `text` may hold anything."""
        self.console.print(Text(escape(text), style=style), soft_wrap=True)

    def block(self, text: str) -> None:
        """Write text as it is, its lines kept, its other control characters escaped."""
        safe = escape(text, keep_lines=True)
        sys.stdout.write(safe if safe.endswith("\n") else safe + "\n")

    def hint(self, text: str) -> None:
        """Tell a person something that is no result."""
        if not self.as_json:
            sys.stdout.flush()
            self.messages.print(Text(escape(text), style="dim"), soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> None:
        """Write a table for a person.

        Args:
            columns: headings.
            rows: cells, of any text.
            right: headings of columns of numbers.

        """
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for heading in columns:
            if heading in right:
                table.add_column(heading, justify="right", no_wrap=True)
            else:
                last = heading == columns[-1]
                table.add_column(heading, overflow="ellipsis" if last else "fold", no_wrap=last)
        for row in rows:
            table.add_row(*(Text(escape(cell)) for cell in row))
        self.console.print(table)

    @contextmanager
    def progress(self, what: str) -> Iterator[Callable[[int, int], None]]:
        """Show a bar on stderr, if that is a terminal, while the block runs.

        Yields:
            A function to call with (steps done, steps in all); before its first call the
            bar only tells that something goes on.

        """
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415, I001 - 30 ms, for the commands that wait

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        hidden = not sys.stderr.isatty()
        with Progress(*columns, console=self.messages, transient=True, disable=hidden) as bar:
            task = bar.add_task(what, total=None)

            def advance(done: int, whole: int) -> None:
                bar.update(task, completed=done, total=whole)

            yield advance
