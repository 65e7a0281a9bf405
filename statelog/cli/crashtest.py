"""`statelog crashtest`: simulated power cuts and killed processes on the user's own disk."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from statelog.cli.options import AS_JSON
from statelog.cli.output import Output
from statelog.errors import StatelogError

if TYPE_CHECKING:
    from statelog.testing.crashtest import CrashTestReport


@click.command(short_help="Try to lose a commit: power cuts and kills.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    metavar="N",
    help="Duration of the test that kills processes.  [default: 20]",
)
@click.option(
    "--images",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of distinct power cuts.  [default: 20000]",
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False, exists=True, writable=True),
    help="Directory on the disk to test. Default: the directory of temporary files.",
)
@click.option("--evidence", type=click.Path(path_type=Path, file_okay=False), help="Directory to keep bad images in.")
@AS_JSON
def crashtest(
    *, seconds: float | None, images: int | None, directory: Path | None, evidence: Path | None, as_json: bool
) -> None:
    """Try to lose a commit on this machine. Exit code 1: a commit was lost, or another check failed.

    The test writes temporary stores and records every write. For each point in time, it
    rebuilds the disk images that a power failure may leave, and opens them. It also kills eight
    processes on one file at random. First it checks itself on simulated disks that lose flushed
    data: it must notice each loss.

    This takes many minutes. With fewer --images, the test cuts the power at only some of the
    points. The table shows how many points were tested, and how many there are.
    """
    from statelog.testing.crashtest import IMAGES_DEFAULT, SECONDS_DEFAULT, CrashTestReport, crashtest_steps

    output = Output(as_json=as_json)
    report = CrashTestReport()
    steps = crashtest_steps(
        report,
        images=IMAGES_DEFAULT if images is None else images,
        seconds=SECONDS_DEFAULT if seconds is None else seconds,
        directory=directory,
        evidence=evidence,
    )
    for name, run in steps:
        with output.progress_in_lines(name) as progress:
            run(progress)
    if as_json:
        output.emit(_document(report))
    else:
        _print(output, report)
    if not report.ok:
        message = f"lost {report.lost:,}, wrong {report.wrong:,}"
        raise StatelogError(message, lost=report.lost, wrong=report.wrong)


def _print(output: Output, report: CrashTestReport) -> None:
    rows = [(what, f"{number:,}", remark) for what, number, remark in report.rows()]
    output.table(("what", "count", "remark"), rows, right=("count",), whole=("what",), wrap=True)
    for line in report.left_out:
        output.hint(f"left out: {line}")
    for line in report.bad():
        output.line(line)


def _document(report: CrashTestReport) -> dict[str, Any]:
    """Return the report as a JSON document."""
    document = {name: _plain(part) for name, part in asdict(report).items()}
    return {"ok": report.ok, "lost": report.lost, "wrong": report.wrong, **document, "bad": report.bad()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    return str(value) if isinstance(value, Path) else value
