"""`statelog migrate`: migrates the threads of a store to the declared version of their schema."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from statelog.cli.documents import change_document
from statelog.cli.modules import import_here
from statelog.cli.opening import open_for_reading, open_for_writing
from statelog.cli.options import AS_JSON, STORE
from statelog.cli.output import Output
from statelog.cli.paths import format_path
from statelog.cli.text import count
from statelog.cli.values import render
from statelog.errors import MigrationError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from statelog import Versioned
    from statelog.store.migrations import MigrationReport

_VALUE_CHARACTERS_MAX = 60
_FAILURES_SHOWN_MAX = 20


@click.command(short_help="Migrate threads to the declared schema version.")
@STORE
@click.argument("schema", metavar="MODULE:NAME")
@click.option("--threads", default="*", show_default=True, metavar="GLOB", help="Only threads whose id matches.")
@click.option("--dry-run", is_flag=True, help="Write nothing; show the first differences.")
@AS_JSON
def migrate(*, store: Path, schema: str, threads: str, dry_run: bool, as_json: bool) -> None:
    """Give the threads of STORE a new version with their state in the declared version of a schema.

    MODULE is the name of an importable Python module, installed or in the current directory. NAME is its variable with
    the result of `statelog.versioned`. The command imports the module, which executes its code. Threads that fail stay
    unchanged and are named; the exit code is then that of wrong usage. A second run skips migrated threads.
    """
    output = Output(as_json=as_json)
    versioned = schema_of(schema)
    opening = open_for_reading(store) if dry_run else open_for_writing(store)
    with opening as opened, output.progress_in_lines("migrating") as progress:
        report = opened.migrate(versioned, threads=threads, dry_run=dry_run, progress=progress)
    if as_json:
        output.emit({"path": str(store), "dry_run": dry_run, **_document(report)})
    else:
        _tell(output, versioned, report, is_dry=dry_run)
    if report.failed:
        message = f"{count(len(report.failed), 'thread')} could not be migrated"
        first = report.failed[0]
        raise MigrationError(f"{message}: {first.thread}: {first.reason}", schema=versioned.name, thread=first.thread)


def schema_of(text: str) -> Versioned[Any, Any]:
    """Return the versioned schema MODULE:NAME. Raises UsageError if the module or the schema does not exist."""
    from statelog import Versioned

    name, _colon, attribute = text.partition(":")
    if not attribute:
        message = f"{text!r}: write MODULE:NAME, such as agents.research:schema"
        raise UsageError(message, argument="schema", value=text)
    found = getattr(import_here(name), attribute, None)
    if not isinstance(found, Versioned):
        what = f"no {attribute!r}" if found is None else f"a {type(found).__name__} as {attribute!r}"
        message = f"module {name} has {what}: a schema is made with statelog.versioned"
        raise UsageError(message, argument="schema", value=text)
    return found


def _document(report: MigrationReport) -> dict[str, Any]:
    return {
        "migrated": report.migrated,
        "skipped": report.skipped,
        "failed": [asdict(each) for each in report.failed],
        "differences": [
            {"thread": each.thread, "branch": each.branch, **change_document(each.change)}
            for each in report.differences
        ],
    }


def _tell(output: Output, schema: Versioned[Any, Any], report: MigrationReport, *, is_dry: bool) -> None:
    for each in report.differences:
        change = each.change
        sides = [
            render(side, _VALUE_CHARACTERS_MAX)
            for side, is_there in ((change.old, change.kind != "added"), (change.new, change.kind != "removed"))
            if is_there
        ]
        output.line(f"{each.thread}, {each.branch}: {change.kind} {format_path(change.path)}: {' -> '.join(sides)}")
    for failure in report.failed[:_FAILURES_SHOWN_MAX]:
        output.line(f"{failure.thread}: {failure.kind}: {failure.reason}")
    if len(report.failed) > _FAILURES_SHOWN_MAX:
        output.hint("more threads failed: --json names all of them")
    done = "would be migrated" if is_dry else "migrated"
    migrated, failed = count(report.migrated, "thread"), count(len(report.failed), "thread")
    output.say(
        f"{migrated} {done} to version {schema.version} of {schema.name}, {report.skipped:,} skipped, {failed} failed"
    )
