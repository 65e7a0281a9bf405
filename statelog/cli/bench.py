"""`statelog bench`: the benchmarks."""

from __future__ import annotations

import sys
from pathlib import Path

import click

import statelog
from statelog.cli.options import AS_JSON
from statelog.cli.output import Output
from statelog.errors import UsageError

_ELSEWHERE = (
    "only the sources have the benchmarks: `pip download --no-deps --no-binary statelog statelog`, unpack the file,"
    " and run `pip install -e '.[bench]'` there"
)


@click.command(short_help="Run the benchmarks against SQLite.")
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
    """Run the benchmarks NAME, or all of them. SQLite does the same work for comparison."""
    _find_benchmarks()
    from benchmarks import KEYS_DEFAULT, REPEATS_DEFAULT, run

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


def _find_benchmarks() -> None:
    """Make the package `benchmarks` importable, which the source tree has beside `statelog`.

    Raises:
        UsageError: statelog was installed from a wheel, which has no benchmarks.
    """
    root = Path(statelog.__file__).resolve().parents[1]
    if not (root / "pyproject.toml").is_file() or not (root / "benchmarks").is_dir():
        raise UsageError(_ELSEWHERE)
    sys.path.insert(0, str(root))  # Search here first: an installed package may have the same name.
