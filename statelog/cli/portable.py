"""`statelog export` and `statelog import`: move stores and threads through files and pipes."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from statelog.cli.opened_stores import open_for_reading, open_store
from statelog.cli.options import AS_JSON, EXPECT, STORE
from statelog.cli.output import Output
from statelog.cli.output_file import opened_for_replacing, refuse_files_of
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
@click.option(
    "--thread", "threads", multiple=True, metavar="ID", help="Export only this thread. The option can be repeated."
)
@click.option("--since", default=0, metavar="LSN", help="Export only records of the log after this LSN.")
@click.option(
    "-o",
    "--output",
    "target",
    default="-",
    type=click.Path(path_type=Path, allow_dash=True),
    help="File to write; - is stdout.",
)
@EXPECT
@AS_JSON
def export(
    *, store: Path, threads: tuple[str, ...], since: int, target: Path, expect: bytes | None, as_json: bool
) -> None:
    """Write STORE as a stream that any machine can import.

    By default, the stream contains every record of the log, and importing it into a new store
    gives the same records. With --thread, the stream contains events and state of threads, for
    any store. An existing file is only replaced after the export succeeds.
    """
    if as_json and target == _STANDARD:
        message = "--json and the export both write to stdout: give a file with -o"
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


@click.command("import", short_help="Import an export into a store.")
@STORE
@click.argument("source", default="-", type=click.Path(path_type=Path, allow_dash=True))
@AS_JSON
def import_(*, store: Path, source: Path, as_json: bool) -> None:
    """Import the export in SOURCE (default: stdin) into STORE, which is created if it does not exist.

    Every digest is checked before data is stored. Records imported before are skipped, so an
    interrupted import can be repeated. If nothing can be imported, STORE is not created.
    """
    output = Output(as_json=as_json)
    with (
        _named(source),
        _opened_for_reading(source) as stream,
        _opened_for(stream, store) as opened,
        output.progress("importing") as progress,
    ):
        report = opened.import_(_RejoinedStream(MAGIC, stream), progress=progress)
    if as_json:
        output.emit({"path": str(store), **asdict(report)})
        return
    there = report.records_read - report.records_added
    rest = f", {there:,} were already there" if there else ""
    output.say(f"imported {_describe(report.records_added, report.kind)}{rest}; {store} ends at LSN {report.last_lsn}")


def _describe(number: int, kind: str) -> str:
    return count(number, "record" if kind == "log" else "event")


@contextmanager
def _opened_for_writing(target: Path, store: Path) -> Iterator[IO[bytes]]:
    if target == _STANDARD:
        if sys.stdout.isatty():
            message = "an export is binary: give a file with -o, or a pipe"
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
    """Add the name of the export to errors that the block raises about damage."""
    try:
        yield
    except (CorruptionError, FormatError) as error:
        if "offset" not in error.facts:
            raise
        message = f"{'stdin' if source == _STANDARD else source}: {error.message}"
        raise type(error)(message, **{**error.facts, "path": str(source)}) from error


@contextmanager
def _opened_for(stream: IO[bytes], store: Path) -> Iterator[statelog.Store]:
    """Open a store for an import. Create the file only for a valid export, and remove it if nothing was imported."""
    start = stream.read(len(MAGIC))
    if start != MAGIC:
        message = "this is not an export of a statelog store"
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


class _RejoinedStream:
    """A stream whose first bytes have already been read."""

    def __init__(self, start: bytes, rest: IO[bytes]) -> None:
        self._start = start
        self._rest = rest

    def read(self, size: int, /) -> bytes:
        """Read the first bytes, then the rest of the stream."""
        if not self._start:
            return self._rest.read(size)
        piece, self._start = self._start[:size], self._start[size:]
        return piece
