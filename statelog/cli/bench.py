"""`statelog bench`: the benchmarks."""

from __future__ import annotations

from pathlib import Path

import click

from statelog.cli.options import AS_JSON
from statelog.cli.output import Output


@click.command(short_help="Run the benchmarks, beside SQLite.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--scale", type=float, default=1.0, show_default=True, help="Of the sizes; 1 are those of the targets.")
@click.option("--repeats", type=int, help="How often compared sides take turns.")
@click.option("--keys", type=int, help="Entries of a large board: 100000; 1000000 is that of the targets.")
@click.option("--row", "rows", multiple=True, help="Of a benchmark that has rows, as durable: this one alone.")
@click.option(
    "--peer-venv",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where DBOS is, or is to be, installed for durable; a temporary one.",
)
@click.option("--directory", type=click.Path(path_type=Path, file_okay=False), help="Where files go; a temporary one.")
@AS_JSON
@click.pass_context
def bench(
    context: click.Context,
    *,
    names: tuple[str, ...],
    scale: float,
    repeats: int | None,
    keys: int | None,
    rows: tuple[str, ...],
    peer_venv: Path | None,
    directory: Path | None,
    as_json: bool,
) -> None:
    """Run the benchmarks NAME (all, if none is named), beside SQLite on the same work."""
    from statelog.bench import KEYS_DEFAULT, REPEATS_DEFAULT, run

    context.exit(
        run(
            list(names) or None,
            directory=directory,
            scale=scale,
            repeats=REPEATS_DEFAULT if repeats is None else repeats,
            keys=KEYS_DEFAULT if keys is None else keys,
            rows=rows,
            peer_venv=peer_venv,
            as_json=as_json,
            console=Output(as_json=as_json).console,
        )
    )
