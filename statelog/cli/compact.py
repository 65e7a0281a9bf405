"""`statelog compact`: the store in a new file, as small as it can be."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from statelog.cli.opening import open_for_writing
from statelog.cli.options import AS_JSON, STORE
from statelog.cli.output import Output
from statelog.cli.text import count, format_duration, format_size

if TYPE_CHECKING:
    from pathlib import Path


@click.command(short_help="Make the file as small as it can be.")
@STORE
@click.option(
    "--when-free",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="Do nothing unless so much of the file's pages is free, 0.5 for half: for a line in a crontab.",
)
@AS_JSON
def compact(*, store: Path, when_free: float | None, as_json: bool) -> None:
    """Put STORE into a new file, in key order and without free pages, that takes its name.

    Others may have it open: they go on in the new file. Cut anywhere, the old file is there or the new one.
    It takes room for a second file until it is done, and until the last read of the old one ends.
    """
    output = Output(as_json=as_json)
    with open_for_writing(store) as opened:
        if when_free is not None:
            statistics = opened.statistics()
            share = statistics.pages_free / max(statistics.pages_free + statistics.pages_used, 1)
            if share < when_free:
                if as_json:
                    output.emit({"path": str(store), "compacted": False, "free": share})
                else:
                    output.line(f"left as it is: {share:.0%} of its pages are free")
                return
        with output.progress("compacting") as progress:
            report = opened.compact(progress=progress)
    if as_json:
        output.emit({"path": str(store), "compacted": True, **asdict(report)})
        return
    before, after = format_size(report.size_before_bytes), format_size(report.size_after_bytes)
    records, duration = count(report.records, "record"), format_duration(report.duration_s)
    output.line(f"compacted: {before} -> {after}, {records} in {duration}")
