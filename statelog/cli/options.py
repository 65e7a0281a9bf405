"""Arguments and options that commands share, each spelled once."""

from __future__ import annotations

from pathlib import Path

import click

STORE = click.argument("store", type=click.Path(path_type=Path, readable=False))
THREAD = click.argument("thread")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Machine-readable output on stdout, and nothing else.")
BRANCH = click.option("--branch", default="main", show_default=True, metavar="NAME", help="Branch of the thread.")
METADATA = click.option("--metadata", metavar="JSON", help="Metadata of the checkpoint, a JSON object.")
AT = click.option(
    "--at",
    metavar="TARGET",
    help=(
        "Version, tag, checkpoint id or time (ISO 8601); tag:, id:, version:, time: before it say which."
        " The head if left out."
    ),
)
