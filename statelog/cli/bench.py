"""`statelog bench`: the benchmarks."""

from __future__ import annotations

from pathlib import Path

import click

from statelog.cli.options import AS_JSON
from statelog.cli.output import Output


@click.command(short_help="Run the benchmarks, beside SQLite.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--scale", type=float, default=1.0, show_default=True, help="Factor for all sizes; the targets use 1.")
@click.option("--repeats", type=int, help="Number of alternating repetitions.")
@click.option("--keys", type=int, help="Entries of a large board: 100000; the targets use 1000000.")
@click.option("--row", "rows", multiple=True, help="Run only this row of a benchmark with rows, such as durable.")
@click.option(
    "--peer-venv",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory to install DBOS in, for durable. Default: a temporary one.",
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the files. Default: a temporary one.",
)
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
    """Run the benchmarks NAME, or all of them. SQLite does the same work beside statelog."""
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
