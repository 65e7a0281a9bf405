"""`statelog salvage`: copies the undamaged records of a file to a new store, in a child process.

The child reads the damaged file page by page without mapping it, so damage should not be able to
kill the child. If the child dies anyway, the parent reports it.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from statelog.cli.child_report import report_of_child, report_to_parent
from statelog.cli.keys import key_variable, read_variable
from statelog.cli.opened_stores import size_asked_for
from statelog.cli.options import AS_JSON, KEY_ENV, MAX_SIZE
from statelog.cli.output import Output
from statelog.cli.text import count
from statelog.errors import CorruptionError
from statelog.format.anchor import decode_anchor_text
from statelog.limits import MAX_SIZE_BYTES_DEFAULT
from statelog.portable.salvage import salvage as salvage_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_VERSIONS_SHOWN = 20
_RANGES_SHOWN = 10


@click.command(short_help="Copy undamaged records to a new store.")
@click.argument("damaged", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option(
    "--anchor", metavar="ANCHOR", help="Any anchor of DAMAGED. Required if it has a key and its header is damaged."
)
@MAX_SIZE
@KEY_ENV
@AS_JSON
def salvage(*, damaged: Path, new: Path, anchor: str | None, as_json: bool) -> None:
    """Copy every undamaged record of DAMAGED to the new store NEW.

    Losses are listed: LSNs, and the versions of threads that cannot be recovered.
    Exit code 0: nothing is lost. 7: NEW exists, but data is lost. Other codes: NEW does not exist.
    """
    output = Output(as_json=as_json)
    with output.progress("salvaging") as progress:
        arguments = (
            str(damaged),
            str(new),
            str(size_asked_for() or MAX_SIZE_BYTES_DEFAULT),
            key_variable(),
            anchor or "",
        )
        report = report_of_child(__name__, *arguments, path=damaged, work="salvaging", progress=progress)
    if as_json:
        output.emit(report)
    else:
        _print_report(output, report)
    if not report["complete"]:
        records = count(sum(last - first + 1 for first, last in report["lost"]), "record")
        message = f"{new} was created, but {records} and {count(report['losses'], 'version')} of {damaged} are lost"
        raise CorruptionError(message, path=str(damaged))


def _print_report(output: Output, report: Mapping[str, Any]) -> None:
    output.line(f"recovered: {report['recovered']:,} of {count(report['records'], 'record')}")
    if report["lost"]:
        shown = [f"{first}" if first == last else f"{first}-{last}" for first, last in report["lost"][:_RANGES_SHOWN]]
        more = len(report["lost"]) - len(shown)
        output.say(f"lost LSNs: {', '.join(shown)}{f', and {more:,} more ranges' if more else ''}")
    if not report["end_is_known"]:
        output.line("the end of the log is unknown: later records may be lost")
    if report["names_made_up"]:
        output.say(f"invented names that replace lost ones: {', '.join(report['names_made_up'])}")
    if report["versions_lost"]:
        output.line()
        rows = [
            (
                each["thread"] or "",
                each["branch"] or "",
                "" if each["version"] is None else str(each["version"]),
                str(each["lsn"]),
                each["why"],
            )
            for each in report["versions_lost"][:_VERSIONS_SHOWN]
        ]
        output.table(
            ("thread", "branch", "version", "record", "why it is lost"), rows, right=("version", "record"), wrap=True
        )
    if report["losses"] > _VERSIONS_SHOWN:
        output.hint(f"the first {_VERSIONS_SHOWN} of {report['losses']:,}; --json lists them all")


def _salvage(
    damaged: Path, new: Path, max_size_bytes: int, variable: str, anchor: str, progress: Callable[[int, int], None]
) -> dict[str, Any]:
    report = salvage_file(
        damaged,
        new,
        progress=progress,
        max_size_bytes=max_size_bytes,
        key=read_variable(variable),
        anchor=decode_anchor_text(anchor) if anchor else None,
    )
    return {
        "path": report.path,
        "new_path": report.new_path,
        "complete": report.is_complete,
        "records": report.records,
        "recovered": report.recovered,
        "lost": report.lost,
        "losses": report.losses,
        "versions_lost": [asdict(each) for each in report.versions_lost],
        "names_made_up": report.names_made_up,
        "end_is_known": report.end_is_known,
    }


if __name__ == "__main__":
    old, made, size, variable, anchor = sys.argv[1:]
    report_to_parent(lambda progress: _salvage(Path(old), Path(made), int(size), variable, anchor, progress))
