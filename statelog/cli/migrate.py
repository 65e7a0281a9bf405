"""`statelog migrate`: migrates threads, or entries of the board, to the declared version of their schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from statelog.cli.documents import change_document
from statelog.cli.modules import import_here
from statelog.cli.opened_stores import open_for_reading, open_for_writing
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


@click.command(short_help="Migrate threads or entries to the declared schema version.")
@STORE
@click.argument("schema", metavar="MODULE:NAME")
@click.option("--threads", metavar="GLOB", help="Only threads whose id matches this pattern. Default: all threads.")
@click.option("--entries", metavar="PATTERN", help="Migrate entries of the board whose key matches, and no threads.")
@click.option("--dry-run", is_flag=True, help="Write nothing; show the first differences.")
@AS_JSON
def migrate(
    *, store: Path, schema: str, threads: str | None, entries: str | None, dry_run: bool, as_json: bool
) -> None:
    """Give the threads of STORE a new version with their state in the declared version of a schema.

    With --entries, give entries of the board a new version with their value in the declared version.

    MODULE is the name of an importable Python module, installed or in the current directory. NAME is its variable with
    the result of `statelog.versioned`. The command imports the module, which executes its code. Threads and
    entries that fail stay unchanged and are named; the exit code is then that of wrong usage. A second run skips what
    is already migrated.
    """
    if entries is not None and threads is not None:
        raise UsageError("--entries and --threads: choose one", argument="entries", value=entries)
    output = Output(as_json=as_json)
    versioned = schema_of(schema)
    pattern = "*" if threads is None else threads
    opening = open_for_reading(store) if dry_run else open_for_writing(store)
    with opening as opened, output.progress_in_lines("migrating") as progress:
        if entries is None:
            report = opened.migrate(versioned, threads=pattern, dry_run=dry_run, progress=progress)
        else:
            board = opened.board()
            board.schema(entries, versioned)
            report = board.migrate(entries, dry_run=dry_run, progress=progress)
    what = "thread" if entries is None else "entry"
    if as_json:
        output.emit({"path": str(store), "dry_run": dry_run, **_document(report)})
    else:
        _tell(output, versioned, report, what, is_dry=dry_run)
    if report.failed:
        message = f"{count(len(report.failed), what)} could not be migrated"
        first = report.failed[0]
        name = first.thread if first.key is None else first.key
        raise MigrationError(f"{message}: {name}: {first.reason}", schema=versioned.name, thread=first.thread)


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
        message = f"module {name} has {what}: make one with statelog.versioned"
        raise UsageError(message, argument="schema", value=text)
    return found


def _document(report: MigrationReport) -> dict[str, Any]:
    failed = [{**_named(each.thread, each.key), "kind": each.kind, "reason": each.reason} for each in report.failed]
    differences = [
        {**_named(each.thread, each.key, each.branch), **change_document(each.change)} for each in report.differences
    ]
    return {"migrated": report.migrated, "skipped": report.skipped, "failed": failed, "differences": differences}


def _named(thread: str | None, key: str | None, branch: str | None = None) -> dict[str, str | None]:
    if key is not None:
        return {"key": key}
    return {"thread": thread} if branch is None else {"thread": thread, "branch": branch}


def _tell(output: Output, schema: Versioned[Any, Any], report: MigrationReport, what: str, *, is_dry: bool) -> None:
    for each in report.differences:
        change = each.change
        sides = [
            render(side, _VALUE_CHARACTERS_MAX)
            for side, is_there in ((change.old, change.kind != "added"), (change.new, change.kind != "removed"))
            if is_there
        ]
        place = f"{each.thread}, {each.branch}" if each.key is None else each.key
        output.line(f"{place}: {change.kind} {format_path(change.path)}: {' -> '.join(sides)}")
    for failure in report.failed[:_FAILURES_SHOWN_MAX]:
        name = failure.thread if failure.key is None else failure.key
        output.line(f"{name}: {failure.kind}: {failure.reason}")
    if len(report.failed) > _FAILURES_SHOWN_MAX:
        output.hint("more have failed: --json names all of them")
    done = "would be migrated" if is_dry else "migrated"
    migrated, failed = count(report.migrated, what), count(len(report.failed), what)
    output.say(
        f"{migrated} {done} to version {schema.version} of {schema.name}, {report.skipped:,} skipped, {failed} failed"
    )
