"""`statelog recover`: restores the last commit of a store that was not closed."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from statelog.cli.care import describe_verification
from statelog.cli.keys import key_variable, read_variable
from statelog.cli.opened_stores import size_asked_for
from statelog.cli.options import AS_JSON, STORE
from statelog.cli.output import Output
from statelog.cli.text import count
from statelog.cli.verification import verify_in_child
from statelog.errors import CorruptionError
from statelog.store.recover import recover as recover_store

if TYPE_CHECKING:
    from pathlib import Path


@click.command(short_help="Recover a store that was not closed.")
@STORE
@click.option(
    "--without-journal",
    is_flag=True,
    help="Continue without the journal, or set it aside. The last commits may be lost.",
)
@AS_JSON
def recover(*, store: Path, without_journal: bool, as_json: bool) -> None:
    """Restore STORE, which was not closed, to its last commit and verify it.

    Opening a store does the same; this command also reports it. If the journal of a store (STORE-journal, its
    write-ahead log) is missing or damaged, the store cannot be opened. --without-journal then uses only the data
    file. If a damaged journal exists, try `statelog salvage` first, which reads both files.
    """
    output = Output(as_json=as_json)
    key = read_variable(key_variable())
    report = recover_store(store, without_journal=without_journal, max_size_bytes=size_asked_for(), key=key)
    with output.progress("verifying") as progress:
        found = verify_in_child(store, deep=True, progress=progress)
    if as_json:
        output.emit({**asdict(report), "path": str(store), "ok": found.ok, "problems": found.problems})
    else:
        if report.went_without_journal:
            output.line("continued without the journal: the last commits may be missing")
            if report.journal_aside is not None:
                dropped = count(report.dropped, "whole record")
                output.say(f"the journal was moved to {report.journal_aside}: it has {dropped} that the store lacks")
        elif report.records:
            output.line(f"recovered: {count(report.records, 'record')} from the journal")
        else:
            output.line("nothing to recover")
        if found.ok:
            output.line(f"sound: {describe_verification(found)}, last record {report.last_lsn:,}")
    if not found.ok:
        message = f"{store} is damaged: {found.problems[0]['message']}: `statelog salvage` saves undamaged records"
        raise CorruptionError(message, path=str(store))
