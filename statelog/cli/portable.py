"""`statelog export` and `statelog import`: stores and threads through files and pipes."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from statelog.cli.opening import open_for_reading, open_store
from statelog.cli.options import AS_JSON, EXPECT, STORE
from statelog.cli.output import Output
from statelog.cli.replacing import opened_for_replacing, refuse_files_of
from statelog.cli.text import count, format_size
from statelog.errors import CorruptionError, FormatError, StatelogError, UsageError
from statelog.portable.frames import MAGIC
from statelog.store.session import session_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import statelog

_STANDARD = Path("-")


@click.command(short_help="Write a store, or some threads, to a file or pipe.")
@STORE
@click.option("--thread", "threads", multiple=True, metavar="ID", help="Only this thread; may be repeated.")
@click.option("--since", default=0, metavar="LSN", help="Only records above this LSN, of the whole log.")
@click.option(
    "-o", "--output", "target", default="-", type=click.Path(path_type=Path, allow_dash=True), help="File, - is stdout."
)
@EXPECT
@AS_JSON
def export(
    *, store: Path, threads: tuple[str, ...], since: int, target: Path, expect: bytes | None, as_json: bool
) -> None:
    """Write STORE as a stream that any machine can import.

    Whole, it holds the log, record by record: imported into a new store it gives the same
    records. With --thread it holds events and state of threads, for any store. A file that is
    there is replaced when the export is whole, and stays as it was if that fails.
    """
    if as_json and target == _STANDARD:
        message = "--json and the export both want stdout: give a file with -o"
        raise UsageError(message)
    if target != _STANDARD:
        refuse_files_of(store, target)
    output = Output(as_json=as_json)
    with (
        open_for_reading(store, expect=expect) as opened,
        _opened_for_writing(target, store) as stream,
        output.progress("exporting") as progress,
    ):
        report = opened.export(stream, threads=threads or None, since=since, progress=progress)
    if as_json:
        output.emit({"path": str(store), "output": str(target), **asdict(report)})
    elif target == _STANDARD:
        output.hint(f"exported {_describe(report.records, report.kind)}, {format_size(report.size_bytes)}")
    else:
        output.say(f"exported {_describe(report.records, report.kind)}, {format_size(report.size_bytes)}, to {target}")


@click.command("import", short_help="Take an export into a store.")
@STORE
@click.argument("source", default="-", type=click.Path(path_type=Path, allow_dash=True))
@AS_JSON
def import_(*, store: Path, source: Path, as_json: bool) -> None:
    """Take the export in SOURCE (stdin if left out, or -) into STORE, which is made if need be.

    Everything is checked by digest before it is stored. What was imported before is passed
    over: an import that was cut off is done again, and goes on where it ended. One of which
    nothing could be stored leaves no STORE that was not there.
    """
    output = Output(as_json=as_json)
    with (
        _named(source),
        _opened_for_reading(source) as stream,
        _opened_for(stream, store) as opened,
        output.progress("importing") as progress,
    ):
        report = opened.import_(_Whole(MAGIC, stream), progress=progress)
    if as_json:
        output.emit({"path": str(store), **asdict(report)})
        return
    there = report.records_read - report.records_added
    rest = f", {there:,} were there" if there else ""
    output.say(f"imported {_describe(report.records_added, report.kind)}{rest}; {store} ends at LSN {report.last_lsn}")


def _describe(number: int, kind: str) -> str:
    return count(number, "record" if kind == "log" else "event")


@contextmanager
def _opened_for_writing(target: Path, store: Path) -> Iterator[IO[bytes]]:
    if target == _STANDARD:
        if sys.stdout.isatty():
            message = "an export is no text for a terminal: give a file with -o, or a pipe"
            raise UsageError(message)
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    else:
        with opened_for_replacing(target, like=store) as stream:
            yield stream


@contextmanager
def _opened_for_reading(source: Path) -> Iterator[IO[bytes]]:
    if source == _STANDARD:
        yield sys.stdin.buffer
    else:
        with source.open("rb") as stream:
            yield stream


@contextmanager
def _named(source: Path) -> Iterator[None]:
    """Say which export it is in what is wrong with one."""
    try:
        yield
    except (CorruptionError, FormatError) as error:
        if "offset" not in error.facts:
            raise
        message = f"{'stdin' if source == _STANDARD else source}: {error.message}"
        raise type(error)(message, **{**error.facts, "path": str(source)}) from error


@contextmanager
def _opened_for(stream: IO[bytes], store: Path) -> Iterator[statelog.Store]:
    """Open a store to import into; but make none for what is no export, and leave none in which nothing came to be."""
    start = stream.read(len(MAGIC))
    if start != MAGIC:
        message = "this is no export of a statelog store"
        raise FormatError(message, offset=0)
    is_new = not os.path.lexists(store)
    with open_store(store) as opened:
        try:
            yield opened
        except BaseException:
            if is_new:
                with suppress(StatelogError, OSError):
                    session_of(opened).withdraw()
            raise


class _Whole:
    """A stream of which the first bytes were read already."""

    def __init__(self, start: bytes, rest: IO[bytes]) -> None:
        self._start = start
        self._rest = rest

    def read(self, size: int, /) -> bytes:
        """Read the first bytes, and then the others."""
        if not self._start:
            return self._rest.read(size)
        piece, self._start = self._start[:size], self._start[size:]
        return piece
