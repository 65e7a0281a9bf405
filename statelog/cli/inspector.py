"""`statelog ui`: the store in a browser."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from statelog.cli.opening import open_for_reading, open_for_writing
from statelog.cli.options import AS_JSON, STORE
from statelog.cli.output import Output
from statelog.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


@click.command(short_help="Show the store in a browser.")
@STORE
@click.option("--allow-writes", is_flag=True, help="Let the page change the store: rollback, fork, tag.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default="a free one", help="Port to listen on.")
@AS_JSON
def ui(*, store: Path, allow_writes: bool, host: str, port: int, as_json: bool) -> None:
    """Serve a page that shows STORE, and print its address. Ctrl+C ends it.

    The address has a token: who knows it can read the store. Other processes go on writing.
    """
    try:
        from statelog.inspector.server import serve
    except ModuleNotFoundError as error:
        message = f"ui needs a package that is missing: {error.name} (pip install 'statelog[ui]')"
        raise UsageError(message, package=error.name) from None
    output = Output(as_json=as_json)

    def announce(address: str) -> None:
        if as_json:
            output.emit({"address": address})
        else:
            output.line(address)
        sys.stdout.flush()

    with open_for_writing(store) if allow_writes else open_for_reading(store) as opened:
        serve(opened, host=host, port=port, announce=announce)
