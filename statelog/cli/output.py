"""The output of a command: results on stdout, everything else on stderr."""

from __future__ import annotations

import logging
import os
import sys
import textwrap
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import zip_longest
from typing import IO, TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from statelog.cli.text import ELLIPSIS, escape, format_age, format_duration, format_time
from statelog.cli.values import dump_json

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

_WIDTH_OFF_TERMINAL = 80
"""The width of lines in a file or pipe, unless COLUMNS sets a different width."""

_LINE_INTERVAL_S = 30.0
"""The interval between progress lines in a log."""

_GAP = 2
_COLUMN_WIDTH_MIN = 8
_DRAWN_ON = ("utf-8", "utf-16", "utf-32")


class _Console(Console):
    """A console that raises BrokenPipeError, instead of exiting, if the reader of the output has gone."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError instead of exiting."""
        raise BrokenPipeError


def make_console(stream: IO[str]) -> Console:
    """Return a console that prints text literally: without markup, highlighting or emoji codes."""
    columns = os.environ.get("COLUMNS", "")
    given = int(columns) if columns.isascii() and columns.isdigit() and int(columns) else None
    width = given if given is not None or stream.isatty() else _WIDTH_OFF_TERMINAL
    return _Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


class Output:
    """The output of one command run.

    Args:
        as_json: write only JSON to stdout.
        absolute: show exact times instead of ages. By default, exact times unless stdout is a terminal.
    """

    def __init__(self, *, as_json: bool, absolute: bool | None = None) -> None:
        self.as_json = as_json
        self._absolute = not sys.stdout.isatty() if absolute is None else absolute
        self.console = make_console(sys.stdout)
        self.messages = make_console(sys.stderr)

    def emit(self, document: object) -> None:
        """Write one JSON document on one line."""
        sys.stdout.write(dump_json(document) + "\n")

    @property
    def width(self) -> int:
        """The width that lines should fit into."""
        return self.console.width

    @property
    def can_draw(self) -> bool:
        """Whether lines can be drawn with characters beyond ASCII."""
        encoding = (sys.stdout.encoding or "").lower()
        return encoding.startswith(_DRAWN_ON) and not self.console.is_dumb_terminal

    def time(self, time: datetime) -> str:
        """Return a time as a string: exact, or as an age."""
        return format_time(time) if self._absolute else format_age(time, datetime.now(UTC))

    def line(self, text: str = "", style: str = "") -> None:
        """Write a line of any length, without wrapping. Special characters in `text` are escaped."""
        self.console.print(Text(escape(text), style=style), soft_wrap=True)

    def say(self, text: str, *, indent: int = 0) -> None:
        """Write a sentence, wrapped at the width of the terminal. All lines after the first are indented."""
        for line in _wrap(escape(text), self.width, indent):
            self.console.print(Text(line), soft_wrap=True)

    def block(self, text: str) -> None:
        """Write text with its line breaks. Other control characters are escaped."""
        safe = escape(text, keep_lines=True)
        sys.stdout.write(safe if safe.endswith("\n") else safe + "\n")

    def hint(self, text: str) -> None:
        """Print a message that is not part of the result, unless the output is JSON."""
        if not self.as_json:
            sys.stdout.flush()
            for line in _wrap(escape(text), self.messages.width, 0):
                self.messages.print(Text(line, style="dim"), soft_wrap=True)

    @contextmanager
    def hints_of(self, logger: str) -> Iterator[None]:
        """Print the warnings of a logger as hints while the block runs. Stored text in them is escaped."""
        log, handler = logging.getLogger(logger), _Hints(self)
        log.addHandler(handler)
        try:
            yield
        finally:
            log.removeHandler(handler)

    def note(self, text: str) -> None:
        """Print a note about the result to stderr, for people and programs."""
        sys.stdout.flush()
        for line in _wrap(escape(text), self.messages.width, 0):
            self.messages.print(Text(line), soft_wrap=True)

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        right: Sequence[str] = (),
        whole: Sequence[str] = (),
        name: str = "",
        wrap: bool = False,
    ) -> None:
        """Write a table for a person, one line per row. If it is too wide, the widest columns are cut first.

        Args:
            columns: headings. A column without a heading is left out if it is empty.
            rows: cells with any text.
            right: headings of right-aligned columns. They are never cut.
            whole: headings of other columns that are never cut.
            name: heading of the column that is cut last.
            wrap: wrap the last column instead of cutting it.
        """
        lines = [list(columns), *([escape(cell) for cell in row] for row in rows)]
        widths = [max(map(cell_len, cells)) for cells in zip(*lines, strict=True)]
        kept = [index for index, width in enumerate(widths) if width]
        fixed = {index for index in kept if columns[index] in right or columns[index] in whole}
        room = self.width - _GAP * (len(kept) - 1)
        if name in columns:
            index = columns.index(name)
            least = sum(widths[at] if at in fixed else min(widths[at], _COLUMN_WIDTH_MIN) for at in kept if at != index)
            widths[index] = min(widths[index], max(room - least, _COLUMN_WIDTH_MIN))
            fixed.add(index)
        fitted = _fit_widths({index: widths[index] for index in kept}, fixed, room)
        for number, line in enumerate(lines):
            cells = [[_fit(line[index], fitted[index], right=columns[index] in right)] for index in kept]
            if wrap and cell_len(line[kept[-1]]) > fitted[kept[-1]]:
                cells[-1] = _wrap(line[kept[-1]], fitted[kept[-1]], 0)
            for parts in zip_longest(*cells):
                padded = [part or " " * fitted[index] for part, index in zip(parts, kept, strict=True)]
                text = (" " * _GAP).join(padded).rstrip()
                self.console.print(Text(text, style="" if number else "bold"), soft_wrap=True)

    @contextmanager
    def progress(self, what: str) -> Iterator[Callable[[int, int], None]]:
        """Show a progress bar on stderr while the block runs, if stderr is a terminal.

        Yields:
            A function to call with (steps done, total steps). Before its first call the
            bar has no percentage.
        """
        from rich.progress import Progress

        with Progress(console=self.messages, transient=True, disable=not sys.stderr.isatty()) as bar:
            task = bar.add_task(what, total=None)

            def advance(done: int, whole: int) -> None:
                bar.update(task, completed=done, total=whole)

            yield advance

    @contextmanager
    def progress_in_lines(self, what: str) -> Iterator[Callable[[int, int], None]]:
        """Show progress like `progress`, for long work: without a terminal, write a line at intervals."""
        if sys.stderr.isatty():
            with self.progress(what) as advance:
                yield advance
            return
        started_s = told_s = time.monotonic()

        def tell(done: int, whole: int) -> None:
            nonlocal told_s
            if time.monotonic() - told_s >= _LINE_INTERVAL_S:
                told_s = time.monotonic()
                far = f"{done:,} of {whole:,}" if done < whole else "still working"
                self.hint(f"{what}: {far} after {format_duration(told_s - started_s)}")

        self.hint(f"{what} ...")
        yield tell
        self.hint(f"{what}: done in {format_duration(time.monotonic() - started_s)}")


