"""`statelog bench`: the benchmarks, as `pytest benchmarks` runs them."""

from __future__ import annotations

from pathlib import Path

import click

from statelog.cli.options import AS_JSON
from statelog.cli.output import Output


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--scale", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True, help="Work, times.")
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each.")
@click.option("--directory", type=click.Path(path_type=Path, file_okay=False), help="Where files go; a temporary one.")
@AS_JSON
@click.pass_context
def bench(
    context: click.Context, *, names: tuple[str, ...], scale: float, repeats: int, directory: Path | None, as_json: bool
) -> None:
    """Run the benchmarks NAME (all, if none is named), beside SQLite on the same work."""
    from statelog.bench import run  # noqa: PLC0415 - nobody else pays for its import

    output = Output(as_json=as_json)
    context.exit(
        run(
            list(names) or None,
            directory=directory,
            scale=scale,
            repeats=repeats,
            as_json=as_json,
            console=output.messages if as_json else output.console,
        )
    )
