"""`statelog log`: the event log, record by record."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING

import click

from statelog.cli.completion import complete_thread
from statelog.cli.documents import record_document
from statelog.cli.opened_stores import open_for_reading
from statelog.cli.options import ABSOLUTE, AS_JSON, STORE
from statelog.cli.output import Output
from statelog.cli.targets import find_thread
from statelog.cli.text import escape, shorten
from statelog.cli.values import render

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from statelog.log.reader import LogRecord

_BODY_CHARACTERS_MIN = 12
_THREAD_CHARACTERS_MAX = 16
_EXPIRED = "(expired)"
_STORE = "(store)"
"""The string in place of the thread's id, in the record of a policy for future threads."""


@click.command(short_help="Print the event log, and follow it.")
@STORE
@click.option(
    "--after", type=click.IntRange(min=0), default=0, metavar="LSN", help="Only records with a higher number."
)
@click.option("--thread", metavar="ID", shell_complete=complete_thread, help="Only records of this thread.")
@click.option("--limit", type=click.IntRange(min=0), help="Stop after this many records.")
@click.option("--follow", "-f", is_flag=True, help="Wait for more records at the end, until Ctrl-C.")
@click.option(
    "--timeout",
    "timeout_s",
    type=float,
    metavar="SECONDS",
    help="With --follow: stop after this time without a new record.",
)
@ABSOLUTE
@AS_JSON
def log(
    *,
    store: Path,
    after: int,
    thread: str | None,
    limit: int | None,
    follow: bool,
    timeout_s: float | None,
    absolute: bool | None,
    as_json: bool,
) -> None:
    """Print the event log of STORE in order: every commit, rollback, fork, tag and new thread."""
    output = Output(as_json=as_json, absolute=follow or absolute)  # A printed age would soon be wrong.
    is_silent = True
    with open_for_reading(store) as opened:
        records = opened.log(after, follow=follow, timeout_s=timeout_s)
        for record in islice(of_thread(records, thread), limit):
            is_silent = False
            write_record(record, output)
            if follow:
                sys.stdout.flush()
        if is_silent and thread is not None and not follow:
            find_thread(opened, thread)  # This raises an error if the thread does not exist.


def of_thread(records: Iterator[LogRecord], thread: str | None) -> Iterator[LogRecord]:
    """Yield the records of one thread, or all records if `thread` is None."""
    return records if thread is None else (record for record in records if record.thread_id == thread)


def write_record(record: LogRecord, output: Output) -> None:
    """Write a record on one line."""
    if output.as_json:
        output.emit(record_document(record))
    else:
        sys.stdout.write(_format_record(record, output) + "\n")


def _format_record(record: LogRecord, output: Output) -> str:
    """Return a record as one line. Columns have fixed widths, because later records are not known yet."""
    body = {key: value for key, value in record.body.items() if key != "state_digest" and value not in (None, {}, [])}
    thread = record.thread_id or (_STORE if "pattern" in record.body else _EXPIRED)
    thread = escape(shorten(thread, _THREAD_CHARACTERS_MAX))
    start = f"{record.lsn:>7}  {output.time(record.time):>7}  {record.type:<10}  {thread:<{_THREAD_CHARACTERS_MAX}}  "
    return start + render(body, max(output.width - len(start), _BODY_CHARACTERS_MIN))
