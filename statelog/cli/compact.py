"""`statelog compact`: rewrites a store to its smallest size."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from statelog.cli.opened_stores import open_for_writing
from statelog.cli.options import AS_JSON, STORE
from statelog.cli.output import Output
from statelog.cli.text import count, format_duration, format_size

if TYPE_CHECKING:
    from pathlib import Path


@click.command(short_help="Rewrite the file to its smallest size.")
@STORE
@click.option(
    "--when-free",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="Do nothing unless at least this share of the file's pages is free (0.5 is half). Useful in a crontab.",
)
@AS_JSON
def compact(*, store: Path, when_free: float | None, as_json: bool) -> None:
    """Rewrite STORE in key order and without free pages, and replace the old file.

    Other processes may have STORE open: they continue in the new file. After a crash either the old or the new file
    is there. The disk needs room for both files until the last read of the old file ends.
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
