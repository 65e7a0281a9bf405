"""Where a command writes: results to stdout, everything else to stderr."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from statelog.cli.text import ELLIPSIS, escape, format_duration
from statelog.cli.values import dump_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_WIDTH_OFF_TERMINAL = 240
"""A file or a pipe has no width: rows stay on one line for grep."""

_LINE_INTERVAL_S = 30.0
"""Between two lines of progress in a log."""

_GAP = 2
_LAST_COLUMN_WIDTH_MIN = 20


class _Console(Console):
    """A console that leaves a reader who has gone to whoever runs the command."""

    def on_broken_pipe(self) -> None:
        """Say so, instead of exiting on the spot."""
        raise BrokenPipeError


def make_console(stream: IO[str]) -> Console:
    """Return a console that takes text literally: no markup, no highlighting, no emoji codes."""
    width = None if stream.isatty() else _WIDTH_OFF_TERMINAL
    return _Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


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

    def note(self, text: str) -> None:
        """Tell what is to be known of the result, whoever reads it."""
        sys.stdout.flush()
        self.messages.print(Text(escape(text)), soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> None:
        """Write a table for a person, a line for each row; the last column is cut to what fits.

        Args:
            columns: headings; a column without one is left out if it is empty.
            rows: cells, of any text.
            right: headings of columns of numbers.

        """
        lines = [list(columns), *([escape(cell) for cell in row] for row in rows)]
        widths = [max(map(cell_len, cells)) for cells in zip(*lines, strict=True)]
        room = self.console.width - sum(width + _GAP for width in widths[:-1])
        widths[-1] = min(widths[-1], max(room, _LAST_COLUMN_WIDTH_MIN))
        kept = [index for index, width in enumerate(widths) if width]
        for number, line in enumerate(lines):
            cells = (_fit(line[index], widths[index], right=columns[index] in right) for index in kept)
            text = (" " * _GAP).join(cells).rstrip()
            self.console.print(Text(text, style="" if number else "bold"), soft_wrap=True)

    @contextmanager
    def progress(self, what: str) -> Iterator[Callable[[int, int], None]]:
        """Show a bar on stderr, if that is a terminal, while the block runs.

        Yields:
            A function to call with (steps done, steps in all); before its first call the
            bar only tells that something goes on.

        """
        from rich.progress import Progress

        with Progress(console=self.messages, transient=True, disable=not sys.stderr.isatty()) as bar:
            task = bar.add_task(what, total=None)

            def advance(done: int, whole: int) -> None:
                bar.update(task, completed=done, total=whole)

            yield advance

    @contextmanager
    def progress_in_lines(self, what: str) -> Iterator[Callable[[int, int], None]]:
        """As `progress`, for what takes minutes: off a terminal a line now and then tells that it goes on."""
        if sys.stderr.isatty():
            with self.progress(what) as advance:
                yield advance
            return
        started_s = told_s = time.monotonic()

        def tell(done: int, whole: int) -> None:
            nonlocal told_s
            if time.monotonic() - told_s >= _LINE_INTERVAL_S:
                told_s = time.monotonic()
                far = f"{done:,} of {whole:,}" if done < whole else "still at it"
                self.hint(f"{what}: {far} after {format_duration(told_s - started_s)}")

        self.hint(f"{what} ...")
        yield tell
        self.hint(f"{what}: done in {format_duration(time.monotonic() - started_s)}")


def _fit(cell: str, width: int, *, right: bool) -> str:
    """Return a cell as wide as its column."""
    missing = width - cell_len(cell)
    if missing < 0:
        return set_cell_size(cell, width - 1) + ELLIPSIS
    return " " * missing + cell if right else cell + " " * missing