class _Hints(logging.Handler):
    """Prints log messages as hints."""

    def __init__(self, output: Output) -> None:
        super().__init__(logging.WARNING)
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        """Print the message as a hint."""
        self._output.hint(record.getMessage())


def _wrap(text: str, width: int, indent: int) -> list[str]:
    """Return text in lines, broken only between words."""
    return textwrap.wrap(
        text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    ) or [""]


def _fit_widths(widths: dict[int, int], fixed: Collection[int], room: int) -> dict[int, int]:
    """Return column widths that fit into `room` if possible. The widest columns shrink first. Fixed ones do not."""
    fitted = dict(widths)
    room -= sum(width for index, width in widths.items() if index in fixed)
    pending = sorted((index for index in widths if index not in fixed), key=lambda index: widths[index])
    for number, index in enumerate(pending):
        share = max(room // (len(pending) - number), _COLUMN_WIDTH_MIN)
        fitted[index] = min(widths[index], share)
        room -= fitted[index]
    return fitted


def _fit(cell: str, width: int, *, right: bool) -> str:
    """Return a cell cut or padded to the width of its column."""
    missing = width - cell_len(cell)
    if missing < 0:
        return set_cell_size(cell, width - 1) + ELLIPSIS
    return " " * missing + cell if right else cell + " " * missing
