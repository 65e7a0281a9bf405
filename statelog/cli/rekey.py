"""`statelog rekey`: gives a store its first key, or a new key."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from statelog.cli.keys import read_key_file, read_variable
from statelog.cli.opened_stores import open_for_writing
from statelog.cli.options import AS_JSON, STORE
from statelog.cli.output import Output
from statelog.cli.text import count, format_duration


@click.command(short_help="Give the store a key, or another key.")
@STORE
@click.option("--new-key-env", metavar="NAME", help="Environment variable with the new key.")
@click.option(
    "--new-key-file",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="File that contains only the new key.",
)
@AS_JSON
def rekey(*, store: Path, new_key_env: str | None, new_key_file: Path | None, as_json: bool) -> None:
    """Give STORE a new key, or its first key. A new file replaces STORE.

    The current key comes from STATELOG_KEY, or from the variable that --key-env names. Anchors stay valid. Other
    processes that have STORE open must open it again with the new key. After a crash, either the old or the new file
    is there.
    """
    if (new_key_env is None) == (new_key_file is None):
        message = "give the new key by either --new-key-env or --new-key-file"
        raise click.UsageError(message)
    key = read_variable(new_key_env or "") if new_key_file is None else read_key_file(new_key_file)
    assert key is not None
    output = Output(as_json=as_json)
    with open_for_writing(store) as opened, output.progress("rekeying") as progress:
        report = opened.rekey(key, progress=progress)
    if as_json:
        output.emit({"path": str(store), "rekeyed": True, **asdict(report)})
        return
    output.line(f"rekeyed: {count(report.records, 'record')} in {format_duration(report.duration_s)}")
